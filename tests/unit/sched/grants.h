/* Launches as the shim makes them, under a policy that grants. */
#ifndef GBPF_TESTS_SCHED_GRANTS_H
#define GBPF_TESTS_SCHED_GRANTS_H

#include "clocked.h"

#define EST 5000u /* ns, of the kernel */

/* Map of the tenant: calls, and granted, granted_ns, inflight_ns and granted_last_ns as the last
 * call saw them. */
static struct regions maps;
static struct clocked c;

static int verdict = GBPF_GO, level; /* of its answer */

/* submit: counts the call, records its arguments, and grants n. */
static inline void use(uint64_t version, int n)
{
	const struct ebpf_insn insns[] = {
		I_VALUE(2, 1, 0),
		I_LDX(EBPF_W, 3, 1, SUBMIT(granted)),
		I_STX(EBPF_DW, 2, 8, 3),
		I_LDX(EBPF_DW, 3, 1, SUBMIT(granted_ns)),
		I_STX(EBPF_DW, 2, 16, 3),
		I_LDX(EBPF_DW, 3, 1, SUBMIT(inflight_ns)),
		I_STX(EBPF_DW, 2, 24, 3),
		I_LDX(EBPF_DW, 3, 1, SUBMIT(granted_last_ns)),
		I_STX(EBPF_DW, 2, 32, 3),
		I_MOV(3, 1),
		I_ATOMIC_ADD(2, 0, 3),
		I_ST(EBPF_W, 1, SUBMIT(grant), n),
		I_ST(EBPF_W, 1, SUBMIT(level), level),
		I_MOV(0, verdict),
		I_EXIT,
	};
	const struct prog p = PROG(submit, insns);

	if (maps.global) {
		regions_free(&maps);
	}
	regions_make(&maps);
	assert_int_equal(rig_policy_prepare(&c.r, version, &p, 1, &maps), 0);
	store_release(&c.r.dir.version[0], version);
}

static inline void grants_begin(uint32_t class_id, int n)
{
	clocked_init(&c, class_id);
	assert_true(
		sched_board_remove(c.r.s, SCHED_BOARD_LATENCY, 3)); /* the rig's latency program */
	clocked_know(&c, EST);
	c.k->count = 1;
	use(1, n);
}

static inline void grants_finish(void)
{
	verdict = GBPF_GO;
	level = 0;
	clocked_finish(&c);
	regions_free(&maps);
	maps.global = NULL;
}

static inline uint64_t calls(void)
{
	return maps.tenant[0];
}

/* A launch as the shim makes it. */
static inline void launch(bool ok)
{
	c.l.granted = sched_granted(c.q, &c.l);
	if (ticket_begin(c.q, &c.l) == SCHED_ASK) {
		assert_false(c.l.granted);
		assert_null(policy_reader_self->gate);
		assert_int_equal(ticket_begin(c.q, &c.l), SCHED_GO);
	}
	assert_ptr_equal(policy_reader_self->gate, c.q);
	ticket_end(ok);
	assert_null(policy_reader_self->gate);
}

static inline void launches(unsigned n)
{
	while (n--) {
		launch(true);
	}
}

/* The next launch is asked about although a grant is left. */
static inline void expect_asked(void)
{
	uint64_t before = calls();

	assert_true(c.q->grant.left > 0);
	launch(true);
	assert_int_equal(calls(), before + 1);
}

#endif
