/* `gbpf bench dev swap`: a gbpfd of its own, callers that call the submit hook at full speed, and
 * swaps. Every window with a swap is followed by a control window of the same length without one,
 * so that both see the same machine. */
#include "bench/swap/swap.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "bench/common/program.h"
#include "bench/common/testbed.h"
#include "gbpf/gbpf.h"

_Static_assert(SWAP_RUN == 16, "report/swap.py");

#define WARM_NS 200000000u
#define START_NS UINT64_C(20000000000)
#define MIN_WINDOW_NS 1000000u

struct settings {
	const char *object;
	unsigned callers, swaps;
};

struct bench {
	struct bench_testbed testbed;
	struct bench_testbed_daemon *daemon;
	struct settings set;
	struct bench_swap_shared *sh;
	size_t shared_bytes;
	pid_t pid[SWAP_MAX_CALLERS];
	struct buf object;
	size_t at_code, at_constant, at_data; /* offsets of its number in the object */
	uint64_t number, late;
	unsigned done;
	double *latency, *flip, *waited; /* ns, one per swap */
};

static int fail(struct bench *b, const char *what, const char *why)
{
	return bench_testbed_fail(&b->testbed, "%s: %s", what, why);
}

/* ---- the object ---- */

static size_t find(const struct buf *b, const void *what, size_t n, size_t from)
{
	const char *p = from < b->len ? memmem(b->data + from, b->len - from, what, n) : NULL;

	return p ? (size_t)(p - b->data) : SIZE_MAX;
}

/* The two words of a 64-bit immediate are 8 bytes apart. */
static size_t find_code(const struct buf *b, uint32_t low, uint32_t high)
{
	size_t at = find(b, &low, 4, 0);

	while (at != SIZE_MAX && (at + 12 > b->len || memcmp(b->data + at + 8, &high, 4) != 0)) {
		at = find(b, &low, 4, at + 1);
	}
	return at;
}

static int read_object(struct bench *b)
{
	uint64_t constant = 0x5eed0001a5a5a5a5u, data = 0x5eed0002a5a5a5a5u;
	int err = buf_read_file(&b->object, b->set.object, 1 << 20);

	if (err) {
		return fail(b, b->set.object, strerror(-err));
	}
	b->at_constant = find(&b->object, &constant, 8, 0);
	b->at_data = find(&b->object, &data, 8, 0);
	b->at_code = find_code(&b->object, 0xa5a5a5a5u, 0x5eed0003u);
	if (b->at_constant == SIZE_MAX || b->at_data == SIZE_MAX || b->at_code == SIZE_MAX) {
		return fail(b, b->set.object, "it is not the bench's object");
	}
	return 0;
}

static void put_number(struct bench *b, uint64_t n)
{
	uint32_t low = (uint32_t)n, high = (uint32_t)(n >> 32);

	memcpy(b->object.data + b->at_constant, &n, 8);
	memcpy(b->object.data + b->at_data, &n, 8);
	memcpy(b->object.data + b->at_code, &low, 4);
	memcpy(b->object.data + b->at_code + 8, &high, 4);
}

/* Loads an object with the next number, which will be the version's. */
static int load(struct bench *b, json_t **ret)
{
	char *text = NULL;
	json_t *j;

	put_number(b, b->number);
	if (gbpf_policy_load_bytes(b->daemon->g, b->object.data, b->object.len, "number",
				   GBPF_LOAD_SWAP, &text) < 0) {
		return fail(b, "loading", gbpf_last_error(b->daemon->g)->message);
	}
	j = json_loads(text, 0, NULL);
	free(text);
	*ret = j;
	return 0;
}

/* ---- the testbed ---- */

static int open_shared(struct bench *b)
{
	size_t array = b->set.swaps * sizeof(uint32_t), bytes;
	char *p;

	bytes = sizeof(*b->sh) + b->set.callers * 4 * array;
	b->sh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b->sh == MAP_FAILED) {
		b->sh = NULL;
		return fail(b, "memory", strerror(errno));
	}
	b->shared_bytes = bytes;
	p = (char *)(b->sh + 1);
	for (unsigned i = 0; i < b->set.callers; i++) {
		struct bench_swap_caller *c = &b->sh->caller[i];

		c->longest[SWAP_CONTROL] = (uint32_t *)(void *)p;
		c->longest[SWAP_SWAPS] = (uint32_t *)(void *)(p + array);
		c->first = (uint32_t *)(void *)(p + 2 * array);
		c->run = (uint32_t *)(void *)(p + 3 * array);
		p += 4 * array;
	}
	b->latency = calloc(b->set.swaps, sizeof(double));
	b->flip = calloc(b->set.swaps, sizeof(double));
	b->waited = calloc(b->set.swaps, sizeof(double));
	return b->latency && b->flip && b->waited ? 0 : fail(b, "memory", "there is not enough");
}

