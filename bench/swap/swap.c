/* `gbpf bench swap`: a gbpfd of its own, callers that call the submit hook at full speed, and
 * swaps. Every window with a swap is followed by a control window of the same length without one,
 * so that both see the same machine. */
#include "bench/swap/swap.h"

#include <errno.h>
#include <ftw.h>
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
#include "gbpf/gbpf.h"

_Static_assert(SWAP_RUN == 16, "report/swap.py");

#define WARM_NS 200000000u
#define START_NS UINT64_C(20000000000)
#define MIN_WINDOW_NS 1000000u

struct settings {
	const char *object, *gbpfd;
	unsigned callers, swaps;
};

struct bench {
	struct settings set;
	struct bench_swap_shared *sh;
	size_t shared_bytes;
	char dir[128];
	struct gbpf *g;
	pid_t pid[SWAP_MAX_CALLERS];
	struct buf object;
	size_t at_code, at_constant, at_data; /* offsets of its number in the object */
	uint64_t number, late;
	unsigned done;
	double *latency, *flip, *waited; /* ns, one per swap */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

static int fail(const char *what, const char *why)
{
	return bench_program_fail("%s: %s", what, why);
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
		return fail(b->set.object, strerror(-err));
	}
	b->at_constant = find(&b->object, &constant, 8, 0);
	b->at_data = find(&b->object, &data, 8, 0);
	b->at_code = find_code(&b->object, 0xa5a5a5a5u, 0x5eed0003u);
	if (b->at_constant == SIZE_MAX || b->at_data == SIZE_MAX || b->at_code == SIZE_MAX) {
		return fail(b->set.object, "it is not the bench's object");
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
	if (gbpf_policy_load_bytes(b->g, b->object.data, b->object.len, "number", GBPF_LOAD_SWAP,
				   &text) < 0) {
		return fail("loading", gbpf_last_error(b->g)->message);
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
		return fail("memory", strerror(errno));
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
	return b->latency && b->flip && b->waited ? 0 : fail("memory", "there is not enough");
}

static int start_gbpfd(struct bench *b)
{
	const char *tmp = getenv("TMPDIR");
	char state[160];
	struct gbpf_start_options o = { .size = sizeof(o),
					.program = b->set.gbpfd,
					.device = "soft",
					.state_dir = state,
					.idle_exit_s = 60 };
	if (snprintf(b->dir, sizeof(b->dir), "%s/gbpf-bench-XXXXXX", tmp && *tmp ? tmp : "/tmp") >=
		    (int)sizeof(b->dir) ||
	    !mkdtemp(b->dir)) {
		b->dir[0] = 0;
		return fail("a folder for its gbpfd", strerror(errno));
	}
	memcpy(b->sh->dir, b->dir, sizeof(b->dir));
	snprintf(state, sizeof(state), "%s/state", b->dir);
	b->sh->callers = b->set.callers;
	b->sh->cpus = 1;
	if (sched_getaffinity(0, sizeof(b->sh->all), &b->sh->all) == 0) {
		b->sh->cpus = (uint32_t)CPU_COUNT(&b->sh->all);
	}
	b->sh->pinned = b->sh->cpus >= b->set.callers + 2;
	bench_swap_use_cpu(b->sh, SWAP_REST); /* also for gbpfd */
	if (gbpf_open(&b->g, b->dir, GBPF_OPEN_NO_CONNECT) < 0 || gbpf_start_daemon(b->g, &o) < 0) {
		return fail("starting gbpfd", gbpf_last_error(b->g)->message);
	}
	return 0;
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
	return fail("loading", "gbpfd counts versions in another way");
}

static int start_callers(struct bench *b)
{
	uint64_t deadline = clock_now_ns() + clock_patience(START_NS);

	for (unsigned i = 0; i < b->set.callers; i++) {
		b->pid[i] = fork();
		if (b->pid[i] < 0) {
			return fail("fork", strerror(errno));
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
			return fail("a caller",
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
		if (interrupted || load(b, &j) < 0) {
			return interrupted ? bench_program_fail("interrupted") : -1;
		}
		b->latency[i] = (double)(clock_now_ns() - begin);
		if ((uint64_t)json_integer_value(json_object_get(j, "version")) != b->number++) {
			return fail("swapping", "a version has not the number it should have");
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

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static void clean_up(struct bench *b)
{
	if (b->sh) {
		stop_callers(b);
	}
	if (b->g) {
		uint64_t deadline = clock_now_ns() + 5000000000u;
		char path[160];

		gbpf_shutdown(b->g);
		snprintf(path, sizeof(path), "%s/control.sock", b->dir);
		while (access(path, F_OK) == 0 && clock_now_ns() < deadline) {
			clock_sleep_ns(1000000);
		}
		gbpf_close(b->g);
	}
	if (b->dir[0]) {
		nftw(b->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	}
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

static int record(const struct bench *b)
{
	int err = bench_program_record("set_up",
				       json_pack("{s:i, s:i, s:i, s:b}", "processes",
						 (int)b->set.callers, "swaps", (int)b->done, "cpus",
						 (int)b->sh->cpus, "pinned", (int)b->sh->pinned));

	for (unsigned i = 0; i < b->set.callers && !err; i++) {
		const struct bench_swap_caller *c = &b->sh->caller[i];

		err = bench_program_record(
			"caller",
			json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "control",
				  of_kind(b, c, SWAP_CONTROL), "swap", of_kind(b, c, SWAP_SWAPS),
				  "first", by_window(b, c->first), "run", by_window(b, c->run),
				  "changes", (json_int_t)c->changes, "lost", (json_int_t)c->lost,
				  "mixed", (json_int_t)c->mixed));
	}
	return err ? err
		   : bench_program_record(
			     "swaps",
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
		{ "--object", .text = &b.set.object },
		{ "--gbpfd", .text = &b.set.gbpfd },
		{ "--processes", .number = &b.set.callers },
		{ "--swaps", .number = &b.set.swaps },
		{ NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || !b.set.object || b.set.callers < 1 ||
	    b.set.callers > SWAP_MAX_CALLERS || b.set.swaps < 1 || b.set.swaps > SWAP_MAX_SWAPS) {
		return bench_program_usage("swap");
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, on_signal); /* so that the started processes are ended */
	signal(SIGTERM, on_signal);
	signal(SIGHUP, on_signal);
	buf_init(&b.object);
	err = read_object(&b) < 0 || open_shared(&b) < 0 || start_gbpfd(&b) < 0 ||
	      load_first(&b) < 0 || start_callers(&b) < 0 || swaps(&b) < 0;
	if (b.sh) {
		stop_callers(&b);
		memset(b.pid, 0, sizeof(b.pid));
	}
	err = err || record(&b) < 0;
	clean_up(&b);
	return err ? 1 : bench_program_end(false);
}
