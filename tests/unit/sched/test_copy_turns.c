/* The hook copy_enqueue: its verdicts, the sizes of pieces, and when a hold ends. */
#include "fake.h"

#include <string.h>

#include "sched/sched_int.h"

#define COPY(field) offsetof(struct gbpf_copy_enqueue_ctx, field)
#define MIB ((uint64_t)1 << 20)
#define LIMIT_NS 20000000u
#define NEVER_NS UINT64_C(3600000000000) /* a limit that no test reaches */

static const struct ebpf_insn always_hold[] = { I_MOV(0, GBPF_COPY_HOLD), I_EXIT };
static const struct ebpf_insn nonsense[] = { I_MOV(0, 2), I_EXIT };
/* lc_open ? HOLD : GO */
static const struct ebpf_insn hold_while_latency[] = {
	I_LDX(EBPF_W, 2, 1, COPY(lc_open)),
	I_MOV(0, GBPF_COPY_GO),
	I_J(EBPF_JEQ, 2, 0, 1),
	I_MOV(0, GBPF_COPY_HOLD),
	I_EXIT,
};
/* lc_open ? HOLD : GO, with a reason of its own */
static const struct ebpf_insn hold_with_reason[] = {
	I_LDX(EBPF_W, 2, 1, COPY(lc_open)),
	I_MOV(0, GBPF_COPY_GO),
	I_J(EBPF_JEQ, 2, 0, 3),
	I_MOV(3, GBPF_WHY_POLICY + 5),
	I_STX(EBPF_W, 1, COPY(why), 3),
	I_MOV(0, GBPF_COPY_HOLD),
	I_EXIT,
};
/* 4 MiB may be on their way */
static const struct ebpf_insn few_ahead[] = {
	I_MOV(2, 4 << 20),
	I_STX(EBPF_DW, 1, COPY(ahead_bytes), 2),
	I_MOV(0, GBPF_COPY_GO),
	I_EXIT,
};

static struct rig r;
static struct fake_queue fq;

static struct sched_copy begin(const struct ebpf_insn *insns, uint32_t n, uint64_t limit_ns)
{
	struct prog p = { .hook = POLICY_HOOK_copy_enqueue, .insns = insns, .n = n };
	struct sched_copy c = { .bytes = 64 * MIB, .left = 64 * MIB, .cut = true, .up = true };

	rig_init(&r, GBPF_CLASS_BATCH, limit_ns, 0);
	memset(&fq, 0, sizeof(fq));
	c.q = sched_queue_open(r.s, &fq, 0, 0);
	c.piece_bytes = 4 * MIB;
	assert_false(sched_copies_decided(r.s));
	if (insns) {
		assert_int_equal(rig_policy_prepare(&r, 1, &p, 1, NULL), 0);
		assert_true(sched_copies_decided(r.s));
		store_release(&r.dir.version[0], (uint64_t)1);
	}
	return c;
}
#define BEGIN(array) begin(array, sizeof(array) / sizeof((array)[0]), NEVER_NS)
#define BEGIN_LIMITED(array) begin(array, sizeof(array) / sizeof((array)[0]), LIMIT_NS)

static void without_the_hook_copies_go(void **state)
{
	struct sched_copy c = begin(NULL, 0, NEVER_NS);

	assert_true(sched_copy_may_go(&c));
	assert_int_equal(c.asked, 0);
	POLICY_USE(&r, 2, hold_while_open); /* a policy without it */
	assert_false(sched_copies_decided(r.s));
	assert_true(sched_copy_may_go(&c));
	rig_finish(&r);
}

static void a_hold_ends_at_the_limit_and_is_counted(void **state)
{
	struct sched_copy c = BEGIN_LIMITED(always_hold);
	uint64_t began = clock_now_ns();

	while (!sched_copy_may_go(&c)) {
	}
	assert_true(clock_now_ns() - began >= LIMIT_NS);
	assert_int_equal(r.stats.limit_hits, 1);
	assert_int_equal(r.stats.holds, 1);
	assert_true(r.stats.held_ns >= LIMIT_NS);
	assert_false(sched_copy_may_go(&c)); /* the next piece is held in its turn */
	rig_finish(&r);
}

/* A copy of which nothing finishes is one whose stream waits, perhaps for the caller. */
static void the_rest_passes_when_nothing_finishes(void **state)
{
	struct sched_copy c = BEGIN_LIMITED(always_hold);

	c.unfinished = 4 * MIB;
	while (!sched_copy_may_go(&c)) {
	}
	assert_true(sched_copy_may_go(&c));
	assert_int_equal(r.stats.limit_hits, 1);
	rig_finish(&r);
}

static void a_hold_ends_when_the_version_changes(void **state)
{
	struct sched_copy c = BEGIN(always_hold);

	assert_false(sched_copy_may_go(&c));
	store_release(&r.dir.version[0], (uint64_t)0);
	assert_true(sched_copy_may_go(&c));
	assert_int_equal(r.stats.limit_hits, 0);
	assert_int_equal(r.stats.holds, 1);
	rig_finish(&r);
}

