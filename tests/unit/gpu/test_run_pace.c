/* Runs keep a GPU busy at little cost. On one thread and the test's clock: the scheduler's agent, a
 * program that keeps several kernels queued and waits for the oldest, and a GPU that runs whole
 * waves. All of them are a little late, as threads are. */
#include <stdlib.h>
#include <string.h>

#include "../sched/fake.h"
#include "base/compiler.h"
#include "gpu/gpu_run.h"
#include "gpu/flag.h"
#include "sched/sched_int.h"
#include "occupancy.h"

#define DEPTH_MAX 32u
#define LEARN_NS 20000000u /* durations are learned meanwhile */
#define WAKE_NS 10000u	   /* processor time of each wake-up of the agent */

struct shape {
	unsigned resident, block_us, kernel_us, depth;
};

struct app {
	bool mixed; /* every third kernel is a slow one */
	unsigned depth;
	uint32_t blocks;
	CUevent event[DEPTH_MAX];
	uint64_t seq[DEPTH_MAX]; /* of the record in the run; 0: at once */
	uint64_t launched, finished;
	uint64_t next_ns;
};

struct testbed {
	struct rig r;
	struct gpu_device *d;
	struct gpu_queue dev;
	struct sched_queue *q;
	struct sched_kernel *kernel[2];
	struct app app;
	uint64_t rng, agent_ns, looks, agent_busy_ns;
	uint32_t wakes;
};

static const struct ebpf_insn block_level[] = {
	I_ST(EBPF_W, 1, SUBMIT(level), GBPF_LEVEL_BLOCK),
	I_MOV(0, GBPF_GO),
	I_EXIT,
};

static uint64_t late(struct testbed *w, uint64_t least, uint64_t most)
{
	w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
	return least + (w->rng >> 33) % (most - least);
}

static void on_wake(void *arg)
{
	(void)add_acqrel(&((struct rig *)arg)->wakes, 1u);
}

static void testbed_init(struct testbed *w, const struct shape *s, uint64_t seed)
{
	struct sched_config cfg = { .tenant = 1,
				    .class_id = GBPF_CLASS_BATCH,
				    .weight = 100,
				    .device = &gpu_sched_ops,
				    .wake_agent = on_wake,
				    .arg = &w->r };

	memset(w, 0, sizeof(*w));
	occupancy_init(s->resident, s->block_us * UINT64_C(1000));
	assert_int_equal(gpu_device_create(&w->d, &occupancy_table), 0);
	cfg.dev = w->d;
	rig_create(&w->r, &cfg);
	w->r.s->grace_ns = 0;
	w->r.s->few_cpus = false;
	POLICY_USE(&w->r, 1, block_level);
	w->kernel[0] = sched_kernel_get(w->r.s, "k");
	w->kernel[1] = sched_kernel_get(w->r.s, "slow");
	w->dev = (struct gpu_queue){ .stream = WAVES_STREAM, .ctx = WAVES_CTX };
	w->q = sched_queue_open(w->r.s, &w->dev, 0, 0);
	assert_non_null(w->q);
	gpu_run_set_flag(w->d, WAVES_CTX, (const struct gpu_flag *)(uintptr_t)1, 4);
	w->rng = seed;
	w->app.depth = s->depth;
	w->app.blocks = MAX(s->kernel_us / s->block_us, 1u) * s->resident;
	for (unsigned i = 0; i < s->depth; i++) {
		(void)occupancy_table.cuEventCreate(&w->app.event[i], 0);
	}
	w->agent_ns = w->app.next_ns = waves.now_ns;
}

static void go_on(struct testbed *w, uint64_t until, bool open);

static void testbed_finish(struct testbed *w)
{
	while (gpu_run_busy(w->d, &w->dev) || !occupancy_idle()) {
		go_on(w, waves.now_ns + 100000, true);
	}
	assert_false(sched_queue_deferred(w->q));
	(void)occupancy_table.cuStreamSynchronize(WAVES_STREAM);
	sched_synced(w->r.s, w->q);
	sched_queue_close(w->q);
	gpu_run_close(w->d, &w->dev);
	sched_destroy(w->r.s);
	gpu_device_destroy(w->d);
	for (unsigned i = 0; i < w->app.depth; i++) {
		(void)occupancy_table.cuEventDestroy_v2(w->app.event[i]);
	}
	occupancy_finish();
}

/* ---- the program ---- */

