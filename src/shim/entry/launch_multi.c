/* cuLaunchCooperativeKernelMultiDevice: one call with a launch record on each of its streams. The
 * scheduler is asked for each in turn, and the call is made when all may start. It is never
 * deferred, since its streams belong to several devices. */
#include "shim/capture_state.h"
#include "shim/entry/gate.h"
#include "shim/object/queue_drain.h"

#define MAX_LAUNCHES 16u

static void ask(struct shim_thread *t, struct shim_queue *q, const CUDA_LAUNCH_PARAMS *p,
		struct sched_launch *l, struct sched_ticket *ticket)
{
	struct shim_launch launch;

	shim_describe_one_of(&launch, t, p);
	*l = launch.record;
	l->may_hold = !t->host_function;
	if (sched_ticket_begin(ticket, q->sched, l) == SCHED_DEFER) { /* it cannot be copied */
		l->may_hold = false;
		(void)sched_ticket_begin(ticket, q->sched, l);
	}
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned n, unsigned flags)
{
	struct sched_ticket ticket[MAX_LAUNCHES];
	struct sched_launch l[MAX_LAUNCHES];
	struct shim_queue *q[MAX_LAUNCHES];
	struct shim_thread *t;
	CUresult r;

	shim_drain_pending();
	t = sched_idle(shim.sched) || shim_capture_any() || !list || n > MAX_LAUNCHES
		    ? NULL
		    : shim_thread_self();
	if (!t) {
		return SHIM_REAL(cuLaunchCooperativeKernelMultiDevice)(list, n, flags);
	}
	for (unsigned i = 0; i < n; i++) {
		q[i] = shim_queue_of(t, list[i].hStream, false);
		if (q[i]) {
			ask(t, q[i], &list[i], &l[i], &ticket[i]);
		}
	}
	r = SHIM_REAL(cuLaunchCooperativeKernelMultiDevice)(list, n, flags);
	for (unsigned i = 0; i < n; i++) {
		if (q[i] && r == CUDA_SUCCESS) {
			sched_ticket_commit(&ticket[i]);
		} else if (q[i]) {
			sched_ticket_abort(&ticket[i]);
		}
	}
	return r;
}
