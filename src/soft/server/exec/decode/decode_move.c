/* Decoding of moves, comparisons and selections. */
#include "soft/server/exec/decode/decode_kernel.h"
#include "soft/server/exec/decode/decode_arith.h"
#include "soft/server/exec/op/integer.h"

#include <errno.h>
#include <string.h>

static int emit_mov(struct exec_decoder *d, uint32_t to, uint32_t from, bool wide)
{
	struct exec_op op = exec_dec_op(d, d->h->alu[ALU_MOV][wide ? TY_U64 : TY_U32]);

	op.d = to;
	op.a = from;
	return exec_dec_emit(d, &op);
}

static int mov_pred(struct exec_decoder *d)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_pred_logic);
	int err = exec_dec_pred(d, &in[0], &op.p, NULL);

	if (err == 0 && in[1].kind == PTX_INT) {
		op.sub = LOGIC_SET;
		op.imm = in[1].value != 0;
	} else if (err == 0) {
		op.sub = LOGIC_MOV;
		err = exec_dec_pred(d, &in[1], &op.r, &op.r_not);
	}
	if (err == 0 && op.p == EXEC_NO_PRED) {
		return 0;
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

static int mov_clock(struct exec_decoder *d, bool *ret_done)
{
	static const struct {
		const char *name;
		int what;
		bool wide;
	} clocks[] = { { "%clock", CLOCK_CYCLES, false },
		       { "%clock_hi", CLOCK_CYCLES_HI, false },
		       { "%clock64", CLOCK_CYCLES, true },
		       { "%globaltimer", CLOCK_TIMER, true },
		       { "%globaltimer_lo", CLOCK_TIMER_LO, false },
		       { "%globaltimer_hi", CLOCK_TIMER_HI, false } };
	const struct ptx_operand *in = d->insn->operands;

	for (size_t i = 0; i < ARRAY_SIZE(clocks); i++) {
		struct exec_op op = exec_dec_op(d, exec_op_clock);
		int err;

		if (in[1].kind != PTX_NAME || in[1].offset ||
		    strcmp(in[1].name, clocks[i].name) != 0) {
			continue;
		}
		*ret_done = true;
		op.sub = (uint8_t)clocks[i].what;
		op.wide = clocks[i].wide ? WIDE_D : 0;
		err = exec_dec_dest(d, &in[0], clocks[i].wide ? TY_U64 : TY_U32, &op.d);
		return err < 0 ? err : exec_dec_emit(d, &op);
	}
	return 0;
}

/* Copies first, so that {%r1, %r2} = %r1's own parts is right. */
static int fresh_copy(struct exec_decoder *d, uint32_t *ref, bool wide)
{
	uint32_t copy;
	int err = exec_dec_new_register(d, wide ? TY_U64 : TY_U32, &copy);

	if (err == 0) {
		err = emit_mov(d, copy, *ref, wide);
	}
	*ref = copy;
	return err;
}

/* Packs bytes from the highest part down. */
static int pack_bytes(struct exec_decoder *d, const struct ptx_operand *v, uint32_t *ret)
{
	struct exec_op op = exec_dec_op(d, exec_op_pack_bytes);
	int err = exec_dec_source(d, &v->args[v->n_args - 1], TY_U8, &op.b);

	for (uint32_t i = v->n_args - 1; err == 0 && i-- > 0;) {
		err = exec_dec_source(d, &v->args[i], TY_U8, &op.a);
		if (err == 0) {
			err = exec_dec_new_register(d, TY_U32, &op.d);
		}
		if (err == 0) {
			err = exec_dec_emit(d, &op);
		}
		op.b = op.d;
	}
	*ret = op.d;
	return err;
}

static int unpack_bytes(struct exec_decoder *d, const struct ptx_operand *v, uint32_t from)
{
	struct exec_op op = exec_dec_op(d, exec_op_unpack_byte);
	int err = 0;

	op.a = from;
	for (uint32_t i = 0; err == 0 && i < v->n_args; i++) {
		op.imm = 8 * i;
		err = exec_dec_dest(d, &v->args[i], TY_U8, &op.d);
		if (err == 0) {
			err = exec_dec_emit(d, &op);
		}
	}
	return err;
}

/* {a, b, c, d} of n parts to one register of n * part bytes, by halves. */
static int pack(struct exec_decoder *d, const struct ptx_operand *v, enum exec_type whole,
		uint32_t *ret)
{
	enum exec_type part = exec_dec_type_bytes(whole) / v->n_args == 2 ? TY_U16 : TY_U32;
	struct exec_op op = exec_dec_op(d, NULL);
	uint32_t half[2];
	int err = 0;

	if (v->n_args == exec_dec_type_bytes(whole) && v->n_args <= 4) {
		return pack_bytes(d, v, ret);
	}
	if (v->n_args == 4 && exec_dec_type_bytes(whole) == 8) {
		for (int i = 0; err == 0 && i < 2; i++) {
			struct ptx_operand two = { .kind = PTX_VECTOR,
						   .n_args = 2,
						   .args = v->args + 2 * i };

			err = pack(d, &two, TY_U32, &half[i]);
		}
	} else if (v->n_args == 2 && exec_dec_type_bytes(whole) >= 4) {
		for (int i = 0; err == 0 && i < 2; i++) {
			err = exec_dec_source(d, &v->args[i], part, &half[i]);
		}
	} else {
		return exec_dec_fail(d, "a vector of this size is not supported");
	}
	if (err == 0) {
		err = exec_dec_new_register(d, whole, ret);
	}
	if (err < 0) {
		return err;
	}
	op.fn = d->h->alu[ALU_PACK][exec_dec_is_wide(whole) ? TY_U64 : TY_U32];
	op.d = *ret;
	op.a = half[0];
	op.b = half[1];
	return exec_dec_emit(d, &op);
}

static int unpack(struct exec_decoder *d, const struct ptx_operand *v, enum exec_type whole,
		  uint32_t from)
{
	enum exec_type part = exec_dec_type_bytes(whole) / v->n_args == 2 ? TY_U16 : TY_U32;
	struct exec_op op =
		exec_dec_op(d, d->h->alu[ALU_UNPACK][exec_dec_is_wide(whole) ? TY_U64 : TY_U32]);
	uint32_t *half[2] = { &op.d, &op.e };
	int err = fresh_copy(d, &from, exec_dec_is_wide(whole));

	op.a = from;
	if (err == 0 && v->n_args == exec_dec_type_bytes(whole) && v->n_args <= 4) {
		return unpack_bytes(d, v, from);
	}
	if (v->n_args == 4 && exec_dec_type_bytes(whole) == 8) {
		for (int i = 0; err == 0 && i < 2; i++) {
			err = exec_dec_new_register(d, TY_U32, half[i]);
		}
		if (err == 0) {
			err = exec_dec_emit(d, &op);
		}
		for (int i = 0; err == 0 && i < 2; i++) {
			struct ptx_operand two = { .kind = PTX_VECTOR,
						   .n_args = 2,
						   .args = v->args + 2 * i };

			err = unpack(d, &two, TY_U32, *half[i]);
		}
		return err;
	}
	if (v->n_args != 2 || exec_dec_type_bytes(whole) < 4) {
		return exec_dec_fail(d, "a vector of this size is not supported");
	}
	for (int i = 0; err == 0 && i < 2; i++) {
		err = exec_dec_dest(d, &v->args[i], part, half[i]);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_mov(struct exec_decoder *d, int a, int b)
{
	static const char *const vectors[] = { ".v2", ".v4" };
	const struct ptx_operand *in = d->insn->operands;
	int vector = exec_dec_pick(d, vectors, 2, -1);
	enum exec_type t;
	uint32_t from, to;
	bool done = false;
	int err;

	if (vector >= 0) {
		return exec_dec_mov_vector(d, vector ? 4 : 2);
	}
	t = exec_dec_take_type(d);
	if (t == TY_COUNT && exec_dec_has(d, ".b128")) {
		return exec_dec_mov_wide(d);
	}
	err = exec_dec_operands(d, 2);
	if (err < 0) {
		return err;
	}
	if (t == TY_PRED) {
		return mov_pred(d);
	}
	if (t == TY_COUNT) {
		return exec_dec_fail(d, "a type is expected");
	}
	d->undefined.read = false;
	err = mov_clock(d, &done);
	if (err < 0 || done) {
		return err;
	}
	if (in[1].kind == PTX_VECTOR) {
		err = pack(d, &in[1], t, &from);
	} else {
		err = exec_dec_source(d, &in[1], t, &from);
	}
	if (err < 0) {
		return err;
	}
	if (in[0].kind == PTX_VECTOR) {
		return unpack(d, &in[0], t, from);
	}
	err = exec_dec_dest(d, &in[0], t, &to);
	if (err == 0 && d->undefined.read && in[1].kind == PTX_NAME) {
		exec_dec_moved(d, to);
	}
	return err < 0 ? err : emit_mov(d, to, from, exec_dec_is_wide(t));
}

static int emit_selp(struct exec_decoder *d, uint32_t to, uint32_t a, uint32_t b, uint16_t p,
		     uint8_t p_not, bool wide)
{
	struct exec_op op = exec_dec_op(d, d->h->alu[ALU_SELP][wide ? TY_U64 : TY_U32]);

	op.d = to;
	op.a = a;
	op.b = b;
	op.r = p;
	op.r_not = p_not;
	return exec_dec_emit(d, &op);
}

int exec_dec_selp(struct exec_decoder *d, int unused, int unused2)
{
	const struct ptx_operand *in = d->insn->operands;
	enum exec_type t = exec_dec_take_type(d);
	uint32_t to = 0, a = 0, b = 0;
	uint16_t p = 0;
	uint8_t p_not = 0;
	int err = exec_dec_operands(d, 4);

	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &a);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[2], t, &b);
	}
	if (err == 0) {
		err = exec_dec_pred(d, &in[3], &p, &p_not);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], t, &to);
	}
	return err < 0 ? err : emit_selp(d, to, a, b, p, p_not, exec_dec_is_wide(t));
}