static void app_launch(struct testbed *w)
{
	struct app *a = &w->app;
	unsigned slot = (unsigned)(a->launched % a->depth);
	unsigned kind = a->mixed && a->launched % 3 == 1;
	struct sched_launch l = { .kernel = w->kernel[kind],
				  .blocks = a->blocks,
				  .threads = 256,
				  .resident = waves.resident,
				  .block_ok = true,
				  .may_hold = true };
	struct gpu_block_launch b = { .clone = kind ? OCCUPANCY_SLOW : OCCUPANCY_CLONE,
				      .id = 1 + kind,
				      .resident = waves.resident,
				      .grid = { a->blocks, 1, 1 },
				      .block = { 256, 1, 1 } };

	assert_int_equal(ticket_begin(w->q, &l), SCHED_GO_BLOCK);
	assert_int_equal(l.level, GBPF_LEVEL_BLOCK);
	b.piece_blocks = l.piece_blocks;
	b.block_ns = l.block_ns;
	assert_int_equal(gpu_run_launch(w->d, &w->dev, &b), CUDA_SUCCESS);
	ticket_end(true);
	a->seq[slot] = 0;
	if (sched_run_join(w->q)) {
		assert_int_equal(gpu_run_record(w->d, &w->dev, a->event[slot], &a->seq[slot]),
				 CUDA_SUCCESS);
		sched_run_joined(w->q);
	} else {
		(void)occupancy_table.cuEventRecord(a->event[slot], WAVES_STREAM);
	}
	a->launched++;
}

/* Waits as the shim does for an event. */
static bool app_oldest_is_done(struct testbed *w)
{
	struct app *a = &w->app;
	unsigned slot = (unsigned)(a->launched % a->depth);
	struct sched_run_progress c;

	(void)gpu_run_look(w->d, &w->dev, &c);
	return (!a->seq[slot] || c.done >= a->seq[slot]) &&
	       occupancy_table.cuEventQuery(a->event[slot]) == CUDA_SUCCESS;
}

static void app_goes_on(struct testbed *w)
{
	struct app *a = &w->app;

	while (a->launched - a->finished < a->depth || app_oldest_is_done(w)) {
		a->finished += a->launched - a->finished == a->depth;
		app_launch(w);
	}
	a->next_ns = waves.now_ns + late(w, 70000, 90000);
}

/* ---- time ---- */

static void agent_looks(struct testbed *w)
{
	uint64_t before = waves.called_ns, ns;

	w->wakes = load_acquire(&w->r.wakes);
	ns = sched_agent_step(w->r.s);
	w->looks++;
	w->agent_busy_ns += WAKE_NS + waves.called_ns - before;
	w->agent_ns = ns == UINT64_MAX ? UINT64_MAX : waves.now_ns + ns + late(w, 3000, 8000);
	if (w->rng >> 60 == 0) { /* now and then another thread has the processor */
		w->agent_ns += late(w, 20000, 60000);
	}
}

/* Advances to that time. open: a request is open, and the program launches nothing. */
static void go_on(struct testbed *w, uint64_t until, bool open)
{
	while (waves.now_ns < until) {
		if (load_acquire(&w->r.wakes) != w->wakes) {
			w->agent_ns = MIN(w->agent_ns, waves.now_ns + 10000);
		}
		if (!open && w->app.next_ns <= w->agent_ns && w->app.next_ns < until) {
			occupancy_until(w->app.next_ns);
			app_goes_on(w);
		} else if (w->agent_ns < until) {
			occupancy_until(w->agent_ns);
			agent_looks(w);
		} else {
			occupancy_until(until);
		}
	}
}

/* Returns its duration. */
static uint64_t request(struct testbed *w, uint64_t ns)
{
	uint64_t begin = waves.now_ns;

	occupancy_lease(true);
	other_opens(&w->r);
	go_on(w, begin + ns, true);
	occupancy_lease(false);
	other_closes(&w->r);
	return waves.now_ns - begin;
}

struct cost {
	double dry, agent; /* shares */
	double looks;	   /* per ms */
};

static struct cost cost_of(const struct shape *s, uint64_t ns, uint64_t seed, uint32_t uneven,
			   bool mixed)
{
	struct testbed w;
	struct cost c;
	uint64_t begin;

	testbed_init(&w, s, seed);
	waves.uneven = uneven;
	w.app.mixed = mixed;
	go_on(&w, waves.now_ns + LEARN_NS, false);
	begin = waves.now_ns;
	waves.dry_ns = w.looks = w.agent_busy_ns = 0;
	go_on(&w, begin + ns, false);
	c.dry = (double)waves.dry_ns / (double)(waves.now_ns - begin);
	c.agent = (double)w.agent_busy_ns / (double)(waves.now_ns - begin);
	c.looks = (double)w.looks * 1e6 / (double)(waves.now_ns - begin);
	testbed_finish(&w);
	return c;
}

