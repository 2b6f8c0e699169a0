/* Runs the text cases of tests/data/<name>.bpft on every engine: the results must be bit-identical
 * to the expected ones.
 * - test NAME: begins a case; the lines after it are assembly (asm.h) and directives
 * - .mem HEX: memory that r1 points to
 * - .map NAME VALUE_BYTES ENTRIES [FLAGS [data]]: a map; the index counts from 0
 * - .r0 VALUE: expected result
 * - .memout HEX: expected memory afterwards
 * - .error fault|insn|fuel|frames: how the run ends; checked interpreter only
 * - alu OP A [B] = R and jmp OP A B = 0|1: rows of arithmetic and of conditions, tried on many
 * pairs of registers, and with B as an immediate where it fits
 * --keep-ptx FOLDER: writes the PTX of the cases there */
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
#include "ptx_engine.h"

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

/* ---- the program as PTX ---- */

/* Cases with what the PTX target does not have, and how its report names it. */
static const struct {
	const char *name, *reason;
} without_ptx[] = {
	{ "map.bpft: a tenant's class is unknown without tenants", "helper 1001" },
};

static const char *refusal_of(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(without_ptx); i++) {
		if (strcmp(without_ptx[i].name, name) == 0) {
			return without_ptx[i].reason;
		}
	}
	return NULL;
}

static void run_ptx(const struct expected *e, const struct ebpf_insn *insns, uint32_t n,
		    struct test_env *t)
{
	const char *refusal = refusal_of(e->what);
	ALIGNED(16) uint8_t mem[MEM_BYTES];
	struct ptx_batch batch;
	struct report r;
	uint64_t r0;
	int err;

	memcpy(mem, e->mem_in->bytes, MEM_BYTES);
	test_env_reset(t);
	ptx_batch_begin(&batch);
	report_init(&r);
	err = ptx_batch_add(&batch, insns, n, &t->env, &r);
	if (err ? !refusal || err != -ENOTSUP || !strstr(buf_text(&r.message), refusal)
		: !!refusal) {
		fail_msg("%s: compiled to PTX with result %d: %s", e->what, err,
			 buf_text(&r.message));
	}
	report_finish(&r);
	if (err) {
		buf_finish(&batch.text);
		return;
	}
	ptx_batch_run(&batch, t, mem, sizeof(mem), sizeof(mem), 1, &r0);
	same(e, "PTX", r0, mem);
}

static int calls_helpers(const struct ebpf_insn *insns, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (insns[i].code == (EBPF_JMP | EBPF_CALL) && insns[i].src == EBPF_CALL_HELPER) {
			return 1;
		}
		i += insns[i].code == EBPF_LD_IMM64;
	}
	return 0;
}

