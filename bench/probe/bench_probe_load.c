/* Load during attachments; see bench_probe_load.h. */
#include "bench/probe/bench_probe_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"

#define STATE_NS 120000000000ull /* of a state that is waited for */
#define POLL_NS 200000u
#define BUSY_NS 3000000ull
/* On the soft GPU, whose kernels take longer on a busy machine: two must end in a pause of launches
 * (shim/probe/probe_quiet.c), or the attachment waits for seconds. */
#define SOFT_BUSY_NS 300000ull
#define LATE_NS 1000000u
#define RING ((uint64_t)1 << 20)

enum { BUSY, TIMED };

/* ---- threads ---- */

static bool fail(struct bench_probe_load *l, unsigned thread, CUresult r, const char *call)
{
	struct bench_probe_failure *f = &l->failure[thread];

	if (r == CUDA_SUCCESS) {
		return false;
	}
	f->result = r;
	f->call = call;
	store_release(&f->failed, 1u);
	return true;
}

#define FAILS(l, thread, what) fail(l, thread, (l)->p->gpu.by[BENCH_PROBE_SHIM].what, #what)

/* Keeps two kernels queued. */
static void *keep_busy(void *arg)
{
	struct bench_probe_load *l = arg;
	struct bench_probe_gpu *g = &l->p->gpu;
	unsigned blocks = l->p->testbed.soft ? 1 : 32;
	uint64_t ns = l->p->testbed.soft ? SOFT_BUSY_NS : BUSY_NS;
	void *params[] = { &ns };

	if (FAILS(l, BUSY, cuCtxSetCurrent(g->context))) {
		return NULL;
	}
	for (uint64_t i = 0; !load_acquire(&l->stop); i++) {
		if (FAILS(l, BUSY,
			  cuLaunchKernel(g->last, blocks, 1, 1, 32, 1, 1, 0, l->busy_stream, params,
					 NULL)) ||
		    FAILS(l, BUSY, cuEventRecord(l->busy[i % 2], l->busy_stream)) ||
		    (i && FAILS(l, BUSY, cuEventSynchronize(l->busy[(i + 1) % 2])))) {
			return NULL;
		}
		store_release(&l->busy_done, i);
	}
	(void)FAILS(l, BUSY, cuStreamSynchronize(l->busy_stream));
	return NULL;
}

/* past: the shim does not see the launch. */
static bool launch(struct bench_probe_load *l, bool past, CUfunction f, unsigned blocks,
		   unsigned threads, void **params, struct bench_probe_launched *ret)
{
	const struct bench_probe_calls *by =
		&l->p->gpu.by[past ? BENCH_PROBE_DRIVER : BENCH_PROBE_SHIM];
	uint64_t begin = clock_now_ns();
	bool failed =
		fail(l, TIMED,
		     by->cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, l->stream, params, NULL),
		     "cuLaunchKernel");

	ret->call_ns = clock_now_ns() - begin;
	failed = failed || FAILS(l, TIMED, cuStreamSynchronize(l->stream));
	ret->ended_ns = clock_now_ns();
	ret->total_ns = ret->ended_ns - begin;
	return !failed;
}

static void note(struct bench_probe_window *w, uint64_t own_ns, uint64_t other_ns)
{
	if (w) {
		w->longest_ns = MAX(w->longest_ns, MAX(own_ns, other_ns));
		w->iterations++;
		w->late += (own_ns > LATE_NS) + (other_ns > LATE_NS);
	}
}