/* slct d, a, b, c: a when c >= 0. */
int exec_dec_slct(struct exec_decoder *d, int unused, int unused2)
{
	const struct ptx_operand *in = d->insn->operands;
	bool ftz = exec_dec_has(d, ".ftz");
	enum exec_type t = exec_dec_take_type(d), tc = exec_dec_take_type(d);
	struct exec_op cmp = exec_dec_op(d, NULL);
	uint32_t to = 0, a = 0, b = 0, p = 0;
	int err = exec_dec_operands(d, 4);

	if (err == 0 && tc != TY_S32 && tc != TY_F32) {
		err = exec_dec_fail(d, "the selector is .s32 or .f32");
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &a);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[2], t, &b);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[3], tc, &cmp.a);
	}
	if (err == 0) {
		err = exec_dec_constant(d, 0, false, &cmp.b);
	}
	if (err == 0) {
		err = exec_dec_new_register(d, TY_PRED, &p);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], t, &to);
	}
	if (err < 0) {
		return err;
	}
	cmp.fn = d->h->setp[CMP_GE][tc == TY_F32 && ftz ? TY_F32Z : tc];
	cmp.p = (uint16_t)p;
	cmp.q = EXEC_NO_PRED;
	err = exec_dec_emit(d, &cmp);
	return err < 0 ? err : emit_selp(d, to, a, b, (uint16_t)p, 0, exec_dec_is_wide(t));
}

