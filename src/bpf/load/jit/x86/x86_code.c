/* x86-64 back end: control, functions and passes of a one-pass compiler that translates instruction
 * by instruction.
 *
 * eBPF registers live where the kernel's compiler puts them (r0 rax, r1 rdi, r2 rsi, r3 rdx, r4
 * rcx, r5 r8, r6 rbx, r7 r13, r8 r14, r9 r15, r10 rbp), so that arguments of helpers and of the
 * entry need no moves. The hidden environment arrives in rsi and stays in r12, or in r9 when
 * nothing calls out; helpers get it as their sixth argument, and so do functions of the program
 * that helpers call. r10 and r11 are scratch. The code
 * holds no address: maps and helpers are reached through the environment, functions by relative
 * calls.
 *
 * docs/ENGINES.md explains why the code cannot leave its bounds and why the engines agree. */
#include "bpf/load/jit/jit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/jit/x86/x86_int.h"

#define MAX_RELAXING_PASSES 12
#define LOOP_ALIGN 16u
#define FUNC_ALIGN                                                                                 \
	16u /* alignment of functions whose address is taken: bit 0 of the address is 0 for        \
	       compiled code */

const uint8_t x86_reg_of[11] = { RAX, RDI, RSI, RDX, RCX, R8, RBX, R13, R14, R15, RBP };

int x86_sets_env(const struct x86_jit *j, const struct ebpf_jit_func *f)
{
	return (f->root || f->value) && f->env;
}

static int counts_tails(const struct x86_jit *j, const struct ebpf_jit_func *f)
{
	return j->plan->tail_calls && f->root;
}

/* Lists the registers that a function pushes: used callee-saved registers and, if entered from C,
 * that of the environment. */
static unsigned saved_regs(const struct x86_jit *j, const struct ebpf_jit_func *f, uint8_t regs[5])
{
	unsigned n = 0;

	for (unsigned r = 6; r <= 9; r++) {
		if (f->used & 1u << r) {
			regs[n++] = x86_reg_of[r];
		}
	}
	if (x86_sets_env(j, f) && x86_env_reg(j) == R12) {
		regs[n++] = R12;
	}
	return n;
}

static int has_frame(const struct ebpf_jit_func *f)
{
	return f->used >> 10 & 1;
}

/* Returns whether a function that makes calls must pad its stack to 16 bytes: return address, saved
 * rbp, frame, pushes. */
static int needs_pad(const struct x86_jit *j, const struct ebpf_jit_func *f, unsigned pushes)
{
	unsigned bytes = 8 + (has_frame(f) ? 8 + EBPF_STACK_BYTES : 0) +
			 8 * (pushes + (unsigned)counts_tails(j, f));

	return f->calls && bytes % 16;
}

int32_t x86_tail_count(const struct x86_jit *j, const struct ebpf_jit_func *f)
{
	uint8_t regs[5];

	return needs_pad(j, f, saved_regs(j, f, regs)) ? 8 : 0;
}

static void prologue(struct x86_jit *j, struct ebpf_jit_func *f)
{
	struct x86_code *c = &j->code;
	uint8_t regs[5];
	unsigned n = saved_regs(j, f, regs);

	while (f->value && c->pos % FUNC_ALIGN) {
		x86_byte(c, 0xcc);
	}
	f->entry = (uint32_t)c->pos;
	if (f == j->plan->funcs || f->value) {
		x86_bytes(c, "\xf3\x0f\x1e\xfa", 4); /* endbr64: called through a pointer */
	}
	if (f == j->plan->funcs && j->plan->tail_calls) {
		x86_mov_i(c, RAX, 0);
	}
	f->tail_entry = (uint32_t)c->pos;
	if (has_frame(f)) {
		x86_push(c, RBP);
		x86_mov(c, 1, RBP, RSP);
		x86_alu_ri(c, 1, X86_SUB, RSP, EBPF_STACK_BYTES);
	}
	for (unsigned k = 0; k < n; k++) {
		x86_push(c, regs[k]);
	}
	if (counts_tails(j, f)) {
		x86_push(c, RAX);
	}
	if (needs_pad(j, f, n)) {
		x86_push(c, RAX);
	}
	if (x86_sets_env(j, f)) {
		unsigned from = f->root ? RSI : R9, to = x86_env_reg(j);

		if (from != to) {
			x86_mov(c, 1, to, from);
		}
	}
}

