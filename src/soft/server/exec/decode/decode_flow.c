/* Branches, calls, barriers, and what lanes do together. */
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int use_label(struct decoder *d, const char *name, struct label_use use)
{
	const struct symbol *s = dec_find(d, name);

	if (!s || s->kind != SYM_LABEL) {
		return dec_fail(d, "there is no label %s here", name);
	}
	use.label = s->ref;
	return buf_add(&d->label_uses, &use, sizeof(use)) < 0 ? dec_no_memory(d) : 0;
}

int dec_bra(struct decoder *d, int a, int b)
{
	struct op op = dec_op(d, op_bra);
	int err;

	dec_has(d, ".uni");
	err = dec_operands(d, 1);
	if (err == 0 && d->insn->operands[0].kind != PTX_NAME) {
		err = dec_fail(d, "a label is expected");
	}
	if (err == 0) {
		err = use_label(
			d, d->insn->operands[0].name,
			(struct label_use){ .pc = (uint32_t)(d->code.len / sizeof(struct op)) });
	}
	return err < 0 ? err : dec_emit(d, &op);
}

int dec_brx(struct decoder *d, int a, int b)
{
	struct op op = dec_op(d, op_brx);
	const struct symbol *s;
	int err = dec_has(d, ".idx") ? 0 : dec_fail(d, "brx.idx is expected");

	dec_has(d, ".uni");
	if (err == 0) {
		err = dec_operands(d, 2);
	}
	if (err == 0) {
		err = dec_source(d, &d->insn->operands[0], TY_U32, &op.a);
	}
	if (err < 0) {
		return err;
	}
	s = d->insn->operands[1].kind == PTX_NAME ? dec_find(d, d->insn->operands[1].name) : NULL;
	if (!s || s->kind != SYM_TABLE) {
		return dec_fail(d, "a label of .branchtargets is expected");
	}
	op.e = s->ref;
	return dec_emit(d, &op);
}

/* exit, ret, trap, brkpt. */
int dec_plain(struct decoder *d, int which, int b)
{
	static const op_fn fns[] = { op_exit, op_ret, op_trap };
	struct op op = dec_op(d, fns[which]);
	int err;

	dec_has(d, ".uni");
	err = dec_operands(d, 0);
	if (err == 0 && op.fn == op_ret) {
		err = dec_restore_stack(d);
	}
	return err < 0 ? err : dec_emit(d, &op);
}

/* barrier.cluster.arrive and .wait: a cluster has one block. */
static int bar_cluster(struct decoder *d)
{
	static const char *const order[] = { ".release", ".relaxed", ".acquire", ".aligned" };
	bool arrive = dec_has(d, ".arrive");
	struct op op = dec_op(d, arrive ? op_cluster_arrive : op_cluster_wait);
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		dec_has(d, order[i]);
	}
	if (!arrive && !dec_has(d, ".wait")) {
		return dec_fail(d, "barrier.cluster.arrive or .wait is expected");
	}
	err = dec_operands(d, 0);
	return err < 0 ? err : dec_emit(d, &op);
}

/* bar and barrier: .sync, .arrive, .red; .warp.sync. */
int dec_bar(struct decoder *d, int a, int b)
{
	static const char *const reds[] = { ".popc", ".and", ".or" };
	const struct ptx_operand *in = d->insn->operands;
	struct op op = dec_op(d, op_bar);
	unsigned n = d->insn->n_operands, i = 0;
	int err = 0, red;

	if (dec_has(d, ".warp")) {
		op.fn = op_warp_sync;
		err = dec_has(d, ".sync") ? dec_operands(d, 1)
					  : dec_fail(d, "bar.warp.sync is expected");
		if (err == 0) {
			err = dec_source(d, &in[0], TY_U32, &op.e);
		}
		return err < 0 ? err : dec_emit(d, &op);
	}
	if (dec_has(d, ".cluster")) {
		return bar_cluster(d);
	}
	dec_has(d, ".cta");
	dec_has(d, ".aligned");
	if (dec_has(d, ".red")) {
		red = dec_pick(d, reds, 3, -1);
		op.sub = (uint8_t)(BAR_RED_POPC + red);
		if (red < 0 || dec_take_type(d) != (red ? TY_PRED : TY_U32)) {
			return dec_fail(d, ".popc.u32, .and.pred or .or.pred is expected");
		}
		if (n < 3) {
			return dec_fail(d, "3 operands expected, found %u", n);
		}
		err = red ? dec_pred(d, &in[0], &op.p, NULL) : dec_dest(d, &in[0], TY_U32, &op.d);
		if (err == 0) {
			err = dec_pred(d, &in[n - 1], &op.r, &op.r_not);
		}
		i = 1;
		n--;
	} else {
		op.sub = dec_has(d, ".arrive") ? BAR_ARRIVE : BAR_SYNC;
		dec_has(d, ".sync");
	}
	if (err == 0 && (n - i < 1 || n - i > 2 || (op.sub == BAR_ARRIVE && n - i != 2))) {
		err = dec_fail(d, "a barrier's number and perhaps a count are expected");
	}
	if (err == 0) {
		err = dec_modifiers_done(d);
	}
	if (err == 0) {
		err = dec_source(d, &in[i], TY_U32, &op.a);
	}
	if (err == 0 && n - i == 2) {
		op.wide = WIDE_B;
		err = dec_source(d, &in[i + 1], TY_U32, &op.b);
	}
	return err < 0 ? err : dec_emit(d, &op);
}

