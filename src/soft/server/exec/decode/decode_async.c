/* Decoding of cp.async and mbarrier. */
#include <errno.h>
#include <string.h>

#include "soft/server/exec/access_check.h"
#include "soft/server/exec/decode/decode_kernel.h"

static bool is_shared(struct exec_decoder *d)
{
	return exec_dec_has(d, ".shared") || exec_dec_has(d, ".shared::cta") ||
	       exec_dec_has(d, ".shared::cluster");
}

/* cp.async.mbarrier.arrive{.noinc}.shared.b64 [a]: the copies have completed, so it is an arrival.
 * The form without .noinc increments the pending count first, which cancels out. */
static int copy_arrive(struct exec_decoder *d)
{
	struct exec_op op = exec_dec_op(d, exec_op_mbarrier);
	enum exec_space_kind space;
	bool noinc = exec_dec_has(d, ".noinc");
	int err;

	exec_dec_has(d, ".arrive");
	space = is_shared(d) ? SP_SHARED : SP_GENERIC;
	if (exec_dec_take_type(d) != TY_U64) {
		return exec_dec_fail(d, ".b64 is expected");
	}
	err = exec_dec_operands(d, 1);
	if (err == 0) {
		err = exec_dec_address(d, &d->insn->operands[0], &space, &op);
	}
	op.space = (uint8_t)space;
	op.sub = MBAR_ARRIVE;
	op.n = 0;
	return err < 0 || !noinc ? err : exec_dec_emit(d, &op);
}

static int copy_sizes(struct exec_decoder *d, struct exec_op *op, bool all)
{
	const struct ptx_operand *in = d->insn->operands;
	unsigned n = d->insn->n_operands - (exec_dec_has(d, ".L2::cache_hint") ? 1u : 0u);
	enum exec_type have;
	uint32_t ref;

	if (n < 3 || n > 4 || in[2].kind != PTX_INT ||
	    (in[2].value != 16 && (!all || (in[2].value != 4 && in[2].value != 8)))) {
		return exec_dec_fail(d, all ? "a size of 4, 8 or 16 is expected"
					    : "a size of 16 is expected");
	}
	op->n = (uint8_t)in[2].value;
	if (n == 3) {
		return 0;
	}
	if (in[3].kind == PTX_NOT ||
	    (in[3].kind == PTX_NAME && exec_dec_register(d, in[3].name, &ref, &have) == 0 &&
	     have == TY_PRED)) {
		op->flags |= ASYNC_IGNORE;
		return exec_dec_pred(d, &in[3], &op->r, &op->r_not);
	}
	op->flags |= ASYNC_SIZE;
	return exec_dec_source(d, &in[3], TY_U32, &op->c);
}

/* Checks the source as far as it is certainly read, and the destination. */
static int check_copy(struct exec_decoder *d, const struct exec_op *op)
{
	struct exec_op from = *op, to = *op;
	int err = 0;

	from.a = op->b;
	from.wide = WIDE_A;
	from.imm = 0;
	from.space = SP_GLOBAL;
	to.space = SP_SHARED;
	if (!(op->flags & (ASYNC_SIZE | ASYNC_IGNORE))) {
		err = exec_dec_check(d, &from, op->n, CHECK_READ);
	} else { /* at most that */
		err = exec_dec_link(d, &from, op->n, CHECK_READ);
	}
	return err < 0 ? err : exec_dec_check(d, &to, op->n, CHECK_WRITE);
}

