/* Launches between brackets. All three kernels go to the stream in one call of the program, in
 * their order, for each caller: the program's thread, or the agent for a deferred launch.
 * The driver may refuse any of them. Without `begin` there is no `end`; a kernel that is refused
 * behind `begin` has no `end` either, and what `begin` has kept of it is freed. */
#include "shim/probe/shim_probe_int.h"

#include <string.h>

#include "base/clock.h"
#include "shim/object/thread_cache.h"
#include "shim/session/session_agent.h"

/* A launch fills three places of the hardware's queue, which has about 1 000; the driver blocks a
 * thread that finds it full, and that may be the one that the stream waits for. */
#define SUBMITTED_MAX 128u
#define SUBMITTED_AGAIN 96u
#define PATIENCE_NS 1000000000u	   /* without progress */
#define AGENT_PATIENCE_NS 1000000u /* the agent has other things to do */
#define STEP_NS 20000u

static uint64_t launches; /* [atomic] numbers given */

/* ---- room in the queue ---- */

static uint64_t under_way(const struct shim_probe_bracket *b)
{
	return load_relaxed(&b->submitted) - load_relaxed(b->done);
}

/* Waits while the brackets' launches progress. Returns false if they do not. */
static NOINLINE bool await_room(struct shim_probe_bracket *b)
{
	bool agent = shim_agent_is_current();
	uint64_t patience = agent ? AGENT_PATIENCE_NS : PATIENCE_NS;
	uint64_t last = load_relaxed(b->done), done = last;
	bool stalled = load_relaxed(&b->stalled) == (uint32_t)last + 1;
	uint64_t until = clock_now_ns() + (stalled ? 0 : patience);

	while (load_relaxed(&b->submitted) - done >= SUBMITTED_AGAIN) {
		if (clock_now_ns() >= until) {
			store_relaxed(&b->stalled, (uint32_t)done + 1);
			return false;
		}
		clock_sleep_ns(STEP_NS);
		done = load_relaxed(b->done);
		until = done != last ? clock_now_ns() + patience : until;
		last = done;
	}
	return true;
}

static bool has_room(struct shim_probe_bracket *b)
{
	return !b->done_at || likely(under_way(b) < SUBMITTED_MAX) || await_room(b);
}

/* ---- launches ---- */

/* counts: it adds to PTX_BRACKET_DONE. */
static CUresult launch_grid(struct shim_probe_around *a, CUfunction f, bool counts, unsigned blocks,
			    unsigned threads)
{
	struct shim_thread *t = shim_thread_self();
	void *params[] = { &a->arg };
	CUresult r = f ? a->launch(f, blocks, 1, 1, threads, 1, 1, 0, a->stream, params, NULL)
		       : CUDA_SUCCESS;

	if (f && r == CUDA_SUCCESS) {
		(void)add_relaxed(&a->bracket->submitted, (uint64_t)counts);
		if (t) {
			t->brackets++;
		}
	}
	return r;
}

static CUresult launch(struct shim_probe_around *a, CUfunction f, bool counts)
{
	return launch_grid(a, f, counts, 1, 1);
}

/* The bracket that reports the blocks which no block has followed. */
static CUresult launch_late(struct shim_probe_around *a)
{
	const struct shim_probe_bracket *b = a->bracket;

	return a->arg.late
		       ? launch_grid(a, b->late, !b->parts.end, PTX_LATE_BLOCKS, PTX_LATE_THREADS)
		       : CUDA_SUCCESS;
}

/* From now on launches of the thread store blocks in the form's table. Without a thread's cache the
 * launch has no number, and the ends of its blocks are not reported. */
static void begin_late(struct shim_probe_around *a)
{
	struct shim_thread *t = shim_thread_self();

	if (!a->form->late || !t || a->refusal != CUDA_SUCCESS) {
		a->arg.late = 0;
		return;
	}
	a->stub = (struct ptx_gate_arg){ .base = a->arg.late, .launch = a->arg.late_launch };
	t->stub_arg = &a->stub;
}

static void end_late(const struct shim_probe_around *a)
{
	struct shim_thread *t = a->arg.late ? shim_thread_self() : NULL;

	if (t) {
		t->stub_arg = NULL;
	}
}

void shim_probe_around_begin(struct shim_probe_around *a, struct shim_probe_form *f,
			     shim_probe_launcher *launcher, const uint32_t dims[SHIM_PROBE_DIMS],
			     CUstream s)
{
	a->bracket = f->bracket;
	a->form = a->bracket ? f : NULL;
	if (!a->form) {
		return;
	}
	a->launch = launcher;
	a->stream = s;
	if (unlikely(!has_room(a->bracket))) {
		a->form = NULL;
		shim_probe_form_refused(f, CUDA_ERROR_NOT_READY);
		return;
	}
	a->arg = (struct ptx_bracket_arg){ .launch = add_relaxed(&launches, (uint64_t)1) + 1,
					   .kernel = f->kernel_hash,
					   .shared_bytes = dims[6],
					   .done = a->bracket->done_at,
					   .late = f->late };
	a->arg.late_launch = PTX_LATE_LAUNCH(a->arg.launch);
	memcpy(a->arg.grid, dims, sizeof(a->arg.grid));
	memcpy(a->arg.threads, dims + 3, sizeof(a->arg.threads));
	a->refusal =
		launch(a, a->bracket->begin, !a->bracket->parts.end && !a->bracket->parts.late);
	begin_late(a);
}

void shim_probe_around_end(struct shim_probe_around *a, CUresult r)
{
	const struct shim_probe_bracket *b = a->bracket;

	if (!a->form) {
		return;
	}
	end_late(a);
	if (a->refusal == CUDA_SUCCESS && r == CUDA_SUCCESS) {
		CUresult e = launch_late(a);

		a->refusal = launch(a, b->end, true);
		a->refusal = e ? e : a->refusal;
	} else if (a->refusal == CUDA_SUCCESS && b->parts.keeps_time) {
		a->arg.cancelled = 1;
		(void)launch(a, b->end, true);
	}
	if (r == CUDA_SUCCESS && a->refusal != CUDA_SUCCESS) {
		shim_probe_form_refused(a->form, a->refusal);
	}
}
