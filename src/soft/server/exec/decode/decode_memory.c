/* Decoding of loads, stores and fences. */
#include "soft/server/exec/access_check.h"
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <string.h>

static enum exec_space_kind take_space(struct exec_decoder *d)
{
	static const char *const words[] = {
		".global", ".const", ".shared",	      ".shared::cta", ".shared::cluster",
		".local",  ".param", ".param::entry", ".param::func",
	};
	static const enum exec_space_kind kinds[] = {
		SP_GLOBAL, SP_GLOBAL, SP_SHARED, SP_SHARED, SP_SHARED,
		SP_LOCAL,  SP_PARAM,  SP_PARAM,	 SP_PARAM,
	};
	int i = exec_dec_pick(d, words, ARRAY_SIZE(words), -1);

	return i < 0 ? SP_GENERIC : kinds[i];
}

/* Takes hints about caches and order: every access here is at least as strong. Returns true if the
 * access may be a spin wait on other threads' stores. */
static bool take_hints(struct exec_decoder *d)
{
	static const char *const words[] = {
		".relaxed",
		".acquire",
		".volatile",
		".mmio",
		".weak",
		".release",
		".acq_rel",
		".sc",
		".cta",
		".cluster",
		".gpu",
		".sys",
		".ca",
		".cg",
		".cs",
		".lu",
		".cv",
		".wb",
		".wt",
		".nc",
		".L1::evict_normal",
		".L1::evict_unchanged",
		".L1::evict_first",
		".L1::evict_last",
		".L1::no_allocate",
		".L2::64B",
		".L2::128B",
		".L2::256B",
		".L2::evict_normal",
		".L2::evict_first",
		".L2::evict_last",
	};

	bool strong = false;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		bool found = exec_dec_has(d, words[i]);

		strong = strong || (found && i < 4);
	}
	return strong;
}

static unsigned take_vector(struct exec_decoder *d)
{
	return exec_dec_has(d, ".v2")	? 2
	       : exec_dec_has(d, ".v4") ? 4
	       : exec_dec_has(d, ".v8") ? 8
					: 1;
}

/* Registers of the value operand: one, or as many as this piece of the vector has. */
static int value_refs(struct exec_decoder *d, const struct ptx_operand *args, struct exec_op *op,
		      enum exec_type t, bool load)
{
	uint32_t *refs[4] = { &op->d, &op->b, &op->c, &op->e };

	for (uint32_t k = 0; k < op->n; k++) {
		bool wide = false;
		int err;

		if (load && args[k].kind == PTX_NAME && strcmp(args[k].name, "_") == 0) {
			*refs[k] = ~0u;
			continue;
		}
		err = load ? exec_dec_dest_any(d, &args[k], t, refs[k], &wide)
			   : exec_dec_source_any(d, &args[k], t, refs[k], &wide);
		if (err < 0) {
			return err;
		}
		op->flags |= wide ? 1u << k : 0;
	}
	return 0;
}

static bool is_word(const struct exec_op *op)
{
	return op->n == 1 && op->d != ~0u &&
	       ((op->size == 4 && !(op->flags & 1)) || (op->size == 8 && op->flags & 1));
}

static int memory_type(struct exec_decoder *d, struct exec_op *op, enum exec_type *ret)
{
	*ret = exec_dec_take_type(d);
	op->size = (uint8_t)exec_dec_type_bytes(*ret);
	op->type = (uint8_t)*ret;
	op->sub = exec_dec_is_signed(*ret);
	return op->size ? exec_dec_modifiers_done(d) : exec_dec_fail(d, "a type is expected");
}