static void *launch_in_turn(void *arg)
{
	struct bench_probe_load *l = arg;
	struct bench_probe_gpu *g = &l->p->gpu;
	uint32_t factor = BENCH_PROBE_GROW_FACTOR;
	void *own[] = { &l->at, &factor }, *other[] = { &g->words };
	struct bench_probe_launched of_own, of_other;

	if (FAILS(l, TIMED, cuCtxSetCurrent(g->context))) {
		return NULL;
	}
	while (!load_acquire(&l->stop)) {
		struct bench_probe_window *w = load_acquire(&l->window);

		if (load_acquire(&l->park)) {
			store_release(&l->parked, 1u);
			clock_sleep_ns(POLL_NS);
			continue;
		}
		store_release(&l->parked, 0u);
		if (!launch(l, l->past, l->grow, BENCH_PROBE_GROW_BLOCKS, BENCH_PROBE_GROW_THREADS,
			    own, &of_own)) {
			return NULL;
		}
		l->launched[l->grown % RING] = of_own;
		store_release(&l->grown, l->grown + 1);
		if (!launch(l, false, g->other, 1, 32, other, &of_other)) {
			return NULL;
		}
		note(w, of_own.total_ns, of_other.total_ns);
		store_release(&l->iterations, l->iterations + 1);
	}
	return NULL;
}

/* ---- start and end ---- */

static int prepare(struct bench_probe *p, struct bench_probe_load *l)
{
	unsigned n = BENCH_PROBE_GROW_BLOCKS * BENCH_PROBE_GROW_THREADS;
	uint32_t first[BENCH_PROBE_GROW_BLOCKS * BENCH_PROBE_GROW_THREADS];

	for (uint32_t i = 0; i < n; i++) {
		first[i] = i;
	}
	if (!l->launched) {
		return bench_testbed_fail(&p->testbed, "out of memory");
	}
	return bench_probe_grow_load(p, l) ||
			       BENCH_PROBE_GPU(p, cuMemAlloc_v2(&l->at, sizeof(first))) ||
			       BENCH_PROBE_GPU(p, cuMemcpyHtoD_v2(l->at, first, sizeof(first))) ||
			       BENCH_PROBE_GPU(
				       p, cuStreamCreate(&l->stream, CU_STREAM_NON_BLOCKING)) ||
			       BENCH_PROBE_GPU(p, cuStreamCreate(&l->busy_stream,
								 CU_STREAM_NON_BLOCKING)) ||
			       BENCH_PROBE_GPU(
				       p, cuEventCreate(&l->busy[0], CU_EVENT_DISABLE_TIMING)) ||
			       BENCH_PROBE_GPU(p,
					       cuEventCreate(&l->busy[1], CU_EVENT_DISABLE_TIMING))
		       ? -1
		       : 0;
}

int bench_probe_load_start(struct bench_probe *p, struct bench_probe_load *l, bool code)
{
	static void *(*const run[2])(void *) = { [BUSY] = keep_busy, [TIMED] = launch_in_turn };

	*l = (struct bench_probe_load){ .p = p,
					.code = code,
					.launched = calloc(RING, sizeof(*l->launched)) };
	if (prepare(p, l)) {
		return -1;
	}
	/* Resident from here on: pages that launches touched would count as growth of the cycles.
	 */
	memset(l->launched, 0xff, RING * sizeof(*l->launched));
	for (; l->threads < 2; l->threads++) {
		int err = pthread_create(&l->thread[l->threads], NULL, run[l->threads], l);

		if (err) {
			return bench_testbed_fail(&p->testbed, "cannot create a thread: %s",
						  strerror(err));
		}
	}
	return bench_probe_load_proceed(l, 4);
}

static void stop(struct bench_probe_load *l)
{
	store_release(&l->stop, 1u);
	while (l->threads) {
		pthread_join(l->thread[--l->threads], NULL);
	}
}

void bench_probe_load_finish(struct bench_probe_load *l)
{
	struct bench_probe *p = l->p;

	if (!p) {
		return;
	}
	stop(l);
	for (unsigned i = 0; i < 2 && l->busy[i]; i++) {
		(void)BENCH_PROBE_GPU(p, cuEventDestroy_v2(l->busy[i]));
	}
	if (l->busy_stream) {
		(void)BENCH_PROBE_GPU(p, cuStreamDestroy_v2(l->busy_stream));
	}
	if (l->stream) {
		(void)BENCH_PROBE_GPU(p, cuStreamDestroy_v2(l->stream));
	}
	if (l->at) {
		(void)BENCH_PROBE_GPU(p, cuMemFree_v2(l->at));
	}
	if (l->copy) {
		(void)BENCH_PROBE_CU(p, BENCH_PROBE_DRIVER, cuModuleUnload(l->copy));
	}
	if (l->module) {
		(void)BENCH_PROBE_GPU(p, cuModuleUnload(l->module));
	}
	free(l->image);
	free(l->launched);
	memset(l, 0, sizeof(*l));
}