/* Needs no GPU, so the soft one has no server. */
static int start_gbpfd(struct bench *b)
{
	b->testbed.soft = true;
	b->sh->callers = b->set.callers;
	b->sh->cpus = 1;
	if (sched_getaffinity(0, sizeof(b->sh->all), &b->sh->all) == 0) {
		b->sh->cpus = (uint32_t)CPU_COUNT(&b->sh->all);
	}
	b->sh->pinned = b->sh->cpus >= b->set.callers + 2;
	bench_swap_use_cpu(b->sh, SWAP_REST); /* also for gbpfd */
	b->daemon = bench_testbed_gbpfd(&b->testbed, NULL);
	if (b->daemon) {
		memcpy(b->sh->dir, b->daemon->dir, sizeof(b->sh->dir));
	}
	return b->daemon ? 0 : -1;
}

/* Loads the first version. Versions increase by one, so its number determines all others. */
static int load_first(struct bench *b)
{
	b->number = 1;
	for (int i = 0; i < 2; i++) {
		json_t *j = NULL;
		uint64_t version;

		if (load(b, &j) < 0) {
			return -1;
		}
		version = (uint64_t)json_integer_value(json_object_get(j, "version"));
		json_decref(j);
		if (version == b->number) {
			b->number++;
			return 0;
		}
		b->number = version + 1;
	}
	return fail(b, "loading", "gbpfd counts versions in another way");
}

static int start_callers(struct bench *b)
{
	uint64_t deadline = clock_now_ns() + clock_patience(START_NS);

	for (unsigned i = 0; i < b->set.callers; i++) {
		b->pid[i] = fork();
		if (b->pid[i] < 0) {
			return fail(b, "fork", strerror(errno));
		}
		if (b->pid[i] == 0) {
			_exit(bench_swap_call(b->sh, i));
		}
	}
	for (unsigned i = 0; i < b->set.callers; i++) {
		struct bench_swap_caller *c = &b->sh->caller[i];
		uint32_t state;

		while ((state = load_acquire(&c->state)) == SWAP_STARTING &&
		       clock_now_ns() < deadline) {
			clock_sleep_ns(1000000);
		}
		if (state != SWAP_CALLING) {
			return fail(b, "a caller",
				    c->error ? strerror(-c->error) : "it did not start");
		}
	}
	return 0;
}

static void window(struct bench *b, uint32_t w)
{
	store_seqcst(&b->sh->window, w);
}

static int swaps(struct bench *b)
{
	clock_sleep_ns(WARM_NS);
	for (unsigned i = 0; i < b->set.swaps; i++) {
		uint64_t begin = clock_now_ns(), took;
		json_t *j = NULL;

		window(b, 1 + 2 * i + SWAP_SWAPS);
		if (bench_testbed_interrupted()) {
			return bench_testbed_fail(&b->testbed, "interrupted");
		}
		if (load(b, &j) < 0) {
			return -1;
		}
		b->latency[i] = (double)(clock_now_ns() - begin);
		if ((uint64_t)json_integer_value(json_object_get(j, "version")) != b->number++) {
			return fail(b, "swapping", "a version has not the number it should have");
		}
		b->flip[i] = (double)json_integer_value(json_object_get(j, "flip_ns"));
		b->waited[i] = (double)json_integer_value(json_object_get(j, "waited_ns"));
		b->late += (uint64_t)json_integer_value(json_object_get(j, "late"));
		json_decref(j);
		took = clock_now_ns() - begin;
		if (took < MIN_WINDOW_NS) { /* include the unmapping of the old code */
			clock_sleep_ns(MIN_WINDOW_NS - took);
			took = clock_now_ns() - begin;
		}
		b->done = i + 1;
		window(b, 1 + 2 * i + SWAP_CONTROL);
		clock_sleep_ns(took);
	}
	window(b, 0);
	return 0;
}