/* Decodes the comparison of setp and set: handler, boolean operation and type into op; *t: type of
 * the operands. */
static int comparison(struct exec_decoder *d, struct exec_op *op, enum exec_type *t)
{
	static const char *const cmps[] = { ".eq",  ".ne",  ".lt",  ".le",  ".gt",  ".ge",
					    ".equ", ".neu", ".ltu", ".leu", ".gtu", ".geu",
					    ".num", ".nan", ".lo",  ".ls",  ".hi",  ".hs" };
	static const char *const bools[] = { NULL, ".and", ".or", ".xor" };
	int cmp = exec_dec_pick(d, cmps, ARRAY_SIZE(cmps), -1);
	enum exec_type as = *t;

	op->sub = (uint8_t)exec_dec_pick(d, bools, 4, BOOL_NONE);
	if (exec_dec_half_here(d)) {
		return exec_dec_half_comparison(d, op, cmp, t);
	}
	if (cmp > CMP_NAN) {
		cmp = cmp - (CMP_NAN + 1) + CMP_LT;
		as = as == TY_S32 ? TY_U32 : as == TY_S64 ? TY_U64 : as == TY_S16 ? TY_U16 : as;
	}
	if (as == TY_F32 && exec_dec_has(d, ".ftz")) {
		as = TY_F32Z;
	}
	op->fn = cmp < 0 || as >= TY_COUNT ? NULL : d->h->setp[cmp][as];
	return op->fn ? 0 : exec_dec_fail(d, "this comparison of this type is not supported");
}

