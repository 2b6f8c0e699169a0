/* Loads, stores, atomics, fences. */
#include "soft/server/exec/check.h"
#include "soft/server/exec/decode.h"

#include <errno.h>
#include <string.h>

static enum exec_space_kind take_space(struct decoder *d)
{
	static const char *const words[] = { ".global", ".const", ".shared",	   ".shared::cta",
					     ".local",	".param", ".param::entry", ".param::func" };
	static const enum exec_space_kind kinds[] = { SP_GLOBAL, SP_GLOBAL, SP_SHARED, SP_SHARED,
						      SP_LOCAL,	 SP_PARAM,  SP_PARAM,  SP_PARAM };
	int i = dec_pick(d, words, ARRAY_SIZE(words), -1);

	return i < 0 ? SP_GENERIC : kinds[i];
}

/* Hints about caches and order: every access here is at least as strong. */
static void take_hints(struct decoder *d)
{
	static const char *const words[] = {
		".weak",
		".relaxed",
		".acquire",
		".release",
		".acq_rel",
		".sc",
		".volatile",
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
		".mmio",
		".L1::evict_normal",
		".L1::evict_unchanged",
		".L1::evict_first",
		".L1::evict_last",
		".L1::no_allocate",
		".L2::64B",
		".L2::128B",
		".L2::256B",
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		dec_has(d, words[i]);
	}
}

static unsigned take_vector(struct decoder *d)
{
	return dec_has(d, ".v2") ? 2 : dec_has(d, ".v4") ? 4 : 1;
}

/* Registers of the value operand: one, or as many as the vector has. */
static int value_refs(struct decoder *d, const struct ptx_operand *o, struct op *op,
		      enum exec_type t, bool load)
{
	uint32_t *refs[4] = { &op->d, &op->b, &op->c, &op->e };
	const struct ptx_operand *args = o->kind == PTX_VECTOR ? o->args : o;
	uint32_t n = o->kind == PTX_VECTOR ? o->n_args : 1;

	if (n != op->n) {
		return dec_fail(d, "%u values expected, found %u", op->n, n);
	}
	for (uint32_t k = 0; k < n; k++) {
		bool wide = false;
		int err;

		if (load && args[k].kind == PTX_NAME && strcmp(args[k].name, "_") == 0) {
			*refs[k] = ~0u;
			continue;
		}
		err = load ? dec_dest_any(d, &args[k], t, refs[k], &wide)
			   : dec_source_any(d, &args[k], t, refs[k], &wide);
		if (err < 0) {
			return err;
		}
		op->flags |= wide ? 1u << k : 0;
	}
	return 0;
}

static bool is_word(const struct op *op)
{
	return op->n == 1 && op->d != ~0u &&
	       ((op->size == 4 && !(op->flags & 1)) || (op->size == 8 && op->flags & 1));
}

static int memory_type(struct decoder *d, struct op *op, enum exec_type *ret)
{
	*ret = dec_take_type(d);
	op->size = (uint8_t)dec_type_bytes(*ret);
	op->type = (uint8_t)*ret;
	op->sub = dec_is_signed(*ret);
	return op->size ? dec_modifiers_done(d) : dec_fail(d, "a type is expected");
}

int dec_load(struct decoder *d, int a, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct op op = dec_op(d, NULL);
	enum exec_space_kind space = take_space(d);
	enum exec_type t;
	int err;

	take_hints(d);
	op.n = (uint8_t)take_vector(d);
	err = memory_type(d, &op, &t);
	if (err == 0) {
		err = dec_operands(d, 2);
	}
	if (err == 0) {
		err = value_refs(d, &in[0], &op, t, true);
	}
	if (err == 0) {
		err = dec_address(d, &in[1], &space, &op);
	}
	if (err < 0) {
		return err;
	}
	op.space = (uint8_t)space;
	op.fn = is_word(&op) ? d->h->load_word[space][op.size == 8] : NULL;
	if (!op.fn) {
		op.fn = d->h->load[space];
	}
	if (!op.fn) {
		return dec_fail(d, "this space cannot be read");
	}
	err = dec_check(d, &op, op.size * op.n, CHECK_READ);
	return err < 0 ? err : dec_emit(d, &op);
}

