/* cuLaunchCooperativeKernelMultiDevice: one call with a launch record on each of its streams. The
 * scheduler is asked for each in turn, in the order of their locks, and the call is made when all
 * may start. It is never deferred, since its streams belong to several devices. */
#include <string.h>

#include "shim/capture_state.h"
#include "shim/entry/gate.h"
#include "shim/object/queue_drain.h"

#define MAX_LAUNCHES 16u

struct one {
	struct shim_queue *q;
	const CUDA_LAUNCH_PARAMS *p;
	struct sched_launch l;
	struct sched_ticket ticket;
};

static void ask(struct shim_thread *t, struct one *o)
{
	struct shim_launch launch;

	shim_describe_one_of(&launch, t, o->p);
	o->l = launch.record;
	o->l.may_hold = !t->host_function;
	if (sched_ticket_begin(&o->ticket, o->q->sched, &o->l) ==
	    SCHED_DEFER) { /* it cannot be copied */
		o->l.may_hold = false;
		(void)sched_ticket_begin(&o->ticket, o->q->sched, &o->l);
	}
}

/* Finds the queues before a lock of one is held. Returns their number, which is smaller than n
 * where there is none, or the same again, which the driver refuses. */
static unsigned find(struct one *one, struct shim_thread *t, const CUDA_LAUNCH_PARAMS *list,
		     unsigned n)
{
	unsigned found = 0;

	for (unsigned i = 0; i < n; i++) {
		struct shim_queue *q = shim_queue_of(t, list[i].hStream, false);
		unsigned at = found;

		while (q && at > 0 && one[at - 1].q->sched > q->sched) {
			at--;
		}
		if (q && (!at || one[at - 1].q != q)) {
			memmove(&one[at + 1], &one[at], (found++ - at) * sizeof(*one));
			one[at].q = q;
			one[at].p = &list[i];
		}
	}
	return found;
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned n, unsigned flags)
{
	struct one one[MAX_LAUNCHES];
	struct shim_thread *t;
	unsigned n_asked;
	CUresult r;

	shim_drain_pending();
	t = sched_idle(shim.sched) || shim_capture_any() || !list || n > MAX_LAUNCHES
		    ? NULL
		    : shim_thread_self();
	n_asked = t ? find(one, t, list, n) : 0;
	for (unsigned i = 0; i < n_asked; i++) {
		ask(t, &one[i]);
	}
	r = SHIM_REAL(cuLaunchCooperativeKernelMultiDevice)(list, n, flags);
	for (unsigned i = 0; i < n_asked; i++) {
		if (r == CUDA_SUCCESS) {
			sched_ticket_commit(&one[i].ticket);
		} else {
			sched_ticket_abort(&one[i].ticket);
		}
	}
	return r;
}
