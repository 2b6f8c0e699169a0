/* `gbpf bench swap`: a gbpfd of its own, callers that call the submit hook at full speed, and
 * swaps. Every window with a swap is followed by a control window of the same length without one,
 * so that both see the same machine. */
#include "bench/swap/swap.h"

#include <errno.h>
#include <ftw.h>
#include <jansson.h>
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
#include "bench/common/statistics.h"
#include "gbpf/gbpf.h"

#define WARM_NS 200000000u
#define START_NS UINT64_C(20000000000)
#define MIN_WINDOW_NS 1000000u
#define GOAL_NS 1000.0

struct settings {
	const char *object, *gbpfd;
	unsigned callers, swaps;
	int json;
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

static int fail(struct bench *b, const char *what, const char *why)
{
	if (b->set.json) {
		json_t *j = json_pack("{s:s,s:{s:s,s:s}}", "schema", "gbpf.error/1", "error",
				      "code", "failed", "message", why);

		json_dumpf(j, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(j);
	} else {
		fprintf(stderr, "gbpf: bench swap: %s: %s\n", what, why);
	}
	return -1;
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
	if (gbpf_policy_load_bytes(b->g, b->object.data, b->object.len, "number", GBPF_LOAD_SWAP,
				   &text) < 0) {
		return fail(b, "loading", gbpf_last_error(b->g)->message);
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
		return fail(b, "a folder for its gbpfd", strerror(errno));
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
		return fail(b, "starting gbpfd", gbpf_last_error(b->g)->message);
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
	return fail(b, "loading", "gbpfd counts versions in another way");
}

static int start_callers(struct bench *b)
{
	uint64_t deadline = clock_now_ns() + START_NS;

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
		if (interrupted || load(b, &j) < 0) {
			return interrupted ? fail(b, "swapping", "interrupted") : -1;
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

/* ---- the result ---- */

struct result {
	double call[SWAP_KINDS][5];    /* P50 P99 P99.9 P99.99 max of all calls */
	double longest[SWAP_KINDS][4]; /* P50 P99 P99.9 max by caller and window */
	double first[4];	       /* P50 P99 P99.9 max of the first calls on a version */
	double run[4];		       /* same for SWAP_RUN consecutive calls of the control */
	uint64_t calls[SWAP_KINDS], lost, mixed, changes;
};

static void quantiles(double *v, size_t n, double out[4])
{
	bench_stats_sort(v, n);
	out[0] = bench_stats_quantile(v, n, 0.5);
	out[1] = bench_stats_quantile(v, n, 0.99);
	out[2] = bench_stats_quantile(v, n, 0.999);
	out[3] = n ? v[n - 1] : 0;
}

static void of_calls(const struct bench *b, unsigned kind, double out[5])
{
	static const double at[4] = { 0.5, 0.99, 0.999, 0.9999 };
	static uint64_t sum[SWAP_BUCKETS];
	uint64_t total = 0, seen = 0;
	unsigned k = 0;

	memset(sum, 0, sizeof(sum));
	for (unsigned i = 0; i < b->set.callers; i++) {
		for (unsigned j = 0; j < SWAP_BUCKETS; j++) {
			sum[j] += b->sh->caller[i].hist[kind][j];
			total += b->sh->caller[i].hist[kind][j];
		}
	}
	for (unsigned j = 0; j < SWAP_BUCKETS; j++) {
		seen += sum[j];
		while (k < 4 && sum[j] && (double)seen > at[k] * (double)total) {
			out[k++] = (double)bench_swap_floor(j);
		}
		out[4] = sum[j] ? (double)bench_swap_floor(j) : out[4];
	}
}

/* Computes the quantiles of each caller's and window's first calls, or of the runs. */
static void one_a_window(const struct bench *b, bool first, double *v, double out[4])
{
	size_t n = 0;

	for (unsigned i = 0; i < b->set.callers; i++) {
		const uint32_t *of = first ? b->sh->caller[i].first : b->sh->caller[i].run;

		for (unsigned w = 0; w < b->done; w++) {
			if (of[w]) {
				v[n++] = of[w];
			}
		}
	}
	quantiles(v, n, out);
}

static int evaluate(struct bench *b, struct result *r)
{
	size_t most = (size_t)b->set.callers * b->set.swaps, n;
	double *v = calloc(most, sizeof(double));

	if (!v) {
		return fail(b, "memory", "there is not enough");
	}
	memset(r, 0, sizeof(*r));
	for (unsigned k = 0; k < SWAP_KINDS; k++) {
		of_calls(b, k, r->call[k]);
		n = 0;
		for (unsigned i = 0; i < b->set.callers; i++) {
			for (unsigned w = 0; w < b->done; w++) {
				v[n++] = b->sh->caller[i].longest[k][w];
			}
			r->calls[k] += b->sh->caller[i].calls[k];
		}
		quantiles(v, n, r->longest[k]);
	}
	for (unsigned i = 0; i < b->set.callers; i++) {
		const struct bench_swap_caller *c = &b->sh->caller[i];

		r->lost += c->lost;
		r->mixed += c->mixed;
		r->changes += c->changes;
	}
	one_a_window(b, true, v, r->first);
	one_a_window(b, false, v, r->run);
	bench_stats_sort(b->latency, b->done);
	bench_stats_sort(b->flip, b->done);
	bench_stats_sort(b->waited, b->done);
	free(v);
	return 0;
}

static json_t *numbers(const double *v, const char *const *names, unsigned n)
{
	json_t *j = json_object();

	for (unsigned i = 0; i < n; i++) {
		json_object_set_new(j, names[i], json_real(v[i]));
	}
	return j;
}

static void print_json(const struct bench *b, const struct result *r)
{
	static const char *const five[] = { "p50", "p99", "p99.9", "p99.99", "max" },
				 *const four[] = { "p50", "p99", "p99.9", "max" };
	json_t *j = json_pack(
		"{s:s,s:i,s:i,s:i,s:b,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:f,s:f,s:I,s:I,s:I,s:I,s:f,"
		"s:f,s:f,s:f}",
		"schema", "gbpf.bench.swap/1", "processes", (int)b->set.callers, "swaps",
		(int)b->done, "cpus", (int)b->sh->cpus, "pinned", (int)b->sh->pinned,
		"control_calls", (json_int_t)r->calls[SWAP_CONTROL], "swap_calls",
		(json_int_t)r->calls[SWAP_SWAPS], "control_call_ns",
		numbers(r->call[SWAP_CONTROL], five, 5), "swap_call_ns",
		numbers(r->call[SWAP_SWAPS], five, 5), "control_longest_ns",
		numbers(r->longest[SWAP_CONTROL], four, 4), "swap_longest_ns",
		numbers(r->longest[SWAP_SWAPS], four, 4), "first_call_ns",
		numbers(r->first, four, 4), "control_run_ns", numbers(r->run, four, 4),
		"stall_p999_ns", r->first[2] - r->run[2], "call_p999_difference_ns",
		r->call[SWAP_SWAPS][2] - r->call[SWAP_CONTROL][2], "changes",
		(json_int_t)r->changes, "lost", (json_int_t)r->lost, "mixed", (json_int_t)r->mixed,
		"late", (json_int_t)b->late, "swap_p50_ns",
		bench_stats_quantile(b->latency, b->done, 0.5), "swap_p99_ns",
		bench_stats_quantile(b->latency, b->done, 0.99), "flip_p50_ns",
		bench_stats_quantile(b->flip, b->done, 0.5), "ready_p50_ns",
		bench_stats_quantile(b->waited, b->done, 0.5));

	json_dumpf(j, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(j);
}

static void row(const char *name, double control, double swap)
{
	printf("  %-8s %12.0f %12.0f %12.0f\n", name, control, swap, swap - control);
}

static void print(const struct bench *b, const struct result *r)
{
	static const char *const five[] = { "P50", "P99", "P99.9", "P99.99", "max" },
				 *const four[] = { "P50", "P99", "P99.9", "max" };

	printf("%u processes, %u swaps, %u CPUs%s\n", b->set.callers, b->done, b->sh->cpus,
	       b->sh->pinned ? ", one for each caller"
			     : ": too few for a caller each, so callers wait for CPUs");
	printf("ns              %12s %12s %12s\none call of %.1f M, and %.1f M\n", "control",
	       "with swaps", "difference", (double)r->calls[SWAP_CONTROL] / 1e6,
	       (double)r->calls[SWAP_SWAPS] / 1e6);
	for (unsigned i = 0; i < 5; i++) {
		row(five[i], r->call[SWAP_CONTROL][i], r->call[SWAP_SWAPS][i]);
	}
	puts("longest call of a process in the window of a swap");
	for (unsigned i = 0; i < 4; i++) {
		row(four[i], r->longest[SWAP_CONTROL][i], r->longest[SWAP_SWAPS][i]);
	}
	printf("first call of a process on a new version; control: %u calls in a row\n", SWAP_RUN);
	for (unsigned i = 0; i < 4; i++) {
		row(four[i], r->run[i], r->first[i]);
	}
	printf("swap: %.2f ms from load to answer, ready after %.2f ms, flip %.0f ns (medians); "
	       "%llu "
	       "late\n",
	       bench_stats_quantile(b->latency, b->done, 0.5) / 1e6,
	       bench_stats_quantile(b->waited, b->done, 0.5) / 1e6,
	       bench_stats_quantile(b->flip, b->done, 0.5), (unsigned long long)b->late);
	printf("stall P99.9 %.0f ns over the control (goal %.0f), %llu changes, %llu lost, %llu "
	       "mixed\n",
	       r->first[2] - r->run[2], GOAL_NS, (unsigned long long)r->changes,
	       (unsigned long long)r->lost, (unsigned long long)r->mixed);
}

static int parse(struct settings *s, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			s->json = 1;
		} else if (i + 1 < argc && strcmp(argv[i], "--object") == 0) {
			s->object = argv[++i];
		} else if (i + 1 < argc && strcmp(argv[i], "--gbpfd") == 0) {
			s->gbpfd = argv[++i];
		} else if (i + 1 < argc && strcmp(argv[i], "--processes") == 0) {
			s->callers = (unsigned)strtoul(argv[++i], NULL, 10);
		} else if (i + 1 < argc && strcmp(argv[i], "--swaps") == 0) {
			s->swaps = (unsigned)strtoul(argv[++i], NULL, 10);
		} else {
			return -EINVAL;
		}
	}
	return s->object && s->callers >= 1 && s->callers <= SWAP_MAX_CALLERS && s->swaps >= 1 &&
			       s->swaps <= SWAP_MAX_SWAPS
		       ? 0
		       : -EINVAL;
}

int main(int argc, char **argv)
{
	static struct bench b = { .set = { .callers = 8, .swaps = 1000 } };
	static struct result r;
	int err;

	if (parse(&b.set, argc, argv) < 0) {
		fputs("gbpf: bench swap: started with arguments that make no sense. Use: gbpf "
		      "bench "
		      "swap\n",
		      stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, on_signal); /* so that the started processes are ended */
	signal(SIGTERM, on_signal);
	buf_init(&b.object);
	err = read_object(&b) < 0 || open_shared(&b) < 0 || start_gbpfd(&b) < 0 ||
	      load_first(&b) < 0 || start_callers(&b) < 0 || swaps(&b) < 0;
	if (b.sh) {
		stop_callers(&b);
		memset(b.pid, 0, sizeof(b.pid));
	}
	err = err || evaluate(&b, &r) < 0;
	if (!err) {
		(b.set.json ? print_json : print)(&b, &r);
	}
	clean_up(&b);
	return err || r.lost || r.mixed || fflush(stdout) ? 1 : 0;
}
