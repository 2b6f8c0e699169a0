/* The cost of a launch and of copies, compared with the machine without a soft GPU: a round trip
 * between two processes, and memcpy of the same size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "bench/soft/bench_soft.h"
#include "bench/common/statistics.h"

#define LAUNCHES 4000u
#define EMPTY_GOAL_US 30.0
#define COPY_GOAL 0.7
#define REST_NS 1000000u

struct latency {
	unsigned n;
	uint64_t rest_ns;
	double us[LAUNCHES];
};

static void run_empty(struct bench_soft *b, void *arg)
{
	struct latency *l = arg;
	CUfunction f;

	bench_soft_client_open(b);
	f = bench_soft_function("empty");
	for (unsigned i = 0; i < 100; i++) {
		bench_soft_launch(f, 1, 32, NULL, NULL);
		CU(cuStreamSynchronize(NULL));
	}
	for (unsigned i = 0; i < l->n; i++) {
		uint64_t begin;

		if (l->rest_ns) {
			clock_sleep_ns(l->rest_ns);
		}
		begin = clock_now_ns();
		bench_soft_launch(f, 1, 32, NULL, NULL);
		CU(cuStreamSynchronize(NULL));
		l->us[i] = (double)(clock_now_ns() - begin) * 1e-3;
	}
}

struct ping {
	uint32_t turn; /* index of the process whose turn it is */
	unsigned n;
	uint64_t rest_ns;
	double us[LAUNCHES];
};

static void await(uint32_t *word, uint32_t value)
{
	uint32_t seen;

	while ((seen = load_acquire(word)) != value) {
		futex_wait_shared(word, seen, 1000000000);
	}
}

static void pass(uint32_t *word, uint32_t value)
{
	store_release(word, value);
	futex_wake_shared(word, 1);
}

static void run_pong(struct bench_soft *b, void *arg)
{
	struct ping *p = arg;

	for (unsigned i = 0; i < p->n; i++) {
		await(&p->turn, 1);
		pass(&p->turn, 0);
	}
}

/* Measures two processes that sleep and wake each other: the cost of waking a server and of being
 * woken. */
static double round_trip(struct bench_soft *b, unsigned n, uint64_t rest_ns)
{
	struct ping *p = bench_soft_shared(sizeof(*p));
	pid_t pid;

	if (!p) {
		return 0;
	}
	p->n = n;
	pid = bench_soft_spawn(b, run_pong, p);
	for (unsigned i = 0; pid > 0 && i < n; i++) {
		uint64_t begin;

		if (rest_ns) {
			clock_sleep_ns(rest_ns);
		}
		begin = clock_now_ns();
		pass(&p->turn, 1);
		await(&p->turn, 0);
		p->us[i] = (double)(clock_now_ns() - begin) * 1e-3;
	}
	if (!bench_soft_wait(pid)) {
		return 0;
	}
	bench_stats_sort(p->us, n);
	return bench_stats_quantile(p->us, n, 0.5);
}

static void one_empty(struct bench_soft *b, const char *when, unsigned n, uint64_t rest_ns)
{
	struct latency *l = bench_soft_shared(sizeof(*l));
	double control = round_trip(b, n, rest_ns);
	char p50[64], p99[64];

	if (l) {
		l->n = n;
		l->rest_ns = rest_ns;
	}
	if (!l || control <= 0 || !bench_soft_run(b, run_empty, l)) {
		bench_soft_broken(b, "empty", "a launch failed");
		return;
	}
	bench_stats_sort(l->us, n);
	snprintf(p50, sizeof(p50), "launch to completion P50, %s", when);
	snprintf(p99, sizeof(p99), "launch to completion P99, %s", when);
	bench_soft_report(b, "empty",
			  &(struct bench_soft_figure){ .what = p50,
						       .unit = "us",
						       .value = bench_stats_quantile(l->us, n, 0.5),
						       .control = "futex round trip",
						       .control_value = control,
						       .goal = GOAL_AT_MOST,
						       .target = EMPTY_GOAL_US });
	bench_soft_report(
		b, "empty",
		&(struct bench_soft_figure){
			.what = p99, .unit = "us", .value = bench_stats_quantile(l->us, n, 0.99) });
}

