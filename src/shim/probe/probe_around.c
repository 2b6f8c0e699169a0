/* Launches between brackets. All three kernels go to the stream in one call of the program, in
 * their order, for each caller: the program's thread, or the agent for a deferred launch.
 * The driver may refuse any of them. Without `begin` there is no `end`; a kernel that is refused
 * behind `begin` has no `end` either, and what `begin` has kept of it is freed. */
#include "shim/probe/shim_probe_int.h"

#include <string.h>

#include "base/clock.h"
#include "bpf/run/ptx_env.h"
#include "shim/session/session_agent.h"

/* A launch fills three places of the hardware's queue, which has about 1 000; the driver blocks a
 * thread that finds it full, and that may be the one that the stream waits for. */
#define SUBMITTED_MAX 128u
#define SUBMITTED_AGAIN 96u
#define PROGRESS_TIMEOUT_NS 1000000000u /* without progress */
#define AGENT_PATIENCE_NS 1000000u	/* the agent has other things to do */
#define STEP_NS 20000u

/* ---- room in the queue ---- */

static uint64_t under_way(const struct shim_probe_bracket *b)
{
	return load_relaxed(&b->submitted) - load_relaxed(b->done);
}

/* Waits while the brackets' launches progress. Returns false if they do not. */
static NOINLINE bool await_room(struct shim_probe_bracket *b)
{
	bool agent = shim_agent_is_current();
	uint64_t patience = agent ? AGENT_PATIENCE_NS : clock_patience(PROGRESS_TIMEOUT_NS);
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
	const struct shim_kernel_call bracket = { .stream = a->call->stream,
						  .grid = { blocks, 1, 1 },
						  .block = { threads, 1, 1 },
						  .api = SHIM_KERNEL_API_PLAIN,
						  .per_thread = a->call->per_thread };
	void *params[] = { &a->arg };
	CUresult r = f ? shim_kernel_call_run(&bracket, f, 0, params, NULL) : CUDA_SUCCESS;

	if (f && r == CUDA_SUCCESS) {
		(void)add_relaxed(&a->bracket->submitted, (uint64_t)counts);
		a->launched++;
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

/* The argument of the entry stub: the launch's number, and the form's table, in which its blocks
 * are stored. */
static void fill_stub(struct shim_probe_around *a, const struct shim_probe_form *f)
{
	if (!a->form || !f->code || a->refusal != CUDA_SUCCESS) {
		a->arg.late = 0;
	}
	a->stub = (struct ptx_gate_arg){ .done = f->numbered ? a->number : 0,
					 .base = a->arg.late,
					 .launch = a->arg.late ? a->arg.late_launch : 0 };
}

static void begin_bracket(struct shim_probe_around *a, const uint32_t dims[SHIM_PROBE_DIMS])
{
	if (unlikely(!has_room(a->bracket))) {
		shim_probe_form_refused(a->form, CUDA_ERROR_NOT_READY);
		a->form = NULL;
		return;
	}
	a->arg = (struct ptx_bracket_arg){ .launch = a->number,
					   .kernel = a->form->kernel_hash,
					   .shared_bytes = dims[6],
					   .done = a->bracket->done_at,
					   .control = EBPF_PTX_CONTROL_ROW(a->form->row),
					   .late = a->form->late };
	a->arg.late_launch = PTX_LATE_LAUNCH(a->arg.launch);
	memcpy(a->arg.grid, dims, sizeof(a->arg.grid));
	memcpy(a->arg.threads, dims + 3, sizeof(a->arg.threads));
	a->refusal =
		launch(a, a->bracket->begin, !a->bracket->parts.end && !a->bracket->parts.late);
}

void shim_probe_around_begin(struct shim_probe_around *a, struct shim_probe_form *f,
			     const struct shim_kernel_call *c, const uint32_t dims[SHIM_PROBE_DIMS])
{
	a->call = c;
	a->number = shim_probe_number(f);
	a->bracket = f->bracket;
	a->form = a->bracket ? f : NULL;
	if (a->form) {
		begin_bracket(a, dims);
	}
	fill_stub(a, f);
}

void shim_probe_around_end(struct shim_probe_around *a, CUresult r)
{
	const struct shim_probe_bracket *b = a->bracket;

	if (!a->form) {
		return;
	}
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
