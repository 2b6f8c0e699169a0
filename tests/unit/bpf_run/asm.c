/* Assembler for tests: tables of names, one function a kind of instruction. */
#include "asm.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct op {
	const char *name;
	uint8_t code;
	int16_t off;
};

static const struct op alu_ops[] = {
	{ "add", EBPF_ADD, 0 },	  { "sub", EBPF_SUB, 0 },  { "mul", EBPF_MUL, 0 },
	{ "div", EBPF_DIV, 0 },	  { "sdiv", EBPF_DIV, 1 }, { "mod", EBPF_MOD, 0 },
	{ "smod", EBPF_MOD, 1 },  { "or", EBPF_OR, 0 },	   { "and", EBPF_AND, 0 },
	{ "xor", EBPF_XOR, 0 },	  { "lsh", EBPF_LSH, 0 },  { "rsh", EBPF_RSH, 0 },
	{ "arsh", EBPF_ARSH, 0 }, { "mov", EBPF_MOV, 0 },  { NULL, 0, 0 },
};

static const struct op jump_ops[] = {
	{ "jeq", EBPF_JEQ, 0 },	  { "jne", EBPF_JNE, 0 },   { "jgt", EBPF_JGT, 0 },
	{ "jge", EBPF_JGE, 0 },	  { "jlt", EBPF_JLT, 0 },   { "jle", EBPF_JLE, 0 },
	{ "jset", EBPF_JSET, 0 }, { "jsgt", EBPF_JSGT, 0 }, { "jsge", EBPF_JSGE, 0 },
	{ "jslt", EBPF_JSLT, 0 }, { "jsle", EBPF_JSLE, 0 }, { NULL, 0, 0 },
};

/* Whole opcodes; off is the value of the off field. */
static const struct op unary_ops[] = {
	{ "neg", EBPF_ALU64 | EBPF_NEG, 0 },	      { "neg32", EBPF_ALU | EBPF_NEG, 0 },
	{ "le16", EBPF_ALU | EBPF_END | EBPF_K, 16 }, { "le32", EBPF_ALU | EBPF_END | EBPF_K, 32 },
	{ "le64", EBPF_ALU | EBPF_END | EBPF_K, 64 }, { "be16", EBPF_ALU | EBPF_END | EBPF_X, 16 },
	{ "be32", EBPF_ALU | EBPF_END | EBPF_X, 32 }, { "be64", EBPF_ALU | EBPF_END | EBPF_X, 64 },
	{ "bswap16", EBPF_ALU64 | EBPF_END, 16 },     { "bswap32", EBPF_ALU64 | EBPF_END, 32 },
	{ "bswap64", EBPF_ALU64 | EBPF_END, 64 },     { NULL, 0, 0 },
};

static const struct op move_ops[] = {
	{ "movsx8", EBPF_ALU64 | EBPF_MOV | EBPF_X, 8 },
	{ "movsx16", EBPF_ALU64 | EBPF_MOV | EBPF_X, 16 },
	{ "movsx32", EBPF_ALU64 | EBPF_MOV | EBPF_X, 32 },
	{ "movsx8w", EBPF_ALU | EBPF_MOV | EBPF_X, 8 },
	{ "movsx16w", EBPF_ALU | EBPF_MOV | EBPF_X, 16 },
	{ NULL, 0, 0 },
};

static const struct op load_ops[] = {
	{ "ldxb", EBPF_LDX | EBPF_MEM | EBPF_B, 0 },
	{ "ldxh", EBPF_LDX | EBPF_MEM | EBPF_H, 0 },
	{ "ldxw", EBPF_LDX | EBPF_MEM | EBPF_W, 0 },
	{ "ldxdw", EBPF_LDX | EBPF_MEM | EBPF_DW, 0 },
	{ "ldsxb", EBPF_LDX | EBPF_MEMSX | EBPF_B, 0 },
	{ "ldsxh", EBPF_LDX | EBPF_MEMSX | EBPF_H, 0 },
	{ "ldsxw", EBPF_LDX | EBPF_MEMSX | EBPF_W, 0 },
	{ NULL, 0, 0 },
};

