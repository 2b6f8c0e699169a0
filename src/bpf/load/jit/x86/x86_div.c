/* Division and remainder. x86 faults on division by zero and on the overflow of a signed division;
 * eBPF defines both results. Division by a constant becomes a multiplication. */
#include "base/compiler.h"
#include "bpf/load/jit/x86/x86_int.h"

/* Emits dst = dst op divisor for a divisor in JIT_SCRATCH that does not fault. Uses rax and rdx and
 * preserves those that are not dst. */
static void divide(struct x86_code *c, int wide, int is_mod, int is_signed, unsigned dst)
{
	unsigned result = is_mod ? RDX : RAX;

	if (dst != RDX) {
		x86_mov(c, 1, JIT_SCRATCH2, RDX);
	}
	if (dst != RAX) {
		x86_push(c, RAX);
		x86_mov(c, wide, RAX, dst);
	}
	if (is_signed) {
		if (wide) {
			x86_byte(c, 0x48);
		}
		x86_byte(c, 0x99); /* cdq, cqo */
	} else {
		x86_rr(c, 0, 0x31, RDX, RDX);
	}
	x86_rr(c, wide, 0xf7, is_signed ? 7 : 6, JIT_SCRATCH);
	if (dst != result) {
		x86_mov(c, wide, dst, result);
	}
	if (dst != RAX) {
		x86_pop(c, RAX);
	}
	if (dst != RDX) {
		x86_mov(c, 1, RDX, JIT_SCRATCH2);
	}
}

static void div_by_reg(struct x86_code *c, int wide, int is_mod, int is_signed, unsigned dst,
		       unsigned src)
{
	size_t by_zero, by_minus_one = 0, done, done2 = 0;

	x86_mov(c, wide, JIT_SCRATCH, src);
	x86_rr(c, wide, 0x85, JIT_SCRATCH, JIT_SCRATCH);
	by_zero = x86_skip(c, X86_E);
	if (is_signed) {
		/* x86 faults on the minimum divided by -1. */
		x86_alu_ri(c, wide, X86_CMP, JIT_SCRATCH, -1);
		by_minus_one = x86_skip(c, X86_E);
	}
	divide(c, wide, is_mod, is_signed, dst);
	done = x86_skip(c, -1);
	if (is_signed) {
		x86_land(c, by_minus_one);
		if (is_mod) {
			x86_mov_i(c, dst, 0);
		} else {
			x86_rr(c, wide, 0xf7, 3, dst);
		}
		done2 = x86_skip(c, -1);
	}
	x86_land(c, by_zero);
	if (is_mod) {
		x86_zero_extend(c, wide, dst);
	} else {
		x86_mov_i(c, dst, 0);
	}
	x86_land(c, done);
	if (is_signed) {
		x86_land(c, done2);
	}
}

/* Unsigned division by a constant d that is no power of two, as multiplication by a rounded-up
 * reciprocal (Granlund and Montgomery 1994, "Division by invariant integers using multiplication"):
 * with 2^log <= d the quotient is high(n * factor) >> log; where the factor needs one bit more than
 * the register has, its top bit is done by an average. */
struct reciprocal {
	uint64_t factor;
	unsigned log;
	int extra_bit;
};

static struct reciprocal reciprocal_of(uint32_t d, unsigned bits)
{
	unsigned log = 31u - (unsigned)__builtin_clz(d);
	u128 top = (u128)1 << (bits + log);
	uint64_t floor = (uint64_t)(top / d), rest = (uint64_t)(top % d);
	struct reciprocal r = { floor + 1, log, 0 };

	if (d - rest >= UINT64_C(1) << log) {
		top <<= 1;
		r.factor = (uint64_t)(top / d + 1); /* the factor without bit 64 (32) */
		r.extra_bit = 1;
	}
	return r;
}