static void stop_callers(struct bench *b)
{
	uint64_t deadline = clock_now_ns() + 5000000000u;

	store_seqcst(&b->sh->stop, 1u);
	for (unsigned i = 0; i < b->set.callers; i++) {
		while (b->pid[i] > 0 && waitpid(b->pid[i], NULL, WNOHANG) == 0) {
			if (clock_now_ns() > deadline) {
				kill(b->pid[i], SIGKILL);
			}
			clock_sleep_ns(1000000);
		}
	}
}

static void release(struct bench *b)
{
	buf_finish(&b->object);
	free(b->latency);
	free(b->flip);
	free(b->waited);
	if (b->sh) {
		munmap(b->sh, b->shared_bytes);
	}
}

/* ---- the records ---- */

/* Returns the buckets that are not empty: their smallest time and number of calls. */
static json_t *histogram(const uint64_t hist[SWAP_BUCKETS])
{
	json_t *a = json_array();

	for (unsigned i = 0; i < SWAP_BUCKETS; i++) {
		if (hist[i]) {
			json_array_append_new(a,
					      json_pack("[I, I]", (json_int_t)bench_swap_floor(i),
							(json_int_t)hist[i]));
		}
	}
	return a;
}

static json_t *by_window(const struct bench *b, const uint32_t *v)
{
	json_t *a = json_array();

	for (unsigned w = 0; w < b->done; w++) {
		json_array_append_new(a, json_integer(v[w]));
	}
	return a;
}

static json_t *of_kind(const struct bench *b, const struct bench_swap_caller *c, unsigned kind)
{
	return json_pack("{s:I, s:o, s:o}", "calls", (json_int_t)c->calls[kind], "histogram",
			 histogram(c->hist[kind]), "longest", by_window(b, c->longest[kind]));
}

static int record(struct bench *b)
{
	int err = bench_testbed_record(&b->testbed, "set_up",
				       json_pack("{s:i, s:i, s:i, s:b}", "processes",
						 (int)b->set.callers, "swaps", (int)b->done, "cpus",
						 (int)b->sh->cpus, "pinned", (int)b->sh->pinned));

	for (unsigned i = 0; i < b->set.callers && !err; i++) {
		const struct bench_swap_caller *c = &b->sh->caller[i];

		err = bench_testbed_record(
			&b->testbed, "caller",
			json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "control",
				  of_kind(b, c, SWAP_CONTROL), "swap", of_kind(b, c, SWAP_SWAPS),
				  "first", by_window(b, c->first), "run", by_window(b, c->run),
				  "changes", (json_int_t)c->changes, "lost", (json_int_t)c->lost,
				  "mixed", (json_int_t)c->mixed));
	}
	return err ? err
		   : bench_testbed_record(
			     &b->testbed, "swaps",
			     json_pack("{s:o, s:o, s:o, s:I}", "latency_ns",
				       bench_program_doubles(b->latency, b->done), "flip_ns",
				       bench_program_doubles(b->flip, b->done), "ready_ns",
				       bench_program_doubles(b->waited, b->done), "late",
				       (json_int_t)b->late));
}

int main(int argc, char **argv)
{
	static struct bench b = { .set = { .callers = 8, .swaps = 1000 } };
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),
		{ "--object", .text = &b.set.object },
		{ "--processes", .number = &b.set.callers },
		{ "--swaps", .number = &b.set.swaps },
		{ NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || !b.set.object || !b.testbed.gbpfd ||
	    b.set.callers < 1 || b.set.callers > SWAP_MAX_CALLERS || b.set.swaps < 1 ||
	    b.set.swaps > SWAP_MAX_SWAPS) {
		return bench_program_usage();
	}
	buf_init(&b.object);
	err = bench_testbed_init(&b.testbed) || read_object(&b) || open_shared(&b) ||
	      start_gbpfd(&b) || load_first(&b) || start_callers(&b) || swaps(&b);
	if (b.sh) {
		stop_callers(&b);
	}
	err = err || record(&b) < 0;
	err = bench_testbed_exit(&b.testbed, err, false);
	release(&b);
	return err;
}
