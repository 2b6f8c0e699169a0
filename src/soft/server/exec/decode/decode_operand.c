/* Decoding of operands and modifiers. */
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *word;
	enum exec_type type;
} types[] = {
	{ ".b8", TY_U8 },    { ".u8", TY_U8 },	    { ".s8", TY_S8 },	  { ".b16", TY_U16 },
	{ ".u16", TY_U16 },  { ".s16", TY_S16 },    { ".b32", TY_U32 },	  { ".u32", TY_U32 },
	{ ".s32", TY_S32 },  { ".b64", TY_U64 },    { ".u64", TY_U64 },	  { ".s64", TY_S64 },
	{ ".f16", TY_F16 },  { ".f32", TY_F32 },    { ".f64", TY_F64 },	  { ".f16x2", TY_U32 },
	{ ".bf16", TY_U16 }, { ".bf16x2", TY_U32 }, { ".pred", TY_PRED },
};

enum exec_type exec_dec_type(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (strcmp(types[i].word, word) == 0) {
			return types[i].type;
		}
	}
	return TY_COUNT;
}

unsigned exec_dec_type_bytes(enum exec_type t)
{
	static const uint8_t bytes[TY_COUNT] = {
		[TY_U8] = 1,  [TY_S8] = 1,  [TY_U16] = 2, [TY_S16] = 2, [TY_U32] = 4, [TY_S32] = 4,
		[TY_U64] = 8, [TY_S64] = 8, [TY_F16] = 2, [TY_F32] = 4, [TY_F64] = 8, [TY_F32Z] = 4
	};

	return t < TY_COUNT ? bytes[t] : 0;
}

bool exec_dec_is_float(enum exec_type t)
{
	return t == TY_F16 || t == TY_F32 || t == TY_F64 || t == TY_F32Z;
}

bool exec_dec_is_signed(enum exec_type t)
{
	return t == TY_S8 || t == TY_S16 || t == TY_S32 || t == TY_S64;
}

bool exec_dec_has(struct exec_decoder *d, const char *modifier)
{
	for (unsigned i = 0; i < d->insn->n_modifiers; i++) {
		if (!(d->used_modifiers >> i & 1) && strcmp(d->insn->modifiers[i], modifier) == 0) {
			d->used_modifiers |= 1u << i;
			return true;
		}
	}
	return false;
}

int exec_dec_pick(struct exec_decoder *d, const char *const *words, int n, int none)
{
	for (int i = 0; i < n; i++) {
		if (words[i] && exec_dec_has(d, words[i])) {
			return i;
		}
	}
	return none;
}

enum exec_type exec_dec_take_type(struct exec_decoder *d)
{
	for (unsigned i = 0; i < d->insn->n_modifiers; i++) {
		enum exec_type t = exec_dec_type(d->insn->modifiers[i]);

		if (!(d->used_modifiers >> i & 1) && t != TY_COUNT) {
			d->used_modifiers |= 1u << i;
			return t;
		}
	}
	return TY_COUNT;
}

int exec_dec_modifiers_done(struct exec_decoder *d)
{
	for (unsigned i = 0; i < d->insn->n_modifiers; i++) {
		if (!(d->used_modifiers >> i & 1)) {
			return exec_dec_fail(d, "%s is not supported here", d->insn->modifiers[i]);
		}
	}
	return 0;
}

int exec_dec_operands(struct exec_decoder *d, unsigned n)
{
	if (d->insn->n_operands != n) {
		return exec_dec_fail(d, "%u operand%s expected, found %u", n, PLURAL(n),
				     d->insn->n_operands);
	}
	return exec_dec_modifiers_done(d);
}

/* Charged again for each kernel that contains the function. */
int exec_dec_module_takes(struct exec_decoder *d, uint64_t bytes)
{
	d->module->constant_bytes += bytes;
	return d->module->constant_bytes > DECODE_MODULE_CONSTANTS_MAX
		       ? exec_dec_fail(d,
				       "the module's kernels have too many constants, tables and "
				       "arguments")
		       : 0;
}

