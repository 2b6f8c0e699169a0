/* Emits the x86-64 encodings that the compiler needs; knows nothing about eBPF. Bytes beyond the
 * buffer are only counted, so that a first pass can measure. Encodings: Intel SDM volume 2, chapter
 * 2 (REX, ModRM) and the instruction pages. */
#ifndef GBPF_BPF_LOAD_JIT_X86_X86_EMIT_H
#define GBPF_BPF_LOAD_JIT_X86_X86_EMIT_H

#include <stddef.h>
#include <stdint.h>

enum x86_reg { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };

/* Condition codes of Jcc. */
enum x86_cond {
	X86_B = 0x2,
	X86_AE = 0x3,
	X86_E = 0x4,
	X86_NE = 0x5,
	X86_BE = 0x6,
	X86_A = 0x7,
	X86_L = 0xc,
	X86_GE = 0xd,
	X86_LE = 0xe,
	X86_G = 0xf
};

/* /n of the groups 0x81 and 0x83; n * 8 + 1 is the opcode of the form with two registers. */
enum x86_alu { X86_ADD = 0, X86_OR = 1, X86_AND = 4, X86_SUB = 5, X86_XOR = 6, X86_CMP = 7 };

/* /n of the groups 0xc1 and 0xd3. */
enum x86_shift { X86_ROR = 1, X86_SHL = 4, X86_SHR = 5, X86_SAR = 7 };

/* base + index * 2^scale + disp; index X86_NO_INDEX: none. */
#define X86_NO_INDEX 0xffu
struct x86_mem {
	uint8_t base, index, scale;
	int32_t disp;
};

struct x86_code {
	uint8_t *out; /* borrowed; NULL: count only */
	size_t cap;
	size_t pos;
};

void x86_bytes(struct x86_code *c, const void *bytes, unsigned n);
void x86_byte(struct x86_code *c, unsigned byte);
void x86_word32(struct x86_code *c, uint32_t word);

/* Emits op with two registers; op > 0xff is a two-byte opcode (0x0fXX). wide: 64-bit operands. */
void x86_rr(struct x86_code *c, int wide, unsigned op, unsigned reg, unsigned rm);
/* Emits op with a register (or /n) and memory. prefix: 0, 0x66, 0xf0. byte_reg: reg is an 8-bit
 * register. */
void x86_rx(struct x86_code *c, unsigned prefix, int wide, unsigned op, unsigned reg,
	    const struct x86_mem *m, int byte_reg);
/* Like x86_rx(), for memory at base + disp. */
void x86_rm(struct x86_code *c, unsigned prefix, int wide, unsigned op, unsigned reg, unsigned base,
	    int32_t disp, int byte_reg);
/* Emits an ALU operation with an immediate in its shortest form. */
void x86_alu_ri(struct x86_code *c, int wide, enum x86_alu op, unsigned rm, int32_t imm);
void x86_shift_i(struct x86_code *c, int wide, enum x86_shift op, unsigned rm, unsigned count);
/* Emits reg = value in the shortest form; changes the flags. */
void x86_mov_i(struct x86_code *c, unsigned reg, uint64_t value);
void x86_mov(struct x86_code *c, int wide, unsigned dst, unsigned src);
void x86_load64(struct x86_code *c, unsigned reg, unsigned base, int32_t disp);
void x86_lea(struct x86_code *c, unsigned reg, unsigned base, int32_t disp);
/* Emits reg = address of offset pos in the code. */
void x86_lea_code(struct x86_code *c, unsigned reg, uint32_t pos);
/* Emits n bytes of NOPs. */
void x86_nop(struct x86_code *c, unsigned n);
void x86_push(struct x86_code *c, unsigned reg);
void x86_pop(struct x86_code *c, unsigned reg);

/* Emits a short forward jump within one expansion (cond < 0: unconditional). x86_land() sets its
 * target. */
size_t x86_skip(struct x86_code *c, int cond);
void x86_land(struct x86_code *c, size_t skip);
/* Like x86_skip(), for any distance. */
size_t x86_skip_far(struct x86_code *c, int cond);
void x86_land_far(struct x86_code *c, size_t skip);

#endif