static int emit_access(struct exec_decoder *d, struct exec_op *op, enum exec_space_kind space,
		       bool load)
{
	int err;

	op->space = (uint8_t)space;
	op->fn = NULL;
	if (is_word(op)) {
		op->fn = load ? d->h->load_word[space][op->size == 8]
			      : d->h->store_word[space][op->size == 8];
	}
	if (!op->fn) {
		op->fn = load ? d->h->load[space] : d->h->store[space];
	}
	if (!op->fn) {
		return exec_dec_fail(d, load ? "this space cannot be read"
					     : "this space cannot be written");
	}
	err = exec_dec_check(d, op, (unsigned)op->size * op->n,
			     load ? CHECK_READ : CHECK_WRITE | CHECK_VALUE);
	return err < 0 ? err : exec_dec_emit(d, op);
}

/* Returns the halves of a 128-bit register. */
static int wide_register(struct exec_decoder *d, const struct ptx_operand *o, uint32_t half[2])
{
	enum exec_type have = TY_COUNT;
	int err = o->kind == PTX_NAME && !o->offset ? exec_dec_register(d, o->name, &half[0], &have)
						    : 1;

	if (err < 0) {
		return err;
	}
	if (have != TY_B128) {
		return exec_dec_fail(d, "a register of 128 bits is expected");
	}
	half[1] = half[0] + EXEC_SLOT64;
	return 0;
}

/* ld.b128 and st.b128: as two words of 64 bits. */
static int access_wide(struct exec_decoder *d, struct exec_op *op, const struct ptx_operand *value,
		       const struct ptx_operand *at, bool load, enum exec_space_kind space)
{
	uint32_t half[2];
	int err = wide_register(d, value, half);

	if (err == 0) {
		err = exec_dec_address(d, at, &space, op);
	}
	op->n = 2;
	op->size = 8;
	op->type = TY_U64;
	op->flags = 3;
	op->d = half[0];
	op->b = half[1];
	return err < 0 ? err : emit_access(d, op, space, load);
}

/* mov.b128 between registers of 128 bits, and {low, high} of 64. */
int exec_dec_mov_wide(struct exec_decoder *d)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op mov = exec_dec_op(d, d->h->alu[ALU_MOV][TY_U64]);
	uint32_t half[2][2] = { 0 };
	int err = exec_dec_operands(d, 2);

	for (int side = 1; err == 0 && side >= 0; side--) {
		if (in[side].kind != PTX_VECTOR) {
			err = wide_register(d, &in[side], half[side]);
		} else if (in[side].n_args != 2 || in[!side].kind == PTX_VECTOR) {
			err = exec_dec_fail(d, "{low, high} on one side is expected");
		}
		for (int k = 0; err == 0 && in[side].kind == PTX_VECTOR && k < 2; k++) {
			err = side ? exec_dec_source(d, &in[1].args[k], TY_U64, &half[1][k])
				   : exec_dec_dest(d, &in[0].args[k], TY_U64, &half[0][k]);
		}
	}
	for (int k = 0; err == 0 && k < 2; k++) {
		mov.d = half[0][k];
		mov.a = half[1][k];
		err = exec_dec_emit(d, &mov);
	}
	return err;
}

/* Eight values in two halves. The first may overwrite the address, so the address is copied. */
static int access_halves(struct exec_decoder *d, struct exec_op *op,
			 const struct ptx_operand *values, const struct ptx_operand *at,
			 enum exec_type t, bool load, enum exec_space_kind space)
{
	struct exec_op mov = exec_dec_op(d, d->h->alu[ALU_MOV][TY_U64]);
	int err = exec_dec_address_value(d, at, &space, &mov.a);

	if (err == 0) {
		err = exec_dec_new_register(d, TY_U64, &mov.d);
	}
	if (err == 0) {
		err = exec_dec_emit(d, &mov);
	}
	op->n = 4;
	op->a = mov.d;
	op->wide = WIDE_A;
	for (unsigned half = 0; err == 0 && half < 2; half++) {
		op->flags = 0;
		op->imm = (int64_t)half * 4 * op->size;
		err = value_refs(d, values + (size_t)half * 4, op, t, load);
		if (err == 0) {
			err = emit_access(d, op, space, load);
		}
	}
	return err;
}

