/* The layout of eBPF instructions (RFC 9669), and gBPF's pseudo values for relocated 64-bit loads.
 */
#ifndef GBPF_BPF_RUN_INSN_H
#define GBPF_BPF_RUN_INSN_H

#include <stdint.h>

struct ebpf_insn {
	uint8_t code;
	uint8_t dst : 4;
	uint8_t src : 4;
	int16_t off;
	int32_t imm;
};

_Static_assert(sizeof(struct ebpf_insn) == 8, "an instruction has 8 bytes");

enum {
	EBPF_LD = 0x00,
	EBPF_LDX = 0x01,
	EBPF_ST = 0x02,
	EBPF_STX = 0x03,
	EBPF_ALU = 0x04,
	EBPF_JMP = 0x05,
	EBPF_JMP32 = 0x06,
	EBPF_ALU64 = 0x07,
	/* sizes */
	EBPF_W = 0x00,
	EBPF_H = 0x08,
	EBPF_B = 0x10,
	EBPF_DW = 0x18,
	/* modes */
	EBPF_IMM = 0x00,
	EBPF_ABS = 0x20,
	EBPF_IND = 0x40,
	EBPF_MEM = 0x60,
	EBPF_MEMSX = 0x80,
	EBPF_ATOMIC = 0xc0,
	/* source operand */
	EBPF_K = 0x00,
	EBPF_X = 0x08,
	/* arithmetic */
	EBPF_ADD = 0x00,
	EBPF_SUB = 0x10,
	EBPF_MUL = 0x20,
	EBPF_DIV = 0x30,
	EBPF_OR = 0x40,
	EBPF_AND = 0x50,
	EBPF_LSH = 0x60,
	EBPF_RSH = 0x70,
	EBPF_NEG = 0x80,
	EBPF_MOD = 0x90,
	EBPF_XOR = 0xa0,
	EBPF_MOV = 0xb0,
	EBPF_ARSH = 0xc0,
	EBPF_END = 0xd0,
	/* jumps */
	EBPF_JA = 0x00,
	EBPF_JEQ = 0x10,
	EBPF_JGT = 0x20,
	EBPF_JGE = 0x30,
	EBPF_JSET = 0x40,
	EBPF_JNE = 0x50,
	EBPF_JSGT = 0x60,
	EBPF_JSGE = 0x70,
	EBPF_CALL = 0x80,
	EBPF_EXIT = 0x90,
	EBPF_JLT = 0xa0,
	EBPF_JLE = 0xb0,
	EBPF_JSLT = 0xc0,
	EBPF_JSLE = 0xd0,
	/* atomic operations, in imm */
	EBPF_FETCH = 0x01,
	EBPF_XCHG = 0xe1,
	EBPF_CMPXCHG = 0xf1,
};

#define EBPF_CLASS(code) ((code)&0x07)
#define EBPF_OP(code) ((code)&0xf0)
#define EBPF_SRC(code) ((code)&0x08)
#define EBPF_SIZE(code) ((code)&0x18)
#define EBPF_MODE(code) ((code)&0xe0)
#define EBPF_LD_IMM64 0x18

/* Returns the number of bytes that a load, store or atomic accesses. */
static inline unsigned ebpf_access_bytes(const struct ebpf_insn *in)
{
	switch (EBPF_SIZE(in->code)) {
	case EBPF_B:
		return 1;
	case EBPF_H:
		return 2;
	case EBPF_W:
		return 4;
	default:
		return 8;
	}
}

/* src of EBPF_LD_IMM64 after relocation */
enum {
	EBPF_PSEUDO_CONST = 0, /* the 64-bit value itself */
	EBPF_PSEUDO_MAP = 1, /* imm: map index; loads the handle of the map, which is valid only as
				a helper argument */
	EBPF_PSEUDO_MAP_VALUE = 2, /* imm: map index, imm of the second half: byte offset into value
				      0 of an array map */
	EBPF_PSEUDO_FUNC = 4, /* address of a function of the program, for callbacks: it begins at
				 this instruction + 1 + imm, as in a local call */
};

/* src of EBPF_JMP | EBPF_CALL */
enum { EBPF_CALL_HELPER = 0, EBPF_CALL_LOCAL = 1 };

/* An entry of a program array as used by the engines: a tail call through map (an index) and index
 * continues at instruction insn of the same program (counted from its first). The table of a
 * program is sorted by map, then index, and contains each pair at most once. */
struct ebpf_tail_at {
	uint32_t map;
	uint32_t index;
	uint32_t insn;
};

/* A verified program, which an engine runs or compiles. Everything is borrowed. */
struct ebpf_code {
	const struct ebpf_insn *insns;
	uint32_t n;
	const struct ebpf_tail_at *tails;
	uint32_t n_tails;
};

#define EBPF_STACK_BYTES 512u /* size of one frame */
#define EBPF_MAX_FRAMES 8u
#define EBPF_MAX_TAIL_CALLS 33u /* maximum per run */
#define EBPF_MAX_INSNS 65536u	/* maximum per program with its subprograms */
#define EBPF_MAX_MAPS 64u
#define EBPF_MAX_PARAMS 256u
#define EBPF_MAX_PARAM_BYTES 4096u /* of the parameters of a kernel that programs can read */
#define EBPF_MAX_HOOKS 64u
#define EBPF_FIRST_DEVICE_HOOK 32u /* hooks from here on are inside kernels */
#define EBPF_PATTERN_BYTES 256u	   /* of kernels' names, with the terminator */

#endif