void bench_soft_empty(struct bench_soft *b)
{
	one_empty(b, "in a row", MIN(LAUNCHES, b->ms * 4), 0);
	one_empty(b, "after 1 ms", MIN(LAUNCHES, MAX(b->ms, 10u)), REST_NS);
}

enum copy_kind { HTOD, DTOH, DTOD, KINDS };
static const char *const kind_names[KINDS] = { "HtoD", "DtoH", "DtoD" };

struct copy {
	size_t bytes;
	bool pinned;
	double us[KINDS], plain_us[KINDS]; /* of the fastest round */
};

static void *host_memory(size_t bytes, bool pinned)
{
	void *p = NULL;

	if (pinned) {
		CU(cuMemAllocHost_v2(&p, bytes));
	} else {
		p = aligned_alloc(4096, bytes);
	}
	if (!p) {
		_exit(1);
	}
	memset(p, 1, bytes);
	return p;
}

static void keep_best(double *best, uint64_t ns, unsigned times)
{
	double us = (double)ns * 1e-3 / times;

	if (*best == 0 || us < *best) {
		*best = us;
	}
}

static void one_copy(enum copy_kind k, CUdeviceptr d, CUdeviceptr e, void *h, size_t bytes)
{
	if (k == HTOD) {
		CU(cuMemcpyHtoD_v2(d, h, bytes));
	} else if (k == DTOH) {
		CU(cuMemcpyDtoH_v2(h, d, bytes));
	} else {
		CU(cuMemcpyDtoD_v2(d, e, bytes));
		CU(cuCtxSynchronize());
	}
}

static void run_copy(struct bench_soft *b, void *arg)
{
	struct copy *c = arg;
	unsigned times = c->bytes >= 1u << 24 ? 1 : c->bytes >= 1u << 20 ? 8 : 64;
	uint8_t *from, *to;
	CUdeviceptr d = 0, e = 0;

	bench_soft_client_open(b);
	from = host_memory(c->bytes, c->pinned);
	to = host_memory(c->bytes, c->pinned);
	CU(cuMemAlloc_v2(&d, c->bytes));
	CU(cuMemAlloc_v2(&e, c->bytes));
	CU(cuMemcpyHtoD_v2(d, from, c->bytes));
	CU(cuMemcpyHtoD_v2(e, from, c->bytes));
	for (unsigned i = 0; i < b->rounds * KINDS; i++) {
		unsigned k = i % KINDS;
		uint64_t begin = clock_now_ns();

		for (unsigned t = 0; t < times; t++) {
			memcpy(to, from, c->bytes);
			__asm__ volatile("" ::: "memory");
		}
		keep_best(&c->plain_us[k], clock_now_ns() - begin, times);
		begin = clock_now_ns();
		for (unsigned t = 0; t < times; t++) {
			one_copy(k, d, e, from, c->bytes);
		}
		keep_best(&c->us[k], clock_now_ns() - begin, times);
	}
}

void bench_soft_copy(struct bench_soft *b)
{
	static const size_t sizes[] = { 64u << 10, 1u << 20, 64u << 20 };
	struct copy *c = bench_soft_shared(sizeof(*c));

	for (unsigned i = 0; c && i < ARRAY_SIZE(sizes) * 2; i++) {
		*c = (struct copy){ .bytes = sizes[i / 2], .pinned = i % 2 };
		if (c->bytes > 1u << 20 && b->ms < 500) {
			c->bytes = 8u << 20;
		}
		if (!bench_soft_run(b, run_copy, c)) {
			bench_soft_broken(b, "copy", "a copy failed");
			return;
		}
		for (unsigned k = 0; k < KINDS; k++) {
			double gb = (double)c->bytes * 1e-3;
			char what[64];

			if (k == DTOD && c->pinned) {
				continue;
			}
			snprintf(what, sizeof(what), "%s%s %zu KiB", kind_names[k],
				 k == DTOD   ? ""
				 : c->pinned ? " pinned"
					     : " pageable",
				 c->bytes >> 10);
			bench_soft_report(
				b, "copy",
				&(struct bench_soft_figure){
					.what = what,
					.unit = "GB/s",
					.value = gb / c->us[k],
					.control = "memcpy",
					.control_value = gb / c->plain_us[k],
					.goal = c->bytes >= 8u << 20 ? GOAL_AT_LEAST : GOAL_NONE,
					.target = COPY_GOAL,
					.ratio = true });
		}
	}
}
