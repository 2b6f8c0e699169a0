/* Decoding of matrix instructions. Registers are copied to consecutive fresh ones and back, so that
 * handlers find them adjacent. */
#include "soft/server/exec/access_check.h"
#include "soft/server/exec/decode/decode_kernel.h"
#include "soft/server/exec/op/mma.h"

#include <errno.h>
#include <string.h>

static const char *const type_words[MMA_TYPES] = { ".f16",  ".bf16", ".tf32", ".f32", ".f64",
						   ".e4m3", ".e5m2", ".s32",  ".s8",  ".u8",
						   ".s4",   ".u4",   ".b1" };

/* Returns the first type not taken; MMA_TYPES: none left. */
static enum exec_mma_type take_type(struct exec_decoder *d)
{
	for (unsigned i = 0; i < d->insn->n_modifiers; i++) {
		for (unsigned t = 0; t < MMA_TYPES; t++) {
			if (!(d->used_modifiers >> i & 1) &&
			    strcmp(d->insn->modifiers[i], type_words[t]) == 0) {
				d->used_modifiers |= 1u << i;
				return (enum exec_mma_type)t;
			}
		}
	}
	return MMA_TYPES;
}

static int take_shape(struct exec_decoder *d, uint32_t *ret)
{
	exec_dec_has(d, ".sync");
	if (!exec_dec_has(d, ".aligned")) {
		return exec_dec_fail(d, ".aligned is expected");
	}
	for (uint32_t i = 0; i < exec_mma_n_shapes; i++) {
		if (exec_dec_has(d, exec_mma_shapes[i].word)) {
			*ret = i;
			return 0;
		}
	}
	return exec_dec_fail(d, "this shape is not supported");
}

static int take_slots(struct exec_decoder *d, unsigned n, bool wide, uint32_t *first)
{
	enum exec_type t = wide ? TY_U64 : TY_U32;
	uint32_t next = 0;
	int err = exec_dec_new_register(d, t, first);

	for (unsigned i = 1; err == 0 && i < n; i++) {
		err = exec_dec_new_register(d, t, &next);
	}
	return err;
}

/* Copies between { } and consecutive registers. */
static int copy_vector(struct exec_decoder *d, const struct ptx_operand *o, unsigned n, bool wide,
		       bool to_operand, uint32_t first)
{
	enum exec_type t = wide ? TY_U64 : TY_U32;
	const struct ptx_operand *args = o->kind == PTX_VECTOR ? o->args : o;
	struct exec_op mov = exec_dec_op(d, d->h->alu[ALU_MOV][t]);
	int err = 0;

	if ((o->kind == PTX_VECTOR ? o->n_args : 1) != n) {
		return exec_dec_fail(d, "%u registers in { } are expected", n);
	}
	for (unsigned i = 0; err == 0 && i < n; i++) {
		mov.a = mov.d = first + i * (wide ? EXEC_SLOT64 : EXEC_SLOT32);
		err = to_operand ? exec_dec_dest(d, &args[i], t, &mov.d)
				 : exec_dec_source(d, &args[i], t, &mov.a);
		if (err == 0) {
			err = exec_dec_emit(d, &mov);
		}
	}
	return err;
}

static int stage(struct exec_decoder *d, const struct ptx_operand *o, unsigned n, bool wide,
		 uint32_t *first)
{
	int err = take_slots(d, n, wide, first);

	return err < 0 ? err : copy_vector(d, o, n, wide, false, *first);
}

static bool is_int(enum exec_mma_type t)
{
	return t == MMA_S8 || t == MMA_U8 || t == MMA_S4 || t == MMA_U4;
}

static bool is_f8(enum exec_mma_type t)
{
	return t == MMA_E4M3 || t == MMA_E5M2;
}

static bool half_or_single(const struct exec_op *op)
{
	return (op->n == MMA_F16 || op->n == MMA_F32) &&
	       (op->size == MMA_F16 || op->size == MMA_F32);
}

/* Returns true if the types go together. */
static bool types_fit(const struct exec_op *op)
{
	enum exec_mma_type a = (enum exec_mma_type)op->type, b = (enum exec_mma_type)op->type2;

	if (is_int(a)) {
		return is_int(b) && exec_mma_type_bits(a) == exec_mma_type_bits(b) &&
		       op->n == MMA_S32 && op->size == MMA_S32;
	}
	if (is_f8(a)) {
		return is_f8(b) && half_or_single(op);
	}
	if (a != b) {
		return false;
	}
	switch (a) {
	case MMA_F16:
		return half_or_single(op);
	case MMA_BF16:
	case MMA_TF32:
		return op->n == MMA_F32 && op->size == MMA_F32;
	case MMA_F64:
		return op->n == MMA_F64 && op->size == MMA_F64;
	case MMA_B1:
		return op->n == MMA_S32 && op->size == MMA_S32;
	default:
		return false;
	}
}