static int constant_room(struct exec_decoder *d, bool wide)
{
	if (d->constants.len > DECODE_CONSTANTS_MAX) {
		return d->in_family ? -EAGAIN : exec_dec_fail(d, "a kernel has too many constants");
	}
	return exec_dec_module_takes(d, wide ? EXEC_SLOT64 : EXEC_SLOT32);
}

int exec_dec_constant(struct exec_decoder *d, uint64_t bits, bool wide, uint32_t *ret)
{
	struct {
		uint64_t bits;
		uint8_t wide;
	} PACKED key = { wide ? bits : (uint32_t)bits, wide };
	uintptr_t known = (uintptr_t)strmap_get_n(&d->constant_index, (char *)&key, sizeof(key));
	uint32_t offset = (uint32_t)d->constants.len;
	int err;

	if (known) {
		*ret = (uint32_t)(known - 1) | REF_CONST;
		return 0;
	}
	err = constant_room(d, wide);
	if (err < 0) {
		return err;
	}
	for (unsigned i = 0; i < EXEC_LANES; i++) {
		uint32_t low = (uint32_t)bits;

		buf_add(&d->constants, wide ? (void *)&bits : (void *)&low, wide ? 8 : 4);
	}
	if (d->constants.failed || strmap_add_n(&d->constant_index, (char *)&key, sizeof(key),
						(void *)(uintptr_t)(offset + 1)) < 0) {
		return exec_dec_no_memory(d);
	}
	*ret = offset | REF_CONST;
	return 0;
}

/* A slot of its own, patched when the address is known. */
static int constant_reloc(struct exec_decoder *d, enum exec_reloc_kind kind, int64_t addend,
			  bool wide, uint32_t *ret)
{
	static const uint8_t zero[EXEC_SLOT64];
	struct exec_reloc r = {
		.kind = kind, .offset = (uint32_t)d->constants.len, .wide = wide, .addend = addend
	};
	/* longer than the key of a plain constant */
	struct {
		int64_t addend;
		uint8_t wide, kind;
	} PACKED key = { addend, wide, (uint8_t)kind };
	uintptr_t known =
		(uintptr_t)strmap_get_n(&d->constant_index, (const char *)&key, sizeof(key));
	int err;

	if (known) {
		*ret = (uint32_t)(known - 1) | REF_CONST;
		return 0;
	}
	err = constant_room(d, wide);
	if (err < 0) {
		return err;
	}
	buf_add(&d->constants, zero, wide ? EXEC_SLOT64 : EXEC_SLOT32);
	buf_add(&d->relocs, &r, sizeof(r));
	*ret = r.offset | REF_CONST;
	if (d->constants.failed || d->relocs.failed ||
	    strmap_add_n(&d->constant_index, (const char *)&key, sizeof(key),
			 (void *)((uintptr_t)r.offset + 1)) < 0) {
		return exec_dec_no_memory(d);
	}
	return 0;
}

static int immediate(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
		     uint32_t *ret)
{
	uint64_t bits = o->value;
	double v64;
	float v32;

	if (o->kind == PTX_INT && exec_dec_is_float(t)) {
		return exec_dec_fail(d, "a whole number where a float is expected");
	}
	if (o->kind == PTX_F64) {
		memcpy(&v64, &bits, sizeof(v64));
		if (t == TY_F32 || t == TY_F32Z) {
			v32 = (float)v64;
			bits = 0;
			memcpy(&bits, &v32, sizeof(v32));
		} else if (t != TY_F64 && exec_dec_type_bytes(t) != 8) {
			return exec_dec_fail(d, "a 64-bit float does not fit here");
		}
	} else if (o->kind == PTX_F32 && t == TY_F64) {
		memcpy(&v32, &bits, sizeof(v32));
		v64 = v32;
		memcpy(&bits, &v64, sizeof(v64));
	}
	return exec_dec_constant(d, bits, exec_dec_is_wide(t), ret);
}

