/* Branches, calls, barriers, and what lanes do together. */
#include "soft/server/exec/decode.h"

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

/* exit, ret, trap, nanosleep and the like. */
int dec_plain(struct decoder *d, int which, int n)
{
	static const op_fn fns[] = { op_exit, op_ret, op_trap, op_nop };
	struct op op = dec_op(d, fns[which]);
	int err;

	dec_has(d, ".uni");
	dec_has(d, ".u32");
	err = dec_operands(d, (unsigned)n);
	return err < 0 ? err : dec_emit(d, &op);
}

/* One actual argument or result against its formal; to_callee says which way. */
static int bind_one(struct decoder *d, const struct ptx_operand *o, const struct formal *f,
		    bool to_callee, struct exec_copy *ret)
{
	const struct symbol *s = o->kind == PTX_NAME && !o->offset ? dec_find(d, o->name) : NULL;
	uint32_t here;
	int err;

	*ret = (struct exec_copy){ .bytes = f->bytes };
	if (s && s->kind == SYM_PARAM && s->in_frame) {
		if (f->in_register) {
			return dec_fail(d, "%s is a .param variable, the function wants a register",
					o->name);
		}
		if (s->bytes < f->bytes) {
			return dec_fail(d, "%s is smaller than the function's parameter", o->name);
		}
		ret->kind = COPY_BYTES;
		here = s->ref;
	} else {
		enum exec_type t = f->type;

		if (t == TY_COUNT || f->bytes > 8 || f->bytes != dec_type_bytes(t)) {
			return dec_fail(d, "a .param variable is expected");
		}
		err = to_callee ? dec_source(d, o, t, &here) : dec_dest(d, o, t, &here);
		if (err < 0) {
			return err;
		}
		ret->kind = !f->in_register  ? (to_callee ? COPY_REG_TO_BYTES : COPY_BYTES_TO_REG)
			    : dec_is_wide(t) ? COPY_REG64
					     : COPY_REG32;
	}
	ret->src = to_callee ? here : f->offset;
	ret->dst = to_callee ? f->offset : here;
	return 0;
}

static int bind_all(struct decoder *d, const struct ptx_operand *tuple,
		    const struct formal *formals, uint32_t n, bool to_callee,
		    struct exec_copy **ret)
{
	struct exec_copy *list;

	if ((tuple ? tuple->n_args : 0) != n) {
		return dec_fail(d, "%u %s expected, found %u", n,
				to_callee ? "arguments" : "results", tuple ? tuple->n_args : 0);
	}
	list = calloc(MAX(n, 1u), sizeof(*list));
	if (!list) {
		return dec_no_memory(d);
	}
	*ret = list; /* freed with the call, also after an error */
	for (uint32_t i = 0; i < n; i++) {
		int err = bind_one(d, &tuple->args[i], &formals[i], to_callee, &list[i]);

		if (err < 0) {
			return err;
		}
	}
	return 0;
}

static int note_callee(struct decoder *d, uint32_t callee)
{
	struct function_shape *s = &d->shapes[d->current];
	uint32_t *more = realloc(s->callees, (s->n_calls_out + 1) * sizeof(*more));

	if (!more) {
		return dec_no_memory(d);
	}
	s->callees = more;
	s->callees[s->n_calls_out++] = callee;
	return 0;
}

static int emit_call(struct decoder *d, const struct exec_call *call)
{
	struct op op = dec_op(d, op_call), out = dec_op(d, op_call_out);
	uint32_t index = (uint32_t)(d->calls.len / sizeof(*call));
	int err;

	if (buf_add(&d->calls, call, sizeof(*call)) < 0) {
		free(call->in);
		free(call->out);
		return dec_no_memory(d);
	}
	op.e = out.e = index;
	/* Lanes that did not call pass by op_call_out, so it needs no guard. */
	out.guard = EXEC_NO_PRED;
	err = dec_emit(d, &op);
	return err < 0 ? err : dec_emit(d, &out);
}

static int call_function(struct decoder *d, const struct ptx_operand *results, const char *name,
			 const struct ptx_operand *args)
{
	const struct ptx_function *f = strmap_get(d->functions, name);
	struct exec_call call = { .caller = d->current };
	struct formal *formals = NULL;
	uint32_t frame = 0, n32 = 0, n64 = 0, n_pred = 0;
	int err;

	if (!f || !f->has_body || f->is_entry) {
		return dec_fail(d,
				!f ? "%s is not declared"
				: f->is_entry
					? "%s is a kernel"
					: "%s has no body in this module, and nothing links it",
				name);
	}
	formals = calloc((size_t)f->n_returns + f->n_params + 1, sizeof(*formals));
	err = formals ? dec_shape(d, name, &call.callee) : dec_no_memory(d);
	if (err == 0) {
		err = dec_formals(d, f, formals, &frame, &n32, &n64, &n_pred);
	}
	if (err == 0) {
		err = bind_all(d, results, formals, f->n_returns, false, &call.out);
	}
	if (err == 0) {
		err = bind_all(d, args, formals + f->n_returns, f->n_params, true, &call.in);
	}
	call.n_in = f->n_params;
	call.n_out = f->n_returns;
	if (err == 0) {
		err = note_callee(d, call.callee);
	}
	if (err == 0) {
		err = emit_call(d, &call);
	} else {
		free(call.in);
		free(call.out);
	}
	free(formals);
	return err;
}

int dec_call(struct decoder *d, int a, int b)
{
	const struct ptx_operand *in = d->insn->operands, *results = NULL, *args = NULL;
	unsigned n = d->insn->n_operands, i = 0;
	int err;

	dec_has(d, ".uni");
	err = dec_modifiers_done(d);
	if (err < 0) {
		return err;
	}
	if (i < n && in[i].kind == PTX_TUPLE) {
		results = &in[i++];
	}
	if (i == n || in[i].kind != PTX_NAME || in[i].offset) {
		return dec_fail(d, "a function's name is expected");
	}
	if (dec_find(d, in[i].name) || in[i].name[0] == '%') {
		return dec_fail(d, "calls through a register are not supported");
	}
	if (i + 1 < n && in[i + 1].kind == PTX_TUPLE) {
		args = &in[i + 1];
	}
	if (i + 1 + (args != NULL) != n) {
		return dec_fail(d, "the call has an operand too many");
	}
	return call_function(d, results, in[i].name, args);
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
	struct op op = dec_op(d, op_shfl);
	int mode = dec_pick(d, modes, 4, -1), err;
	bool sync = dec_has(d, ".sync");

	dec_take_type(d);
	op.sub = (uint8_t)mode;
	op.flags = sync ? FLAG_VOTE_SYNC : 0;
	op.p = EXEC_NO_PRED;
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
