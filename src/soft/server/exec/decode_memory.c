/* Loads, stores, fences. */
#include "soft/server/exec/check.h"
#include "soft/server/exec/decode.h"

#include <errno.h>
#include <string.h>

static enum exec_space_kind take_space(struct decoder *d)
{
	static const char *const words[] = {
		".global", ".const", ".shared",	      ".shared::cta", ".shared::cluster",
		".local",  ".param", ".param::entry", ".param::func",
	};
	static const enum exec_space_kind kinds[] = {
		SP_GLOBAL, SP_GLOBAL, SP_SHARED, SP_SHARED, SP_SHARED,
		SP_LOCAL,  SP_PARAM,  SP_PARAM,	 SP_PARAM,
	};
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
		".L2::evict_normal",
		".L2::evict_first",
		".L2::evict_last",
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

/* Hints to caches do nothing here. */
int dec_prefetch(struct decoder *d, int a, int b)
{
	static const char *const words[] = { ".L1", ".L2", ".L2::evict_last", ".L2::evict_normal",
					     ".tensormap" };
	struct op op = dec_op(d, NULL);
	enum exec_space_kind space = take_space(d);
	int err;

	dec_pick(d, words, ARRAY_SIZE(words), 0);
	err = dec_operands(d, 1);
	return err < 0 ? err : dec_address(d, &d->insn->operands[0], &space, &op);
}

/* Every access here is seen by everybody in the order of the program, also by copies: proxies need
 * nothing more. */
int dec_fence(struct decoder *d, int a, int b)
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
	struct op op = dec_op(d, op_fence);
	enum exec_space_kind space = SP_GENERIC;
	bool tensor = false;
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		bool found = dec_has(d, words[i]);

		tensor = tensor || (found && strcmp(words[i], ".tensormap::generic") == 0);
	}
	err = dec_operands(d, tensor && d->insn->n_operands ? 2 : 0);
	if (err == 0 && d->insn->n_operands) {
		struct op at = dec_op(d, NULL);

		err = dec_address(d, &d->insn->operands[0], &space, &at);
	}
	return err < 0 ? err : dec_emit(d, &op);
}
