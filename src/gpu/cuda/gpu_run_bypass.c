/* Kernels whose blocks wait for blocks of higher index: not legal without a cooperative launch, but
 * it works as long as all of them fit the device. When some of them left because of a lease, the
 * others wait for ever, and the stream never runs empty. So where nothing has moved for a while the
 * missing blocks are launched beside, on a stream of our own, where no lease stops them.
 *
 * Blocks of the launch that have not begun may still come (it may only be slow), and launches
 * behind it must not begin before the blocks beside have ended. So first the counter is taken, by
 * one atomic exchange, to a value before all tickets of the chain: from then on whatever draws one
 * gets none of the launch's, and leaves. The blocks beside draw from a counter of their own, which
 * goes on where the other was. When both streams are empty the counter, and the word behind it, are
 * put back to the end of the launch, and what is behind it is put again. Each ticket is given once,
 * however wrong the suspicion was. */
#include "gpu/cuda/gpu_run_submit_int.h"

#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define QUIET_NS 20000000u /* no progress for this time after a lease, */
#define UNSEEN_NS                                                                                  \
	200000000u /* or for this time if no lease was seen; at least four times the expected      \
		      duration */
#define PROBE_NS 2000000u /* period of reads of the counter */
#define BEAT_NS 4000000u  /* period of launches of a kernel of our own while watching */
#define BEATS 8u	  /* that must complete before a launch is declared hung */
#define WATCH_NS 100000000u
#define STRIKES 3u /* then on_hung is called for the clone */
#define SPARE 48u
#define BESIDE 32u /* bytes from the counter to the counter of bypass blocks */