static const struct op store_ops[] = {
	{ "stb", EBPF_ST | EBPF_MEM | EBPF_B, 0 },
	{ "sth", EBPF_ST | EBPF_MEM | EBPF_H, 0 },
	{ "stw", EBPF_ST | EBPF_MEM | EBPF_W, 0 },
	{ "stdw", EBPF_ST | EBPF_MEM | EBPF_DW, 0 },
	{ "stxb", EBPF_STX | EBPF_MEM | EBPF_B, 0 },
	{ "stxh", EBPF_STX | EBPF_MEM | EBPF_H, 0 },
	{ "stxw", EBPF_STX | EBPF_MEM | EBPF_W, 0 },
	{ "stxdw", EBPF_STX | EBPF_MEM | EBPF_DW, 0 },
	{ NULL, 0, 0 },
};

static const struct op atomic_ops[] = {
	{ "aadd", EBPF_ADD, 0 },
	{ "aor", EBPF_OR, 0 },
	{ "aand", EBPF_AND, 0 },
	{ "axor", EBPF_XOR, 0 },
	{ "afadd", EBPF_ADD | EBPF_FETCH, 0 },
	{ "afor", EBPF_OR | EBPF_FETCH, 0 },
	{ "afand", EBPF_AND | EBPF_FETCH, 0 },
	{ "afxor", EBPF_XOR | EBPF_FETCH, 0 },
	{ "axchg", EBPF_XCHG, 0 },
	{ "acmpxchg", EBPF_CMPXCHG, 0 },
	{ NULL, 0, 0 },
};

/* Finds name, which may end in suffix; whether it did is stored. */
static const struct op *find_op(const struct op *ops, const char *name, const char *suffix,
				int *ret_suffixed)
{
	for (const struct op *o = ops; o->name; o++) {
		size_t len = strlen(o->name);

		if (strncmp(name, o->name, len) == 0 &&
		    (!name[len] || strcmp(name + len, suffix) == 0)) {
			*ret_suffixed = name[len] != 0;
			return o;
		}
	}
	return NULL;
}

int asm_alu_op(const char *name, int16_t *ret_off)
{
	int is32;
	const struct op *o = find_op(alu_ops, name, "32", &is32);

	if (!o) {
		return -1;
	}
	*ret_off = o->off;
	return o->code | (is32 ? EBPF_ALU : EBPF_ALU64);
}

int asm_jump_op(const char *name)
{
	int is32;
	const struct op *o = find_op(jump_ops, name, "32", &is32);

	return o ? o->code | (is32 ? EBPF_JMP32 : EBPF_JMP) : -1;
}

void asm_begin(struct asm_unit *u)
{
	u->n = u->n_labels = u->n_uses = 0;
	u->error[0] = 0;
}

static int fail(struct asm_unit *u, const char *what, const char *line)
{
	if (!u->error[0]) {
		snprintf(u->error, sizeof(u->error), "%s: %.100s", what, line);
	}
	return -1;
}

static int add(struct asm_unit *u, uint8_t code, int dst, int src, int64_t off, int64_t imm)
{
	if (u->n >= ASM_MAX_INSNS || off < INT16_MIN || off > INT16_MAX) {
		return fail(u, "too long or offset out of range", "");
	}
	u->insns[u->n++] = (struct ebpf_insn){ code, (uint8_t)(dst & 15), (uint8_t)(src & 15),
					       (int16_t)off, (int32_t)imm };
	return 0;
}

static int add_label(struct asm_unit *u, const char *name, int is_use)
{
	unsigned *n = is_use ? &u->n_uses : &u->n_labels;

	if (*n >= (is_use ? 1024u : 256u)) {
		return fail(u, "too many labels", name);
	}
	if (is_use) {
		snprintf(u->uses[*n].name, sizeof(u->uses[0].name), "%.31s", name);
		u->uses[*n].at = u->n;
	} else {
		snprintf(u->labels[*n].name, sizeof(u->labels[0].name), "%.31s", name);
		u->labels[*n].at = u->n;
	}
	(*n)++;
	return 0;
}

static int parse_reg(const char *s)
{
	char *end;
	long v = s[0] == 'r' ? strtol(s + 1, &end, 10) : -1;

	return v >= 0 && v <= 15 && end > s + 1 && !*end ? (int)v : -1;
}

static int parse_number(const char *s, int64_t *ret)
{
	char *end;

	errno = 0;
	*ret = s[0] == '-' ? strtoll(s, &end, 0) : (int64_t)strtoull(s, &end, 0);
	return errno || end == s || *end ? -1 : 0;
}

/* "[r10-8]" */
static int parse_mem(const char *s, int *ret_reg, int64_t *ret_off)
{
	int len = 0, reg = -1, off = 0;

	if (sscanf(s, "[r%d]%n", &reg, &len) == 1 && len && !s[len]) {
		*ret_off = 0;
	} else if (sscanf(s, "[r%d%d]%n", &reg, &off, &len) == 2 && len && !s[len]) {
		*ret_off = off;
	} else {
		return -1;
	}
	*ret_reg = reg;
	return 0;
}

