/* Runs the text cases of tests/data/<name>.bpft on every engine: the results must be bit-identical
 * to the expected ones.
 * - test NAME: begins a case; the lines after it are assembly (asm.h) and directives
 * - .mem HEX: memory that r1 points to
 * - .map NAME VALUE_BYTES ENTRIES [FLAGS [data]]: a map; the index counts from 0
 * - .r0 VALUE: expected result
 * - .memout HEX: expected memory afterwards
 * - .error fault|insn|fuel|frames: how the run ends; checked interpreter only
 * - alu OP A [B] = R and jmp OP A B = 0|1: rows of arithmetic and of conditions, tried on many
 * pairs of registers, and with B as an immediate where it fits */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "asm.h"
#include "base/buf.h"
#include "base/compiler.h"
#include "bpf/run/interp/interp.h"
#include "engines.h"

#define MAX_TESTS 4096u
#define MEM_BYTES 256u
#define POOL_BYTES (4u << 20)
#define FUEL 10000000u

struct hex {
	uint8_t bytes[MEM_BYTES];
	size_t n;
	int given;
};

static struct asm_unit unit;
static struct code_pool pool;
static struct test_env no_maps;

/* ---- one program on every engine ---- */

static struct ebpf_checked_run checked_run(struct ebpf_memory *region, struct ebpf_env *env,
					   uint8_t *mem, size_t bytes)
{
	*region = (struct ebpf_memory){ (uintptr_t)mem, bytes, 1 };
	return (struct ebpf_checked_run){
		.regions = region, .n_regions = 1, .r1 = (uintptr_t)mem, .fuel = FUEL, .env = env
	};
}

struct expected {
	uint64_t r0;
	const struct hex *mem_in, *mem_out;
	const char *what;
};

static void same(const struct expected *e, const char *engine, uint64_t r0, const uint8_t *mem)
{
	if (r0 != e->r0) {
		fail_msg("%s: %s gives r0 = 0x%llx, not 0x%llx", e->what, engine,
			 (unsigned long long)r0, (unsigned long long)e->r0);
	}
	if (e->mem_out->given && memcmp(mem, e->mem_out->bytes, e->mem_out->n) != 0) {
		fail_msg("%s: %s leaves other memory", e->what, engine);
	}
}

static void run_interpreters(const struct expected *e, const struct ebpf_insn *insns, uint32_t n,
			     struct test_env *t)
{
	ALIGNED(16) uint8_t mem[MEM_BYTES];
	struct ebpf_memory region;
	struct ebpf_checked_run run = checked_run(&region, &t->env, mem, e->mem_in->n);
	uint64_t r0 = 0;
	uint32_t pc = 0;
	int err;

	memcpy(mem, e->mem_in->bytes, MEM_BYTES);
	test_env_reset(t);
	err = ebpf_interp_checked(insns, n, &run, &r0, &pc);
	if (err) {
		fail_msg("%s: the checked interpreter ends with %d at %u", e->what, err, pc);
	}
	same(e, "the checked interpreter", r0, mem);
	memcpy(mem, e->mem_in->bytes, MEM_BYTES);
	test_env_reset(t);
	same(e, "the interpreter", ebpf_interp_verified(insns, n, mem, &t->env), mem);
}

static void run_code(const struct expected *e, int entry, struct test_env *t)
{
	ALIGNED(16) uint8_t mem[MEM_BYTES];

	memcpy(mem, e->mem_in->bytes, MEM_BYTES);
	test_env_reset(t);
	same(e, "compiled code", pool_run(&pool, entry, mem, &t->env), mem);
}

/* ---- rows ---- */

struct row {
	int is_jump, code, unary;
	int16_t off;
	int32_t imm; /* unary: the whole instruction's */
	uint64_t a, b, result;
	char text[120];
};

static void emit(struct ebpf_insn insn)
{
	unit.insns[unit.n++] = insn;
}

static void emit_load(unsigned reg, uint64_t v)
{
	emit((struct ebpf_insn){ EBPF_LD_IMM64, reg & 15, 0, 0, (int32_t)v });
	emit((struct ebpf_insn){ .imm = (int32_t)(v >> 32) });
}

#define FILLER(reg) (0x01010101 * (int32_t)((reg) + 1))

/* All registers get known values, the operation runs on two of them, and all others must be as they
 * were. */