static void a_hold_ends_when_switched_off_and_when_gbpfd_is_gone(void **state)
{
	struct sched_copy c = BEGIN(always_hold);

	assert_false(sched_copy_may_go(&c));
	store_relaxed(&r.dir.off, 1u);
	assert_true(sched_copy_may_go(&c));
	store_relaxed(&r.dir.off, 0u);
	assert_false(sched_copy_may_go(&c));
	assert_true(sched_set_pages(r.s, NULL, NULL, NULL, NULL));
	assert_true(sched_copies_decided(r.s)); /* the version stays in force, its HOLD does not */
	assert_true(sched_copy_may_go(&c));
	assert_true(sched_copy_may_go(&c));
	rig_finish(&r);
}

static void a_hold_ends_with_the_latency_request(void **state)
{
	struct sched_copy c = BEGIN(hold_while_latency);

	other_opens(&r);
	assert_false(sched_copy_may_go(&c));
	other_closes(&r);
	while (!sched_copy_may_go(&c)) {
	}
	assert_int_equal(r.stats.limit_hits, 0);
	assert_int_equal(r.stats.why, PROTO_WHY_POLICY);
	rig_finish(&r);
}

static void a_hold_keeps_the_policys_reason(void **state)
{
	struct sched_copy c = BEGIN(hold_with_reason);

	other_opens(&r);
	assert_false(sched_copy_may_go(&c));
	other_closes(&r);
	while (!sched_copy_may_go(&c)) {
	}
	assert_int_equal(r.stats.holds, 1);
	assert_int_equal(r.stats.why, PROTO_WHY_REASON | (GBPF_WHY_POLICY + 5));
	rig_finish(&r);
}

static void a_verdict_out_of_range_goes_and_is_counted(void **state)
{
	struct sched_copy c = BEGIN(nonsense);

	assert_true(sched_copy_may_go(&c));
	assert_int_equal(r.stats.verdict_errors, 1);
	rig_finish(&r);
}

static void pieces_are_clamped(void **state)
{
	static const struct {
		int set;
		bool pinned;
		uint32_t is;
	} cases[] = {
		{ 0, false, 512 << 10 },     { 0, true, 512 << 10 },
		{ -1, false, 4 << 20 },	     { -1, true, 16 << 20 },
		{ 1 << 20, false, 1 << 20 }, { (1 << 20) + 4096, true, 1 << 20 },
		{ 5 << 20, false, 4 << 20 }, { 5 << 20, true, 5 << 20 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct ebpf_insn insns[] = { I_MOV(2, cases[i].set),
						   I_STX(EBPF_W, 1, COPY(piece_bytes), 2),
						   I_MOV(0, GBPF_COPY_GO), I_EXIT };
		struct sched_copy c = BEGIN(insns);

		c.pinned = cases[i].pinned;
		assert_true(sched_copy_may_go(&c));
		assert_int_equal(c.piece_bytes, cases[i].is);
		rig_finish(&r);
	}
}

static void only_the_drivers_plan_can_be_chosen(void **state)
{
	static const uint32_t plans[] = { GBPF_PLAN_DRIVER, GBPF_PLAN_PIPELINED, GBPF_PLAN_DIRECT,
					  77 };

	for (unsigned from = 0; from < 3; from++) {
		for (unsigned to = 0; to < 4; to++) {
			/* GO only if the plan is `from`. */
			const struct ebpf_insn insns[] = { I_LDX(EBPF_W, 3, 1, COPY(plan)),
							   I_MOV(2, (int)plans[to]),
							   I_STX(EBPF_W, 1, COPY(plan), 2),
							   I_MOV(0, GBPF_COPY_GO),
							   I_J(EBPF_JEQ, 3, (int)plans[from], 1),
							   I_MOV(0, GBPF_COPY_HOLD),
							   I_EXIT };
			struct sched_copy c = BEGIN(insns);

			c.plan = plans[from];
			assert_true(sched_copy_may_go(&c));
			assert_int_equal(c.plan, to ? plans[from] : GBPF_PLAN_DRIVER);
			rig_finish(&r);
		}
	}
}

static void what_is_on_its_way_is_limited(void **state)
{
	struct sched_copy c = BEGIN(few_ahead);

	c.unfinished = 0;
	assert_true(sched_copy_may_go(&c)); /* one piece always */
	c.unfinished = 4 * MIB;
	assert_false(sched_copy_may_go(&c));
	c.unfinished = 0;
	assert_true(sched_copy_may_go(&c));
	c.cut = false; /* a copy as a whole has nothing on its way */
	c.unfinished = 4 * MIB;
	assert_true(sched_copy_may_go(&c));
	assert_int_equal(r.stats.holds, 0);
	rig_finish(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_the_hook_copies_go),
		cmocka_unit_test(a_hold_ends_at_the_limit_and_is_counted),
		cmocka_unit_test(the_rest_passes_when_nothing_finishes),
		cmocka_unit_test(a_hold_ends_when_the_version_changes),
		cmocka_unit_test(a_hold_ends_when_switched_off_and_when_gbpfd_is_gone),
		cmocka_unit_test(a_hold_ends_with_the_latency_request),
		cmocka_unit_test(a_hold_keeps_the_policys_reason),
		cmocka_unit_test(a_verdict_out_of_range_goes_and_is_counted),
		cmocka_unit_test(pieces_are_clamped),
		cmocka_unit_test(only_the_drivers_plan_can_be_chosen),
		cmocka_unit_test(what_is_on_its_way_is_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
