/* Decoding of branches, barriers, and warp-wide instructions. */
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int use_label(struct exec_decoder *d, const char *name, struct exec_label_use use)
{
	const struct exec_symbol *s = exec_dec_find(d, name);

	if (!s || s->kind != SYM_LABEL) {
		return exec_dec_fail(d, "there is no label %s here", name);
	}
	use.label = s->ref;
	return buf_add(&d->label_uses, &use, sizeof(use)) < 0 ? exec_dec_no_memory(d) : 0;
}

int exec_dec_bra(struct exec_decoder *d, int a, int b)
{
	struct exec_op op = exec_dec_op(d, exec_op_bra);
	int err;

	exec_dec_has(d, ".uni");
	err = exec_dec_operands(d, 1);
	if (err == 0 && d->insn->operands[0].kind != PTX_NAME) {
		err = exec_dec_fail(d, "a label is expected");
	}
	if (err == 0) {
		err = use_label(d, d->insn->operands[0].name,
				(struct exec_label_use){
					.pc = (uint32_t)(d->code.len / sizeof(struct exec_op)) });
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_brx(struct exec_decoder *d, int a, int b)
{
	struct exec_op op = exec_dec_op(d, exec_op_brx);
	const struct exec_symbol *s;
	int err = exec_dec_has(d, ".idx") ? 0 : exec_dec_fail(d, "brx.idx is expected");

	exec_dec_has(d, ".uni");
	if (err == 0) {
		err = exec_dec_operands(d, 2);
	}
	if (err == 0) {
		err = exec_dec_source(d, &d->insn->operands[0], TY_U32, &op.a);
	}
	if (err < 0) {
		return err;
	}
	s = d->insn->operands[1].kind == PTX_NAME ? exec_dec_find(d, d->insn->operands[1].name)
						  : NULL;
	if (!s || s->kind != SYM_TABLE) {
		return exec_dec_fail(d, "a label of .branchtargets is expected");
	}
	op.e = s->ref;
	return exec_dec_emit(d, &op);
}

/* exit, ret, trap, brkpt. */
int exec_dec_plain(struct exec_decoder *d, int which, int b)
{
	static const exec_op_fn fns[] = { exec_op_exit, exec_op_ret, exec_op_trap };
	struct exec_op op = exec_dec_op(d, fns[which]);
	int err;

	exec_dec_has(d, ".uni");
	err = exec_dec_operands(d, 0);
	if (err == 0 && op.fn == exec_op_ret) {
		err = exec_dec_restore_stack(d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* barrier.cluster.arrive and .wait: a cluster has one block. */
static int bar_cluster(struct exec_decoder *d)
{
	static const char *const order[] = { ".release", ".relaxed", ".acquire", ".aligned" };
	bool arrive = exec_dec_has(d, ".arrive");
	struct exec_op op = exec_dec_op(d, arrive ? exec_op_cluster_arrive : exec_op_cluster_wait);
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		exec_dec_has(d, order[i]);
	}
	if (!arrive && !exec_dec_has(d, ".wait")) {
		return exec_dec_fail(d, "barrier.cluster.arrive or .wait is expected");
	}
	err = exec_dec_operands(d, 0);
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* bar and barrier: .sync, .arrive, .red; .warp.sync. */
int exec_dec_bar(struct exec_decoder *d, int a, int b)
{
	static const char *const reds[] = { ".popc", ".and", ".or" };
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_bar);
	unsigned n = d->insn->n_operands, i = 0;
	int err = 0, red;

	if (exec_dec_has(d, ".warp")) {
		op.fn = exec_op_warp_sync;
		err = exec_dec_has(d, ".sync") ? exec_dec_operands(d, 1)
					       : exec_dec_fail(d, "bar.warp.sync is expected");
		if (err == 0) {
			err = exec_dec_source(d, &in[0], TY_U32, &op.e);
		}
		return err < 0 ? err : exec_dec_emit(d, &op);
	}
	if (exec_dec_has(d, ".cluster")) {
		return bar_cluster(d);
	}
	exec_dec_has(d, ".cta");
	exec_dec_has(d, ".aligned");
	if (exec_dec_has(d, ".red")) {
		red = exec_dec_pick(d, reds, 3, -1);
		op.sub = (uint8_t)(BAR_RED_POPC + red);
		if (red < 0 || exec_dec_take_type(d) != (red ? TY_PRED : TY_U32)) {
			return exec_dec_fail(d, ".popc.u32, .and.pred or .or.pred is expected");
		}
		if (n < 3) {
			return exec_dec_fail(d, "3 operands expected, found %u", n);
		}
		err = red ? exec_dec_pred(d, &in[0], &op.p, NULL)
			  : exec_dec_dest(d, &in[0], TY_U32, &op.d);
		if (err == 0) {
			err = exec_dec_pred(d, &in[n - 1], &op.r, &op.r_not);
		}
		i = 1;
		n--;
	} else {
		op.sub = exec_dec_has(d, ".arrive") ? BAR_ARRIVE : BAR_SYNC;
		exec_dec_has(d, ".sync");
	}
	if (err == 0 && (n - i < 1 || n - i > 2 || (op.sub == BAR_ARRIVE && n - i != 2))) {
		err = exec_dec_fail(d, "a barrier's number and perhaps a count are expected");
	}
	if (err == 0) {
		err = exec_dec_modifiers_done(d);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[i], TY_U32, &op.a);
	}
	if (err == 0 && n - i == 2) {
		op.wide = WIDE_B;
		err = exec_dec_source(d, &in[i + 1], TY_U32, &op.b);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_shfl(struct exec_decoder *d, int a, int b)
{
	static const char *const modes[] = { ".up", ".down", ".bfly", ".idx" };
	const struct ptx_operand *in = d->insn->operands, *to;
	struct exec_op op = exec_dec_op(d, NULL);
	int mode = exec_dec_pick(d, modes, 4, -1), err;
	bool sync = exec_dec_has(d, ".sync");

	exec_dec_take_type(d);
	op.sub = (uint8_t)mode;
	op.flags = sync ? FLAG_VOTE_SYNC : 0;
	op.p = EXEC_NO_PRED;
	op.fn = mode < 0 ? NULL : d->h->shfl[mode];
	err = mode < 0 ? exec_dec_fail(d, ".up, .down, .bfly or .idx is expected")
		       : exec_dec_operands(d, sync ? 5 : 4);
	if (err < 0) {
		return err;
	}
	to = &in[0];
	if (to->kind == PTX_PAIR) {
		err = exec_dec_pred(d, &to->args[1], &op.p, NULL);
		to = &to->args[0];
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], TY_U32, &op.a);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[2], TY_U32, &op.b);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[3], TY_U32, &op.c);
	}
	if (err == 0 && sync) {
		err = exec_dec_source(d, &in[4], TY_U32, &op.e);
	}
	if (err == 0) {
		err = exec_dec_dest(d, to, TY_U32, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_vote(struct exec_decoder *d, int a, int b)
{
	static const char *const modes[] = { ".all", ".any", ".uni", ".ballot" };
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_vote);
	int mode = exec_dec_pick(d, modes, 4, -1), err;
	bool sync = exec_dec_has(d, ".sync");

	op.sub = (uint8_t)mode;
	op.flags = sync ? FLAG_VOTE_SYNC : 0;
	if (mode < 0 || exec_dec_take_type(d) != (mode == VOTE_BALLOT ? TY_U32 : TY_PRED)) {
		return exec_dec_fail(d,
				     ".all.pred, .any.pred, .uni.pred or .ballot.b32 is expected");
	}
	err = exec_dec_operands(d, sync ? 3 : 2);
	if (err == 0) {
		err = exec_dec_pred(d, &in[1], &op.r, &op.r_not);
	}
	if (err == 0 && sync) {
		err = exec_dec_source(d, &in[2], TY_U32, &op.e);
	}
	if (err == 0) {
		err = mode == VOTE_BALLOT ? exec_dec_dest(d, &in[0], TY_U32, &op.d)
					  : exec_dec_pred(d, &in[0], &op.p, NULL);
	}
	if (err == 0 && mode != VOTE_BALLOT && op.p == EXEC_NO_PRED) {
		return exec_dec_fail(d, "a predicate is expected");
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_match(struct exec_decoder *d, int a, int b)
{
	static const char *const modes[] = { ".any", ".all" };
	const struct ptx_operand *in = d->insn->operands, *to;
	struct exec_op op = exec_dec_op(d, exec_op_match);
	int mode = exec_dec_pick(d, modes, 2, -1), err;
	enum exec_type t = exec_dec_take_type(d);

	op.sub = (uint8_t)mode;
	op.p = EXEC_NO_PRED;
	op.wide = exec_dec_is_wide(t) ? WIDE_A : 0;
	if (mode < 0 || !exec_dec_has(d, ".sync") || exec_dec_type_bytes(t) < 4) {
		return exec_dec_fail(d, ".any.sync or .all.sync and .b32 or .b64 are expected");
	}
	err = exec_dec_operands(d, 3);
	if (err < 0) {
		return err;
	}
	to = &in[0];
	if (to->kind == PTX_PAIR) {
		err = exec_dec_pred(d, &to->args[1], &op.p, NULL);
		to = &to->args[0];
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[2], TY_U32, &op.e);
	}
	if (err == 0) {
		err = exec_dec_dest(d, to, TY_U32, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_redux(struct exec_decoder *d, int a, int b)
{
	static const char *const words[] = { ".add", ".min", ".max", NULL,
					     NULL,   ".and", ".or",  ".xor" };
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_redux);
	int what = exec_dec_pick(d, words, ARRAY_SIZE(words), -1), err;
	enum exec_type t = exec_dec_take_type(d);

	op.sub = (uint8_t)what;
	op.type = (uint8_t)t;
	if (what < 0 || !exec_dec_has(d, ".sync") || (t != TY_U32 && t != TY_S32)) {
		return exec_dec_fail(d,
				     ".sync, an operation and a 32-bit integer type are expected");
	}
	err = exec_dec_operands(d, 3);
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[2], TY_U32, &op.e);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], t, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_activemask(struct exec_decoder *d, int a, int b)
{
	struct exec_op op = exec_dec_op(d, exec_op_activemask);
	int err;

	exec_dec_take_type(d);
	err = exec_dec_operands(d, 1);
	if (err == 0) {
		err = exec_dec_dest(d, &d->insn->operands[0], TY_U32, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}