int dec_store(struct decoder *d, int a, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct op op = dec_op(d, NULL);
	enum exec_space_kind space = take_space(d);
	enum exec_type t;
	int err;

	take_hints(d);
	op.n = (uint8_t)take_vector(d);
	err = memory_type(d, &op, &t);
	if (err == 0) {
		err = dec_operands(d, 2);
	}
	if (err == 0) {
		err = value_refs(d, &in[1], &op, t, false);
	}
	if (err == 0) {
		err = dec_address(d, &in[0], &space, &op);
	}
	if (err < 0) {
		return err;
	}
	op.space = (uint8_t)space;
	op.fn = is_word(&op) ? d->h->store_word[space][op.size == 8] : NULL;
	if (!op.fn) {
		op.fn = d->h->store[space];
	}
	if (!op.fn) {
		return dec_fail(d, "this space cannot be written");
	}
	err = dec_check(d, &op, op.size * op.n, CHECK_WRITE);
	return err < 0 ? err : dec_emit(d, &op);
}

static bool atom_fits(int what, enum exec_type t)
{
	switch (what) {
	case ATOM_ADD:
		return t == TY_U32 || t == TY_S32 || t == TY_U64 || t == TY_S64 || t == TY_F32 ||
		       t == TY_F64;
	case ATOM_MIN:
	case ATOM_MAX:
		return t == TY_U32 || t == TY_S32 || t == TY_U64 || t == TY_S64;
	case ATOM_INC:
	case ATOM_DEC:
		return t == TY_U32;
	case ATOM_CAS:
		return t == TY_U16 || t == TY_U32 || t == TY_U64 || t == TY_S32 || t == TY_S64;
	default:
		return t == TY_U32 || t == TY_U64 || t == TY_S32 || t == TY_S64;
	}
}

/* atom d, [a], b {, c} and red [a], b. */
int dec_atom(struct decoder *d, int wants_old, int unused)
{
	static const char *const words[] = { ".add", ".min", ".max", ".exch", ".cas",
					     ".and", ".or",  ".xor", ".inc",  ".dec" };
	const struct ptx_operand *in = d->insn->operands + (wants_old ? 1 : 0);
	struct op op = dec_op(d, op_atom);
	enum exec_space_kind space = take_space(d);
	int what = dec_pick(d, words, ARRAY_SIZE(words), -1);
	enum exec_type t;
	int err;

	take_hints(d);
	err = memory_type(d, &op, &t);
	op.sub = (uint8_t)what;
	op.n = (uint8_t)wants_old;
	if (err == 0 && (what < 0 || !atom_fits(what, t) ||
			 (!wants_old && (what == ATOM_CAS || what == ATOM_EXCH)))) {
		err = dec_fail(d, "this atomic operation on this type is not supported");
	}
	if (err == 0) {
		err = dec_operands(d, (unsigned)((what == ATOM_CAS ? 3 : 2) + wants_old));
	}
	if (err == 0) {
		err = dec_address(d, &in[0], &space, &op);
	}
	if (err == 0 && (space == SP_LOCAL || space == SP_PARAM)) {
		err = dec_fail(d, "atomics work on global and shared memory");
	}
	if (err == 0) {
		err = dec_source(d, &in[1], t, &op.b);
	}
	if (err == 0 && what == ATOM_CAS) {
		err = dec_source(d, &in[2], t, &op.c);
	}
	if (err == 0 && wants_old) {
		if (d->insn->operands[0].kind == PTX_NAME &&
		    strcmp(d->insn->operands[0].name, "_") == 0) {
			op.n = 0;
		} else {
			err = dec_dest(d, &d->insn->operands[0], t, &op.d);
		}
	}
	op.space = (uint8_t)space;
	if (err == 0) {
		err = dec_check(d, &op, op.size, CHECK_READ | CHECK_WRITE | CHECK_STRONG);
	}
	return err < 0 ? err : dec_emit(d, &op);
}

/* Hints to caches do nothing here; their operands are not even looked at, but for their kind. */
int dec_prefetch(struct decoder *d, int a, int b)
{
	static const char *const words[] = { ".L1", ".L2", ".L2::evict_last", ".L2::evict_normal" };

	take_space(d);
	dec_pick(d, words, ARRAY_SIZE(words), 0);
	return d->insn->n_operands == 1 && d->insn->operands[0].kind == PTX_ADDRESS
		       ? dec_modifiers_done(d)
		       : dec_fail(d, "an address in [ ] is expected");
}

int dec_fence(struct decoder *d, int a, int b)
{
	static const char *const words[] = { ".cta", ".gl",	 ".sys",     ".gpu",	".cluster",
					     ".sc",  ".acq_rel", ".acquire", ".release" };
	struct op op = dec_op(d, op_fence);
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		dec_has(d, words[i]);
	}
	err = dec_operands(d, 0);
	return err < 0 ? err : dec_emit(d, &op);
}
