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

#define LAUNCHES 4000u
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
 * woken. Returns the us of each round trip; NULL: it failed. */
static json_t *round_trips(struct bench_soft *b, unsigned n, uint64_t rest_ns)
{
	struct ping *p = bench_soft_shared(sizeof(*p));
	pid_t pid;

	if (!p) {
		return NULL;
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
	return bench_soft_wait(pid) ? bench_program_doubles(p->us, n) : NULL;
}

static void one_empty(struct bench_soft *b, const char *when, unsigned n, uint64_t rest_ns)
{
	struct latency *l = bench_soft_shared(sizeof(*l));
	json_t *control = round_trips(b, n, rest_ns);

	if (l) {
		l->n = n;
		l->rest_ns = rest_ns;
	}
	if (!l || !control || !bench_soft_run(b, run_empty, l)) {
		json_decref(control);
		bench_soft_broken(b, "empty", "a launch failed");
		return;
	}
	bench_program_record("empty",
			     json_pack("{s:s, s:o, s:o}", "when", when, "us",
				       bench_program_doubles(l->us, n), "round_trip_us", control));
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
			if (k == DTOD && c->pinned) {
				continue;
			}
			bench_program_record("copy",
					     json_pack("{s:s, s:I, s:b, s:f, s:f}", "kind",
						       kind_names[k], "bytes", (json_int_t)c->bytes,
						       "pinned", c->pinned, "us", c->us[k],
						       "plain_us", c->plain_us[k]));
		}
	}
}
