/* Launch functions of kernels and graphs: each is described and goes through the gate. */
#include "shim/capture_state.h"
#include "shim/entry/gate.h"
#include "shim/object/event_uses.h"
#include "shim/object/graph_events.h"

CUresult shim_gate_kernel(const struct shim_call *c, uint64_t *a)
{
	struct shim_launch l;

	if (sched_idle(shim.sched)) {
		shim_describe_call(&l.call, c, a);
		return shim_kernel_issue(&l.call);
	}
	shim_describe_kernel(&l, c, a);
	return shim_gate_submit(c, a, &l);
}

CUresult shim_gate_kernel_ex(const struct shim_call *c, uint64_t *a)
{
	struct shim_launch l;

	if (!a[0]) {
		return c->run(a); /* the driver refuses it */
	}
	if (sched_idle(shim.sched)) {
		shim_describe_call_ex(&l.call, c, a);
		return shim_kernel_issue(&l.call);
	}
	shim_describe_kernel_ex(&l, c, a);
	return shim_gate_submit(c, a, &l);
}

CUresult shim_gate_legacy(const struct shim_call *c, uint64_t *a)
{
	struct shim_launch l;

	shim_describe_legacy(&l, c, a);
	return shim_gate_submit(c, a, &l);
}

/* A graph launch must follow the launches of the same graph that other streams have deferred, and
 * an executable graph must not be used while another thread launches it: drains those launches. */
static NOINLINE void drain_before_graph(const struct shim_call *c, const uint64_t *a)
{
	struct shim_thread *t = shim_thread_self();
	CUstream stream = (CUstream)(uintptr_t)a[1];

	if (shim_graph_has_events((CUgraphExec)(uintptr_t)a[0])) {
		shim_drain_all();
	} else if (t && !(shim_capture_any() && shim_capture_has(stream, c->per_thread))) {
		shim_event_drain((CUevent)(uintptr_t)a[0], SHIM_EVENT_RECORD,
				 shim_queue_of(t, stream, c->per_thread));
	}
}

CUresult shim_gate_graph(const struct shim_call *c, uint64_t *a)
{
	struct shim_launch l;

	if (shim_pending()) {
		drain_before_graph(c, a);
	}
	shim_describe_graph(&l, a);
	return shim_gate_submit(c, a, &l);
}