int exec_dec_poll(struct exec_decoder *d, const struct exec_op *access)
{
	struct exec_op op = exec_dec_op(d, exec_op_poll);

	op.d = access->d;
	op.a = access->a;
	op.wide = access->wide;
	op.flags = access->flags;
	return op.d == ~0u ? 0 : exec_dec_emit(d, &op);
}

static int access(struct exec_decoder *d, bool load)
{
	const struct ptx_operand *in = d->insn->operands, *value, *at;
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_space_kind space = take_space(d);
	unsigned n = take_vector(d);
	bool hint = exec_dec_has(d, ".L2::cache_hint"), strong, wide;
	enum exec_type t = TY_U64;
	uint32_t policy;
	int err;

	strong = take_hints(d);
	op.n = (uint8_t)n;
	wide = n == 1 && exec_dec_has(d, ".b128");
	err = wide ? exec_dec_modifiers_done(d) : memory_type(d, &op, &t);
	if (err == 0) {
		err = exec_dec_operands(d, hint ? 3 : 2);
	}
	if (err == 0 && hint) {
		err = exec_dec_source(d, &in[2], TY_U64, &policy);
	}
	if (err < 0) {
		return err;
	}
	value = &in[load ? 0 : 1];
	at = &in[load ? 1 : 0];
	if (wide) {
		return access_wide(d, &op, value, at, load, space);
	}
	if ((value->kind == PTX_VECTOR ? value->n_args : 1) != n) {
		return exec_dec_fail(d, "%u values expected, found %u", n,
				     value->kind == PTX_VECTOR ? value->n_args : 1);
	}
	if (value->kind == PTX_VECTOR) {
		value = value->args;
	}
	if (n == 8) {
		return access_halves(d, &op, value, at, t, load, space);
	}
	err = value_refs(d, value, &op, t, load);
	if (err == 0) {
		err = exec_dec_address(d, at, &space, &op);
	}
	if (err == 0) {
		err = emit_access(d, &op, space, load);
	}
	return err == 0 && load && strong ? exec_dec_poll(d, &op) : err;
}

int exec_dec_load(struct exec_decoder *d, int a, int b)
{
	return access(d, true);
}

int exec_dec_store(struct exec_decoder *d, int a, int b)
{
	return access(d, false);
}

/* Cache hints have no effect. */
int exec_dec_prefetch(struct exec_decoder *d, int a, int b)
{
	static const char *const words[] = { ".L1", ".L2", ".L2::evict_last", ".L2::evict_normal",
					     ".tensormap" };
	struct exec_op op = exec_dec_op(d, NULL);
	enum exec_space_kind space = take_space(d);
	int err;

	exec_dec_pick(d, words, ARRAY_SIZE(words), 0);
	err = exec_dec_operands(d, 1);
	return err < 0 ? err : exec_dec_address(d, &d->insn->operands[0], &space, &op);
}

/* All threads, and copies, see every access in program order: proxies need nothing more. */
int exec_dec_fence(struct exec_decoder *d, int a, int b)
{
	static const char *const words[] = {
		".cta",
		".gl",
		".sys",
		".gpu",
		".cluster",
		".sc",
		".acq_rel",
		".acquire",
		".release",
		".mbarrier_init",
		".proxy",
		".alias",
		".async",
		".async.global",
		".global",
		".shared::cta",
		".shared::cluster",
		".async::generic",
		".tensormap::generic",
		".sync_restrict::shared::cta",
		".sync_restrict::shared::cluster",
	};
	struct exec_op op = exec_dec_op(d, exec_op_fence);
	enum exec_space_kind space = SP_GENERIC;
	bool tensor = false;
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		bool found = exec_dec_has(d, words[i]);

		tensor = tensor || (found && strcmp(words[i], ".tensormap::generic") == 0);
	}
	err = exec_dec_operands(d, tensor && d->insn->n_operands ? 2 : 0);
	if (err == 0 && d->insn->n_operands) {
		struct exec_op at = exec_dec_op(d, NULL);

		err = exec_dec_address(d, &d->insn->operands[0], &space, &at);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}