/* Types of each shape: a row of A has 128 or 256 bits (m8: 128). */
static bool tile_fits(const struct exec_mma_shape *s, const struct exec_op *op)
{
	enum exec_mma_type a = (enum exec_mma_type)op->type;
	unsigned bits = exec_mma_type_bits(a) * s->k;

	if (s->n != 8 || s->m > 16) {
		return false;
	}
	if (a == MMA_F64) {
		return s->m == 8 ? s->k == 4 : s->k <= 16;
	}
	if (s->m == 8) {
		return bits == 128 && (is_int(a) || a == MMA_B1);
	}
	return bits == 128 || bits == 256;
}

static bool wmma_fits(const struct exec_mma_shape *s, enum exec_mma_type a)
{
	if (a == MMA_F64) {
		return s->m == 8 && s->n == 8 && s->k == 4;
	}
	if (a == MMA_TF32) {
		return s->m == 16 && s->n == 16 && s->k == 8;
	}
	if (a == MMA_S4 || a == MMA_U4 || a == MMA_B1) {
		return s->m == 8 && s->n == 8 && s->k == (a == MMA_B1 ? 128 : 32);
	}
	return s->k == 16 && s->m * s->n == 256 && !is_f8(a);
}

/* Accumulators of wmma. */
static bool wmma_result_fits(const struct exec_mma_shape *s, enum exec_mma_type c)
{
	switch (c) {
	case MMA_F16:
		return wmma_fits(s, MMA_F16);
	case MMA_F32:
		return wmma_fits(s, MMA_F16) || wmma_fits(s, MMA_TF32);
	case MMA_S32:
		return wmma_fits(s, MMA_S8) || wmma_fits(s, MMA_S4) || wmma_fits(s, MMA_B1);
	default:
		return c == MMA_F64 && wmma_fits(s, MMA_F64);
	}
}

/* Takes the layouts of a and b. */
static int take_layouts(struct exec_decoder *d, struct exec_op *op)
{
	static const char *const words[] = { ".row", ".col" };
	int flags = 0;

	for (int x = 0; x < 2; x++) {
		int found = -1;

		for (unsigned i = 0; i < d->insn->n_modifiers && found < 0; i++) {
			for (int k = 0; k < 2; k++) {
				if (!(d->used_modifiers >> i & 1) &&
				    strcmp(d->insn->modifiers[i], words[k]) == 0) {
					d->used_modifiers |= 1u << i;
					found = k;
				}
			}
		}
		if (found < 0) {
			return exec_dec_fail(d, ".row or .col is expected twice");
		}
		flags |= found ? MMA_COL_A << x : 0;
	}
	op->flags = (uint8_t)flags;
	return 0;
}

static int take_types(struct exec_decoder *d, struct exec_op *op)
{
	enum exec_mma_type t[4];

	for (int i = 0; i < 4; i++) {
		t[i] = take_type(d);
	}
	/* wmma of f16 names the types of d and c only. */
	if (op->sub == MMA_WMMA && t[2] == MMA_TYPES && t[1] != MMA_TYPES) {
		t[3] = t[1];
		t[1] = t[2] = MMA_F16;
	}
	if (t[3] == MMA_TYPES) {
		return exec_dec_fail(d, "the types of four matrices are expected");
	}
	op->size = (uint8_t)t[0];
	op->type = (uint8_t)t[1];
	op->type2 = (uint8_t)t[2];
	op->n = (uint8_t)t[3];
	return types_fit(op) ? 0 : exec_dec_fail(d, "these types do not go together");
}

