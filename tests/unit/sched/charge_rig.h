/* A policy that lets everything go and whose retire writes down what it gets. */
#ifndef GBPF_TESTS_SCHED_CHARGE_RIG_H
#define GBPF_TESTS_SCHED_CHARGE_RIG_H

#include "run_device.h"

/* submit: GO. retire: tenant[0] += duration_ns, [1] += count, [2] = submit_version, [3] = flags,
 * [4] = kernel, [5] = held_ns, [6] = level, [7] += interrupted, [8] += 1, [9] += overlap_ns */
#define PUT(size, field, at) I_LDX(size, 3, 1, RETIRE(field)), I_STX(EBPF_DW, 2, 8 * (at), 3)
#define SUM(size, field, at) I_LDX(size, 3, 1, RETIRE(field)), I_ATOMIC_ADD(2, 8 * (at), 3)
static const struct ebpf_insn charge[] = {
	I_VALUE(2, 1, 0),
	SUM(EBPF_DW, duration_ns, 0),
	SUM(EBPF_W, count, 1),
	PUT(EBPF_DW, submit_version, 2),
	PUT(EBPF_W, flags, 3),
	PUT(EBPF_DW, kernel, 4),
	PUT(EBPF_DW, held_ns, 5),
	PUT(EBPF_W, level, 6),
	SUM(EBPF_W, interrupted, 7),
	SUM(EBPF_DW, overlap_ns, 9),
	I_MOV(3, 1),
	I_ATOMIC_ADD(2, 64, 3),
	I_MOV(0, 0),
	I_EXIT,
};

enum { NS, COUNT, VERSION, FLAGS, KERNEL, HELD, LEVEL, INTERRUPTED, CALLS, OVERLAP };

static struct regions maps;

static inline void init(struct clocked *c)
{
	struct prog p[] = { PROG(submit, run_device_go), PROG(retire, charge) };

	fake_live_markers = 0;
	run_device_init(c);
	regions_make(&maps);
	assert_int_equal(rig_policy_prepare(&c->r, 2, p, 2, &maps), 0);
	c->r.dir.version[0] = 2;
}

static inline void finish(struct clocked *c)
{
	sched_queue_close(c->q);
	assert_int_equal(fake_live_markers, 0);
	assert_int_equal(sched_inflight(c->r.s), 0);
	clocked_finish(c);
	regions_free(&maps);
}

/* Launches, and returns the markers that this placed. Afterwards 0.1 s more has passed than the
 * kernel takes, so that a charge is not limited by it. */
static inline uint64_t launch(struct clocked *c, uint64_t ns)
{
	uint64_t before = c->fq.seq;

	assert_int_equal(ticket_begin(c->q, &c->l), SCHED_GO);
	fake_launch(&c->fq, ns);
	ticket_end(true);
	clocked_now += ns + SECOND / 10;
	return c->fq.seq - before - 1;
}

#endif
