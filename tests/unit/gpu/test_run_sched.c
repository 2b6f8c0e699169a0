/* Runs under the scheduler: threads submit, an agent steps queues, the device runs, and another
 * tenant's requests raise and clear leases. The driver checks each block. */
#include <stdlib.h>
#include <unistd.h>

#include "run_testbed.h"

struct program {
	struct testbed *w;
	unsigned index;
	uint64_t rng;
	pthread_t thread;
};

static struct line *own_line(struct program *p)
{
	struct testbed *w = p->w;
	unsigned each = w->n / w->threads, i = (unsigned)drv_random(&p->rng);

	return &w->line[w->share ? i % w->n : p->index * each + i % each];
}

static void *program(void *arg)
{
	struct program *p = arg;

	for (unsigned i = 0; i < p->w->programs; i++) {
		struct line *x = own_line(p), *y;
		uint32_t what = (uint32_t)drv_random(&p->rng) % 20;
		uint32_t blocks = 1 + (uint32_t)drv_random(&p->rng) % 60;

		if (what < 12) {
			launch(p->w, x, blocks, true, true, (uint32_t)drv_random(&p->rng) % 20);
		} else if (what < 15) {
			launch(p->w, x, 1 + blocks % 4, false, true, 0);
		} else if (what < 16) {
			launch(p->w, x, 1 + blocks % 4, what % 2, false, 0);
		} else if (what < 17) {
			y = own_line(p);
			if (x != y && !p->w->share) {
				order(p->w, x, y);
			}
		} else if (what < 18) {
			(void)sched_queue_deferred(x->q);
		} else if (what < 19) {
			synchronize(p->w, x);
		} else {
			usleep((unsigned)drv_random(&p->rng) % 100); /* part of the load */
		}
	}
	return NULL;
}

static void storm(unsigned queues, unsigned threads, bool share, struct drv_options o,
		  unsigned programs)
{
	struct testbed *w = world_new(share);
	struct program p[16];
	struct gpu_run_counts counts;

	testbed_init(w, queues, &o, 0);
	w->threads = threads;
	w->programs = programs;
	start_latency(w);
	for (unsigned i = 0; i < threads; i++) {
		p[i] = (struct program){ .w = w, .index = i, .rng = o.seed * 31 + i };
		assert_int_equal(pthread_create(&p[i].thread, NULL, program, &p[i]), 0);
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(p[i].thread, NULL);
	}
	gpu_run_counts(w->d, &counts);
	print_message("%u streams, %u threads: %llu launches, %llu interruptions, %llu blocks "
		      "again, %llu forced, %llu requests, %llu events in runs\n",
		      queues, threads, (unsigned long long)counts.launches,
		      (unsigned long long)counts.interruptions,
		      (unsigned long long)counts.resumed_blocks, (unsigned long long)counts.forced,
		      (unsigned long long)load_relaxed(&w->requests),
		      (unsigned long long)load_relaxed(&w->joined));
	stop_latency(w);
	testbed_finish(w);
}

static unsigned much(unsigned n)
{
	return getenv("GBPF_LONG") ? n * 40 : n;
}

static void one_stream(void **state)
{
	storm(1, 1, false, (struct drv_options){ .seed = 1 }, much(1500));
}

static void three_streams_three_threads(void **state)
{
	storm(3, 3, false, (struct drv_options){ .seed = 2 }, much(700));
}

static void twelve_streams_on_one_connection(void **state)
{
	storm(12, 2, false, (struct drv_options){ .seed = 3, .one_connection = true }, much(900));
}

static void forty_streams(void **state)
{
	storm(40, 4, false, (struct drv_options){ .seed = 4, .deep = 16 }, much(600));
}

static void threads_share_streams(void **state)
{
	storm(2, 4, true, (struct drv_options){ .seed = 5 }, much(500));
}

static void threads_share_a_stream_with_a_short_queue(void **state)
{
	storm(1, 3, true, (struct drv_options){ .seed = 6, .deep = 4 }, much(500));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_stream),
		cmocka_unit_test(three_streams_three_threads),
		cmocka_unit_test(twelve_streams_on_one_connection),
		cmocka_unit_test(forty_streams),
		cmocka_unit_test(threads_share_streams),
		cmocka_unit_test(threads_share_a_stream_with_a_short_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