static int function_address(struct exec_decoder *d, const char *name, int64_t offset, bool wide,
			    uint32_t *ret)
{
	const struct ptx_function *f = strmap_get(d->functions, name);
	uintptr_t index = (uintptr_t)strmap_get(&d->taken->index, f->name);

	if (!wide || offset || index == 0) {
		return exec_dec_fail(d, "the address of %s cannot be used here", name);
	}
	if (!f->has_body) {
		return exec_dec_fail(d, "%s has no body in this module, and nothing links it",
				     name);
	}
	return exec_dec_constant(d, d->module->code_base + (index - 1) * EXEC_CODE_STEP, true, ret);
}

/* Returns the address of a variable, in its own space. */
static int variable_address(struct exec_decoder *d, const char *name, int64_t offset, bool wide,
			    uint32_t *ret, enum exec_space_kind *ret_space)
{
	const struct exec_symbol *s = exec_dec_find(d, name);
	const struct exec_variable *global;
	struct exec_op op;
	uint32_t addend, frame;
	int err;

	if (s && s->kind == SYM_SHARED) {
		*ret_space = SP_SHARED;
		if (s->extern_array && d->in_family) {
			return -EAGAIN; /* it lies elsewhere in each kernel */
		}
		if (s->extern_array) {
			return constant_reloc(d, RELOC_DYNAMIC_SHARED, offset, wide, ret);
		}
		return exec_dec_constant(d, s->offset + (uint64_t)offset, wide, ret);
	}
	if (s && (s->kind == SYM_LOCAL || (s->kind == SYM_PARAM && s->in_frame))) {
		/* the frame's offset is known at run time */
		*ret_space = SP_LOCAL;
		err = exec_dec_constant(d, s->ref + (uint64_t)offset, true, &addend);
		if (err == 0) {
			err = exec_dec_new_register(d, wide ? TY_U64 : TY_U32, ret);
		}
		if (err == 0 && !wide) {
			err = exec_dec_new_register(d, TY_U64, &frame);
		}
		if (err < 0) {
			return err;
		}
		op = exec_dec_op(d, d->h->alu[ALU_ADD][TY_U64]);
		op.d = wide ? *ret : frame;
		op.a = REF_SLOT32(WARP_FRAME, REF_WARP);
		op.b = addend;
		err = exec_dec_emit(d, &op);
		if (err == 0 && !wide) {
			op.fn = d->h->cvt[TY_U32][TY_U64];
			op.d = *ret;
			op.a = frame;
			err = exec_dec_emit(d, &op);
		}
		return err;
	}
	if (s && s->kind == SYM_PARAM) {
		*ret_space = SP_PARAM;
		return exec_dec_constant(d, s->offset + (uint64_t)offset, wide, ret);
	}
	global = s ? NULL : strmap_get(d->globals, name);
	if (global || (s && s->kind == SYM_GLOBAL)) {
		*ret_space = SP_GLOBAL;
		return constant_reloc(d, RELOC_GLOBAL,
				      (int64_t)(global ? global->offset : s->offset) + offset, wide,
				      ret);
	}
	if (!s && strmap_get(d->functions, name)) {
		return function_address(d, name, offset, wide, ret);
	}
	if (s) {
		return exec_dec_fail(d, "%s cannot be used as a value", name);
	}
	return exec_dec_fail(d, "%s is not declared", name);
}

