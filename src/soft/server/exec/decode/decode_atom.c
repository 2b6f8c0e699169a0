/* Decoding of atomic operations and reductions. */
#include "soft/server/exec/memory/atom.h"
#include "soft/server/exec/access_check.h"
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <string.h>

/* Types of halves, in addition to those of exec_dec_type(). */
static const struct {
	const char *word;
	uint8_t half; /* enum exec_atom_half */
	uint8_t bytes;
} halves[] = { { ".f16", ATOM_F16, 2 },
	       { ".f16x2", ATOM_F16, 4 },
	       { ".bf16", ATOM_BF16, 2 },
	       { ".bf16x2", ATOM_BF16, 4 } };

/* Order and scope: every access here is at least as strong. */
static void take_order(struct exec_decoder *d)
{
	static const char *const words[] = { ".relaxed", ".acquire", ".release", ".acq_rel", ".sc",
					     ".cta",	 ".cluster", ".gpu",	 ".sys" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		exec_dec_has(d, words[i]);
	}
}

static enum exec_space_kind take_space(struct exec_decoder *d)
{
	/* A cluster is one block here. */
	static const char *const words[] = { ".global", ".shared", ".shared::cta",
					     ".shared::cluster" };
	int i = exec_dec_pick(d, words, ARRAY_SIZE(words), -1);

	return i < 0 ? SP_GENERIC : i == 0 ? SP_GLOBAL : SP_SHARED;
}

static bool fits(const struct exec_op *op, int what, enum exec_type t)
{
	bool integer = t == TY_U32 || t == TY_S32 || t == TY_U64 || t == TY_S64;

	if (op->type2 != ATOM_PLAIN) {
		return what == ATOM_ADD || (op->n > 1 && (what == ATOM_MIN || what == ATOM_MAX));
	}
	if (op->n > 1) {
		return what == ATOM_ADD && t == TY_F32;
	}
	switch (what) {
	case ATOM_ADD:
		return integer || t == TY_F32 || t == TY_F64;
	case ATOM_INC:
	case ATOM_DEC:
		return t == TY_U32;
	case ATOM_CAS:
		return integer || t == TY_U16;
	case ATOM_EXCH:
		return integer || t == TY_F32 || t == TY_F64;
	default:
		return integer;
	}
}

static int take_type(struct exec_decoder *d, struct exec_op *op, enum exec_type *ret)
{
	static const uint8_t counts[] = { 1, 2, 4, 8 };
	static const char *const vectors[] = { NULL, ".v2", ".v4", ".v8" };

	op->n = counts[exec_dec_pick(d, vectors, 4, 0)];
	op->type2 = ATOM_PLAIN;
	for (size_t i = 0; i < ARRAY_SIZE(halves); i++) {
		if (exec_dec_has(d, halves[i].word)) {
			exec_dec_has(d, ".noftz");
			op->type2 = halves[i].half;
			op->size = halves[i].bytes;
			*ret = op->size == 2 ? TY_U16 : TY_U32;
			op->type = (uint8_t)*ret;
			return 0;
		}
	}
	*ret = exec_dec_take_type(d);
	op->type = (uint8_t)*ret;
	op->size = (uint8_t)exec_dec_type_bytes(*ret);
	return op->size ? 0 : exec_dec_fail(d, "this type is not supported here");
}

/* Copies elements between operands and consecutive registers: to *first, or with dest back. */
static int stage(struct exec_decoder *d, const struct ptx_operand *o, const struct exec_op *atom,
		 bool dest, uint32_t *first)
{
	enum exec_type t = (enum exec_type)atom->type;
	struct exec_op mov = exec_dec_op(d, d->h->alu[ALU_MOV][TY_U32]);
	int err = 0;

	if (o->kind != PTX_VECTOR || o->n_args != atom->n) {
		return exec_dec_fail(d, "%u values in { } are expected", atom->n);
	}
	for (unsigned i = 0; err == 0 && i < atom->n; i++) {
		uint32_t ref = *first + i * EXEC_SLOT32;

		mov.a = mov.d = ref;
		err = dest ? exec_dec_dest(d, &o->args[i], t, &mov.d)
			   : exec_dec_source(d, &o->args[i], t, &mov.a);
		if (err == 0) {
			err = exec_dec_emit(d, &mov);
		}
	}
	return err;
}

static int take_slots(struct exec_decoder *d, unsigned n, uint32_t *first)
{
	uint32_t next = 0;
	int err = exec_dec_new_register(d, TY_U32, first);

	for (unsigned i = 1; err == 0 && i < n; i++) {
		err = exec_dec_new_register(d, TY_U32, &next);
	}
	return err;
}

static int emit_checked(struct exec_decoder *d, const struct exec_op *op)
{
	int err = exec_dec_check(d, op, (unsigned)op->size * op->n,
				 CHECK_READ | CHECK_WRITE | CHECK_STRONG);

	return err < 0 ? err : exec_dec_emit(d, op);
}

/* Vectors { } are passed in consecutive registers. */
static int emit_vector(struct exec_decoder *d, struct exec_op *op, const struct ptx_operand *in,
		       const struct ptx_operand *dest)
{
	int err = take_slots(d, op->n, &op->b);

	op->fn = exec_op_atom_vector;
	if (err == 0) {
		err = stage(d, &in[1], op, false, &op->b);
	}
	if (err == 0 && dest) {
		err = take_slots(d, op->n, &op->d);
	}
	if (err == 0) {
		err = emit_checked(d, op);
	}
	return err < 0 || !dest ? err : stage(d, dest, op, true, &op->d);
}

