/* Decoding of instructions about the thread's stack, clusters of one block, caches, and hardware
 * settings that have no effect on a soft GPU. */
#include <errno.h>
#include <string.h>

#include "soft/server/exec/decode/decode_kernel.h"

int exec_dec_alloca(struct exec_decoder *d, int a, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_alloca);
	enum exec_type t = exec_dec_take_type(d);
	int err;

	op.imm = 16;
	op.wide = exec_dec_is_wide(t) ? WIDE_A | WIDE_D : 0;
	if (t != TY_U32 && t != TY_U64) {
		return exec_dec_fail(d, ".u32 or .u64 is expected");
	}
	err = exec_dec_operands(d, d->insn->n_operands == 3 ? 3 : 2);
	if (err == 0 && d->insn->n_operands == 3) {
		if (in[2].kind != PTX_INT || in[2].value == 0 || in[2].value > 4096 ||
		    (in[2].value & (in[2].value - 1))) {
			return exec_dec_fail(d, "an alignment of at most 4096 is expected");
		}
		op.imm = MAX((int64_t)in[2].value, 8);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &op.a);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], t, &op.d);
	}
	d->uses_stack = true;
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_stack(struct exec_decoder *d, int restore, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, restore ? exec_op_stack_restore : exec_op_stack_save);
	enum exec_type t = exec_dec_take_type(d);
	int err;

	op.wide = exec_dec_is_wide(t) ? WIDE_A | WIDE_D : 0;
	if (t != TY_U32 && t != TY_U64) {
		return exec_dec_fail(d, ".u32 or .u64 is expected");
	}
	err = exec_dec_operands(d, 1);
	if (err == 0) {
		err = restore ? exec_dec_source(d, &in[0], t, &op.a)
			      : exec_dec_dest(d, &in[0], t, &op.d);
	}
	d->uses_stack = true;
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_elect(struct exec_decoder *d, int a, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_elect);
	int err = exec_dec_has(d, ".sync") ? exec_dec_operands(d, 2)
					   : exec_dec_fail(d, ".sync is expected");

	if (err == 0 && in[0].kind != PTX_PAIR) {
		err = exec_dec_fail(d, "a register and a predicate are expected");
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], TY_U32, &op.e);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0].args[0], TY_U32, &op.d);
	}
	if (err == 0) {
		err = exec_dec_pred(d, &in[0].args[1], &op.p, NULL);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* mapa d, a, rank and getctarank d, a. */
int exec_dec_cluster(struct exec_decoder *d, int rank, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_mapa);
	enum exec_type t;
	uint32_t unused;
	int err;

	exec_dec_has(d, ".shared::cluster");
	t = exec_dec_take_type(d);
	if (t != TY_U32 && t != TY_U64) {
		return exec_dec_fail(d, ".u32 or .u64 is expected");
	}
	err = exec_dec_operands(d, rank ? 2 : 3);
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, rank ? &unused : &op.a);
	}
	if (err == 0) {
		err = rank ? exec_dec_constant(d, 0, false, &op.a)
			   : exec_dec_source(d, &in[2], TY_U32, &op.b);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], rank ? TY_U32 : t, &op.d);
	}
	if (err < 0) {
		return err;
	}
	if (rank) {
		op.fn = d->h->alu[ALU_MOV][TY_U32];
	}
	op.wide = exec_dec_is_wide(t) ? WIDE_A | WIDE_D : 0;
	return exec_dec_emit(d, &op);
}

/* Decodes operands that have no effect. */
static int check_operands(struct exec_decoder *d)
{
	for (unsigned i = 0; i < d->insn->n_operands; i++) {
		const struct ptx_operand *o = &d->insn->operands[i];
		enum exec_space_kind space = SP_GENERIC;
		struct exec_op op = exec_dec_op(d, NULL);
		uint32_t ref;
		bool wide;
		int err = 0;

		if (o->kind == PTX_ADDRESS) {
			err = exec_dec_address(d, o, &space, &op);
		} else if (o->kind == PTX_NAME) {
			err = exec_dec_source_any(d, o, TY_U32, &ref, &wide);
		} else if (o->kind != PTX_INT) {
			err = exec_dec_fail(d, "an address, a register or a number is expected");
		}
		if (err < 0) {
			return err;
		}
	}
	return 0;
}

/* Hints and settings that change no result. */
int exec_dec_hint(struct exec_decoder *d, int least, int most)
{
	static const char *const words[] = {
		".global",
		".L2",
		".L2::evict_normal",
		".launch_dependents",
		".wait",
		".inc",
		".dec",
		".sync",
		".aligned",
		".u32",
		".mask",
	};
	unsigned n = d->insn->n_operands;
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		exec_dec_has(d, words[i]);
	}
	err = exec_dec_modifiers_done(d);
	if (err == 0 && (n < (unsigned)least || n > (unsigned)most)) {
		err = exec_dec_fail(d, "%d to %d operands expected, found %u", least, most, n);
	}
	return err < 0 ? err : check_operands(d);
}

/* createpolicy d, ...: a value that loads and stores accept and ignore. */
int exec_dec_policy(struct exec_decoder *d, int a, int b)
{
	static const char *const words[] = {
		".fractional",
		".range",
		".cvt",
		".global",
		".L2",
		".L2::evict_last",
		".L2::evict_first",
		".L2::evict_normal",
		".L2::evict_unchanged",
	};
	struct exec_op op = exec_dec_op(d, d->h->alu[ALU_MOV][TY_U64]);
	int err;

	/* The secondary priority may be the same word. */
	for (size_t i = 0; i < 2 * ARRAY_SIZE(words); i++) {
		exec_dec_has(d, words[i % ARRAY_SIZE(words)]);
	}
	if (exec_dec_take_type(d) != TY_U64) {
		return exec_dec_fail(d, ".b64 is expected");
	}
	err = exec_dec_modifiers_done(d);
	if (err == 0 && (d->insn->n_operands < 1 || d->insn->n_operands > 4)) {
		err = exec_dec_fail(d, "1 to 4 operands expected");
	}
	if (err == 0) {
		err = exec_dec_constant(d, 1, true, &op.a);
	}
	if (err == 0) {
		err = exec_dec_dest(d, &d->insn->operands[0], TY_U64, &op.d);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

/* nanosleep t: gives the other lanes a turn. */
int exec_dec_nanosleep(struct exec_decoder *d, int a, int b)
{
	struct exec_op op = exec_dec_op(d, exec_op_yield);
	uint32_t ref;
	int err = exec_dec_has(d, ".u32") ? exec_dec_operands(d, 1)
					  : exec_dec_fail(d, ".u32 is expected");

	if (err == 0) {
		err = exec_dec_source(d, &d->insn->operands[0], TY_U32, &ref);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}