/* Programs without maps and helpers are also raw programs. */
static void run_checked_ptx(const struct expected *e, const struct ebpf_insn *insns, uint32_t n)
{
	ALIGNED(16) uint8_t mem[MEM_BYTES];
	uint64_t r0 = 0;
	int err;

	memcpy(mem, e->mem_in->bytes, MEM_BYTES);
	err = ptx_run_checked(insns, n, mem, e->mem_in->n, FUEL, &r0);
	if (err) {
		fail_msg("%s: checked PTX ends with %d", e->what, err);
	}
	same(e, "checked PTX", r0, mem);
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

enum form { BY_REG, BY_IMM, BY_MEMORY };

/* Copies the two operands from the memory to the stack, for programs that serve many rows. */
static void emit_take(void)
{
	emit((struct ebpf_insn){ EBPF_LDX | EBPF_MEM | EBPF_DW, 0, 1, 0, 0 });
	emit((struct ebpf_insn){ EBPF_STX | EBPF_MEM | EBPF_DW, 10, 0, -24, 0 });
	emit((struct ebpf_insn){ EBPF_LDX | EBPF_MEM | EBPF_DW, 0, 1, 8, 0 });
	emit((struct ebpf_insn){ EBPF_STX | EBPF_MEM | EBPF_DW, 10, 0, -8, 0 });
}

static void emit_operands(const struct row *row, unsigned dst, unsigned src, enum form form)
{
	if (form == BY_MEMORY) {
		emit((struct ebpf_insn){ EBPF_LDX | EBPF_MEM | EBPF_DW, src & 15, 10, -8, 0 });
		emit((struct ebpf_insn){ EBPF_LDX | EBPF_MEM | EBPF_DW, dst & 15, 10, -24, 0 });
		return;
	}
	if (form == BY_REG) {
		emit_load(src, row->b);
		emit((struct ebpf_insn){ EBPF_STX | EBPF_MEM | EBPF_DW, 10, src & 15, -8, 0 });
	}
	emit_load(dst, row->a);
}

/* All registers get known values, the operation runs on two of them, and all others must be as they
 * were. */
static void alu_program(const struct row *row, unsigned dst, unsigned src, enum form form)
{
	unsigned t = src == 0 ? 1 : 0, to_fail[12], n_fail = 0;
	int by_imm = form == BY_IMM;

	asm_begin(&unit);
	if (form == BY_MEMORY) {
		emit_take();
	}
	for (unsigned r = 0; r < 10; r++) {
		emit((struct ebpf_insn){ EBPF_ALU64 | EBPF_MOV, r & 15, 0, 0, FILLER(r) });
	}
	emit_operands(row, dst, src, form);
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

static void jump_program(const struct row *row, unsigned dst, unsigned src, enum form form)
{
	int by_imm = form == BY_IMM;

	asm_begin(&unit);
	if (form == BY_MEMORY) {
		emit_take();
	}
	emit_operands(row, dst, src, form);
	emit((struct ebpf_insn){ (uint8_t)(row->code | (by_imm ? EBPF_K : EBPF_X)), dst & 15,
				 (by_imm ? 0 : src) & 15, 2, by_imm ? (int32_t)row->b : 0 });
	emit((struct ebpf_insn){ EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 0 });
	emit((struct ebpf_insn){ .code = EBPF_JMP | EBPF_EXIT });
	emit((struct ebpf_insn){ EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 1 });
	emit((struct ebpf_insn){ .code = EBPF_JMP | EBPF_EXIT });
}

static void row_program(const struct row *row, unsigned dst, unsigned src, enum form form)
{
	(row->is_jump ? jump_program : alu_program)(row, dst, src, form);
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

	row_program(row, dst, src, by_imm ? BY_IMM : BY_REG);
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

/* ---- rows as PTX ---- */

struct file_case {
	char name[100];
	char *lines;	  /* owned */
	struct row *rows; /* owned */
	unsigned n_rows;
};

#define PTX_PAIRS 4u   /* of registers, for each operation */
#define PTX_BATCH 256u /* programs with numbers in one module */

static void add_to(struct ptx_batch *b, const struct row *row)
{
	struct report r;

	report_init(&r);
	if (ptx_batch_add(b, unit.insns, unit.n, &no_maps.env, &r)) {
		fail_msg("%s: %s", row->text, buf_text(&r.message));
	}
	report_finish(&r);
}

static void same_row(const struct row *row, const char *form, uint64_t r0)
{
	if (r0 != row->result) {
		fail_msg("%s: PTX with %s gives 0x%llx", row->text, form, (unsigned long long)r0);
	}
}

/* Runs rows of one operation in the threads of one launch. */
static void run_threads(const struct row *const *rows, unsigned n, unsigned dst, unsigned src)
{
	uint64_t(*in)[2] = calloc(n, sizeof(*in)), *out = calloc(n, sizeof(*out));
	struct ptx_batch b;

	ptx_batch_begin(&b);
	row_program(rows[0], dst, src, BY_MEMORY);
	add_to(&b, rows[0]);
	for (unsigned k = 0; k < n; k++) {
		in[k][0] = rows[k]->a;
		in[k][1] = rows[k]->b;
	}
	ptx_batch_run(&b, &no_maps, (uint8_t *)in, n * sizeof(*in), sizeof(*in), n, out);
	for (unsigned k = 0; k < n; k++) {
		same_row(rows[k], "registers", out[k]);
	}
	free(in);
	free(out);
}

static int same_operation(const struct row *x, const struct row *y)
{
	return x->is_jump == y->is_jump && x->code == y->code && x->off == y->off &&
	       x->unary == y->unary && x->imm == y->imm;
}

/* Runs all rows of the operation of row `first` and marks them. */
static void run_operation(const struct file_case *c, unsigned first, uint8_t *done)
{
	const struct row **rows = calloc(c->n_rows, sizeof(const struct row *));
	const struct row **alike = calloc(c->n_rows, sizeof(const struct row *));
	unsigned n = 0, n_alike = 0;

	for (unsigned i = first; i < c->n_rows; i++) {
		if (same_operation(&c->rows[first], &c->rows[i])) {
			done[i] = 1;
			rows[n++] = &c->rows[i];
			if (c->rows[i].a == c->rows[i].b) {
				alike[n_alike++] = &c->rows[i];
			}
		}
	}
	for (unsigned k = 0; k < PTX_PAIRS; k++) {
		unsigned dst = (first + 3 * k) % 10, src = (dst + 1 + (first / 10 + k) % 9) % 10;

		run_threads(rows, n, dst, src);
	}
	if (n_alike && !rows[0]->unary) {
		run_threads(alike, n_alike, first % 10, first % 10);
	}
	free(rows);
	free(alike);
}

static void flush_numbers(struct ptx_batch *b, const struct row *const *rows)
{
	uint64_t out[PTX_BATCH];
	unsigned n = b->n;

	ptx_batch_run(b, &no_maps, NULL, 0, 0, 1, out);
	for (unsigned k = 0; k < n; k++) {
		same_row(rows[k], "a number", out[k]);
	}
	ptx_batch_begin(b);
}

/* The second operand is part of the program, so that each row is a program. */
static void run_numbers(const struct file_case *c)
{
	const struct row *rows[PTX_BATCH];
	struct ptx_batch b;

	ptx_batch_begin(&b);
	for (unsigned i = 0; i < c->n_rows; i++) {
		const struct row *row = &c->rows[i];

		if (!fits_imm(row)) {
			continue;
		}
		rows[b.n] = row;
		if (row->is_jump) {
			jump_program(row, i % 10, 0, BY_IMM);
		} else {
			asm_begin(&unit);
			emit_load(0, row->a);
			emit((struct ebpf_insn){ (uint8_t)(row->code | EBPF_K), 0, 0, row->off,
						 (int32_t)row->b });
			emit((struct ebpf_insn){ .code = EBPF_JMP | EBPF_EXIT });
		}
		add_to(&b, row);
		if (b.n == PTX_BATCH) {
			flush_numbers(&b, rows);
		}
	}
	if (b.n) {
		flush_numbers(&b, rows);
	}
	buf_finish(&b.text);
}

static void run_rows_ptx(void **state)
{
	const struct file_case *c = *state;
	uint8_t *done = calloc(c->n_rows, 1);

	for (unsigned i = 0; i < c->n_rows; i++) {
		if (!done[i]) {
			run_operation(c, i, done);
		}
	}
	free(done);
	run_numbers(c);
}

/* ---- the files ---- */

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
		if (!t.n && !calls_helpers(unit.insns, unit.n)) {
			assert_int_equal(ptx_run_checked(unit.insns, unit.n, x.mem_in.bytes,
							 x.mem_in.n, run.fuel, &r0),
					 x.error);
		}
	} else {
		int entry = pool_add(&pool, unit.insns, unit.n, &t.env);

		assert_true(entry >= 0);
		assert_int_equal(pool_map(&pool), 0);
		run_interpreters(&e, unit.insns, unit.n, &t);
		run_code(&e, entry, &t);
		pool_clear(&pool);
		run_ptx(&e, unit.insns, unit.n, &t);
		if (!t.n && !calls_helpers(unit.insns, unit.n)) {
			run_checked_ptx(&e, unit.insns, unit.n);
		}
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
	static struct CMUnitTest tests[2 * MAX_TESTS];
	unsigned n = 0;
	int failed;

	pool_init(&pool, POOL_BYTES);
	test_env_init(&no_maps);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--keep-ptx") == 0 && i + 1 < argc) {
			ptx_folder = argv[++i];
		} else {
			read_file(argv[i]);
		}
	}
	for (unsigned i = 0; i < n_cases; i++) {
		tests[n++] = (struct CMUnitTest){ .name = cases[i].name,
						  .test_func = cases[i].rows ? run_rows : run_case,
						  .initial_state = &cases[i] };
		if (cases[i].rows) {
			tests[n++] = (struct CMUnitTest){ .name = "rows as PTX",
							  .test_func = run_rows_ptx,
							  .initial_state = &cases[i] };
		}
	}
	failed = _cmocka_run_group_tests("bpft", tests, n, NULL, NULL);
	for (unsigned i = 0; i < n_cases; i++) {
		free(cases[i].lines);
		free(cases[i].rows);
	}
	pool_finish(&pool);
	return failed;
}