/* A .b128 register: returns the first of two. */
static int pair_register(struct exec_decoder *d, const struct ptx_operand *o, uint32_t *ret)
{
	enum exec_type have = TY_COUNT;
	int err = o->kind == PTX_NAME && !o->offset ? exec_dec_register(d, o->name, ret, &have) : 1;

	return err == 0 && have == TY_B128 ? 0
	       : err < 0		   ? err
					   : exec_dec_fail(d, "a register of .b128 is expected");
}

/* cas and exch of .b128. */
static int atom_pair(struct exec_decoder *d, struct exec_op *op, int what,
		     enum exec_space_kind space, bool policy)
{
	const struct ptx_operand *in = d->insn->operands;
	bool sink = d->insn->n_operands && in[0].kind == PTX_NAME && strcmp(in[0].name, "_") == 0;
	unsigned last = what == ATOM_CAS ? 4 : 3;
	uint32_t ignored;
	int err;

	if ((what != ATOM_CAS && what != ATOM_EXCH) || !op->flags) {
		return exec_dec_fail(d, "this atomic operation on this type is not supported");
	}
	op->fn = exec_op_atom_pair;
	op->size = 16;
	op->flags = sink ? 0 : ATOM_OLD;
	err = exec_dec_operands(d, last + policy);
	if (err == 0 && policy) {
		err = exec_dec_source(d, &in[last], TY_U64, &ignored);
	}
	if (err == 0) {
		err = exec_dec_address(d, &in[1], &space, op);
	}
	if (err == 0 && (space == SP_LOCAL || space == SP_PARAM)) {
		err = exec_dec_fail(d, "atomics work on global and shared memory");
	}
	op->space = (uint8_t)space;
	if (err == 0) {
		err = pair_register(d, &in[2], &op->b);
	}
	if (err == 0 && what == ATOM_CAS) {
		err = pair_register(d, &in[3], &op->c);
	}
	if (err == 0 && !sink) {
		err = pair_register(d, &in[0], &op->d);
	}
	return err < 0 ? err : emit_checked(d, op);
}

/* atom d, [a], b {, c} and red [a], b; a cache policy may follow. */
int exec_dec_atom(struct exec_decoder *d, int wants_old, int unused)
{
	static const char *const words[] = { ".add", ".min", ".max", ".exch", ".cas",
					     ".and", ".or",  ".xor", ".inc",  ".dec" };
	const struct ptx_operand *dest = wants_old ? d->insn->operands : NULL;
	const struct ptx_operand *in =
		d->insn->n_operands ? d->insn->operands + (wants_old ? 1 : 0) : NULL;
	struct exec_op op = exec_dec_op(d, exec_op_atom);
	enum exec_space_kind space = take_space(d);
	int what = exec_dec_pick(d, words, ARRAY_SIZE(words), -1), err, last;
	bool policy = exec_dec_has(d, ".L2::cache_hint");
	enum exec_type t;
	uint32_t ignored;

	take_order(d);
	op.sub = (uint8_t)what;
	op.flags = wants_old ? ATOM_OLD : 0;
	if (exec_dec_has(d, ".b128")) {
		return atom_pair(d, &op, what, space, policy);
	}
	err = take_type(d, &op, &t);
	if (err == 0 && (what < 0 || !fits(&op, what, t) ||
			 (!wants_old && (what == ATOM_CAS || what == ATOM_EXCH)))) {
		err = exec_dec_fail(d, "this atomic operation on this type is not supported");
	}
	last = what == ATOM_CAS ? 3 : 2;
	if (err == 0) {
		err = exec_dec_modifiers_done(d);
	}
	if (err == 0) {
		err = exec_dec_operands(d, (unsigned)(last + wants_old + policy));
	}
	if (err == 0 && policy) {
		err = exec_dec_source(d, &in[last], TY_U64, &ignored);
	}
	if (err == 0) {
		err = exec_dec_address(d, &in[0], &space, &op);
	}
	if (err == 0 && (space == SP_LOCAL || space == SP_PARAM)) {
		err = exec_dec_fail(d, "atomics work on global and shared memory");
	}
	op.space = (uint8_t)space;
	if (what == ATOM_ADD && (t == TY_U32 || t == TY_S32) && op.type2 == ATOM_PLAIN) {
		op.fn = d->h->atom_add[space];
	}
	if (err == 0 && op.n > 1) {
		return emit_vector(d, &op, in, dest);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &op.b);
	}
	if (err == 0 && what == ATOM_CAS) {
		err = exec_dec_source(d, &in[2], t, &op.c);
	}
	if (err == 0 && dest && dest->kind == PTX_NAME && strcmp(dest->name, "_") == 0) {
		op.flags = 0;
	} else if (err == 0 && dest) {
		err = exec_dec_dest(d, dest, t, &op.d);
	}
	if (err == 0) {
		err = emit_checked(d, &op);
	}
	if (err < 0 || !(op.flags & ATOM_OLD) || space == SP_SHARED) {
		return err;
	}
	op.flags = op.size == 8;
	return exec_dec_poll(d, &op);
}