/* d, a, b, c. */
static int emit_product(struct exec_decoder *d, struct exec_op *op)
{
	const struct ptx_operand *in = d->insn->operands;
	const struct exec_mma_shape *s = &exec_mma_shapes[op->e];
	enum exec_mma_kind kind = (enum exec_mma_kind)op->sub;
	const uint8_t types[] = { op->size, op->type, op->type2, op->n };
	static const enum exec_mma_matrix which[] = { MMA_D, MMA_A, MMA_B, MMA_C };
	uint32_t *refs[] = { &op->d, &op->a, &op->b, &op->c };
	unsigned n[4];
	int err = exec_dec_operands(d, 4);

	for (int i = 0; i < 4; i++) {
		n[i] = exec_mma_registers(kind, s, which[i], (enum exec_mma_type)types[i]);
	}
	for (int i = 1; err == 0 && i < 4; i++) {
		err = stage(d, &in[i], n[i], types[i] == MMA_F64, refs[i]);
	}
	if (err == 0) {
		err = take_slots(d, n[0], types[0] == MMA_F64, &op->d);
	}
	if (err == 0) {
		err = exec_dec_emit(d, op);
	}
	return err < 0 ? err : copy_vector(d, &in[0], n[0], types[0] == MMA_F64, true, op->d);
}

static int take_bit_operation(struct exec_decoder *d, struct exec_op *op)
{
	static const char *const words[] = { ".and", ".xor" };
	int which = exec_dec_pick(d, words, 2, op->sub == MMA_WMMA ? 1 : -1);

	if (which < 0 || !exec_dec_has(d, ".popc")) {
		return exec_dec_fail(d, ".and.popc or .xor.popc is expected");
	}
	op->flags |= which ? MMA_XOR : 0;
	return 0;
}

int exec_dec_mma(struct exec_decoder *d, int a, int b)
{
	struct exec_op op = exec_dec_op(d, exec_op_mma);
	const struct exec_mma_shape *s;
	int err = take_shape(d, &op.e);

	if (err == 0) {
		err = take_layouts(d, &op);
	}
	if (err == 0) {
		err = take_types(d, &op);
	}
	if (err < 0) {
		return err;
	}
	s = &exec_mma_shapes[op.e];
	op.sub = s->m == 8 && s->k == 4 && op.type == MMA_F16 ? MMA_QUAD : MMA_TILE;
	if (op.sub == MMA_TILE && (!tile_fits(s, &op) || op.flags != MMA_COL_B)) {
		return exec_dec_fail(d, "this shape of these types is not supported");
	}
	if (is_int((enum exec_mma_type)op.type)) {
		op.flags |= exec_dec_has(d, ".satfinite") ? MMA_SATFINITE : 0;
	} else if (op.type == MMA_B1) {
		err = take_bit_operation(d, &op);
	} else if (op.type == MMA_F64) {
		exec_dec_has(d, ".rn");
	}
	return err < 0 ? err : emit_product(d, &op);
}

static int take_memory_space(struct exec_decoder *d, enum exec_space_kind *ret)
{
	static const char *const words[] = { ".global", ".shared", ".shared::cta" };
	int i = exec_dec_pick(d, words, 3, -1);

	*ret = i < 0 ? SP_GENERIC : i == 0 ? SP_GLOBAL : SP_SHARED;
	return 0;
}

/* wmma.load.{a,b,c} r, [p] {, stride} and wmma.store.d [p], r {, stride}. */
static int wmma_move(struct exec_decoder *d, bool store)
{
	static const char *const matrices[] = { ".a", ".b", ".c", ".d" };
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_wmma_move);
	int which = exec_dec_pick(d, matrices, 4, -1), err = take_shape(d, &op.e);
	bool col = exec_dec_has(d, ".col"), row = exec_dec_has(d, ".row"), wide, stride;
	enum exec_space_kind space = SP_GENERIC;
	const struct exec_mma_shape *s = &exec_mma_shapes[op.e];
	enum exec_mma_type t = take_type(d);
	unsigned n, standard;

	if (err < 0) {
		return err;
	}
	if (which < 0 || store != (which == MMA_D) || row == col || t == MMA_TYPES ||
	    (which >= MMA_C ? !wmma_result_fits(s, t)
			    : t == MMA_F32 || t == MMA_S32 || !wmma_fits(s, t))) {
		return exec_dec_fail(d, "this form of wmma is not supported");
	}
	take_memory_space(d, &space);
	op.sub = (uint8_t)which;
	op.type = (uint8_t)t;
	op.flags = (uint8_t)((col ? WMMA_COL : 0) | (store ? WMMA_STORE : 0));
	wide = t == MMA_F64;
	n = exec_mma_registers(MMA_WMMA, s, (enum exec_mma_matrix)which, t);
	stride = d->insn->n_operands == 3;
	err = exec_dec_operands(d, stride ? 3 : 2);
	standard = col ? (which == MMA_B ? s->k : s->m) : (which == MMA_A ? s->k : s->n);
	if (err == 0) {
		err = stride ? exec_dec_source(d, &in[2], TY_U32, &op.b)
			     : exec_dec_constant(d, standard, false, &op.b);
	}
	if (err == 0) {
		err = exec_dec_address(d, &in[store ? 0 : 1], &space, &op);
	}
	op.space = (uint8_t)space;
	if (err == 0) {
		err = store ? stage(d, &in[1], n, wide, &op.d) : take_slots(d, n, wide, &op.d);
	}
	if (err == 0) {
		err = exec_dec_emit(d, &op);
	}
	return err < 0 || store ? err : copy_vector(d, &in[0], n, wide, true, op.d);
}