int dec_shfl(struct decoder *d, int a, int b)
{
	static const char *const modes[] = { ".up", ".down", ".bfly", ".idx" };
	const struct ptx_operand *in = d->insn->operands, *to;
	struct op op = dec_op(d, NULL);
	int mode = dec_pick(d, modes, 4, -1), err;
	bool sync = dec_has(d, ".sync");

	dec_take_type(d);
	op.sub = (uint8_t)mode;
	op.flags = sync ? FLAG_VOTE_SYNC : 0;
	op.p = EXEC_NO_PRED;
	op.fn = mode < 0 ? NULL : d->h->shfl[mode];
	err = mode < 0 ? dec_fail(d, ".up, .down, .bfly or .idx is expected")
		       : dec_operands(d, sync ? 5 : 4);
	if (err < 0) {
		return err;
	}
	to = &in[0];
	if (to->kind == PTX_PAIR) {
		err = dec_pred(d, &to->args[1], &op.p, NULL);
		to = &to->args[0];
	}
	if (err == 0) {
		err = dec_source(d, &in[1], TY_U32, &op.a);
	}
	if (err == 0) {
		err = dec_source(d, &in[2], TY_U32, &op.b);
	}
	if (err == 0) {
		err = dec_source(d, &in[3], TY_U32, &op.c);
	}
	if (err == 0 && sync) {
		err = dec_source(d, &in[4], TY_U32, &op.e);
	}
	if (err == 0) {
		err = dec_dest(d, to, TY_U32, &op.d);
	}
	return err < 0 ? err : dec_emit(d, &op);
}

int dec_vote(struct decoder *d, int a, int b)
{
	static const char *const modes[] = { ".all", ".any", ".uni", ".ballot" };
	const struct ptx_operand *in = d->insn->operands;
	struct op op = dec_op(d, op_vote);
	int mode = dec_pick(d, modes, 4, -1), err;
	bool sync = dec_has(d, ".sync");

	op.sub = (uint8_t)mode;
	op.flags = sync ? FLAG_VOTE_SYNC : 0;
	if (mode < 0 || dec_take_type(d) != (mode == VOTE_BALLOT ? TY_U32 : TY_PRED)) {
		return dec_fail(d, ".all.pred, .any.pred, .uni.pred or .ballot.b32 is expected");
	}
	err = dec_operands(d, sync ? 3 : 2);
	if (err == 0) {
		err = dec_pred(d, &in[1], &op.r, &op.r_not);
	}
	if (err == 0 && sync) {
		err = dec_source(d, &in[2], TY_U32, &op.e);
	}
	if (err == 0) {
		err = mode == VOTE_BALLOT ? dec_dest(d, &in[0], TY_U32, &op.d)
					  : dec_pred(d, &in[0], &op.p, NULL);
	}
	if (err == 0 && mode != VOTE_BALLOT && op.p == EXEC_NO_PRED) {
		return dec_fail(d, "a predicate is expected");
	}
	return err < 0 ? err : dec_emit(d, &op);
}

int dec_match(struct decoder *d, int a, int b)
{
	static const char *const modes[] = { ".any", ".all" };
	const struct ptx_operand *in = d->insn->operands, *to;
	struct op op = dec_op(d, op_match);
	int mode = dec_pick(d, modes, 2, -1), err;
	enum exec_type t = dec_take_type(d);

	op.sub = (uint8_t)mode;
	op.p = EXEC_NO_PRED;
	op.wide = dec_is_wide(t) ? WIDE_A : 0;
	if (mode < 0 || !dec_has(d, ".sync") || dec_type_bytes(t) < 4) {
		return dec_fail(d, ".any.sync or .all.sync and .b32 or .b64 are expected");
	}
	err = dec_operands(d, 3);
	if (err < 0) {
		return err;
	}
	to = &in[0];
	if (to->kind == PTX_PAIR) {
		err = dec_pred(d, &to->args[1], &op.p, NULL);
		to = &to->args[0];
	}
	if (err == 0) {
		err = dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = dec_source(d, &in[2], TY_U32, &op.e);
	}
	if (err == 0) {
		err = dec_dest(d, to, TY_U32, &op.d);
	}
	return err < 0 ? err : dec_emit(d, &op);
}

int dec_redux(struct decoder *d, int a, int b)
{
	static const char *const words[] = { ".add", ".min", ".max", NULL,
					     NULL,   ".and", ".or",  ".xor" };
	const struct ptx_operand *in = d->insn->operands;
	struct op op = dec_op(d, op_redux);
	int what = dec_pick(d, words, ARRAY_SIZE(words), -1), err;
	enum exec_type t = dec_take_type(d);

	op.sub = (uint8_t)what;
	op.type = (uint8_t)t;
	if (what < 0 || !dec_has(d, ".sync") || (t != TY_U32 && t != TY_S32)) {
		return dec_fail(d, ".sync, an operation and a 32-bit integer type are expected");
	}
	err = dec_operands(d, 3);
	if (err == 0) {
		err = dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = dec_source(d, &in[2], TY_U32, &op.e);
	}
	if (err == 0) {
		err = dec_dest(d, &in[0], t, &op.d);
	}
	return err < 0 ? err : dec_emit(d, &op);
}

int dec_activemask(struct decoder *d, int a, int b)
{
	struct op op = dec_op(d, op_activemask);
	int err;

	dec_take_type(d);
	err = dec_operands(d, 1);
	if (err == 0) {
		err = dec_dest(d, &d->insn->operands[0], TY_U32, &op.d);
	}
	return err < 0 ? err : dec_emit(d, &op);
}