static int comparison_sources(struct exec_decoder *d, struct exec_op *op, enum exec_type t)
{
	const struct ptx_operand *in = d->insn->operands;
	int err = exec_dec_operands(d, op->sub == BOOL_NONE ? 3 : 4);

	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &op->a);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[2], t, &op->b);
	}
	if (err == 0 && op->sub != BOOL_NONE) {
		err = exec_dec_pred(d, &in[3], &op->r, &op->r_not);
	}
	return err;
}

int exec_dec_setp(struct exec_decoder *d, int a, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type t = exec_dec_take_type(d);
	int err = comparison(d, &op, &t);

	if (err == 0) {
		err = comparison_sources(d, &op, t);
	}
	op.q = EXEC_NO_PRED;
	if (err == 0 && in[0].kind == PTX_PAIR) {
		err = exec_dec_pred(d, &in[0].args[0], &op.p, NULL);
		if (err == 0) {
			err = exec_dec_pred(d, &in[0].args[1], &op.q, NULL);
		}
	} else if (err == 0) {
		err = exec_dec_pred(d, &in[0], &op.p, NULL);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* Value of set for true: all ones or 1.0, in one or two halves. 0: no such result. */
static uint32_t set_true(const char *word, unsigned halves)
{
	static const struct {
		const char *word;
		uint8_t halves;
		uint32_t yes;
	} results[] = { { ".u32", 1, ~0u },	 { ".s32", 1, ~0u },	  { ".f32", 1, 0x3f800000 },
			{ ".u16", 1, 0xffff },	 { ".s16", 1, 0xffff },	  { ".f16", 1, 0x3c00 },
			{ ".bf16", 1, 0x3f80 },	 { ".u32", 2, 0xffff },	  { ".s32", 2, 0xffff },
			{ ".f16x2", 2, 0x3c00 }, { ".bf16x2", 2, 0x3f80 } };

	for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
		if (results[i].halves == halves && strcmp(word, results[i].word) == 0) {
			return results[i].yes;
		}
	}
	return 0;
}

/* to = predicates p and, above it, q, as numbers. */
static int emit_set(struct exec_decoder *d, const struct exec_op *cmp, uint32_t to, uint32_t yes)
{
	struct exec_op pack = exec_dec_op(d, d->h->alu[ALU_PACK][TY_U32]);
	uint32_t one = 0, none = 0;
	int err = exec_dec_constant(d, yes, false, &one);

	if (err == 0) {
		err = exec_dec_constant(d, 0, false, &none);
	}
	if (err < 0 || cmp->q == EXEC_NO_PRED) {
		return err < 0 ? err : emit_selp(d, to, one, none, cmp->p, 0, false);
	}
	err = exec_dec_new_register(d, TY_U32, &pack.a);
	if (err == 0) {
		err = exec_dec_new_register(d, TY_U32, &pack.b);
	}
	if (err == 0) {
		err = emit_selp(d, pack.a, one, none, cmp->p, 0, false);
	}
	if (err == 0) {
		err = emit_selp(d, pack.b, one, none, cmp->q, 0, false);
	}
	pack.d = to;
	return err < 0 ? err : exec_dec_emit(d, &pack);
}

int exec_dec_set(struct exec_decoder *d, int unused, int unused2)
{
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_type td, t;
	uint32_t to = 0, p = 0, q = EXEC_NO_PRED, yes = 0;
	const char *word = "";
	int err;

	for (unsigned i = 0; i < d->insn->n_modifiers && !*word; i++) {
		word = exec_dec_type(d->insn->modifiers[i]) != TY_COUNT ? d->insn->modifiers[i]
									: "";
	}
	td = exec_dec_take_type(d);
	t = exec_dec_take_type(d);
	err = comparison(d, &op, &t);
	if (err == 0) {
		err = comparison_sources(d, &op, t);
	}
	if (err == 0) {
		yes = set_true(word, op.n);
		err = yes ? 0 : exec_dec_fail(d, "this result of a comparison is not supported");
	}
	if (err == 0) {
		err = exec_dec_new_register(d, TY_PRED, &p);
	}
	if (err == 0 && op.n == 2) {
		err = exec_dec_new_register(d, TY_PRED, &q);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &d->insn->operands[0], td, &to);
	}
	if (err < 0) {
		return err;
	}
	op.p = (uint16_t)p;
	op.q = (uint16_t)q;
	err = exec_dec_emit(d, &op);
	return err < 0 ? err : emit_set(d, &op, to, yes);
}