static int add_operands(struct asm_unit *u, uint8_t code, const char *d, const char *s, int64_t off,
			const char *line)
{
	int dst = parse_reg(d), src = parse_reg(s);
	int64_t imm;

	if (dst < 0) {
		return fail(u, "no register", line);
	}
	if (src >= 0) {
		return add(u, code | EBPF_X, dst, src, off, 0);
	}
	if (parse_number(s, &imm) < 0) {
		return fail(u, "neither register nor number", line);
	}
	return add(u, code | EBPF_K, dst, 0, off, imm);
}

static int asm_function(struct asm_unit *u, char a[4][48], const char *line)
{
	if (parse_reg(a[0]) < 0) {
		return fail(u, "bad operands", line);
	}
	if (add_label(u, a[1], 1) < 0 ||
	    add(u, EBPF_LD_IMM64, parse_reg(a[0]), EBPF_PSEUDO_FUNC, 0, 0) < 0) {
		return -1;
	}
	return add(u, 0, 0, 0, 0, 0);
}

static int asm_wide(struct asm_unit *u, const char *m, char a[4][48], const char *line)
{
	int dst = parse_reg(a[0]), src = strcmp(m, "lddw") == 0	   ? 0
					 : strcmp(m, "ldmap") == 0 ? 1
								   : 2;
	int64_t v = 0, off = 0;

	if (dst < 0 || parse_number(a[1], &v) < 0 || (src == 2 && parse_number(a[2], &off) < 0)) {
		return fail(u, "bad operands", line);
	}
	if (add(u, EBPF_LD_IMM64, dst, src, 0, v) < 0) {
		return -1;
	}
	return add(u, 0, 0, 0, 0, src ? off : v >> 32);
}

