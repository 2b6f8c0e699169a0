/* The scheduler, chains and a gate as the shim's on a driver in memory that checks each block:
 * threads submit, an agent looks after queues, the device runs, and another tenant's requests come
 * and go with their leases. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../sched/fake.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "driver.h"
#include "gpu/flag.h"
#include "sched/sched_int.h"

CUdeviceptr gpu_flag_address(const struct gpu_flag *f)
{
	return (uintptr_t)drv_leases;
}

#define QUEUES 40

struct line { /* a stream as the program has it */
	struct gpu_queue dev;
	struct sched_queue *q;
	struct track track;
	uint32_t ordinal; /* under lock when threads share it */
	pthread_mutex_t lock;
	struct work *all;
	CUevent event;
};

struct world {
	struct rig r;
	struct gpu_device *d;
	unsigned n, threads, programs;
	bool share; /* threads submit to the same streams */
	struct line line[QUEUES];
	struct sched_kernel *kernel;
	uint32_t stop_lc;
	pthread_t lc;
	uint64_t seed, requests;
};

/* A call as the shim keeps it. */
struct kept {
	struct sched_call call;
	struct world *w;
	struct line *line;
	struct work *work; /* NULL: an event is recorded */
	uint32_t piece;
};

static int run_work(struct line *x, struct world *w, struct work *work, uint32_t piece,
		    const struct sched_launch *l)
{
	struct gpu_block_launch b = drv_twin(&work, l->piece_blocks ? l->piece_blocks : piece);
	CUcontext popped;
	CUresult e;

	(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
	if (l->level == GBPF_LEVEL_BLOCK) {
		e = gpu_chain_launch(w->d, &x->dev, &b);
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
	int e;

	if (k->work) {
		return run_work(k->line, k->w, k->work, k->piece, &c->launch);
	}
	(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
	e = (int)drv.cuEventRecord(k->line->event, k->line->dev.stream);
	(void)drv.cuCtxPopCurrent_v2(&popped);
	return e;
}

static void free_kept(struct sched_call *c)
{
	free(c);
}

static void keep(struct world *w, struct line *x, struct work *work, uint32_t piece,
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
	k->call.chains = l->block_ok;
	sched_defer(x->q, &k->call);
}

static struct work *new_work(struct world *w, struct line *x, uint32_t blocks)
{
	struct work *work = drv_work(&x->track, 0, blocks);

	pthread_mutex_lock(&x->lock);
	work->ordinal = ++x->ordinal;
	work->next = x->all;
	x->all = work;
	pthread_mutex_unlock(&x->lock);
	return work;
}

/* block: it has a twin; keepable: it can be copied. */
static void launch(struct world *w, struct line *x, uint32_t blocks, bool block, bool keepable,
		   uint32_t piece)
{
	struct work *work = new_work(w, x, blocks);
	struct sched_launch l = { .kernel = w->kernel,
				  .blocks = blocks,
				  .threads = 64,
				  .resident = 16,
				  .block_ok = block,
				  .may_hold = true };

	if (sched_submit(x->q, &l) == SCHED_DEFER) {
		if (keepable) {
			keep(w, x, work, piece, &l);
			return;
		}
		assert_int_equal(sched_flush(w->r.s, x->q), 0);
		l.may_hold = false;
		assert_int_equal(sched_submit(x->q, &l), SCHED_GO);
	}
	assert_int_equal(run_work(x, w, work, piece, &l), CUDA_SUCCESS);
	sched_submitted(x->q, &l, true);
}

static void synchronize(struct world *w, struct line *x)
{
	assert_int_equal(sched_flush(w->r.s, x->q), 0);
	assert_int_equal(drv.cuStreamSynchronize(x->dev.stream), CUDA_SUCCESS);
	sched_drained(w->r.s, x->q);
}

/* What y does from here comes after what x has. */
static void order(struct world *w, struct line *x, struct line *y)
{
	struct sched_launch l = { .kind = GBPF_KIND_OTHER };
	CUcontext popped;

	if (sched_queue_deferred(x->q)) {
		keep(w, x, NULL, 0, &l);
		(void)sched_flush(w->r.s, x->q);
	} else {
		(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
		(void)drv.cuEventRecord(x->event, x->dev.stream);
		(void)drv.cuCtxPopCurrent_v2(&popped);
	}
	(void)sched_flush(w->r.s, y->q);
	(void)drv.cuCtxPushCurrent_v2(DRV_CTX);
	(void)drv.cuStreamWaitEvent(y->dev.stream, x->event, 0);
	(void)drv.cuCtxPopCurrent_v2(&popped);
}

/* ---- threads ---- */

struct program {
	struct world *w;
	unsigned index;
	uint64_t rng;
	pthread_t thread;
};

static struct line *own_line(struct program *p)
{
	struct world *w = p->w;
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
			usleep((unsigned)drv_random(&p->rng) % 100);
		}
	}
	return NULL;
}

static void *latency(void *arg)
{
	struct world *w = arg;
	uint64_t rng = w->seed + 99;

	while (!load_acquire(&w->stop_lc)) {
		store_relaxed(&drv_leases[3], 1u);
		other_opens(&w->r);
		usleep((unsigned)drv_random(&rng) % 400);
		other_closes(&w->r);
		store_relaxed(&drv_leases[3], 0u);
		(void)add_relaxed(&w->requests, 1u);
		usleep((unsigned)drv_random(&rng) % 1200);
	}
	return NULL;
}

/* ---- the world ---- */

/* Everything at block level; what has an even number of blocks in pieces of 7. */
static const struct ebpf_insn block_level[] = {
	I_ST(EBPF_W, 1, SUBMIT(level), GBPF_LEVEL_BLOCK),
	I_MOV(0, GBPF_GO),
	I_EXIT,
};

static void on_wake(void *arg)
{
	struct rig *r = arg;

	(void)add_acqrel(&r->wakes, 1u);
	futex_wake_shared(&r->wakes, 1);
}

static void on_note(void *arg, const char *what, const char *text)
{
	(void)add_acqrel(&((struct rig *)arg)->notes, 1u);
}

static void world_init(struct world *w, unsigned n, const struct drv_options *o, uint64_t limit_ns)
{
	uint32_t index[SCHED_MAX_GPUS] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
	struct sched_config cfg = { .tenant = 1,
				    .class_id = GBPF_CLASS_BATCH,
				    .weight = 100,
				    .hold_limit_ns = limit_ns,
				    .min_share_ppm = 20000,
				    .device = &gpu_sched_ops,
				    .wake_agent = on_wake,
				    .note = on_note,
				    .arg = &w->r };

	drv_init(o);
	w->seed = o->seed;
	w->n = n;
	assert_int_equal(gpu_device_create(&w->d, &drv), 0);
	cfg.dev = w->d;
	assert_int_equal(sched_create(&w->r.s, &cfg), 0);
	w->r.s->grace_ns = 0;
	w->r.dir.magic = SCHED_DIRECTORY_MAGIC;
	w->r.dir.abi = SCHED_ABI;
	w->r.dir.generation = 1;
	sched_set_pages(w->r.s, &w->r.dir, &w->r.own, &w->r.stats, index);
	assert_int_equal(sched_board_add(w->r.s, 3, 2, &w->r.other), 0);
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
	gpu_chain_set_flag(w->d, DRV_CTX, (const struct gpu_flag *)(uintptr_t)1, 4);
	rig_start_agent(&w->r);
	drv_start();
}

static struct world *world_new(bool share)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->share = share;
	return w;
}

/* Everything is waited for; each work was done. */
static void world_finish(struct world *w)
{
	struct work *x;
	CUcontext popped;

	for (unsigned i = 0; i < w->n; i++) {
		synchronize(w, &w->line[i]);
		assert_false(sched_queue_deferred(w->line[i].q));
		sched_queue_close(w->line[i].q);
		gpu_chain_close(w->d, &w->line[i].dev);
		while ((x = w->line[i].all)) {
			assert_true(drv_done(x));
			w->line[i].all = x->next;
			free(x);
		}
		pthread_mutex_destroy(&w->line[i].lock);
	}
	rig_stop_agent(&w->r);
	drv_stop();
	assert_int_equal(ACC_COUNT(tally_sum(&w->r.s->inflight)), 0);
	assert_int_equal(load_relaxed(&w->r.s->chains), 0);
	assert_int_equal(load_relaxed(&w->r.s->deferred), 0);
	sched_destroy(w->r.s);
	gpu_device_destroy(w->d);
	(void)drv.cuCtxPopCurrent_v2(&popped);
	drv_finish();
	free(w);
}

static void start_latency(struct world *w)
{
	store_release(&w->stop_lc, 0u);
	assert_int_equal(pthread_create(&w->lc, NULL, latency, w), 0);
}

static void stop_latency(struct world *w)
{
	store_release(&w->stop_lc, 1u);
	pthread_join(w->lc, NULL);
}

static void storm(unsigned queues, unsigned threads, bool share, struct drv_options o,
		  unsigned programs)
{
	struct world *w = world_new(share);
	struct program p[16];
	struct gpu_chain_counts counts;

	world_init(w, queues, &o, 0);
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
	gpu_chain_counts(w->d, &counts);
	print_message("%u streams, %u threads: %llu launches, %llu interruptions, %llu blocks "
		      "again, %llu forced, %llu requests\n",
		      queues, threads, (unsigned long long)counts.launches,
		      (unsigned long long)counts.interruptions,
		      (unsigned long long)counts.resumed_blocks, (unsigned long long)counts.forced,
		      (unsigned long long)load_relaxed(&w->requests));
	stop_latency(w);
	world_finish(w);
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