static enum exec_space_kind space_word(struct exec_decoder *d)
{
	static const char *const words[] = { ".global", ".const", ".shared",	  ".shared::cta",
					     ".local",	".param", ".param::entry" };
	static const enum exec_space_kind kinds[] = { SP_GLOBAL, SP_GLOBAL, SP_SHARED, SP_SHARED,
						      SP_LOCAL,	 SP_PARAM,  SP_PARAM };
	int i = exec_dec_pick(d, words, ARRAY_SIZE(words), -1);

	return i < 0 ? SP_GENERIC : kinds[i];
}

/* Adds or subtracts the window's offset; global addresses equal generic ones. */
int exec_dec_cvta(struct exec_decoder *d, int unused, int unused2)
{
	static const uint64_t windows[] = { [SP_SHARED] = EXEC_WINDOW_SHARED,
					    [SP_LOCAL] = EXEC_WINDOW_LOCAL,
					    [SP_PARAM] = EXEC_WINDOW_PARAM };
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, NULL);
	bool to = exec_dec_has(d, ".to");
	enum exec_space_kind space = space_word(d);
	enum exec_type t = exec_dec_take_type(d);
	uint64_t window;
	int err = exec_dec_operands(d, 2);

	if (err == 0 && (space == SP_GENERIC || t != TY_U64)) {
		err = exec_dec_fail(d, "a space and .u64 are expected");
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], t, &op.d);
	}
	if (err < 0) {
		return err;
	}
	if (space == SP_PARAM && !d->in_entry) {
		space = SP_LOCAL;
	}
	if (space == SP_GLOBAL) {
		return emit_mov(d, op.d, op.a, true);
	}
	window = windows[space];
	op.fn = d->h->alu[ALU_ADD][TY_U64];
	err = exec_dec_constant(d, to ? 0 - window : window, true, &op.b);
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_isspacep(struct exec_decoder *d, int unused, int unused2)
{
	struct exec_op op = exec_dec_op(d, exec_op_isspacep);
	enum exec_space_kind space = space_word(d);
	int err = exec_dec_operands(d, 2);

	op.space = space;
	if (err == 0 && space == SP_GENERIC) {
		err = exec_dec_fail(d, "a space is expected");
	}
	if (err == 0) {
		err = exec_dec_source(d, &d->insn->operands[1], TY_U64, &op.a);
	}
	if (err == 0) {
		err = exec_dec_pred(d, &d->insn->operands[0], &op.p, NULL);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}