/* Emits the epilogue except for the return. */
void x86_epilogue(struct x86_jit *j, const struct ebpf_jit_func *f)
{
	struct x86_code *c = &j->code;
	uint8_t regs[5];
	unsigned n = saved_regs(j, f, regs);
	int drop = needs_pad(j, f, n) + counts_tails(j, f);

	if (drop) {
		x86_alu_ri(c, 1, X86_ADD, RSP, 8 * drop);
	}
	while (n) {
		x86_pop(c, regs[--n]);
	}
	if (has_frame(f)) {
		x86_byte(c, 0xc9); /* leave */
	}
}

/* Emits a jump (cond < 0: unconditional) to an instruction. Code never grows from pass to pass, so
 * a displacement that fits a byte once always fits: short jumps remain short, and the passes
 * terminate. */
static void jump_to(struct x86_jit *j, struct ebpf_jit_note *note, int cond, uint32_t target)
{
	struct x86_code *c = &j->code;
	int64_t at = j->plan->notes[target].addr, disp = at - (int64_t)(c->pos + 2);

	if (j->relax && disp >= -128 && disp <= 127) {
		note->flags |= JIT_SHORT;
	}
	if (note->flags & JIT_SHORT) {
		x86_byte(c, cond < 0 ? 0xeb : 0x70u | (unsigned)cond);
		x86_byte(c, (uint8_t)disp);
		return;
	}
	if (cond < 0) {
		x86_byte(c, 0xe9);
	} else {
		x86_byte(c, 0x0f);
		x86_byte(c, 0x80u | (unsigned)cond);
	}
	x86_word32(c, (uint32_t)(at - (int64_t)(c->pos + 4)));
}

static enum x86_cond condition(unsigned op)
{
	switch (op) {
	case EBPF_JEQ:
		return X86_E;
	case EBPF_JGT:
		return X86_A;
	case EBPF_JGE:
		return X86_AE;
	case EBPF_JLT:
		return X86_B;
	case EBPF_JLE:
		return X86_BE;
	case EBPF_JSGT:
		return X86_G;
	case EBPF_JSGE:
		return X86_GE;
	case EBPF_JSLT:
		return X86_L;
	case EBPF_JSLE:
		return X86_LE;
	default:
		return X86_NE; /* JNE, and JSET after a test */
	}
}

static void compare(struct x86_code *c, const struct ebpf_insn *i)
{
	int wide = EBPF_CLASS(i->code) == EBPF_JMP, by_reg = EBPF_SRC(i->code) == EBPF_X;
	unsigned op = EBPF_OP(i->code), dst = x86_reg_of[i->dst], src = x86_reg_of[i->src];

	if (op == EBPF_JSET && !by_reg) {
		x86_rr(c, wide, 0xf7, 0, dst);
		x86_word32(c, (uint32_t)i->imm);
	} else if (op == EBPF_JSET || (!by_reg && !i->imm)) {
		x86_rr(c, wide, 0x85, by_reg ? src : dst,
		       dst); /* test leaves the flags of a comparison with 0 */
	} else if (by_reg) {
		x86_rr(c, wide, 0x39, src, dst);
	} else {
		x86_alu_ri(c, wide, X86_CMP, dst, i->imm);
	}
}

