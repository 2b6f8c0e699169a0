/* Part `cycle`: kernels use layers one after the other, which together need 1.84 times the memory
 * of their virtual GPU; next to an offload written by hand within that memory, and to enough
 * memory. Managed memory is no control here: more of it than a device has free is not safe. */
#include <jansson.h>

#include "bench/common/program.h"
#include "bench/quota/quota.h"

#define LAYERS 23u
#define NEEDED_PERCENT 184u
#define PASSES 3u
#define SETTLE_PASSES 8u
#define SLACK (16 * (uint64_t)QUOTA_UNIT) /* for the client's streams and events */
#define SOFT_STRIDE 64u

enum condition { FITS, SWAP, HAND, CONDITIONS };
static const char *const names[CONDITIONS] = { "fits", "swap", "hand" };

/* What the kernels do with each layer. */
static const struct kind {
	const char *name;
	uint32_t reads, change;
} kinds[] = { { "read", 1, 0 }, { "reread", 16, 0 }, { "change", 1, 1 } };

struct cycle {
	struct bench_quota *b;
	pid_t pid[CONDITIONS];
	uint64_t quota, bytes; /* of the virtual GPU for layers; of a layer */
};

static struct bench_quota_load *load_of(struct cycle *t, unsigned k)
{
	return &t->b->page->slot[QUOTA_LOADS + k].load;
}

static int command(struct cycle *t, unsigned k, enum bench_quota_op op, const struct kind *kind,
		   uint32_t passes)
{
	struct bench_quota_load *m = load_of(t, k);

	m->op = op;
	m->bytes = t->bytes;
	m->layers = LAYERS;
	m->by_hand = k == HAND;
	m->reads = kind->reads;
	m->change = kind->change;
	m->passes = passes;
	m->stride = t->b->testbed.soft ? SOFT_STRIDE : 1;
	return bench_quota_command(t->b, t->pid[k], QUOTA_LOADS + k);
}

static int start(struct cycle *t, unsigned k)
{
	struct bench_quota *b = t->b;
	uint64_t all = LAYERS * t->bytes;
	int err = bench_testbed_vgpu(&b->testbed, b->daemon, names[k], b->device_bytes,
				     k == SWAP ? all : 0, 0, 0);

	err = err ? err : bench_quota_start_load(b, b->daemon, names[k], k, &t->pid[k]);
	err = err ? err : bench_quota_await_ready(b, t->pid[k], QUOTA_LOADS + k, false);
	err = err ? err
		  : bench_quota_limit(b, b->daemon, names[k], (k == FITS ? all : t->quota) + SLACK,
				      k == SWAP ? all : 0, 0);
	return err ? err : command(t, k, QUOTA_LOAD_MAKE, &kinds[0], 0);
}

static int record(struct cycle *t, unsigned k, const struct kind *kind, unsigned round,
		  const struct bench_quota_moved *moved)
{
	const struct bench_quota_load *m = load_of(t, k);

	return bench_testbed_record(
		&t->b->testbed, "cycle",
		json_pack("{s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "condition",
			  names[k], "kind", kind->name, "round", (int)round, "ns",
			  (json_int_t)(m->end_ns - m->begin_ns), "passes", (json_int_t)m->passes,
			  "layers_bytes", (json_int_t)(LAYERS * t->bytes), "quota_bytes",
			  (json_int_t)t->quota, "out_bytes", (json_int_t)moved->out_bytes,
			  "back_bytes", (json_int_t)moved->back_bytes, "in_place",
			  (json_int_t)moved->in_place));
}

/* All conditions have done the same so far. */
static int compare(struct cycle *t)
{
	for (unsigned k = 1; k < CONDITIONS; k++) {
		if (load_of(t, k)->digest != load_of(t, 0)->digest) {
			return bench_testbed_fail(
				&t->b->testbed,
				"WRONG RESULTS: the layers' digest is %#llx (%s) and %#llx (%s)",
				(unsigned long long)load_of(t, k)->digest, names[k],
				(unsigned long long)load_of(t, 0)->digest, names[0]);
		}
	}
	return 0;
}

/* gBPF learns the kernel: of launches that are queued it times one. */
static int settle(struct cycle *t, unsigned k, const struct kind *kind)
{
	int err = 0;

	for (unsigned i = 0; i < SETTLE_PASSES && !err; i++) {
		err = command(t, k, QUOTA_LOAD_CYCLE, kind, 1);
	}
	return err;
}

/* round: 0 is not recorded. */
static int measure(struct cycle *t, const struct kind *kind, unsigned round)
{
	struct bench_quota *b = t->b;
	int err = 0;

	for (unsigned i = 0; i < CONDITIONS && !err; i++) {
		unsigned k = (i + round) % CONDITIONS;
		struct bench_quota_moved moved = bench_quota_moved(b->daemon, names[k], NULL);

		bench_testbed_progress(&b->testbed, "quota: cycle, %s, round %u: %s", kind->name,
				       round, names[k]);
		err = round ? command(t, k, QUOTA_LOAD_CYCLE, kind, PASSES) : settle(t, k, kind);
		moved = bench_quota_moved(b->daemon, names[k], &moved);
		err = err || !round ? err : record(t, k, kind, round, &moved);
	}
	return err ? err : compare(t);
}

int bench_quota_cycle(struct bench_quota *b)
{
	struct cycle t = { .b = b, .quota = b->page->limit };
	int err = 0;

	if (!b->parts || !bench_program_lists(b->parts, "cycle")) {
		return 0;
	}
	t.bytes = t.quota / 100 * NEEDED_PERCENT / LAYERS;
	t.bytes = MAX(t.bytes - t.bytes % QUOTA_UNIT, QUOTA_UNIT);
	for (unsigned k = 0; k < CONDITIONS && !err; k++) {
		err = start(&t, k);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		for (unsigned round = 0; round <= b->rounds && !err; round++) {
			err = measure(&t, &kinds[i], round);
		}
	}
	for (unsigned k = 0; k < CONDITIONS; k++) {
		bench_testbed_end(&b->testbed, t.pid[k], 0);
	}
	return err;
}
