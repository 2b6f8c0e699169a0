/* A device with runs that answers what the test has set, and counts what it is asked for. */
#ifndef GBPF_TESTS_SCHED_RUN_DEVICE_H
#define GBPF_TESTS_SCHED_RUN_DEVICE_H

#include "clocked.h"

static struct {
	struct sched_run_progress progress;
	int busy;
	int error;	  /* of the next look */
	uint64_t step_ns; /* answer of run_step */
	unsigned looks, steps;
	bool may_run, force; /* of the last step */
	bool resumes;	     /* a step that may run ends the interruption */
} run_device;

static inline int run_device_busy(void *dev, void *dev_queue)
{
	return run_device.busy;
}

static inline int run_device_look(void *dev, void *dev_queue, struct sched_run_progress *ret)
{
	int err = run_device.error;

	*ret = run_device.progress;
	run_device.error = 0;
	run_device.looks++;
	return err;
}

static inline uint64_t run_device_step(void *dev, void *dev_queue, bool may_run, bool force)
{
	run_device.steps++;
	run_device.may_run = may_run;
	run_device.force = force;
	if (run_device.resumes && may_run) {
		run_device.progress.stopped = run_device.progress.waiting = false;
	}
	return run_device.step_ns;
}

static const struct ebpf_insn run_device_go[] = { I_MOV(0, GBPF_GO), I_EXIT };

/* A batch process whose policy, version 1, lets everything go. */
static inline void run_device_init(struct clocked *c)
{
	clocked_init(c, GBPF_CLASS_BATCH);
	memset(&run_device, 0, sizeof(run_device));
	c->ops.run_busy = run_device_busy;
	c->ops.run_look = run_device_look;
	c->ops.run_step = run_device_step;
	c->r.s->grace_ns = 0;
	c->r.s->few_cpus = false;
	POLICY_USE(&c->r, 1, run_device_go);
	store_relaxed(&c->r.s->active_ns, UINT64_C(0));
}

/* Begins a run with one launch that has not started all its blocks. */
static inline void run_device_begin(struct clocked *c)
{
	run_device.busy = 1;
	run_device.progress.launched = 1;
	run_device.step_ns = 10 * SECOND;
	assert_true(sched_run_begin(c->q));
}

static inline void run_device_finish(struct clocked *c)
{
	run_device.busy = 0;
	(void)sched_run_end_if_done(c->q);
	clocked_finish(c);
}

#endif