static void control(struct x86_jit *j, const struct ebpf_insn *i, struct ebpf_jit_note *note,
		    uint32_t pc)
{
	unsigned op = EBPF_OP(i->code), cond = op == EBPF_JA ? 0 : condition(op);
	int32_t off = i->code == (EBPF_JMP32 | EBPF_JA) ? i->imm : i->off;

	if (op == EBPF_CALL) {
		x86_call(j, i, note);
	} else if (op == EBPF_EXIT) {
		x86_epilogue(j, &j->plan->funcs[note->func]);
		x86_byte(&j->code, 0xc3);
	} else if (off) {
		uint32_t target = (uint32_t)((int64_t)pc + 1 + off);

		if (note->fuse == FUSE_COMPARE) {
			x86_compare_memory(j, i, note);
		} else if (op != EBPF_JA) {
			compare(&j->code, i);
		}
		if (note->swapped && op == EBPF_JA) {
			target = ebpf_jit_jump_target(i - 1, pc - 1);
		} else if (note->swapped) {
			target = ebpf_jit_jump_target(i + 1, pc + 1);
			cond ^= 1; /* the opposite condition */
		}
		jump_to(j, note, op == EBPF_JA ? -1 : (int)cond, target);
	}
}

static void translate(struct x86_jit *j, uint32_t pc)
{
	const struct ebpf_insn *i = &j->plan->insns[pc];
	struct ebpf_jit_note *note = &j->plan->notes[pc];

	if (note->flags & JIT_SKIP) {
		return;
	}
	switch (EBPF_CLASS(i->code)) {
	case EBPF_ALU:
	case EBPF_ALU64:
		x86_arithmetic(j, i, note);
		break;
	case EBPF_JMP:
	case EBPF_JMP32:
		control(j, i, note, pc);
		break;
	case EBPF_LD:
		x86_ld_imm64(j, i);
		break;
	default:
		x86_memory(j, i, note);
	}
}

/* Aligns the head of a loop. While jump sizes are chosen, every loop counts with the maximum
 * padding, so that no displacement grows later. */
static void align_loop(struct x86_jit *j)
{
	unsigned pad = LOOP_ALIGN - 1;

	if (j->exact) {
		pad = (unsigned)-j->code.pos % LOOP_ALIGN;
	}
	x86_nop(&j->code, pad);
}

/* Makes one pass over the program. Returns true if no address has changed since the previous pass.
 */
static int pass(struct x86_jit *j)
{
	int stable = 1;

	j->code.pos = 0;
	for (uint32_t pc = 0; pc < j->plan->n; pc++) {
		struct ebpf_jit_note *note = &j->plan->notes[pc];

		if (note->flags & JIT_FUNC) {
			prologue(j, &j->plan->funcs[note->func]);
		}
		if (note->flags & JIT_LOOP) {
			align_loop(j);
		}
		stable &= note->addr == j->code.pos;
		note->addr = (uint32_t)j->code.pos;
		translate(j, pc);
		pc += j->plan->insns[pc].code == EBPF_LD_IMM64;
	}
	return stable;
}

static int compile(struct x86_jit *j, uint8_t *out, size_t cap)
{
	pass(j); /* addresses with long jumps */
	j->relax = 1;
	for (int k = 0; !pass(j); k++) {
		j->relax = k < MAX_RELAXING_PASSES;
	}
	j->relax = 0;
	j->exact = 1;
	pass(j); /* final addresses */
	if (j->code.pos > cap || !out) {
		return -ENOSPC;
	}
	j->code.out = out;
	j->code.cap = cap;
	pass(j);
	return 0;
}

static int64_t emit(struct ebpf_jit *plan, uint8_t *out, size_t cap)
{
#if defined(__x86_64__)
	struct x86_jit j = { .plan = plan };
	int err = plan->options->checked || plan->options->device_hook ? -ENOTSUP
								       : compile(&j, out, cap);

	return err ? err : (int64_t)j.code.pos;
#else
	return -ENOTSUP;
#endif
}

const struct ebpf_target ebpf_target_x86 = {
	.name = "x86-64",
	.entry_align = 16,
	.filler = 0xcc, /* int3 */
	.fuses = 1,
	.emit = emit,
};