int bench_probe_load_verify(struct bench_probe_load *l)
{
	uint32_t v[BENCH_PROBE_GROW_BLOCKS * BENCH_PROBE_GROW_THREADS];
	struct bench_probe *p = l->p;

	stop(l);
	if (BENCH_PROBE_GPU(p, cuMemcpyDtoH_v2(v, l->at, sizeof(v)))) {
		return -1;
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(v); i++) {
		uint32_t right = bench_probe_grown(i, l->grown);

		if (v[i] != right) {
			return bench_testbed_fail(&p->testbed,
						  "WRONG RESULT: element %u after %llu launches is "
						  "%u, not %u",
						  i, (unsigned long long)l->grown, v[i], right);
		}
	}
	return 0;
}

/* ---- waiting ---- */

/* Pauses a wait for a state. Fails if the load has failed or the state does not come. */
static int pause_for(struct bench_probe_load *l, uint64_t deadline, const char *what)
{
	struct bench_probe *p = l->p;

	for (unsigned i = 0; i < 2; i++) {
		if (load_acquire(&l->failure[i].failed)) {
			return bench_probe_check(p, l->failure[i].result, l->failure[i].call);
		}
	}
	if (bench_testbed_interrupted()) {
		return bench_testbed_fail(&p->testbed, "interrupted");
	}
	if (clock_now_ns() > deadline) {
		return bench_testbed_fail(&p->testbed, "%s", what);
	}
	clock_sleep_ns(POLL_NS);
	return 0;
}

int bench_probe_load_proceed(struct bench_probe_load *l, uint64_t n)
{
	uint64_t deadline = clock_now_ns() + STATE_NS;
	uint64_t until = load_acquire(&l->iterations) + n;
	int err = 0;

	while (!err && load_acquire(&l->iterations) < until) {
		err = pause_for(l, deadline, "launches do not end");
	}
	return err;
}

int bench_probe_load_window(struct bench_probe_load *l, struct bench_probe_window *w)
{
	store_release(&l->window, w);
	return w ? 0 : bench_probe_load_proceed(l, 2);
}

int bench_probe_load_park(struct bench_probe_load *l)
{
	uint64_t deadline = clock_now_ns() + STATE_NS;
	int err = 0;

	store_release(&l->parked, 0u);
	store_release(&l->park, 1u);
	while (!err && !load_acquire(&l->parked)) {
		err = pause_for(l, deadline, "a launch does not end");
	}
	return err;
}

void bench_probe_load_unpark(struct bench_probe_load *l)
{
	store_release(&l->park, 0u);
}

int bench_probe_load_await(struct bench_probe_load *l, const struct bench_probe_tool *t)
{
	uint64_t deadline = clock_now_ns() + STATE_NS;
	bool running = false;
	int err = bench_probe_is_running(l->p, t, &running);

	while (!err && !running) {
		err = pause_for(l, deadline, "a kernel does not get its program");
		err = err ? err : bench_probe_is_running(l->p, t, &running);
	}
	return err;
}

int bench_probe_load_await_none(struct bench_probe_load *l)
{
	uint64_t deadline = clock_now_ns() + STATE_NS;
	size_t n = 0;
	int err = bench_probe_count(l->p, &n);

	while (!err && n) {
		err = pause_for(l, deadline, "a tool does not end");
		err = err ? err : bench_probe_count(l->p, &n);
	}
	return err;
}

const struct bench_probe_launched *bench_probe_load_launched(const struct bench_probe_load *l,
							     uint64_t i)
{
	uint64_t grown = load_acquire(&l->grown);

	return i < grown && grown - i < RING ? &l->launched[i % RING] : NULL;
}