static void alu_program(const struct row *row, unsigned dst, unsigned src, int by_imm)
{
	unsigned t = src == 0 ? 1 : 0, to_fail[12], n_fail = 0;

	asm_begin(&unit);
	for (unsigned r = 0; r < 10; r++) {
		emit((struct ebpf_insn){ EBPF_ALU64 | EBPF_MOV, r & 15, 0, 0, FILLER(r) });
	}
	if (!by_imm) {
		emit_load(src, row->b);
		emit((struct ebpf_insn){ EBPF_STX | EBPF_MEM | EBPF_DW, 10, src & 15, -8, 0 });
	}
	emit_load(dst, row->a);
	if (row->unary) {
		emit((struct ebpf_insn){ (uint8_t)row->code, dst & 15, 0, row->off, row->imm });
	} else {
		emit((struct ebpf_insn){ (uint8_t)(row->code | (by_imm ? EBPF_K : EBPF_X)),
					 dst & 15, (by_imm ? 0 : src) & 15, row->off,
					 by_imm ? (int32_t)row->b : 0 });
	}
	emit((struct ebpf_insn){ EBPF_STX | EBPF_MEM | EBPF_DW, 10, dst & 15, -16, 0 });
	for (unsigned r = 0; r < 10; r++) {
		if (r != dst && (by_imm || r != src)) {
			to_fail[n_fail++] = unit.n;
			emit((struct ebpf_insn){ EBPF_JMP | EBPF_JNE, r & 15, 0, 0, FILLER(r) });
		}
	}
	if (!by_imm && dst != src) {
		emit((struct ebpf_insn){ EBPF_LDX | EBPF_MEM | EBPF_DW, t & 15, 10, -8, 0 });
		to_fail[n_fail++] = unit.n;
		emit((struct ebpf_insn){ EBPF_JMP | EBPF_JNE | EBPF_X, t & 15, src & 15, 0, 0 });
	}
	emit((struct ebpf_insn){ EBPF_LDX | EBPF_MEM | EBPF_DW, 0, 10, -16, 0 });
	emit((struct ebpf_insn){ .code = EBPF_JMP | EBPF_EXIT });
	for (unsigned k = 0; k < n_fail; k++) {
		unit.insns[to_fail[k]].off = (int16_t)(unit.n - to_fail[k] - 1);
	}
	emit((struct ebpf_insn){ EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 0x0bad0bad });
	emit((struct ebpf_insn){ .code = EBPF_JMP | EBPF_EXIT });
}

static void jump_program(const struct row *row, unsigned dst, unsigned src, int by_imm)
{
	asm_begin(&unit);
	if (!by_imm) {
		emit_load(src, row->b);
	}
	emit_load(dst, row->a);
	emit((struct ebpf_insn){ (uint8_t)(row->code | (by_imm ? EBPF_K : EBPF_X)), dst & 15,
				 (by_imm ? 0 : src) & 15, 2, by_imm ? (int32_t)row->b : 0 });
	emit((struct ebpf_insn){ EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 0 });
	emit((struct ebpf_insn){ .code = EBPF_JMP | EBPF_EXIT });
	emit((struct ebpf_insn){ EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 1 });
	emit((struct ebpf_insn){ .code = EBPF_JMP | EBPF_EXIT });
}

struct pending {
	int entry;
	struct expected e;
};

/* A variant: interpreted at once, compiled and run with the next batch. */
static void add_variant(const struct row *row, unsigned dst, unsigned src, int by_imm,
			struct pending *p)
{
	static const struct hex none;

	if (row->is_jump) {
		jump_program(row, dst, src, by_imm);
	} else {
		alu_program(row, dst, src, by_imm);
	}
	p->e = (struct expected){ row->result, &none, &none, row->text };
	run_interpreters(&p->e, unit.insns, unit.n, &no_maps);
	p->entry = pool_add(&pool, unit.insns, unit.n, &no_maps.env);
	if (p->entry < 0) {
		fail_msg("%s: not compiled (%d)", row->text, p->entry);
	}
}

static int fits_imm(const struct row *row)
{
	int is64 = EBPF_CLASS(row->code) == EBPF_ALU64 || EBPF_CLASS(row->code) == EBPF_JMP;

	return !row->unary && !(EBPF_OP(row->code) == EBPF_MOV && row->off) &&
	       (!is64 || (int64_t)row->b == (int32_t)row->b);
}

/* Seven pairs of registers a row; a file has rows enough to reach all hundred for each operation.
 */