_Static_assert(PTX_BLOCK_READY == 32768, "the text below stores to the word behind a counter");
static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry gbpf_take(.param .u64 counter, .param .u64 bypass, .param .u64 out,\n"
	" .param .u32 value)\n"
	"{\n"
	".reg .b64 %rd<4>;\n"
	".reg .b32 %r<3>;\n"
	"ld.param.u64 %rd1, [counter];\n"
	"ld.param.u64 %rd2, [bypass];\n"
	"ld.param.u64 %rd3, [out];\n"
	"ld.param.u32 %r1, [value];\n"
	"atom.global.exch.b32 %r2, [%rd1], %r1;\n"
	"st.volatile.global.u32 [%rd2], %r2;\n"
	"st.volatile.global.u32 [%rd2+32768], %r2;\n"
	"st.volatile.global.u32 [%rd3], %r2;\n"
	"ret;\n"
	"}\n";

/* Launches the take kernel on the line at `counters` and `words`. from: offset of the counter that
 * is taken; SPARE_OFFSET if the launch shall only show that kernels get to run. */
static CUresult launch_take(const struct cuabi_table *real, CUfunction f, CUstream stream,
			    uint64_t counters, uint64_t words, uint32_t from, uint32_t value)
{
	uint64_t counter = counters + from, beside = counters + (from ? SPARE : BESIDE);
	uint64_t out = words + (from ? 16 : 8);
	void *params[] = { &counter, &beside, &out, &value };

	return real->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static CUresult take(struct gpu_run *c, uint32_t from, uint32_t value)
{
	return launch_take(c->d->real, c->home->take, c->home->beside, c->counter, c->done_device,
			   from, value);
}

/* Done before the first launch of a run, for two reasons: loading might wait for a kernel that
 * hangs, and the driver loads lazily until a kernel's first launch. */
void gpu_run_bypass_prepare(struct gpu_device *d, struct gpu_run_context *x,
			    const struct gpu_run_slab *s, uint32_t ticket)
{
	const struct cuabi_table *real = d->real;
	CUfunction f;

	if (x->beside || gpu_private_stream(d, &x->beside) != CUDA_SUCCESS ||
	    real->cuModuleLoadData(&x->module, ptx) != CUDA_SUCCESS ||
	    real->cuModuleGetFunction(&f, x->module, "gbpf_take") != CUDA_SUCCESS) {
		return;
	}
	if (launch_take(real, f, x->beside, s->counters, s->done, 0, ticket) == CUDA_SUCCESS) {
		x->taking = f;
	}
}

static bool is_stalled(const struct gpu_run *c, uint64_t now)
{
	const struct gpu_run_piece *front = &c->piece[c->p_tail % CHAIN_PIECES];
	bool seen = (int32_t)(c->leased_upto - c->p_tail) > 0;
	uint64_t since = seen ? MAX(c->front_ns, c->leased_ns) : c->front_ns;
	uint64_t least = MAX((uint64_t)(seen ? QUIET_NS : UNSEEN_NS), 4 * front->est_ns);

	return now > since && now - since >= least;
}

static void begin_take(struct gpu_run *c)
{
	uint32_t first = c->launch[c->piece[c->p_tail % CHAIN_PIECES].launch % GPU_RUN_DEPTH].first;
	CUresult e;

	c->probing = false;
	(void)add_acqrel(&c->unput, 1u); /* keeps the run busy until finish_bypass */
	e = take(c, 0, first - GPU_RUN_TICKETS_MAX);
	if (e) {
		gpu_run_fail(c, e);
		return;
	}
	store_relaxed(&c->state, (uint32_t)CHAIN_TAKE);
}

void gpu_run_bypass_watch(struct gpu_run *c, bool may_run, uint64_t now)
{
	uint32_t counter;

	if (!may_run) {
		c->leased_ns = now;
		c->leased_upto = c->p_head;
	}
	if (!may_run || !c->home->take || c->p_head == c->p_tail || !is_stalled(c, now)) {
		c->probing = false;
		return;
	}
	if (c->probing && now - c->probe_ns < PROBE_NS) {
		return;
	}
	if (c->probing && c->d->real->cuStreamQuery(c->home->io) == CUDA_ERROR_NOT_READY) {
		return;
	}
	counter = __atomic_load_n((const uint32_t *)(c->done + 1), __ATOMIC_ACQUIRE);
	if (!c->probing || counter != c->probe) {
		c->probe_since_ns = now;
		c->probe =
			counter; /* the first value is not used: the copy has not been made yet */
	} else if (now - c->probe_since_ns >= QUIET_NS / 2) {
		begin_take(c);
		return;
	}
	c->probing = true;
	c->probe_ns = now;
	if (c->d->real->cuMemcpyDtoHAsync_v2((void *)(uintptr_t)(c->done + 1), c->counter,
					     sizeof(uint32_t), c->home->io) != CUDA_SUCCESS) {
		c->probing = false;
	}
}

/* Launches the missing blocks of the launch on the bypass stream. Their tickets continue at
 * `counter`. */
static CUresult launch_bypass(struct gpu_run *c, struct gpu_run_entry *l, uint32_t missing)
{
	size_t bytes = l->params_bytes + sizeof(struct ptx_block_arg);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, l->params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	struct ptx_block_arg arg;

	memcpy(&arg, l->params + l->params_bytes, sizeof(arg));
	arg.tickets = c->counter + BESIDE;
	arg.done = c->done_device +
		   12; /* not the run's word: pieces behind this launch have not run */
	arg.first = l->first;
	arg.total = l->total;
	arg.groups = 0;
	memcpy(l->params + l->params_bytes, &arg, sizeof(arg));
	return c->d->real->cuLaunchKernel(l->clone, missing, 1, 1, l->block[0], l->block[1],
					  l->block[2], l->smem, c->home->beside, NULL, extra);
}

static void counter_taken(struct gpu_run *c, uint64_t now)
{
	uint32_t counter = __atomic_load_n((const uint32_t *)(c->done + 2), __ATOMIC_ACQUIRE);
	uint32_t i, ran;

	if (!gpu_run_locate(c, counter, &i, &ran)) {
		gpu_run_fail(c, CUDA_ERROR_ILLEGAL_STATE);
		return;
	}
	c->put_back = counter;
	/* If no block of the next launch has begun, there was progress meanwhile, and what is
	 * before it can end. Exception: it was submitted to an empty stream. Then something else is
	 * in its way, for example on a hardware channel that both streams share, a host function
	 * that waits for these blocks. */
	store_relaxed(&c->state,
		      (uint32_t)(i != c->head && (ran || c->first) ? CHAIN_WATCH : CHAIN_BESIDE));
	c->watch_ns = c->beat_ns = now;
	c->beats = 0;
}

/* The launch's blocks that have begun never ended, so they wait for those that left; or no block of
 * it gets to the device although its stream has nothing else. */
static void on_hung(struct gpu_run *c)
{
	struct gpu_runs *all = c->d->runs;
	struct gpu_run_entry *l;
	uint32_t i, ran;
	CUresult e;

	if (!gpu_run_locate(c, c->put_back, &i, &ran)) {
		gpu_run_fail(c, CUDA_ERROR_ILLEGAL_STATE);
		return;
	}
	if (!ran && !c->first) { /* the launches before it ended after the counter was taken */
		store_relaxed(&c->state, (uint32_t)CHAIN_BESIDE);
		return;
	}
	l = &c->launch[i % GPU_RUN_DEPTH];
	e = launch_bypass(c, l, l->total - ran);
	if (e) {
		gpu_run_fail(c, e);
		return;
	}
	(void)sub_acqrel(&c->unput, l->total - l->covered);
	l->covered = l->total;
	c->put_back = l->first + l->total;
	store_relaxed(&c->state, (uint32_t)CHAIN_BESIDE);
	(void)add_relaxed(&all->counts.hung, 1u);
	c->strikes = c->suspect == l->id ? c->strikes + 1 : 1;
	c->suspect = l->id;
	if (c->strikes == STRIKES && all->on_hung) {
		all->on_hung(all->on_hung_arg, l->clone);
	}
}

/* Watches the stream after the counter was taken: all further blocks leave. If the stream becomes
 * idle, its blocks were only slow, or another context had the device, and this is an ordinary
 * interruption. Launches of our own kernel show whether this context has the device. */
static void watch(struct gpu_run *c, const struct gpu_queue *q, uint64_t now)
{
	const struct gpu_run_piece *front = &c->piece[c->p_tail % CHAIN_PIECES];
	CUresult e = c->d->real->cuStreamQuery(q->stream);

	if (e == CUDA_SUCCESS) {
		store_relaxed(&c->state, (uint32_t)CHAIN_BESIDE);
	} else if (e != CUDA_ERROR_NOT_READY) {
		gpu_run_fail(c, e);
	} else if (now - c->beat_ns < BEAT_NS) {
		return;
	} else if (c->beats < BEATS || now - c->watch_ns < MAX(WATCH_NS, 4 * front->est_ns)) {
		c->beats++;
		c->beat_ns = now;
		e = take(c, SPARE, 0);
		if (e) {
			gpu_run_fail(c, e);
		}
	} else {
		on_hung(c);
	}
}

/* Restores the counter. Nothing of the run is on the device. */
static void restore_counter(struct gpu_run *c)
{
	const struct cuabi_table *real = c->d->real;
	CUresult e = real->cuMemsetD32Async(c->counter, c->put_back, 1, c->home->io);

	e = e ? e
	      : real->cuMemsetD32Async(c->counter + PTX_BLOCK_READY, c->put_back, 1, c->home->io);
	if (e) {
		gpu_run_fail(c, e);
		return;
	}
	store_relaxed(&c->state, (uint32_t)CHAIN_BACK);
}

static void finish_bypass(struct gpu_run *c)
{
	if (!gpu_run_rewind(c, c->put_back)) {
		gpu_run_fail(c, CUDA_ERROR_ILLEGAL_STATE);
		return;
	}
	store_relaxed(&c->state, (uint32_t)CHAIN_RUN);
	/* No piece will store these numbers. */
	store_release(&c->newest, __atomic_load_n((const uint32_t *)c->done, __ATOMIC_ACQUIRE));
	(void)sub_acqrel(&c->unput, 1u);
}

void gpu_run_bypass_step(struct gpu_run *c, const struct gpu_queue *q, uint64_t now)
{
	const struct cuabi_table *real = c->d->real;
	uint32_t state = load_relaxed(&c->state);
	CUresult e = real->cuStreamQuery(state == CHAIN_BACK ? c->home->io : c->home->beside);

	if (e == CUDA_SUCCESS && state == CHAIN_BESIDE) {
		e = real->cuStreamQuery(q->stream);
	}
	if (e == CUDA_ERROR_NOT_READY) {
		return;
	}
	if (e) {
		gpu_run_fail(c, e);
	} else if (state == CHAIN_TAKE) {
		counter_taken(c, now);
	} else if (state == CHAIN_WATCH) {
		watch(c, q, now);
	} else if (state == CHAIN_BESIDE) {
		restore_counter(c);
	} else {
		finish_bypass(c);
	}
}

void gpu_run_on_hung(struct gpu_device *d, void (*f)(void *arg, CUfunction twin), void *arg)
{
	struct gpu_runs *all = gpu_runs_of(d);

	if (all) {
		all->on_hung_arg = arg;
		all->on_hung = f;
	}
}
