/* A small assembler for readable test cases. One instruction a line, "label:" lines, "#" begins a comment:
 *	add sub mul div sdiv mod smod or and xor lsh rsh arsh mov	rD, rS|imm	(suffix 32: 32-bit class)
 *	neg neg32 rD    movsx8 movsx16 movsx32 movsx8w movsx16w rD, rS    le16 be32 bswap64 ... rD
 *	ldxb ldxh ldxw ldxdw ldsxb ldsxh ldsxw rD, [rS+off]    stb sth stw stdw [rD+off], imm
 *	stxb stxh stxw stxdw [rD+off], rS
 *	aadd aor aand axor afadd afor afand afxor axchg acmpxchg, with 32 or 64: aadd64 [rD+off], rS
 *	lddw rD, imm64    ldmap rD, index    ldval rD, index, offset
 *	ja label    jal label (32-bit offset)    jeq jne jgt jge jlt jle jset jsgt jsge jslt jsle rD, rS|imm, label (suffix 32)
 *	call id    callf label    exit    hex 0123456789abcdef (the eight bytes of one slot) */
#ifndef GBPF_TESTS_BPF_ASM_H
#define GBPF_TESTS_BPF_ASM_H

#include <stddef.h>
#include <stdint.h>

#include "bpf/run/insn.h"

#define ASM_MAX_INSNS 4096u

struct asm_unit {
	struct ebpf_insn insns[ASM_MAX_INSNS];
	uint32_t n;
	struct {
		char name[32];
		uint32_t at;
	} labels[256], uses[1024];
	unsigned n_labels, n_uses;
	char error[160];
};

void asm_begin(struct asm_unit *u);
/* One line; 0 or -1 with ->error. */
int asm_line(struct asm_unit *u, const char *line);
/* Resolves labels; 0 or -1 with ->error. */
int asm_end(struct asm_unit *u);

/* Opcode and off of "add32", "sdiv" ...; opcode and class of "jsgt32"; -1 when unknown. */
int asm_alu_op(const char *name, int16_t *ret_off);
int asm_jump_op(const char *name);

#endif