#define VARIANTS 8u
static void run_row(const struct row *row, unsigned number, struct pending *pending, unsigned *n)
{
	unsigned some = (number * 0x9e3779b1u) >> 8;

	for (unsigned k = 0; k < VARIANTS - 1; k++) {
		unsigned pair = (some + k * 37) % 100, dst = pair / 10, src = pair % 10;

		if (row->unary || dst != src || row->a == row->b) {
			add_variant(row, dst, src, row->unary, &pending[(*n)++]);
		}
	}
	if (fits_imm(row)) {
		add_variant(row, some % 10, 0, 1, &pending[(*n)++]);
	}
}

static void flush_rows(struct pending *pending, unsigned *n)
{
	assert_int_equal(pool_map(&pool), 0);
	for (unsigned i = 0; i < *n; i++) {
		run_code(&pending[i].e, pending[i].entry, &no_maps);
	}
	pool_clear(&pool);
	*n = 0;
}

/* ---- the files ---- */

struct file_case {
	char name[100];
	char *lines;	  /* owned */
	struct row *rows; /* owned */
	unsigned n_rows;
};

static struct file_case cases[MAX_TESTS];
static unsigned n_cases;

static void parse_hex(struct hex *h, const char *text)
{
	unsigned v;
	int at;

	h->given = 1;
	while (h->n < MEM_BYTES && sscanf(text, " %2x%n", &v, &at) == 1) {
		h->bytes[h->n++] = (uint8_t)v;
		text += at;
	}
}

static int error_named(const char *name)
{
	return strcmp(name, "fault") == 0  ? -EFAULT
	       : strcmp(name, "insn") == 0 ? -EINVAL
	       : strcmp(name, "fuel") == 0 ? -ETIME
					   : -ELOOP;
}

struct test_text {
	struct hex mem_in, mem_out;
	uint64_t r0;
	int error, has_r0;
};

static void parse_directive(const char *line, struct test_text *x, struct test_env *t)
{
	char name[40], data[8] = "";
	unsigned value, entries, flags = 0;

	if (strncmp(line, ".memout ", 8) == 0) {
		parse_hex(&x->mem_out, line + 8);
	} else if (strncmp(line, ".mem ", 5) == 0) {
		parse_hex(&x->mem_in, line + 5);
	} else if (strncmp(line, ".r0 ", 4) == 0) {
		x->r0 = line[4] == '-' ? (uint64_t)strtoll(line + 4, NULL, 0)
				       : strtoull(line + 4, NULL, 0);
		x->has_r0 = 1;
	} else if (sscanf(line, ".error %39s", name) == 1) {
		x->error = error_named(name);
	} else if (sscanf(line, ".map %39s %u %u %i %7s", name, &value, &entries, (int *)&flags,
			  data) >= 3) {
		assert_int_equal(test_env_add(t, name, value, entries, flags, !!data[0]), 0);
	} else {
		fail_msg("unknown directive: %s", line);
	}
}

static void read_case(const struct file_case *c, struct test_text *x, struct test_env *t)
{
	char *lines = strdup(c->lines), *rest = lines;

	memset(x, 0, sizeof(*x));
	test_env_init(t);
	asm_begin(&unit);
	for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
		line += strspn(line, " \t");
		if (*line == '.') {
			parse_directive(line, x, t);
		} else if (asm_line(&unit, line) < 0) {
			fail_msg("%s", unit.error);
		}
	}
	if (asm_end(&unit) < 0) {
		fail_msg("%s", unit.error);
	}
	assert_int_equal(test_env_bind(t), 0);
	free(lines);
}

static void run_case(void **state)
{
	const struct file_case *c = *state;
	static struct test_env t;
	struct test_text x;
	struct expected e = { 0, &x.mem_in, &x.mem_out, c->name };

	read_case(c, &x, &t);
	assert_true(x.error || x.has_r0);
	e.r0 = x.r0;
	if (x.error) {
		struct ebpf_memory region;
		struct ebpf_checked_run run =
			checked_run(&region, t.n ? &t.env : NULL, x.mem_in.bytes, x.mem_in.n);
		uint64_t r0;

		run.fuel = 10000;
		assert_int_equal(ebpf_interp_checked(unit.insns, unit.n, &run, &r0, NULL), x.error);
	} else {
		int entry = pool_add(&pool, unit.insns, unit.n, &t.env);

		assert_true(entry >= 0);
		assert_int_equal(pool_map(&pool), 0);
		run_interpreters(&e, unit.insns, unit.n, &t);
		run_code(&e, entry, &t);
		pool_clear(&pool);
	}
	test_env_finish(&t);
}

