/* PTX back end: atomics. Local memory has none in PTX; there they are plain accesses, since no
 * other thread can reach it. */
#include <stdio.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"

/* The registers of an atomic by width: old value, operand, expected value, new value. */
struct atomic {
	unsigned bits;
	int32_t op; /* without the fetch bit, except for exchanges */
	const char *old, *operand, *expected, *value;
};

static const char *atomic_name(int32_t op)
{
	switch (op) {
	case EBPF_ADD:
		return "add";
	case EBPF_OR:
		return "or";
	case EBPF_AND:
		return "and";
	case EBPF_XOR:
		return "xor";
	case EBPF_XCHG:
		return "exch";
	default:
		return "cas";
	}
}

/* The operation on memory that other threads reach. A barrier before an acquire-release operation
 * makes it sequentially consistent; one without a result is relaxed, as in Linux. */
static void atomic_shared(struct ebpf_ptx_jit *j, const struct atomic *a, int fetch)
{
	const struct ebpf_ptx_value *at = &ebpf_ptx_known(j)->base;
	const char *name = atomic_name(a->op), *scope = ebpf_ptx_scope(j, at);
	const char *space = ebpf_ptx_space(j, at);
	char type = a->op == EBPF_ADD ? 'u' : 'b';

	if (*space) {
		ebpf_ptx_op(j, "cvta.to%s.u64 %%t0, %%t0", space);
	}
	if (!fetch) {
		ebpf_ptx_op(j, "red.relaxed%s%s.%s.%c%u [%%t0], %s", scope, space, name, type,
			    a->bits, a->operand);
		return;
	}
	ebpf_ptx_op(j, "fence.sc%s", scope);
	if (a->op == EBPF_CMPXCHG) {
		ebpf_ptx_op(j, "atom.acq_rel%s%s.cas.b%u %s, [%%t0], %s, %s", scope, space, a->bits,
			    a->old, a->expected, a->operand);
	} else {
		ebpf_ptx_op(j, "atom.acq_rel%s%s.%s.%c%u %s, [%%t0], %s", scope, space, name, type,
			    a->bits, a->old, a->operand);
	}
}

/* Computes the new value from the old one, for memory that no other thread reaches. */
static void compute(struct ebpf_ptx_jit *j, const struct atomic *a)
{
	if (a->op == EBPF_CMPXCHG) {
		ebpf_ptx_op(j, "setp.eq.s%u %%p0, %s, %s", a->bits, a->old, a->expected);
		ebpf_ptx_op(j, "selp.b%u %s, %s, %s, %%p0", a->bits, a->value, a->operand, a->old);
	} else if (a->op == EBPF_XCHG) {
		ebpf_ptx_op(j, "mov.b%u %s, %s", a->bits, a->value, a->operand);
	} else {
		ebpf_ptx_op(j, "%s.%c%u %s, %s, %s", atomic_name(a->op),
			    a->op == EBPF_ADD ? 's' : 'b', a->bits, a->value, a->old, a->operand);
	}
}

static void atomic_in_frame(struct ebpf_ptx_jit *j, const struct atomic *a, int off)
{
	ebpf_ptx_frame_load(j, off, a->bits / 8, 0, "%t1");
	if (a->bits == 32) {
		ebpf_ptx_op(j, "cvt.u32.u64 %s, %%t1", a->old);
	}
	compute(j, a);
	if (a->bits == 32) {
		ebpf_ptx_op(j, "cvt.u64.u32 %%t3, %s", a->value);
	}
	ebpf_ptx_frame_store(j, off, a->bits / 8, "%t3");
}

static void atomic_plain(struct ebpf_ptx_jit *j, const struct atomic *a)
{
	ebpf_ptx_op(j, "ld.u%u %s, [%%t0]", a->bits, a->old);
	compute(j, a);
	ebpf_ptx_op(j, "st.u%u [%%t0], %s", a->bits, a->value);
}

static void atomic_anywhere(struct ebpf_ptx_jit *j, const struct atomic *a, int fetch)
{
	unsigned kind = ebpf_ptx_known(j)->base.kind, local, end;

	if (kind == PTX_VALUE) {
		atomic_shared(j, a, fetch);
		return;
	}
	if (kind == PTX_FRAME) {
		atomic_plain(j, a);
		return;
	}
	local = ++j->labels;
	end = ++j->labels;
	ebpf_ptx_op(j, "isspacep.local %%p0, %%t0");
	ebpf_ptx_op(j, "@%%p0 bra $M%u", local);
	atomic_shared(j, a, fetch);
	ebpf_ptx_op(j, "bra $M%u", end);
	ebpf_ptx_label(j, local);
	atomic_plain(j, a);
	ebpf_ptx_label(j, end);
}

/* Returns whether the operation needs its result. In a program inside kernels one that is not read
 * is none: the operation is then relaxed. */
static int has_result(const struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	unsigned result = i->imm == EBPF_CMPXCHG ? 0 : i->src;

	if (!j->hook || i->imm == EBPF_CMPXCHG || i->imm == EBPF_XCHG) {
		return i->imm & EBPF_FETCH;
	}
	return (i->imm & EBPF_FETCH) && (j->plan->notes[j->pc].live >> result & 1);
}

void ebpf_ptx_atomic(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	unsigned size = ebpf_access_bytes(i), result = i->imm == EBPF_CMPXCHG ? 0 : i->src;
	int fetch = has_result(j, i), place;
	char operand[8];
	struct atomic a = { .bits = 64, .old = "%t1", .expected = "%r0", .value = "%t3" };

	a.op = i->imm == EBPF_CMPXCHG || i->imm == EBPF_XCHG ? i->imm : i->imm & ~EBPF_FETCH;
	snprintf(operand, sizeof(operand), "%%r%u", i->src);
	a.operand = operand;
	if (size == 4) {
		a = (struct atomic){ 32, a.op, "%w0", "%w1", "%w2", "%w3" };
		ebpf_ptx_op(j, "cvt.u32.u64 %%w1, %%r%u", i->src);
		ebpf_ptx_op(j, "cvt.u32.u64 %%w2, %%r0");
	}
	if (ebpf_ptx_in_frame(j, i->off, size, &place)) {
		atomic_in_frame(j, &a, place);
	} else {
		ebpf_ptx_address(j, i->dst, i->off);
		if (j->checked) {
			ebpf_ptx_check(j, size, 1);
		}
		atomic_anywhere(j, &a, fetch);
	}
	if (fetch) {
		ebpf_ptx_op(j, size == 4 ? "cvt.u64.u32 %%r%u, %s" : "mov.b64 %%r%u, %s", result,
			    a.old);
	}
}