static int copy_async(struct exec_decoder *d)
{
	static const char *const hints[] = { ".L2::64B", ".L2::128B", ".L2::256B" };
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_copy_async);
	enum exec_space_kind to = SP_SHARED, from = SP_GLOBAL;
	bool all = exec_dec_has(d, ".ca");
	int err;

	if (!(all || exec_dec_has(d, ".cg")) || !is_shared(d) || !exec_dec_has(d, ".global")) {
		return exec_dec_fail(d, ".ca or .cg, .shared and .global are expected");
	}
	exec_dec_pick(d, hints, ARRAY_SIZE(hints), -1);
	err = copy_sizes(d, &op, all);
	if (err == 0) {
		err = exec_dec_modifiers_done(d);
	}
	if (err == 0) {
		err = exec_dec_address_value(d, &in[1], &from, &op.b);
	}
	if (err == 0) {
		err = exec_dec_address(d, &in[0], &to, &op);
	}
	if (err == 0) {
		err = check_copy(d, &op);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* cp.async and its groups: copies complete immediately, so there is nothing to wait for. */
int exec_dec_cp(struct exec_decoder *d, int a, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	int err;

	if (!exec_dec_has(d, ".async") || exec_dec_has(d, ".bulk")) {
		return exec_dec_fail(d, "not supported: bulk and tensor copies");
	}
	if (exec_dec_has(d, ".mbarrier")) {
		return copy_arrive(d);
	}
	if (exec_dec_has(d, ".commit_group") || exec_dec_has(d, ".wait_all")) {
		return exec_dec_operands(d, 0);
	}
	if (exec_dec_has(d, ".wait_group")) {
		err = exec_dec_operands(d, 1);
		return err == 0 && in[0].kind != PTX_INT ? exec_dec_fail(d, "a number is expected")
							 : err;
	}
	return copy_async(d);
}

static void take_order(struct exec_decoder *d)
{
	static const char *const words[] = { ".acquire", ".release", ".relaxed", ".cta",
					     ".cluster" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		exec_dec_has(d, words[i]);
	}
}

/* {d,} [a] {, n}: the operands besides the address depend on the form. */
static int mbarrier_change(struct exec_decoder *d, int what, bool state)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_mbarrier);
	enum exec_space_kind space = is_shared(d) ? SP_SHARED : SP_GENERIC;
	unsigned n = d->insn->n_operands, at = state ? 1 : 0;
	bool must = what == MBAR_INIT || what == MBAR_EXPECT || what == MBAR_COMPLETE ||
		    what == MBAR_ARRIVE_EXPECT || what == MBAR_DROP_EXPECT;
	int err;

	/* Without a result [a] comes first. */
	if (state && n && in[0].kind == PTX_ADDRESS) {
		state = false;
		at = 0;
	}
	op.sub = (uint8_t)what;
	op.n = 0;
	take_order(d);
	if (exec_dec_take_type(d) != TY_U64) {
		return exec_dec_fail(d, ".b64 is expected");
	}
	err = exec_dec_modifiers_done(d);
	if (err == 0 && (n < at + 1 + must || n > at + 2 || (what == MBAR_INVAL && n != at + 1))) {
		err = exec_dec_fail(d, "%u operands are too few or too many", n);
	}
	if (err == 0 && n == at + 2) {
		op.wide |= WIDE_B;
		err = exec_dec_source(d, &in[at + 1], TY_U32, &op.b);
	}
	if (err == 0) {
		err = exec_dec_address(d, &in[at], &space, &op);
	}
	if (err == 0 && state && !(in[0].kind == PTX_NAME && strcmp(in[0].name, "_") == 0)) {
		op.n = 1;
		err = exec_dec_dest(d, &in[0], TY_U64, &op.d);
	}
	op.space = (uint8_t)space;
	return err < 0 ? err : exec_dec_emit(d, &op);
}

static int mbarrier_test(struct exec_decoder *d, bool may_sleep)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_mbarrier_test);
	enum exec_space_kind space;
	uint32_t hint;
	int err;

	op.sub = exec_dec_has(d, ".parity") ? MBAR_PARITY : MBAR_STATE;
	take_order(d);
	space = is_shared(d) ? SP_SHARED : SP_GENERIC;
	if (exec_dec_take_type(d) != TY_U64) {
		return exec_dec_fail(d, ".b64 is expected");
	}
	err = exec_dec_operands(d, may_sleep && d->insn->n_operands == 4 ? 4 : 3);
	if (err == 0 && d->insn->n_operands == 4) {
		err = exec_dec_source(d, &in[3], TY_U32, &hint);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[2], op.sub == MBAR_PARITY ? TY_U32 : TY_U64, &op.b);
	}
	if (err == 0) {
		err = exec_dec_address(d, &in[1], &space, &op);
	}
	if (err == 0) {
		err = exec_dec_pred(d, &in[0], &op.p, NULL);
	}
	op.space = (uint8_t)space;
	return err < 0 ? err : exec_dec_emit(d, &op);
}

static int mbarrier_pending(struct exec_decoder *d)
{
	struct exec_op op = exec_dec_op(d, exec_op_mbarrier_pending);
	int err;

	if (exec_dec_take_type(d) != TY_U64) {
		return exec_dec_fail(d, ".b64 is expected");
	}
	err = exec_dec_operands(d, 2);
	if (err == 0) {
		err = exec_dec_source(d, &d->insn->operands[1], TY_U64, &op.a);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &d->insn->operands[0], TY_U32, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_mbarrier(struct exec_decoder *d, int a, int b)
{
	static const char *const words[] = { ".init",	     ".inval",	  ".expect_tx",
					     ".complete_tx", ".arrive",	  ".arrive_drop",
					     ".test_wait",   ".try_wait", ".pending_count" };
	static const int changes[] = { MBAR_INIT, MBAR_INVAL, MBAR_EXPECT, MBAR_COMPLETE };
	int i = -1;

	/* "arrive.expect_tx" is an arrival. */
	for (int k = 4; k < 6 && i < 0; k++) {
		i = exec_dec_has(d, words[k]) ? k : -1;
	}
	i = i < 0 ? exec_dec_pick(d, words, ARRAY_SIZE(words), -1) : i;
	switch (i) {
	case 0:
	case 1:
	case 2:
	case 3:
		return mbarrier_change(d, changes[i], false);
	case 4:
	case 5:
		exec_dec_has(d, ".noComplete");
		if (exec_dec_has(d, ".expect_tx")) {
			return mbarrier_change(d, i == 4 ? MBAR_ARRIVE_EXPECT : MBAR_DROP_EXPECT,
					       true);
		}
		return mbarrier_change(d, i == 4 ? MBAR_ARRIVE : MBAR_DROP, true);
	case 6:
	case 7:
		return mbarrier_test(d, i == 7);
	case 8:
		return mbarrier_pending(d);
	default:
		return exec_dec_fail(d, "this form of mbarrier is not supported");
	}
}