/* Adds to a register what is written behind it, "%r1+8"; the sum has the register's size. */
static int add_offset(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type have,
		      uint32_t *ret)
{
	static const enum exec_type sums[] = { [2] = TY_U16, [4] = TY_U32, [8] = TY_U64 };
	unsigned bytes = exec_dec_type_bytes(have);
	struct exec_op op;
	int err;

	if (!o->offset) {
		return 0;
	}
	if (bytes < 2 || exec_dec_is_float(have)) {
		return exec_dec_fail(d, "%s cannot have an offset", o->name);
	}
	op = exec_dec_op(d, d->h->alu[ALU_ADD][sums[bytes]]);
	op.a = *ret;
	err = exec_dec_constant(d, (uint64_t)o->offset, bytes == 8, &op.b);
	if (err == 0) {
		err = exec_dec_new_register(d, sums[bytes], &op.d);
	}
	*ret = op.d;
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* exact: a register must have the width of the type. */
static int source(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t, bool exact,
		  uint32_t *ret, bool *ret_wide)
{
	enum exec_space_kind space;
	enum exec_type have;
	int err;

	*ret_wide = exec_dec_is_wide(t);
	if (o->kind == PTX_INT || o->kind == PTX_F32 || o->kind == PTX_F64) {
		return immediate(d, o, t, ret);
	}
	if (o->kind != PTX_NAME) {
		return exec_dec_fail(d, "a register or a constant is expected");
	}
	err = exec_dec_register(d, o->name, ret, &have);
	if (err < 0) {
		return err;
	}
	if (err == 0) {
		if (have == TY_PRED) {
			return exec_dec_fail(d, "%s is a predicate", o->name);
		}
		if (exact ? exec_dec_is_wide(have) != exec_dec_is_wide(t) ||
				    exec_dec_type_bytes(have) < exec_dec_type_bytes(t)
			  : exec_dec_type_bytes(have) < exec_dec_type_bytes(t)) {
			return exec_dec_fail(d, "%s does not have the instruction's size", o->name);
		}
		*ret_wide = exec_dec_is_wide(have);
		err = exec_dec_read(d, ret, *ret_wide);
		return err < 0 ? err : add_offset(d, o, have, ret);
	}
	if (o->name[0] == '%') {
		err = exec_dec_special(d, o->name, t, ret);
		if (err <= 0) {
			return err < 0 ? err : add_offset(d, o, t, ret);
		}
	}
	if (o->name[0] == '%' && !exec_dec_find(d, o->name)) {
		return exec_dec_fail(d, "%s is not declared, and no special register of this size",
				     o->name);
	}
	return variable_address(d, o->name, o->offset, *ret_wide, ret, &space);
}

int exec_dec_source(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
		    uint32_t *ret)
{
	bool wide;

	return source(d, o, t, true, ret, &wide);
}

int exec_dec_source_any(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
			uint32_t *ret, bool *ret_wide)
{
	return source(d, o, t, false, ret, ret_wide);
}

int exec_dec_dest_any(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
		      uint32_t *ret, bool *ret_wide)
{
	enum exec_type have;
	int err;

	if (o->kind != PTX_NAME || o->offset) {
		return exec_dec_fail(d, "a register is expected");
	}
	if (strcmp(o->name, "_") == 0) {
		*ret_wide = exec_dec_is_wide(t);
		return exec_dec_new_register(d, t, ret);
	}
	err = exec_dec_register(d, o->name, ret, &have);
	if (err < 0) {
		return err;
	}
	if (err > 0) {
		return exec_dec_fail(d, "%s is not a declared register", o->name);
	}
	if (have == TY_PRED || exec_dec_type_bytes(have) < exec_dec_type_bytes(t)) {
		return exec_dec_fail(d, "%s does not have the instruction's size", o->name);
	}
	*ret_wide = exec_dec_is_wide(have);
	return exec_dec_written(d, *ret);
}

int exec_dec_dest(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
		  uint32_t *ret)
{
	bool wide;
	int err = exec_dec_dest_any(d, o, t, ret, &wide);

	if (err == 0 && wide != exec_dec_is_wide(t)) {
		return exec_dec_fail(d, "%s does not have the instruction's size", o->name);
	}
	return err;
}

static int constant_pred(struct exec_decoder *d, bool value, uint16_t *ret)
{
	struct exec_op op = exec_dec_op(d, exec_op_pred_logic);
	uint32_t ref;
	int err = exec_dec_new_register(d, TY_PRED, &ref);

	op.sub = LOGIC_SET;
	op.imm = value;
	op.p = *ret = (uint16_t)ref;
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_pred(struct exec_decoder *d, const struct ptx_operand *o, uint16_t *ret,
		  uint8_t *ret_not)
{
	bool negated = o->kind == PTX_NOT;
	enum exec_type type = TY_COUNT;
	uint32_t ref;
	int err;

	if (negated && ret_not) {
		o = &o->args[0];
	}
	if (o->kind == PTX_INT && ret_not) {
		*ret_not = false;
		return constant_pred(d, o->value != 0, ret);
	}
	if (o->kind != PTX_NAME || o->offset) {
		return exec_dec_fail(d, "a predicate is expected");
	}
	if (strcmp(o->name, "_") == 0 && !ret_not) {
		*ret = EXEC_NO_PRED;
		return 0;
	}
	if (ret_not && strcmp(o->name, "%is_explicit_cluster") == 0) {
		*ret_not = negated;
		return constant_pred(d, false, ret);
	}
	err = exec_dec_register(d, o->name, &ref, &type);
	if (err != 0 || type != TY_PRED) {
		return err < 0 ? err : exec_dec_fail(d, "%s is not a predicate", o->name);
	}
	*ret = (uint16_t)ref;
	if (ret_not) {
		*ret_not = negated;
	}
	return 0;
}

int exec_dec_address_value(struct exec_decoder *d, const struct ptx_operand *o,
			   enum exec_space_kind *space, uint32_t *ret)
{
	struct exec_op at = exec_dec_op(d, NULL), op = exec_dec_op(d, d->h->alu[ALU_ADD][TY_U64]);
	int err = exec_dec_address(d, o, space, &at);

	op.a = at.a;
	if (err == 0 && !(at.wide & WIDE_A)) {
		struct exec_op widen = exec_dec_op(d, d->h->cvt[TY_U64][TY_U32]);

		err = exec_dec_new_register(d, TY_U64, &op.a);
		widen.d = op.a;
		widen.a = at.a;
		if (err == 0) {
			err = exec_dec_emit(d, &widen);
		}
	}
	if (err < 0 || at.imm == 0) {
		*ret = op.a;
		return err;
	}
	err = exec_dec_constant(d, (uint64_t)at.imm, true, &op.b);
	if (err == 0) {
		err = exec_dec_new_register(d, TY_U64, &op.d);
	}
	*ret = op.d;
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* A named parameter, local or shared variable determines the space even if the instruction does
 * not. */
int exec_dec_address(struct exec_decoder *d, const struct ptx_operand *o,
		     enum exec_space_kind *space, struct exec_op *op)
{
	enum exec_space_kind found = *space;
	enum exec_type have;
	int err;

	if (o->kind != PTX_ADDRESS || o->n_args) {
		return exec_dec_fail(d, "an address in [ ] is expected");
	}
	op->wide |= WIDE_A;
	if (!o->name) {
		return exec_dec_constant(d, (uint64_t)o->offset, true, &op->a);
	}
	err = exec_dec_register(d, o->name, &op->a, &have);
	if (err < 0) {
		return err;
	}
	if (err > 0) {
		const struct exec_symbol *s = exec_dec_find(d, o->name);

		if (s && (s->kind == SYM_LOCAL || (s->kind == SYM_PARAM && s->in_frame))) {
			err = 0;
			found = SP_LOCAL;
			op->a = REF_SLOT32(WARP_FRAME, REF_WARP);
			op->imm = (int64_t)s->ref + o->offset;
			err = 0;
		} else {
			err = variable_address(d, o->name, o->offset, true, &op->a, &found);
		}
		if (err == 0 && found != *space && *space != SP_GENERIC &&
		    !(*space == SP_PARAM && found == SP_LOCAL)) {
			return exec_dec_fail(d, "%s lies in another space", o->name);
		}
		*space = found;
		return err;
	}
	if (have == TY_PRED || exec_dec_type_bytes(have) < 4) {
		return exec_dec_fail(d, "%s cannot hold an address", o->name);
	}
	op->wide = (uint8_t)(exec_dec_is_wide(have) ? op->wide : op->wide & ~WIDE_A);
	op->imm = o->offset;
	/* A function's own parameters lie in its frame. */
	if (*space == SP_PARAM && !d->in_entry) {
		*space = SP_LOCAL;
	}
	return 0;
}
