/* Calls of the program that use, change or end executable graphs with probed forms. From the first
 * tool on, launches and uploads lead here; an exec's mutex is held over each, so that the probe
 * thread does not change it meanwhile. */
#include "shim/probe/probe_graph_int.h"

#include "shim/capture_state.h"

static struct {
	CUresult (*launch)(CUgraphExec, CUstream);
	CUresult (*launch_ptsz)(CUgraphExec, CUstream);
	CUresult (*upload)(CUgraphExec, CUstream);
	CUresult (*upload_ptsz)(CUgraphExec, CUstream);
} before; /* functions that the slots held before */

/* As shim_probe_exec_begin(), without the table's lock once the thread has launched the graph. */
static struct shim_probe_exec *begin(CUgraphExec exec)
{
	struct shim_thread *t = shim_attached() ? shim_thread_self() : NULL;
	uintptr_t key = (uintptr_t)exec;
	unsigned slot = shim_thread_slot(key, SHIM_THREAD_GRAPHS);
	struct shim_probe_exec *x = t ? t->graphs[slot] : NULL;

	if (likely(x && load_acquire(&x->exec) == exec && shim_probe_exec_enter(x, exec))) {
		return x;
	}
	x = shim_probe_exec_begin(exec);
	if (t && x) {
		t->graphs[slot] = x;
	}
	return x;
}

/* A launch that is captured makes a child graph, which the program may look into. */
static bool is_recorded(CUstream stream, bool per_thread)
{
	return shim_capture_any() && shim_capture_has(stream, per_thread);
}

/* Makes the call, and once more with the program's kernels if the driver refuses the forms. Caller
 * holds the exec's mutex. */
static CUresult call_with_forms(struct shim_probe_exec *x, CUstream stream,
				CUresult (*own)(CUgraphExec, CUstream))
{
	CUresult r = own(x->exec, stream), e;

	if (likely(r == CUDA_SUCCESS) || !load_relaxed(&x->n_forms)) {
		return r;
	}
	shim_probe_exec_note_refusal(x, r);
	shim_probe_exec_restore(x, true, false);
	e = own(x->exec, stream);
	if (e != CUDA_SUCCESS) { /* the forms are not the cause */
		shim_probe_exec_note_refusal(x, CUDA_SUCCESS);
	}
	return e;
}

static CUresult call(CUgraphExec exec, CUstream stream, bool per_thread,
		     CUresult (*own)(CUgraphExec, CUstream))
{
	struct shim_probe_exec *x;
	CUresult r;

	if (unlikely(load_relaxed(&shim_probe_paused_until))) {
		shim_probe_wait_paused();
	}
	x = begin(exec);
	if (!x) {
		return own(exec, stream);
	}
	if (unlikely(is_recorded(stream, per_thread))) {
		shim_probe_exec_restore(x, true, false);
	} else if (unlikely(x->seen != load_acquire(&shim_probe_forms_generation))) {
		shim_probe_exec_settle(x, true);
	}
	r = call_with_forms(x, stream, own);
	shim_probe_exec_end(x);
	return r;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
	return call(exec, stream, false, before.launch);
}

static CUresult launch_ptsz(CUgraphExec exec, CUstream stream)
{
	return call(exec, stream, true, before.launch_ptsz);
}

static CUresult upload(CUgraphExec exec, CUstream stream)
{
	return call(exec, stream, false, before.upload);
}

static CUresult upload_ptsz(CUgraphExec exec, CUstream stream)
{
	return call(exec, stream, true, before.upload_ptsz);
}

void shim_probe_lead_graphs(void)
{
	before.launch = shim_real.cuGraphLaunch;
	before.launch_ptsz = shim_real.cuGraphLaunch_ptsz;
	before.upload = shim_real.cuGraphUpload;
	before.upload_ptsz = shim_real.cuGraphUpload_ptsz;
	shim_real.cuGraphLaunch = launch;
	shim_real.cuGraphLaunch_ptsz = launch_ptsz;
	shim_real.cuGraphUpload = upload;
	shim_real.cuGraphUpload_ptsz = upload_ptsz;
}

/* ---- changes by the program; the driver has made them ---- */

void shim_probe_exec_was_set(struct shim_probe_exec *x, CUgraphNode node,
			     const CUDA_KERNEL_NODE_PARAMS *p)
{
	if (x) {
		shim_probe_exec_set(x, node, p);
	}
}

void shim_probe_exec_child_was_set(struct shim_probe_exec *x, CUgraphNode node, CUgraph child)
{
	if (x && !x->lost) {
		shim_probe_exec_set_child(x, node, child);
	}
}

void shim_probe_exec_was_updated(struct shim_probe_exec *x, CUgraph from)
{
	if (!x) {
		return;
	}
	if (shim_probe_exec_is_of(x, from)) {
		shim_probe_exec_renew(x);
		x->lost = NULL;
	} else {
		shim_probe_exec_updated(x, from);
	}
}

struct shim_probe_exec *shim_probe_exec_begin_change(CUgraphExec exec)
{
	struct shim_probe_exec *x = shim_probe_exec_begin(exec);

	if (x) {
		shim_probe_exec_leave_copy(x);
	}
	return x;
}

/* ---- ends of kernels, contexts, forms ---- */

void shim_probe_graphs_leave(CUcontext ctx)
{
	for (struct shim_probe_exec *x = load_acquire(&shim_probe_execs); x; x = x->next) {
		bool ends = ctx && load_relaxed(&x->ctx) == ctx;

		if ((ends || load_acquire(&x->n_forms)) && shim_probe_exec_lock(x)) {
			shim_probe_exec_restore(x, ends, true);
			if (ends) {
				store_relaxed(&x->ctx, NULL);
			}
			shim_probe_exec_end(x);
		}
	}
}

/* Only execs with forms: no launch that began before the slots led here uses one of them. */
bool shim_probe_graphs_settle(void)
{
	bool settled = true;

	lock_take(&shim_probe_build_mutex);
	for (struct shim_probe_exec *x = load_acquire(&shim_probe_execs); x && !shim_probe_stopped;
	     x = x->next) {
		if (!load_acquire(&x->n_forms)) {
			continue;
		}
		if (!lock_try(&x->mutex)) { /* it is being launched */
			settled = false;
			continue;
		}
		if (x->exec && x->seen != load_acquire(&shim_probe_forms_generation)) {
			shim_probe_exec_settle(x, false);
		}
		lock_release(&x->mutex);
	}
	lock_release(&shim_probe_build_mutex);
	return settled;
}
