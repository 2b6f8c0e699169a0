/* Part `tasks`: Gdev's measurement of swapping. A large task and several small ones at the same
 * time, whose memory together exceeds that of their virtual GPU; next to the same with enough
 * memory, and with as little but without swap. */
#include <jansson.h>

#include "base/clock.h"
#include "bench/common/program.h"
#include "bench/quota/quota.h"

/* Gdev: a task of 1 GiB and up to 8 of 128 MiB on a card of 1.5 GiB. */
#define LARGE(limit) ((limit) / 3 * 2)
#define SMALL(limit) ((limit) / 12)
#define CLIENTS (1 + QUOTA_TASKS_MAX)
#define PASSES 8u
#define SOFT_STRIDE 64u /* words: the soft GPU's kernels would take minutes */

enum condition { ENOUGH, SWAP, PLAIN, CONDITIONS };
static const char *const names[CONDITIONS] = { "enough", "swap", "plain" };
_Static_assert(CONDITIONS *CLIENTS <= QUOTA_LOADS_MAX, "slots of the clients");

struct tasks {
	struct bench_quota *b;
	pid_t pid[CONDITIONS][CLIENTS];
	uint64_t quota, bytes[CLIENTS];
};

static uint64_t whole(uint64_t bytes)
{
	return MAX(bytes - bytes % QUOTA_UNIT, QUOTA_UNIT);
}

static unsigned slot_of(unsigned k, unsigned i)
{
	return QUOTA_LOADS + k * CLIENTS + i;
}

static int start(struct tasks *t, unsigned k)
{
	struct bench_quota *b = t->b;
	/* What contexts take is not known yet. */
	int err = bench_testbed_vgpu(&b->testbed, b->daemon, names[k], b->device_bytes,
				     k == SWAP ? b->device_bytes : 0, 0, 0);

	for (unsigned i = 0; i < CLIENTS && !err; i++) {
		err = bench_quota_start_load(b, b->daemon, names[k], k * CLIENTS + i,
					     &t->pid[k][i]);
	}
	for (unsigned i = 0; i < CLIENTS && !err; i++) {
		err = bench_quota_await_ready(b, t->pid[k][i], slot_of(k, i), false);
	}
	return err;
}

static int limit(struct tasks *t, unsigned k)
{
	uint64_t all = t->bytes[0] + CLIENTS * (t->bytes[1] + QUOTA_UNIT);

	return bench_quota_limit(t->b, t->b->daemon, names[k], k == ENOUGH ? all : t->quota,
				 k == SWAP ? all : 0, 0);
}

static int command(struct tasks *t, unsigned k, unsigned small, enum bench_quota_op op)
{
	struct bench_quota *b = t->b;
	int err = 0;

	for (unsigned i = 0; i <= small; i++) {
		struct bench_quota_load *m = &b->page->slot[slot_of(k, i)].load;

		m->op = op;
		m->bytes = t->bytes[i];
		m->passes = PASSES;
		m->stride = b->testbed.soft ? SOFT_STRIDE : 1;
	}
	for (unsigned i = 0; i <= small; i++) {
		bench_quota_send(b, slot_of(k, i));
	}
	for (unsigned i = 0; i <= small && !err; i++) {
		err = bench_quota_await_done(b, t->pid[k][i], slot_of(k, i));
	}
	return err;
}

static int measure(struct tasks *t, unsigned k, unsigned small, unsigned round)
{
	struct bench_quota *b = t->b;
	uint64_t begin = UINT64_MAX, end = 0, wrong = 0, refused = 0;
	struct bench_quota_moved before, moved;
	int err = command(t, k, small, QUOTA_LOAD_FILL);

	before = bench_quota_moved(b->daemon, names[k], NULL);
	err = err ? err : command(t, k, small, QUOTA_LOAD_TASK);
	moved = bench_quota_moved(b->daemon, names[k], &before);
	for (unsigned i = 0; i <= small; i++) {
		const struct bench_quota_load *m = &b->page->slot[slot_of(k, i)].load;

		begin = MIN(begin, m->begin_ns);
		end = MAX(end, m->end_ns);
		wrong += m->wrong;
		refused += m->refused;
	}
	if (!err && wrong) {
		err = bench_testbed_fail(&b->testbed, "WRONG RESULTS: %llu words of the tasks",
					 (unsigned long long)wrong);
	}
	return err ? err
		   : bench_testbed_record(
			     &b->testbed, "tasks",
			     json_pack(
				     "{s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
				     "condition", names[k], "small", (int)small, "round",
				     (int)round, "ns", (json_int_t)(end - begin), "refused",
				     (json_int_t)refused, "out_bytes", (json_int_t)moved.out_bytes,
				     "back_bytes", (json_int_t)moved.back_bytes, "in_place",
				     (json_int_t)moved.in_place, "large_bytes",
				     (json_int_t)t->bytes[0], "small_bytes",
				     (json_int_t)t->bytes[1], "quota_bytes", (json_int_t)t->quota));
}

static int measure_all(struct tasks *t)
{
	struct bench_quota *b = t->b;
	int err = 0;

	for (unsigned round = 0; round < b->rounds && !err; round++) {
		for (unsigned small = 1; small <= b->tasks && !err; small++) {
			bench_testbed_progress(&b->testbed, "quota: tasks, round %u, %u small ones",
					       round + 1, small);
			for (unsigned i = 0; i < CONDITIONS && !err; i++) {
				err = measure(t, (i + round) % CONDITIONS, small, round);
			}
		}
	}
	return err;
}

int bench_quota_tasks(struct bench_quota *b)
{
	struct tasks t = { .b = b, .quota = whole(b->page->limit) };
	int err = 0;

	if (!b->parts || !bench_program_lists(b->parts, "tasks")) {
		return 0;
	}
	for (unsigned i = 0; i < CLIENTS; i++) {
		t.bytes[i] = whole(i ? SMALL(t.quota) : LARGE(t.quota));
	}
	for (unsigned k = 0; k < CONDITIONS && !err; k++) {
		err = start(&t, k);
	}
	for (unsigned k = 0; k < CONDITIONS && !err; k++) {
		err = limit(&t, k);
	}
	err = err ? err : measure_all(&t);
	for (unsigned k = 0; k < CONDITIONS; k++) {
		for (unsigned i = 0; i < CLIENTS; i++) {
			bench_testbed_end(&b->testbed, t.pid[k][i], 0);
		}
	}
	return err;
}
