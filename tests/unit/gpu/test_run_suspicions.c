/* Random programs in which the host often suspects a hang, mostly wrongly: the device stands still
 * for a while, blocks take long, leases come and go, the clock jumps, and a stream that is through
 * but for blocks that begin late gives the words of its run to another one. Launches of clones and
 * of kernels with an entry stub, some of whose blocks wait for later ones. Every block must run
 * once and in order, which the driver in memory checks, and every launch must end.
 *
 * GBPF_LONG: more programs. GBPF_SEED: this one only. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "fake_driver.h"
#include "gpu/cuda/gpu_run_int.h"
#include "gpu/flag.h"

#define WORKS 12
#define MS UINT64_C(1000000)

/* The flag page that runs read. */
CUdeviceptr gpu_flag_address(const struct gpu_flag *f)
{
	return (uintptr_t)drv_leases;
}

static uint64_t now_ns, rng;
static struct gpu_device *d;
static struct gpu_queue q;
static struct track tracks[WORKS + 1]; /* of the streams, one after the other */
static CUstream streams[WORKS + 1];
static unsigned n_streams, n_before; /* n_before: launches of earlier streams */
static struct work *works[WORKS];
static unsigned n_works;
static uint64_t n_takes, n_hung, n_late;

static uint64_t test_clock(void)
{
	now_ns += 300;
	return now_ns;
}

static uint32_t pick(uint32_t n)
{
	return (uint32_t)(drv_random(&rng) % n);
}

static void begin_stream(void)
{
	q = (struct gpu_queue){ .stream = drv_stream(), .ctx = DRV_CTX };
	tracks[n_streams] = (struct track){ .ordered = true };
	streams[n_streams++] = q.stream;
	n_before = n_works;
}

/* The program destroys the stream, whose run is over. Blocks of it may not have begun. */
static void change_stream(void)
{
	if (!q.run || gpu_run_busy(d, &q) || n_streams == ARRAY_SIZE(streams)) {
		return;
	}
	for (unsigned i = n_before; i < n_works; i++) {
		n_late += works[i]->begun != works[i]->blocks;
	}
	gpu_run_close(d, &q);
	begin_stream();
}

static void set_up(uint64_t seed)
{
	struct drv_options options = { .seed = seed };

	rng = seed;
	now_ns = 1000000000;
	clock_set_source(test_clock);
	drv_init(&options);
	(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
	assert_int_equal(gpu_device_create(&d, &drv), 0);
	n_works = n_streams = 0;
	begin_stream();
	store_relaxed(&drv_leases[5], 0u);
	gpu_run_set_flag(d, DRV_CTX, (const struct gpu_flag *)(uintptr_t)1, 7);
	gpu_run_prepare(d, &q);
}

static void tear_down(void)
{
	struct gpu_run_counts counts;
	CUcontext popped;

	gpu_run_counts(d, &counts);
	n_hung += counts.hung;
	gpu_run_close(d, &q);
	gpu_device_destroy(d);
	(void)drv.cuCtxPopCurrent_v2(&popped);
	drv_finish();
	clock_set_source(NULL);
	while (n_works) {
		free(works[--n_works]);
	}
}

static void launch(bool waits)
{
	static const uint32_t waves[] = { 0, 1, 3, UINT32_MAX };
	uint32_t blocks = 1 + pick(pick(2) ? 4 : 30), cluster = 1 + pick(3);
	struct work *w = drv_work(&tracks[n_streams - 1], n_works - n_before + 1, blocks);
	struct gpu_block_launch l =
		pick(3) ? drv_gate(&w, waves[pick(ARRAY_SIZE(waves))]) : drv_clone(&w, pick(5));

	w->barrier = waits && blocks <= 4 && pick(4) == 0;
	w->held = pick(3) == 0;
	w->cluster = blocks % cluster ? 1 : cluster;
	works[n_works++] = w;
	assert_int_equal(gpu_run_launch(d, &q, &l), CUDA_SUCCESS);
}

/* One step of the host. */
static void step(uint64_t seed)
{
	bool lease = load_relaxed(&drv_leases[5]), took;

	if (!q.run) {
		return;
	}
	took = load_relaxed(&q.run->seen.state) == GPU_RUN_TAKING;
	(void)gpu_run_step(d, &q, !lease, false);
	n_takes += !took && load_relaxed(&q.run->seen.state) == GPU_RUN_TAKING;
	if (load_relaxed(&q.run->seen.failed)) {
		fail_msg("program of seed %llu: the run was given up: %u", (unsigned long long)seed,
			 load_relaxed(&q.run->seen.failed));
	}
}

/* Something happens: to the device, the leases, the blocks, or only time passes. */
static void anything(void)
{
	switch (pick(12)) {
	case 0:
		store_relaxed(&drv_leases[5], pick(3) == 0);
		break;
	case 1:
		drv_freeze(streams[pick(n_streams)], pick(2));
		break;
	case 2:
		works[pick(n_works)]->held = pick(2);
		break;
	case 3:
	case 4:
		now_ns += pick(20) * MS;
		break;
	case 5:
		if (n_works < WORKS) {
			launch(true);
		}
		break;
	default:
		(void)drv_run(pick(6));
	}
	now_ns += pick(2) * MS;
}

static bool all_done(void)
{
	for (unsigned i = 0; i < n_works; i++) {
		if (!drv_done(works[i])) {
			return false;
		}
	}
	return true;
}

static void random_program(uint64_t seed)
{
	unsigned left = 200 + pick(800);

	set_up(seed);
	launch(true);
	while (left--) {
		anything();
		step(seed);
		if (pick(2)) {
			change_stream();
		}
	}
	store_relaxed(&drv_leases[5], 0u);
	for (unsigned i = 0; i < n_streams; i++) {
		drv_freeze(streams[i], false);
	}
	for (unsigned i = 0; i < n_works; i++) {
		works[i]->held = false;
	}
	for (unsigned i = 0; i < 20000 && (!all_done() || gpu_run_busy(d, &q)); i++) {
		(void)drv_run(10);
		now_ns += MS;
		step(seed);
	}
	if (!all_done()) {
		fail_msg("program of seed %llu: blocks never run", (unsigned long long)seed);
	}
	if (gpu_run_busy(d, &q)) {
		fail_msg("program of seed %llu: the run does not end", (unsigned long long)seed);
	}
	while (drv_run(100)) {
	}
	tear_down();
}

static void suspicions_change_nothing(void **state)
{
	const char *one = getenv("GBPF_SEED");
	uint64_t n = getenv("GBPF_LONG") ? 100000 : 1500;

	if (one) {
		random_program(strtoull(one, NULL, 10));
		return;
	}
	for (uint64_t seed = 1; seed <= n; seed++) {
		fprintf(stderr, "%s", seed % 1000 ? "" : ".");
		random_program(seed);
	}
	print_message("%llu suspicions, %llu hangs, %llu launches with late blocks\n",
		      (unsigned long long)n_takes, (unsigned long long)n_hung,
		      (unsigned long long)n_late);
	assert_true(n_takes > n / 2);
	assert_true(n_hung > n / 20);
	assert_true(n_late > n / 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(suspicions_change_nothing),
	};

	return cmocka_run_group_tests_name("suspicions", tests, NULL, NULL);
}
