/* A small assembler for readable test cases: one instruction a line, "label:" lines, "#" begins a
 * comment. D and S are registers, V is a register or a number, M is [rN+off], L a label.
 * - add sub mul div sdiv mod smod or and xor lsh rsh arsh mov D, V; with suffix 32: 32-bit class
 * - neg neg32 le16 be32 bswap64 (and the other widths) D
 * - movsx8 movsx16 movsx32 movsx8w movsx16w D, S
 * - ldxb ldxh ldxw ldxdw ldsxb ldsxh ldsxw D, M
 * - stb sth stw stdw M, number
 * - stxb stxh stxw stxdw M, S
 * - aadd aor aand axor afadd afor afand afxor axchg acmpxchg, with 32 or 64, M, S
 * - lddw D, number of 64 bits
 * - ldmap D, index
 * - ldval D, index, offset
 * - ldfn D, L: the function at L as a value
 * - ja L; jal L (32-bit distance)
 * - jeq jne jgt jge jlt jle jset jsgt jsge jslt jsle D, V, L; with suffix 32: 32-bit class
 * - call number; callf L; exit
 * - hex 0123456789abcdef: the eight bytes of one slot */
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

/* A whole program, with ";" between the lines. 0 or -1 with ->error. */
int asm_text(struct asm_unit *u, const char *text);

/* Opcode and off of "add32", "sdiv" ...; opcode and class of "jsgt32"; -1 when unknown. */
int asm_alu_op(const char *name, int16_t *ret_off);
int asm_jump_op(const char *name);

#endif