int exec_dec_wmma(struct exec_decoder *d, int a, int b)
{
	struct exec_op op = exec_dec_op(d, exec_op_mma);
	int err;

	if (exec_dec_has(d, ".load")) {
		return wmma_move(d, false);
	}
	if (exec_dec_has(d, ".store")) {
		return wmma_move(d, true);
	}
	if (!exec_dec_has(d, ".mma")) {
		return exec_dec_fail(d, ".load, .store or .mma is expected");
	}
	op.sub = MMA_WMMA;
	err = take_shape(d, &op.e);
	if (err == 0) {
		err = take_layouts(d, &op);
	}
	if (err == 0) {
		err = take_types(d, &op);
	}
	if (err == 0 && !wmma_fits(&exec_mma_shapes[op.e], (enum exec_mma_type)op.type)) {
		err = exec_dec_fail(d, "this shape of these types is not supported");
	}
	op.flags = 0; /* the memory layout does not matter any more */
	if (err == 0 && op.type == MMA_B1) {
		err = take_bit_operation(d, &op);
	}
	if (is_int((enum exec_mma_type)op.type)) {
		op.flags |= exec_dec_has(d, ".satfinite") ? MMA_SATFINITE : 0;
	}
	if (op.type == MMA_F64) {
		exec_dec_has(d, ".rn");
	}
	return err < 0 ? err : emit_product(d, &op);
}

/* ldmatrix r, [p] and stmatrix [p], r. */
int exec_dec_matrix(struct exec_decoder *d, int store, int unused)
{
	static const char *const counts[] = { ".x1", ".x2", ".x4" };
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_matrix);
	int count = exec_dec_pick(d, counts, 3, -1), err;
	enum exec_space_kind space = SP_GENERIC;

	exec_dec_has(d, ".sync");
	if (!exec_dec_has(d, ".aligned") || !exec_dec_has(d, ".m8n8") || !exec_dec_has(d, ".b16") ||
	    count < 0) {
		return exec_dec_fail(d, "this form is not supported: only .m8n8 of .b16");
	}
	op.n = (uint8_t)(1u << count);
	op.flags = (uint8_t)((exec_dec_has(d, ".trans") ? MATRIX_TRANS : 0) |
			     (store ? MATRIX_STORE : 0));
	take_memory_space(d, &space);
	err = exec_dec_operands(d, 2);
	if (err == 0) {
		err = exec_dec_address(d, &in[store ? 0 : 1], &space, &op);
	}
	op.space = (uint8_t)space;
	if (err == 0) {
		err = store ? stage(d, &in[1], op.n, false, &op.d)
			    : take_slots(d, op.n, false, &op.d);
	}
	if (err == 0 && op.n == 4) { /* every lane supplies an address */
		err = exec_dec_check(d, &op, 16, store ? CHECK_WRITE : CHECK_READ);
	}
	if (err == 0) {
		err = exec_dec_emit(d, &op);
	}
	return err < 0 || store ? err : copy_vector(d, &in[0], op.n, false, true, op.d);
}

int exec_dec_movmatrix(struct exec_decoder *d, int a, int b)
{
	struct exec_op op = exec_dec_op(d, exec_op_movmatrix);
	int err;

	exec_dec_has(d, ".sync");
	if (!exec_dec_has(d, ".aligned") || !exec_dec_has(d, ".m8n8") ||
	    !exec_dec_has(d, ".trans") || !exec_dec_has(d, ".b16")) {
		return exec_dec_fail(d, "only .m8n8.trans.b16 is supported");
	}
	err = exec_dec_operands(d, 2);
	if (err == 0) {
		err = exec_dec_source(d, &d->insn->operands[1], TY_U32, &op.a);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &d->insn->operands[0], TY_U32, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}