static int asm_control(struct asm_unit *u, const char *m, char a[4][48], const char *line)
{
	int64_t v;

	if (strcmp(m, "exit") == 0) {
		return add(u, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
	}
	if (strcmp(m, "ja") == 0 || strcmp(m, "jal") == 0) {
		return add_label(u, a[0], 1)
			       ? -1
			       : add(u, m[2] ? EBPF_JMP32 | EBPF_JA : EBPF_JMP | EBPF_JA, 0, 0, 0,
				     0);
	}
	if (strcmp(m, "callf") == 0) {
		return add_label(u, a[0], 1)
			       ? -1
			       : add(u, EBPF_JMP | EBPF_CALL, 0, EBPF_CALL_LOCAL, 0, 0);
	}
	if (parse_number(a[0], &v) < 0) {
		return fail(u, "no helper number", line);
	}
	return add(u, EBPF_JMP | EBPF_CALL, 0, 0, 0, v);
}

static int asm_memory(struct asm_unit *u, const char *m, char a[4][48], const char *line)
{
	int unused, wide, reg, other;
	const struct op *o;
	int64_t off, imm;

	o = find_op(load_ops, m, "", &unused);
	if (o) {
		if (parse_reg(a[0]) < 0 || parse_mem(a[1], &reg, &off) < 0) {
			return fail(u, "bad operands", line);
		}
		return add(u, o->code, parse_reg(a[0]), reg, off, 0);
	}
	if (parse_mem(a[0], &reg, &off) < 0) {
		return fail(u, "no such instruction, or no memory operand", line);
	}
	other = parse_reg(a[1]);
	o = find_op(store_ops, m, "", &unused);
	if (o && EBPF_CLASS(o->code) == EBPF_ST) {
		return parse_number(a[1], &imm) < 0 ? fail(u, "no number", line)
						    : add(u, o->code, reg, 0, off, imm);
	}
	if (other < 0) {
		return fail(u, "no register", line);
	}
	if (o) {
		return add(u, o->code, reg, other, off, 0);
	}
	o = find_op(atomic_ops, m, "64", &wide);
	if (o) {
		return add(u, EBPF_STX | EBPF_ATOMIC | EBPF_DW, reg, other, off, o->code);
	}
	o = find_op(atomic_ops, m, "32", &wide);
	return o ? add(u, EBPF_STX | EBPF_ATOMIC | EBPF_W, reg, other, off, o->code)
		 : fail(u, "no such instruction", line);
}

static int asm_hex(struct asm_unit *u, const char *digits, const char *line)
{
	uint8_t b[8];

	for (int i = 0; i < 8; i++) {
		unsigned v;

		if (sscanf(digits + 2 * i, "%2x", &v) != 1) {
			return fail(u, "not 16 hex digits", line);
		}
		b[i] = (uint8_t)v;
	}
	if (u->n >= ASM_MAX_INSNS) {
		return fail(u, "too long", line);
	}
	memcpy(&u->insns[u->n++], b, 8);
	return 0;
}

static int assemble(struct asm_unit *u, const char *m, char a[4][48], const char *line)
{
	int16_t off = 0;
	int code, unused;
	const struct op *o;

	if (strcmp(m, "hex") == 0) {
		return asm_hex(u, a[0], line);
	}
	if (strcmp(m, "lddw") == 0 || strcmp(m, "ldmap") == 0 || strcmp(m, "ldval") == 0) {
		return asm_wide(u, m, a, line);
	}
	if (strcmp(m, "ldfn") == 0) {
		return asm_function(u, a, line);
	}
	if (strcmp(m, "exit") == 0 || strcmp(m, "ja") == 0 || strcmp(m, "jal") == 0 ||
	    strncmp(m, "call", 4) == 0) {
		return asm_control(u, m, a, line);
	}
	code = asm_alu_op(m, &off);
	if (code >= 0) {
		return add_operands(u, (uint8_t)code, a[0], a[1], off, line);
	}
	code = asm_jump_op(m);
	if (code >= 0) {
		return add_label(u, a[2], 1) ? -1
					     : add_operands(u, (uint8_t)code, a[0], a[1], 0, line);
	}
	o = find_op(unary_ops, m, "", &unused);
	if (o && parse_reg(a[0]) >= 0) {
		return add(u, o->code, parse_reg(a[0]), 0, 0, o->off);
	}
	o = find_op(move_ops, m, "", &unused);
	if (o && parse_reg(a[0]) >= 0 && parse_reg(a[1]) >= 0) {
		return add(u, o->code, parse_reg(a[0]), parse_reg(a[1]), o->off, 0);
	}
	return asm_memory(u, m, a, line);
}

int asm_line(struct asm_unit *u, const char *line)
{
	char text[200], m[32], a[4][48] = { { 0 } }, *rest;
	size_t len;
	int at = 0, k = 0;

	snprintf(text, sizeof(text), "%s", line);
	text[strcspn(text, "#\n")] = 0;
	for (len = strlen(text); len && isspace((unsigned char)text[len - 1]); len--) {
		text[len - 1] = 0;
	}
	if (sscanf(text, "%31s%n", m, &at) != 1) {
		return 0;
	}
	if (m[strlen(m) - 1] == ':') {
		m[strlen(m) - 1] = 0;
		return add_label(u, m, 0);
	}
	rest = text + at;
	for (char *p = strsep(&rest, ","); p && k < 4; p = strsep(&rest, ","), k++) {
		while (isspace((unsigned char)*p)) {
			p++;
		}
		snprintf(a[k], sizeof(a[k]), "%s", p);
	}
	return assemble(u, m, a, line);
}

int asm_end(struct asm_unit *u)
{
	for (unsigned i = 0; i < u->n_uses; i++) {
		struct ebpf_insn *insn = &u->insns[u->uses[i].at];
		int64_t off = INT64_MAX;

		for (unsigned k = 0; k < u->n_labels; k++) {
			if (strcmp(u->labels[k].name, u->uses[i].name) == 0) {
				off = (int64_t)u->labels[k].at - u->uses[i].at - 1;
			}
		}
		if (off == INT64_MAX) {
			return fail(u, "no such label", u->uses[i].name);
		}
		if (insn->code == (EBPF_JMP | EBPF_CALL) || insn->code == (EBPF_JMP32 | EBPF_JA) ||
		    insn->code == EBPF_LD_IMM64) {
			insn->imm = (int32_t)off;
		} else if (off < INT16_MIN || off > INT16_MAX) {
			return fail(u, "jump too far", u->uses[i].name);
		} else {
			insn->off = (int16_t)off;
		}
	}
	return u->error[0] ? -1 : 0;
}

int asm_text(struct asm_unit *u, const char *text)
{
	char *copy = strdup(text), *rest = copy;
	int err = copy ? 0 : -1;

	asm_begin(u);
	for (char *line = NULL; !err && (line = strsep(&rest, ";"));) {
		err = asm_line(u, line);
	}
	free(copy);
	return err ? err : asm_end(u);
}
