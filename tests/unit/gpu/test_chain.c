/* Chains on a driver in memory, on one thread and a clock of the test's: every interleaving comes
 * from a seed. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "driver.h"
#include "gpu/flag.h"
#include "gpu/gpu_int.h"

#define STREAMS 40

/* The flag page that the chains read. */
CUdeviceptr gpu_flag_address(const struct gpu_flag *f)
{
	return (uintptr_t)drv_leases;
}

static uint64_t now_ns = 1000000000;

static uint64_t test_clock(void)
{
	now_ns += 300;
	return now_ns;
}

struct world {
	struct gpu_device *d;
	uint64_t rng;
	unsigned n;
	struct gpu_queue q[STREAMS];
	struct track track[STREAMS];
	uint32_t ordinal[STREAMS];
	struct work *all;
};

static void world_init(struct world *w, unsigned n, const struct drv_options *o)
{
	memset(w, 0, sizeof(*w));
	clock_set_source(test_clock);
	drv_init(o);
	w->rng = o->seed * 77 + 1;
	w->n = n;
	assert_int_equal(gpu_device_create(&w->d, &drv), 0);
	for (unsigned i = 0; i < n; i++) {
		w->q[i] = (struct gpu_queue){ .stream = drv_stream(), .ctx = DRV_CTX };
		w->track[i].ordered = true;
	}
	gpu_chain_set_flag(w->d, DRV_CTX, (const struct gpu_flag *)(uintptr_t)1, 7);
}

static struct work *new_work(struct world *w, unsigned i, uint32_t blocks)
{
	struct work *x = drv_work(&w->track[i], ++w->ordinal[i], blocks);

	x->next = w->all;
	w->all = x;
	return x;
}

static uint32_t pick(struct world *w, uint32_t n)
{
	return (uint32_t)(drv_random(&w->rng) % n);
}

static CUresult launch(struct world *w, unsigned i, uint32_t blocks, uint32_t piece)
{
	struct work *x = new_work(w, i, blocks);
	struct gpu_block_launch l = drv_twin(&x, piece);
	CUresult e = gpu_chain_launch(w->d, &w->q[i], &l);

	if (e) {
		w->all = x->next;
		w->ordinal[i]--;
		free(x);
	}
	return e;
}

static void world_finish(struct world *w)
{
	struct work *x;

	for (unsigned i = 0; i < w->n; i++) {
		gpu_chain_close(w->d, &w->q[i]);
	}
	while ((x = w->all)) {
		w->all = x->next;
		free(x);
	}
	gpu_device_destroy(w->d);
	drv_finish();
	clock_set_source(NULL);
}

static bool all_through(struct world *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		if (gpu_chain_busy(w->d, &w->q[i])) {
			return false;
		}
	}
	return true;
}

/* Steps every queue and the device until nothing is left. */
static void run_out(struct world *w, bool may_run, bool force)
{
	for (unsigned round = 0; !all_through(w) || !drv_idle(); round++) {
		assert_true(round < 2000000);
		for (unsigned i = 0; i < w->n; i++) {
			(void)gpu_chain_step(w->d, &w->q[i], may_run, force);
		}
		drv_run(40);
		now_ns += 3000;
	}
}

static void check_all(struct world *w)
{
	for (struct work *x = w->all; x; x = x->next) {
		assert_int_equal(x->ended, x->blocks);
	}
}

static void lease(uint32_t on)
{
	store_relaxed(&drv_leases[5], on);
}

/* One random program with random interruptions. */
static void program(uint64_t seed, unsigned streams, bool one_connection, unsigned rounds)
{
	struct drv_options o = { .seed = seed, .one_connection = one_connection };
	struct gpu_chain_counts counts;
	struct sched_chain look;
	struct world w;

	world_init(&w, streams, &o);
	for (unsigned r = 0; r < rounds; r++) {
		unsigned i = pick(&w, streams);

		switch (pick(&w, 8)) {
		case 0:
		case 1:
			assert_int_equal(gpu_chain_look(w.d, &w.q[i], &look), 0);
			if (!look.full) {
				assert_int_equal(launch(&w, i, 1 + pick(&w, 200), pick(&w, 40)),
						 CUDA_SUCCESS);
			}
			break;
		case 2:
			if (!gpu_chain_busy(w.d, &w.q[i])) {
				assert_int_equal(
					drv_plain(w.q[i].stream, new_work(&w, i, 1 + pick(&w, 3))),
					CUDA_ERROR_INVALID_CONTEXT);
			}
			break;
		case 3:
			lease(pick(&w, 2));
			break;
		case 4:
		case 5:
			(void)gpu_chain_step(w.d, &w.q[i], !load_relaxed(&drv_leases[5]),
					     !pick(&w, 30));
			break;
		default:
			drv_run(pick(&w, 120));
			now_ns += pick(&w, 20000);
		}
	}
	lease(0);
	run_out(&w, true, false);
	check_all(&w);
	gpu_chain_counts(w.d, &counts);
	if (rounds > 1000) {
		assert_true(counts.interruptions > 10);
		assert_true(counts.resumed_blocks > 10);
	}
	world_finish(&w);
}

static void random_programs_keep_order_and_run_each_block_once(void **state)
{
	unsigned more = getenv("GBPF_LONG") ? 400 : 12;

	for (unsigned i = 0; i < more; i++) {
		static const unsigned streams[] = { 1, 3, 12, 40 };

		program(1000 + i, streams[i % 4], i % 3 == 2, 3000);
	}
}