static void run_rows(void **state)
{
	const struct file_case *c = *state;
	struct pending *pending = calloc(c->n_rows * VARIANTS, sizeof(*pending));
	unsigned n = 0;

	for (unsigned i = 0; i < c->n_rows; i++) {
		run_row(&c->rows[i], i, pending, &n);
		if (pool.len > pool.cap - 65536) {
			flush_rows(pending, &n);
		}
	}
	flush_rows(pending, &n);
	free(pending);
}

static int parse_row(struct row *row, const char *line)
{
	char kind[8], op[16], a[32], b[32], r[32];

	snprintf(row->text, sizeof(row->text), "%s", line);
	row->unary = sscanf(line, "%7s %15s %31s = %31s", kind, op, a, r) == 4;
	if (!row->unary && sscanf(line, "%7s %15s %31s %31s = %31s", kind, op, a, b, r) != 5) {
		return -1;
	}
	row->a = strtoull(a, NULL, 0);
	row->b = row->unary ? 0 : strtoull(b, NULL, 0);
	row->result = strtoull(r, NULL, 0);
	row->is_jump = strcmp(kind, "jmp") == 0;
	if (row->is_jump) {
		row->code = asm_jump_op(op);
		return row->code;
	}
	row->code = asm_alu_op(op, &row->off);
	if (row->code < 0) { /* a unary one, or a sign-extending move */
		char text[64];

		snprintf(text, sizeof(text), row->unary ? "%s r0" : "%s r0, r0", op);
		asm_begin(&unit);
		if (asm_line(&unit, text) < 0) {
			return -1;
		}
		row->code = unit.insns[0].code & ~EBPF_X;
		if (row->unary) {
			row->code = unit.insns[0].code;
		}
		row->off = unit.insns[0].off;
		row->imm = unit.insns[0].imm;
	}
	return row->code;
}

static struct file_case *new_case(const char *file, const char *name)
{
	struct file_case *c = &cases[n_cases];
	const char *base = strrchr(file, '/');

	if (n_cases == MAX_TESTS) {
		fprintf(stderr, "too many tests\n");
		exit(1);
	}
	n_cases++;
	snprintf(c->name, sizeof(c->name), "%s: %s", base ? base + 1 : file, name);
	return c;
}

static void read_line(const char *file, struct file_case **c, struct buf *lines, const char *line)
{
	int is_row = strncmp(line, "alu ", 4) == 0 || strncmp(line, "jmp ", 4) == 0;

	if (strncmp(line, "test ", 5) == 0) {
		if (*c) {
			(*c)->lines = buf_steal(lines);
		}
		*c = new_case(file, line + 5);
	} else if (is_row) {
		if (!*c || !(*c)->rows) {
			*c = new_case(file, "rows");
			(*c)->rows = calloc(65536, sizeof(struct row));
		}
		if ((*c)->n_rows == 65536 || parse_row(&(*c)->rows[(*c)->n_rows++], line) < 0) {
			fprintf(stderr, "%s: bad row: %s\n", file, line);
			exit(1);
		}
	} else if (*c) {
		buf_printf(lines, "%s\n", line);
	}
}

static void read_file(const char *file)
{
	struct file_case *c = NULL;
	struct buf b, lines;
	char *rest;

	buf_init(&b);
	buf_init(&lines);
	if (buf_read_file(&b, file, 16u << 20) < 0 || !b.data) {
		fprintf(stderr, "%s: cannot be read\n", file);
		exit(1);
	}
	rest = b.data;
	for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
		read_line(file, &c, &lines, line);
	}
	if (c && !c->rows) {
		c->lines = buf_steal(&lines);
	}
	buf_finish(&lines);
	buf_finish(&b);
}

int main(int argc, char **argv)
{
	static struct CMUnitTest tests[MAX_TESTS];
	int failed;

	pool_init(&pool, POOL_BYTES);
	test_env_init(&no_maps);
	for (int i = 1; i < argc; i++) {
		read_file(argv[i]);
	}
	for (unsigned i = 0; i < n_cases; i++) {
		tests[i] = (struct CMUnitTest){ .name = cases[i].name,
						.test_func = cases[i].rows ? run_rows : run_case,
						.initial_state = &cases[i] };
	}
	failed = _cmocka_run_group_tests("bpft", tests, n_cases, NULL, NULL);
	for (unsigned i = 0; i < n_cases; i++) {
		free(cases[i].lines);
		free(cases[i].rows);
	}
	pool_finish(&pool);
	return failed;
}
