/* Operations that record whether they ran, a tenant whose requests raise leases, and the testbed
 * around both. */
#include "run_testbed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/fd.h"
#include "gpu/flag.h"
#include "sched/sched_int.h"

CUdeviceptr gpu_flag_address(const struct gpu_flag *f)
{
	return (uintptr_t)drv_leases;
}

/* A deferred call, as the shim's. */
struct kept {
	struct sched_call call;
	struct testbed *w;
	struct line *line;
	struct work *work; /* NULL: an event is recorded */
	uint32_t piece;
};

static int run_work(struct line *x, struct testbed *w, struct work *work, uint32_t piece,
		    const struct sched_launch *l)
{
	struct gpu_block_launch b = drv_clone(&work, l->piece_blocks ? l->piece_blocks : piece);
	CUcontext popped;
	CUresult e;

	(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
	if (l->level == GBPF_LEVEL_BLOCK) {
		e = gpu_run_launch(w->d, &x->dev, &b);
	} else {
		e = drv_plain(x->dev.stream, work);
	}
	(void)drv.cuCtxPopCurrent_v2(&popped);
	return (int)e;
}

static int run_kept(struct sched_call *c)
{
	struct kept *k = (struct kept *)c;
	CUcontext popped;
	uint64_t seq;
	int e;

	if (k->work) {
		return run_work(k->line, k->w, k->work, k->piece, &c->launch);
	}
	(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
	e = (int)gpu_run_record(k->w->d, &k->line->dev, k->line->event, &seq);
	(void)drv.cuCtxPopCurrent_v2(&popped);
	return e;
}

static void free_kept(struct sched_call *c)
{
	free(c);
}

static void keep(struct testbed *w, struct line *x, struct work *work, uint32_t piece,
		 const struct sched_launch *l)
{
	struct kept *k = calloc(1, sizeof(*k));

	k->w = w;
	k->line = x;
	k->work = work;
	k->piece = piece;
	k->call.run = run_kept;
	k->call.free = free_kept;
	k->call.launch = *l;
	k->call.is_launch = work != NULL;
	k->call.joins_run = l->block_ok || !work;
	sched_defer(x->q, &k->call);
}

static struct work *new_work(struct testbed *w, struct line *x, uint32_t blocks)
{
	struct work *work = drv_work(&x->track, 0, blocks);

	pthread_mutex_lock(&x->lock);
	work->ordinal = ++x->ordinal;
	work->next = x->all;
	work->after = x->after;
	x->after = NULL;
	x->all = work;
	pthread_mutex_unlock(&x->lock);
	return work;
}

struct work *launch(struct testbed *w, struct line *x, uint32_t blocks, bool block, bool keepable,
		    uint32_t piece)
{
	struct work *work = new_work(w, x, blocks);
	struct sched_launch l = { .kernel = w->kernel,
				  .blocks = blocks,
				  .threads = 64,
				  .resident = 16,
				  .block_ok = block,
				  .may_hold = true };

	if (ticket_begin(x->q, &l) == SCHED_DEFER) {
		if (keepable) {
			keep(w, x, work, piece, &l);
			return work;
		}
		assert_int_equal(sched_drain(w->r.s, x->q), 0);
		l.may_hold = false;
		assert_int_equal(ticket_begin(x->q, &l), SCHED_GO);
	}
	assert_int_equal(run_work(x, w, work, piece, &l), CUDA_SUCCESS);
	ticket_end(true);
	return work;
}

void synchronize(struct testbed *w, struct line *x)
{
	assert_int_equal(sched_drain(w->r.s, x->q), 0);
	assert_int_equal(drv.cuStreamSynchronize(x->dev.stream), CUDA_SUCCESS);
	sched_synced(w->r.s, x->q);
}

void order(struct testbed *w, struct line *x, struct line *y)
{
	struct sched_launch l = { .kind = GBPF_KIND_OTHER };
	CUcontext popped;
	uint64_t seq;

	if (sched_run_join(x->q)) {
		(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
		assert_int_equal(gpu_run_record(w->d, &x->dev, x->event, &seq), CUDA_SUCCESS);
		(void)drv.cuCtxPopCurrent_v2(&popped);
		sched_run_joined(x->q);
		(void)add_relaxed(&w->joined, 1u);
	} else if (sched_queue_deferred(x->q)) {
		keep(w, x, NULL, 0, &l);
	} else {
		(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
		(void)drv.cuEventRecord(x->event, x->dev.stream);
		(void)drv.cuCtxPopCurrent_v2(&popped);
	}
	y->after = x->all;
	(void)sched_drain(w->r.s, x->q);
	(void)sched_drain(w->r.s, y->q);
	(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
	(void)drv.cuStreamWaitEvent(y->dev.stream, x->event, 0);
	(void)drv.cuCtxPopCurrent_v2(&popped);
}

void request_begins(struct testbed *w)
{
	store_relaxed(&drv_leases[3], 1u);
	other_opens(&w->r);
}

void request_ends(struct testbed *w)
{
	other_closes(&w->r);
	store_relaxed(&drv_leases[3], 0u);
}

static void *latency(void *arg)
{
	struct testbed *w = arg;
	uint64_t rng = w->seed + 99;

	while (!load_acquire(&w->stop_lc)) {
		request_begins(w);
		/* The load: how long requests are and how far apart. */
		usleep((unsigned)drv_random(&rng) % 400);
		request_ends(w);
		(void)add_relaxed(&w->requests, 1u);
		usleep((unsigned)drv_random(&rng) % 1200);
	}
	return NULL;
}

/* ---- the testbed ---- */

static const struct ebpf_insn block_level[] = {
	I_ST(EBPF_W, 1, SUBMIT(level), GBPF_LEVEL_BLOCK),
	I_MOV(0, GBPF_GO),
	I_EXIT,
};

static void on_note(void *arg, const char *what, const char *text)
{
	(void)add_acqrel(&((struct rig *)arg)->notes, 1u);
}

void testbed_init(struct testbed *w, unsigned n, const struct drv_options *o, uint64_t limit_ns)
{
	struct sched_config cfg = { .tenant = 1,
				    .class_id = GBPF_CLASS_BATCH,
				    .weight = 100,
				    .hold_limit_ns = limit_ns,
				    .min_share_ppm = 20000,
				    .device = &gpu_sched_ops,
				    .wake_agent = rig_wake_agent,
				    .note = on_note,
				    .arg = &w->r };

	drv_init(o);
	w->seed = o->seed;
	w->n = n;
	assert_int_equal(gpu_device_create(&w->d, &drv), 0);
	cfg.dev = w->d;
	rig_create(&w->r, &cfg);
	w->r.s->grace_ns = 0;
	POLICY_USE(&w->r, 1, block_level);
	w->kernel = sched_kernel_get(w->r.s, "k");
	(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
	for (unsigned i = 0; i < n; i++) {
		struct line *x = &w->line[i];

		x->dev = (struct gpu_queue){ .stream = drv_stream(), .ctx = DRV_CTX };
		x->q = sched_queue_open(w->r.s, &x->dev, 0, 0);
		assert_non_null(x->q);
		x->track.ordered = !w->share;
		pthread_mutex_init(&x->lock, NULL);
		(void)drv.cuEventCreate(&x->event, 0);
	}
	gpu_run_prepare(w->d, &w->line[0].dev);
	while (drv_run(100)) { /* completes what prepare has begun, */
	}
	gpu_run_prepare(w->d,
			&w->line[0].dev); /* so that no launch is refused for lack of memory */
	gpu_run_set_flag(w->d, DRV_CTX, (const struct gpu_flag *)(uintptr_t)1, 4);
	rig_start_agent(&w->r);
	drv_start();
}

struct testbed *world_new(bool share)
{
	struct testbed *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->share = share;
	return w;
}

void testbed_finish(struct testbed *w)
{
	struct work *x;
	CUcontext popped;

	for (unsigned i = 0; i < w->n; i++) {
		synchronize(w, &w->line[i]);
		assert_false(sched_queue_deferred(w->line[i].q));
		sched_queue_close(w->line[i].q);
		gpu_run_close(w->d, &w->line[i].dev);
		pthread_mutex_destroy(&w->line[i].lock);
	}
	rig_stop_agent(&w->r);
	drv_stop();
	/* Work of a later line may name work of an earlier one that it waits for. */
	for (unsigned i = 0; i < w->n; i++) {
		while ((x = w->line[i].all)) {
			assert_true(drv_done(x));
			w->line[i].all = x->next;
			free(x);
		}
	}
	assert_int_equal(SCHED_ACC_COUNT(sched_inflight(w->r.s)), 0);
	assert_int_equal(load_relaxed(&w->r.s->n_runs), 0);
	assert_int_equal(load_relaxed(&w->r.s->n_deferred), 0);
	sched_destroy(w->r.s);
	gpu_device_destroy(w->d);
	(void)drv.cuCtxPopCurrent_v2(&popped);
	drv_finish();
	free(w);
}

void start_latency(struct testbed *w)
{
	store_release(&w->stop_lc, 0u);
	assert_int_equal(pthread_create(&w->lc, NULL, latency, w), 0);
}

void stop_latency(struct testbed *w)
{
	store_release(&w->stop_lc, 1u);
	pthread_join(w->lc, NULL);
}
