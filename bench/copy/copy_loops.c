/* The coordinator's side of clients that work until they are stopped: copy shares and overlap
 * measure them in windows. */
#include <stdio.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/copy/copy_bench.h"

#define BEGIN_NS 60000000000ull

const char *const bench_copy_kinds[COPY_KINDS] = { "pageable", "pinned" };

int bench_copy_start_as(struct bench_copy *b, unsigned i, const char *name,
			const struct bench_testbed_place *place)
{
	struct bench_copy_client *c = &b->client[i];

	snprintf(c->name, sizeof(c->name), "%.15s%u", name, i);
	return bench_copy_start(b, c, place) < 0 ? -1 : bench_copy_await_ready(b, c);
}

void bench_copy_end_all(struct bench_copy *b)
{
	for (unsigned i = 0; i < COPY_CLIENTS_MAX; i++) {
		bench_copy_end(b, &b->client[i]);
	}
}

void bench_copy_loop(struct bench_copy_client *c)
{
	store_release(&c->page->looping, 0u);
	store_release(&c->page->stop, 0u);
	bench_copy_order(c);
}

int bench_copy_wait(struct bench_copy *b, unsigned n, uint64_t until_ns)
{
	for (uint64_t now = clock_now_ns(); now < until_ns; now = clock_now_ns()) {
		for (unsigned i = 0; i < n; i++) {
			if (bench_copy_check(b, &b->client[i], UINT64_MAX) < 0) {
				return -1;
			}
		}
		clock_sleep_ns(MIN(until_ns - now, (uint64_t)20000000));
	}
	return 0;
}

int bench_copy_settle(struct bench_copy *b, unsigned first, unsigned n)
{
	uint64_t deadline = clock_now_ns() + BEGIN_NS;

	for (unsigned i = first; i < first + n; i++) {
		while (!load_acquire(&b->client[i].page->looping)) {
			if (bench_copy_check(b, &b->client[i], deadline) < 0) {
				return -1;
			}
			clock_sleep_ns(1000000);
		}
	}
	return bench_copy_wait(b, first + n, clock_now_ns() + COPY_SETTLE_NS);
}

int bench_copy_stop(struct bench_copy *b, unsigned first, unsigned n)
{
	int err = 0;

	for (unsigned i = first; i < first + n; i++) {
		store_release(&b->client[i].page->stop, 1u);
	}
	for (unsigned i = first; i < first + n && !err; i++) {
		err = bench_copy_await_done(b, &b->client[i]);
	}
	return err;
}

int bench_copy_counters(struct bench_copy *b, unsigned n, const char *name,
			uint64_t v[COPY_CLIENTS_MAX])
{
	uint32_t pid[COPY_CLIENTS_MAX];

	for (unsigned i = 0; i < n; i++) {
		pid[i] = b->client[i].page->pid;
	}
	return bench_testbed_counters(&b->testbed, b->daemon, pid, n, name, v);
}

void bench_copy_tell(struct bench_copy *b, double seconds, const char *what)
{
	b->part++;
	bench_testbed_progress(&b->testbed, "copy: part %u of %u, about %.0f s left: %s", b->part,
			       b->parts, b->left_s, what);
	b->left_s = MAX(b->left_s - seconds, 0);
}