/* Requests of that duration by other tenants, every 1 to 4 ms. Returns the loss for each beyond its
 * own duration, as a part of the throughput without requests. */
static uint64_t lost_for(const struct shape *s, uint64_t request_ns, uint64_t seed,
			 double *ret_looks)
{
	uint64_t begin, held = 0, plain, rate_ns, n = 0;
	struct testbed w;

	testbed_init(&w, s, seed);
	go_on(&w, waves.now_ns + LEARN_NS, false);
	begin = waves.now_ns;
	plain = waves.blocks;
	go_on(&w, begin + LEARN_NS, false);
	rate_ns = (waves.now_ns - begin) * 1000 / (waves.blocks - plain);
	for (unsigned i = 0; i < 10; i++) {
		go_on(&w, waves.now_ns + late(&w, 1000000, 4000000), false);
		request(&w, request_ns);
	}
	begin = waves.now_ns;
	plain = waves.blocks;
	w.looks = 0;
	for (; n < 60; n++) {
		go_on(&w, waves.now_ns + late(&w, 1000000, 4000000), false);
		held += request(&w, request_ns);
	}
	begin = waves.now_ns - begin - held;
	*ret_looks = (double)w.looks * 1e6 / (double)(begin + held);
	plain = (waves.blocks - plain) * rate_ns / 1000;
	testbed_finish(&w);
	return begin > plain ? (begin - plain) / n : 0;
}

/* ---- tests ---- */

static void the_device_never_runs_dry(void **state)
{
	static const struct shape shapes[] = {
		{ 1056, 10, 20, 16 },	{ 1056, 10, 50, 16 },	 { 1056, 10, 100, 16 },
		{ 1056, 10, 200, 16 },	{ 1056, 10, 300, 16 },	 { 1056, 10, 3000, 4 },
		{ 1056, 30, 50, 16 },	{ 1056, 30, 100, 16 },	 { 1056, 30, 200, 16 },
		{ 1056, 30, 300, 16 },	{ 1056, 30, 300, 4 },	 { 1056, 30, 3000, 16 },
		{ 1056, 30, 3000, 2 },	{ 1056, 100, 100, 16 },	 { 1056, 100, 300, 16 },
		{ 1056, 100, 3000, 4 }, { 1056, 1000, 3000, 4 }, { 132, 30, 300, 16 },
		{ 132, 10, 3000, 4 },	{ 264, 30, 100, 16 },
	};
	bool good = true;

	/* All blocks alike; some kernels longer by up to 30 %; every third three times as long. */
	for (unsigned i = 0; i < 3 * ARRAY_SIZE(shapes); i++) {
		const struct shape *s = &shapes[i / 3];
		struct cost c = cost_of(s, 100000000, i + 1, i % 3 == 1 ? 300 : 0, i % 3 == 2);
		bool fine = c.dry < 0.005 && c.agent < 0.10;

		if (!fine || i % 3 == 0) {
			print_message("%4u x %4u us, kernels of %4u us, %2u queued: dry %5.2f %%, "
				      "agent %4.1f %%, %5.2f looks a ms%s\n",
				      s->resident, s->block_us, s->kernel_us, s->depth, 100 * c.dry,
				      100 * c.agent, c.looks, fine ? "" : " <--");
		}
		good &= fine;
	}
	assert_true(good);
}

static void little_is_lost_during_requests(void **state)
{
	static const struct shape shapes[] = {
		{ 1056, 30, 3000, 2 },	{ 1056, 30, 30000, 2 }, { 1056, 10, 3000, 2 },
		{ 1056, 100, 3000, 2 }, { 1056, 30, 100, 16 },
	};
	static const uint64_t requests_us[] = { 40, 340, 680 };
	double looks;

	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++) {
		const struct shape *s = &shapes[i];

		for (unsigned k = 0; k < ARRAY_SIZE(requests_us); k++) {
			uint64_t ns = requests_us[k] * 1000, seed = i * 3 + k + 1;

			assert_in_range(lost_for(s, ns, seed, &looks), 0, 40000);
			assert_true(looks <
				    (k ? 14 : 25)); /* no end of a short one is to be missed */
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_device_never_runs_dry),
		cmocka_unit_test(little_is_lost_during_requests),
	};

	return cmocka_run_group_tests_name("gpu-run-pace", tests, NULL, NULL);
}