static void div_by_const64(struct x86_code *c, int is_mod, unsigned dst, int32_t d)
{
	struct reciprocal r = reciprocal_of((uint32_t)d, 64);
	unsigned n = JIT_SCRATCH;

	x86_mov(c, 1, n, dst);
	if (dst != RDX) {
		x86_mov(c, 1, JIT_SCRATCH2, RDX);
	}
	if (dst != RAX) {
		x86_push(c, RAX);
	}
	x86_mov_i(c, RAX, r.factor);
	x86_rr(c, 1, 0xf7, 4, n); /* rdx = high half of rax * n */
	if (r.extra_bit) {
		x86_mov(c, 1, RAX, n);
		x86_rr(c, 1, 0x29, RDX, RAX);
		x86_shift_i(c, 1, X86_SHR, RAX, 1);
		x86_rr(c, 1, 0x01, RAX, RDX);
	}
	x86_shift_i(c, 1, X86_SHR, RDX, r.log);
	if (is_mod) {
		x86_rr(c, 1, 0x69, RAX, RDX);
		x86_word32(c, (uint32_t)d);
		x86_rr(c, 1, 0x29, RAX, n);
	}
	if (is_mod || dst != RDX) {
		x86_mov(c, 1, dst, is_mod ? n : RDX);
	}
	if (dst != RAX) {
		x86_pop(c, RAX);
	}
	if (dst != RDX) {
		x86_mov(c, 1, RDX, JIT_SCRATCH2);
	}
}

static void div_by_const32(struct x86_code *c, int is_mod, unsigned dst, int32_t d)
{
	struct reciprocal r = reciprocal_of((uint32_t)d, 32);
	unsigned q = JIT_SCRATCH;

	x86_mov(c, 0, q, dst);
	x86_mov_i(c, JIT_SCRATCH2, (uint32_t)r.factor);
	x86_rr(c, 1, 0x0faf, q, JIT_SCRATCH2);
	x86_shift_i(c, 1, X86_SHR, q, 32);
	if (r.extra_bit) {
		x86_mov(c, 0, JIT_SCRATCH2, dst);
		x86_rr(c, 0, 0x29, q, JIT_SCRATCH2);
		x86_shift_i(c, 0, X86_SHR, JIT_SCRATCH2, 1);
		x86_rr(c, 0, 0x01, JIT_SCRATCH2, q);
	}
	x86_shift_i(c, 0, X86_SHR, q, r.log);
	if (is_mod) {
		x86_rr(c, 0, 0x69, q, q);
		x86_word32(c, (uint32_t)d);
		x86_rr(c, 0, 0x29, q, dst);
	} else {
		x86_mov(c, 0, dst, q);
	}
}

static void div_by_imm(struct x86_code *c, int wide, int is_mod, int is_signed, unsigned dst,
		       int32_t imm)
{
	uint64_t value = wide ? (uint64_t)(int64_t)imm : (uint32_t)imm;

	if (!imm) {
		if (is_mod) {
			x86_zero_extend(c, wide, dst);
		} else {
			x86_mov_i(c, dst, 0);
		}
	} else if (imm == -1 && is_signed) {
		if (is_mod) {
			x86_mov_i(c, dst, 0);
		} else {
			x86_rr(c, wide, 0xf7, 3, dst);
		}
	} else if (!is_signed && imm > 0 && !(imm & (imm - 1))) {
		if (is_mod) {
			x86_alu_ri(c, wide, X86_AND, dst, imm - 1);
		} else if (imm == 1) {
			x86_zero_extend(c, wide, dst);
		} else {
			x86_shift_i(c, wide, X86_SHR, dst, (unsigned)__builtin_ctz((unsigned)imm));
		}
	} else if (!is_signed && imm > 0 && wide) {
		div_by_const64(c, is_mod, dst, imm);
	} else if (!is_signed && imm > 0) {
		div_by_const32(c, is_mod, dst, imm);
	} else {
		x86_mov_i(c, JIT_SCRATCH, value);
		divide(c, wide, is_mod, is_signed, dst);
	}
}

void x86_division(struct x86_code *c, const struct ebpf_insn *i)
{
	int wide = EBPF_CLASS(i->code) == EBPF_ALU64, is_mod = EBPF_OP(i->code) == EBPF_MOD;
	unsigned dst = x86_reg_of[i->dst];

	if (EBPF_SRC(i->code) == EBPF_X) {
		div_by_reg(c, wide, is_mod, i->off, dst, x86_reg_of[i->src]);
	} else {
		div_by_imm(c, wide, is_mod, i->off, dst, i->imm);
	}
}
