/* Reader of .ptxt files: complete kernels, and tables of single instructions from which kernels are
 * generated. */
#include "ptxt.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define ROWS_MAX 1024
#define SENTINEL 0xa5

static const struct {
	const char *name, *reg, *mem;
	unsigned bytes;
} kinds[PTXT_KINDS] = {
	{ "u8", "b16", "u8", 1 },   { "s8", "b16", "s8", 1 },	{ "u16", "b16", "u16", 2 },
	{ "s16", "b16", "s16", 2 }, { "u32", "b32", "u32", 4 }, { "s32", "b32", "s32", 4 },
	{ "u64", "b64", "u64", 8 }, { "s64", "b64", "s64", 8 }, { "f16", "b16", "b16", 2 },
	{ "f32", "f32", "f32", 4 }, { "f64", "f64", "f64", 8 }, { "pred", "pred", "u32", 4 },
};

struct reader {
	const char *path;
	char *line; /* points into the file's text */
	char *next;
	unsigned number;
	int (*run)(const struct ptxt_case *c, void *arg);
	void *arg;
	int failures;
};

unsigned ptxt_bytes(enum ptxt_kind k)
{
	return kinds[k].bytes;
}

static int wrong(const struct reader *r, const char *what)
{
	fprintf(stderr, "%s:%u: %s\n", r->path, r->number, what);
	return -1;
}

static bool next_line(struct reader *r)
{
	char *end;

	if (!r->next || !*r->next) {
		return false;
	}
	r->line = r->next;
	end = strchr(r->next, '\n');
	r->next = end ? end + 1 : NULL;
	if (end) {
		*end = '\0';
	}
	r->number++;
	return true;
}

static char *word(char **p)
{
	char *start;

	*p += strspn(*p, " \t");
	if (!**p) {
		return NULL;
	}
	start = *p;
	*p += strcspn(*p, " \t");
	if (**p) {
		*(*p)++ = '\0';
	}
	return start;
}

static int kind_of(const char *name)
{
	for (int i = 0; i < PTXT_KINDS; i++) {
		if (name && strcmp(kinds[i].name, name) == 0) {
			return i;
		}
	}
	return -1;
}

/* Parses a value: 0x.. are bits, nan is PTX's NaN, nan* any NaN, ~1.5 approximately 1.5, others are
 * numbers of the type. */
static bool value_of(const char *text, enum ptxt_kind k, struct ptxt_value *ret)
{
	bool near = *text == '~';
	char *end;
	double wide;
	float narrow;

	*ret = (struct ptxt_value){ .match = near ? MATCH_NEAR : MATCH_EXACT };
	text += near;
	if (strcmp(text, "nan*") == 0) {
		ret->match = MATCH_ANY_NAN;
		return true;
	}
	if (strncmp(text, "0x", 2) == 0 || (k != PTXT_F32 && k != PTXT_F64)) {
		ret->bits =
			*text == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
		return *end == '\0';
	}
	wide = strtod(text, &end);
	narrow = (float)wide;
	if (strcmp(text, "nan") == 0) {
		ret->bits = k == PTXT_F32 ? 0x7fffffff : UINT64_C(0xfff8000000000000);
	} else if (k == PTXT_F32) {
		memcpy(&ret->bits, &narrow, sizeof(narrow));
	} else {
		memcpy(&ret->bits, &wide, sizeof(wide));
	}
	return *end == '\0';
}

static double as_double(enum ptxt_kind k, uint64_t bits)
{
	uint32_t low = (uint32_t)bits;
	double wide;
	float narrow;

	memcpy(&wide, &bits, sizeof(wide));
	memcpy(&narrow, &low, sizeof(narrow));
	return k == PTXT_F32 ? narrow : wide;
}

static bool matches(enum ptxt_kind k, const struct ptxt_value *want, uint64_t have)
{
	unsigned shift = 64 - 8 * kinds[k].bytes;
	double w, h;

	if (want->match == MATCH_EXACT) {
		return want->bits << shift == have << shift;
	}
	h = as_double(k, have);
	if (want->match == MATCH_ANY_NAN) {
		return h != h;
	}
	w = as_double(k, want->bits);
	return fabs(w - h) <= fabs(w) * 1e-5 + 1e-6;
}

int ptxt_compare(const struct ptxt_case *c, const struct ptxt_buffer *b, unsigned index,
		 const void *data)
{
	int bad = 0;

	for (uint32_t i = 0; i < b->n && b->has_expect; i++) {
		uint64_t have = 0;

		memcpy(&have, (const char *)data + (size_t)i * kinds[b->kind].bytes,
		       kinds[b->kind].bytes);
		if (matches(b->kind, &b->expect[i], have)) {
			continue;
		}
		if (bad++ < 4) {
			fprintf(stderr, "%s: argument %u, element %u: 0x%llx, expected 0x%llx\n",
				c->name, index, i, (unsigned long long)have,
				(unsigned long long)b->expect[i].bits);
		}
	}
	return bad;
}

static void case_init(struct ptxt_case *c)
{
	*c = (struct ptxt_case){ .grid = { 1, 1, 1 }, .block = { 32, 1, 1 }, .stride = 1 };
	buf_init(&c->ptx);
	buf_init(&c->print);
}

static void case_finish(struct ptxt_case *c)
{
	for (uint32_t i = 0; i < c->n_buffers; i++) {
		free(c->buffers[i].in);
		free(c->buffers[i].expect);
	}
	buf_finish(&c->ptx);
	buf_finish(&c->print);
}

static bool buffer_alloc(struct ptxt_buffer *b, uint32_t n)
{
	b->n = n;
	b->in = calloc(n + 1, sizeof(*b->in));
	b->expect = calloc(n + 1, sizeof(*b->expect));
	return b->in && b->expect;
}

static int number_of(const char *text)
{
	return text ? (int)strtol(text, NULL, 10) : -1;
}

/* Parses values, "iota N" and "fill N v" up to a lone "=" or the end. Returns their number, or -1.
 */
static int values(char **p, enum ptxt_kind k, struct ptxt_value *ret)
{
	int n = 0;
	char *w;

	while ((w = word(p)) && strcmp(w, "=") != 0) {
		bool iota = strcmp(w, "iota") == 0, fill = strcmp(w, "fill") == 0;
		int count = iota || fill ? number_of(word(p)) : 1;
		struct ptxt_value v = { 0 };
		char number[32];

		if (fill) {
			w = word(p);
		}
		if (count < 0 || n + count > ROWS_MAX || !w || (!iota && !value_of(w, k, &v))) {
			return -1;
		}
		for (int i = 0; i < count; i++) {
			if (iota) {
				snprintf(number, sizeof(number), "%d", i);
				value_of(number, k, &v);
			}
			ret[n++] = v;
		}
	}
	return n;
}

/* "in TYPE values", "out TYPE values", "io TYPE values = values", "param TYPE value". */
static int read_buffer(struct reader *r, struct ptxt_case *c, const char *what, char *rest)
{
	struct ptxt_buffer *b = &c->buffers[c->n_buffers];
	int kind = kind_of(word(&rest)), n;

	if (kind < 0 || c->n_buffers == PTXT_BUFFERS || !buffer_alloc(b, ROWS_MAX)) {
		return wrong(r, "bad buffer");
	}
	c->n_buffers++;
	b->kind = (enum ptxt_kind)kind;
	b->is_param = strcmp(what, "param") == 0;
	n = values(&rest, b->kind, strcmp(what, "out") == 0 ? b->expect : b->in);
	if (n < 1) {
		return wrong(r, "bad values");
	}
	b->n = (uint32_t)n;
	b->has_expect = strcmp(what, "out") == 0 || strcmp(what, "io") == 0;
	for (int i = 0; i < n && strcmp(what, "out") == 0; i++) {
		memset(&b->in[i].bits, SENTINEL, sizeof(b->in[i].bits));
	}
	if (strcmp(what, "io") == 0 && values(&rest, b->kind, b->expect) != n) {
		return wrong(r, "as many expected values are wanted");
	}
	return 0;
}

static int read_kernel(struct reader *r, struct ptxt_case *c)
{
	int err = 0;

	while (err == 0 && next_line(r)) {
		char *p = r->line, *what = word(&p);

		if (!what || *what == '#') {
			continue;
		}
		if (strcmp(what, "text") == 0) {
			break;
		} else if (strcmp(what, "grid") == 0) {
			sscanf(p, "%u %u %u", &c->grid[0], &c->grid[1], &c->grid[2]);
		} else if (strcmp(what, "block") == 0) {
			sscanf(p, "%u %u %u", &c->block[0], &c->block[1], &c->block[2]);
		} else if (strcmp(what, "shared") == 0) {
			c->shared = (uint32_t)strtoul(p, NULL, 10);
		} else if (strcmp(what, "budget") == 0) {
			c->budget = strtoull(p, NULL, 10);
		} else if (strcmp(what, "fault") == 0) {
			sscanf(p, "%15s %u", c->fault, &c->fault_line);
		} else if (strcmp(what, "print") == 0) {
			buf_puts(&c->print, p);
			buf_puts(&c->print, "\n");
		} else if (strcmp(what, "refused") == 0) {
			sscanf(p, "%u %127[^\n]", &c->refused_line, c->refused);
		} else {
			err = read_buffer(r, c, what, p);
		}
	}
	while (err == 0 && next_line(r) && strcmp(r->line, "end") != 0) {
		buf_puts(&c->ptx, r->line);
		buf_puts(&c->ptx, "\n");
	}
	return err;
}

/* Generates loads of the row's inputs, the instruction, and stores of its results. Lane i * stride
 * has row i. With a stride of two the lanes in between execute the instruction under a false
 * predicate and must keep their registers. */
static void make_insn_kernel(struct ptxt_case *c, const char *insn, unsigned n_in, bool guarded)
{
	static const char names[] = "abce", outs[] = "dq";
	struct buf *o = &c->ptx;

	buf_puts(o, ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry test(");
	for (unsigned i = 0; i < c->n_buffers; i++) {
		buf_printf(o, "%s.param .u64 p%u", i ? ", " : "", i);
	}
	buf_puts(o,
		 ")\n{\n.reg .pred %guard, %p<4>; .reg .b16 %h<8>; .reg .b32 %id, %t<8>; .reg "
		 ".b64 %w<8>;\n"
		 ".reg .f32 %f<4>; .reg .f64 %g<4>;\nmov.u32 %id, %tid.x;\nand.b32 %t0, %id, 1;\n"
		 "setp.eq.u32 %guard, %t0, 0;\n");
	for (unsigned i = 0; i < c->n_buffers; i++) {
		enum ptxt_kind k = c->buffers[i].kind;
		char name = i < n_in ? names[i] : outs[i - n_in];

		buf_printf(o, ".reg .%s %%%c; .reg .b64 %%at%u;\nld.param.u64 %%at%u, [p%u];\n",
			   kinds[k].reg, name, i, i, i);
		buf_printf(o, "mad.wide.u32 %%at%u, %%id, %u, %%at%u;\n", i, kinds[k].bytes, i);
		if (k == PTXT_PRED) {
			buf_printf(o, "ld.global.u32 %%t0, [%%at%u];\nsetp.ne.u32 %%%c, %%t0, 0;\n",
				   i, name);
		} else {
			buf_printf(o, "ld.global.%s %%%c, [%%at%u];\n", kinds[k].mem, name, i);
		}
	}
	/* Several instructions cannot share a guard: the other lanes branch around them. */
	if (guarded && *insn == '{') {
		buf_printf(o, "@!%%guard bra $over;\n%s\n$over:\n", insn);
	} else {
		buf_printf(o, "%s%s\n", guarded ? "@%guard " : "", insn);
	}
	for (unsigned i = n_in; i < c->n_buffers; i++) {
		enum ptxt_kind k = c->buffers[i].kind;

		if (k == PTXT_PRED) {
			buf_printf(o, "selp.u32 %%t0, 1, 0, %%%c;\nst.global.u32 [%%at%u], %%t0;\n",
				   outs[i - n_in], i);
		} else {
			buf_printf(o, "st.global.%s [%%at%u], %%%c;\n", kinds[k].mem, i,
				   outs[i - n_in]);
		}
	}
	buf_puts(o, "ret;\n}\n");
}

struct table {
	enum ptxt_kind kinds[PTXT_BUFFERS];
	unsigned n_in, n;
	char *insn;
	struct ptxt_value rows[ROWS_MAX / 2][PTXT_BUFFERS];
	unsigned n_rows, line;
};

static int run_table(struct reader *r, const struct table *t, bool guarded)
{
	struct ptxt_case c;
	int failures;

	case_init(&c);
	c.stride = guarded ? 2 : 1;
	c.line = t->line;
	c.block[0] = MAX(t->n_rows, 1u) * c.stride;
	snprintf(c.name, sizeof(c.name), "%s:%u: %.60s%s", r->path, t->line, t->insn,
		 guarded ? " (guarded)" : "");
	for (unsigned k = 0; k < t->n; k++) {
		struct ptxt_buffer *b = &c.buffers[c.n_buffers++];

		b->kind = t->kinds[k];
		if (!buffer_alloc(b, c.block[0])) {
			abort();
		}
		b->has_expect = k >= t->n_in;
		for (unsigned i = 0; i < b->n; i++) {
			b->in[i] = t->rows[i / c.stride][k];
			b->expect[i] = b->in[i];
			if (b->has_expect) {
				b->in[i].bits =
					b->kind == PTXT_PRED ? 1 : UINT64_C(0xa5a5a5a5a5a5a5a5);
				if (i % c.stride) {
					b->expect[i] = b->in[i];
					b->expect[i].match = MATCH_EXACT;
				}
			}
		}
	}
	make_insn_kernel(&c, t->insn, t->n_in, guarded);
	failures = r->run(&c, r->arg);
	case_finish(&c);
	return failures;
}

/* "insn TYPES -> TYPES : TEXT", then rows "values = values" up to an empty line. */
static int read_table(struct reader *r, char *rest)
{
	static struct table t;
	bool outputs = false;
	char *w;

	t.n = t.n_in = t.n_rows = 0;
	t.line = r->number;
	while ((w = word(&rest)) && strcmp(w, ":") != 0) {
		int k = kind_of(w);

		if (strcmp(w, "->") == 0) {
			outputs = true;
			t.n_in = t.n;
		} else if (k < 0 || t.n == PTXT_INPUTS + 2) {
			return wrong(r, "bad types");
		} else {
			t.kinds[t.n++] = (enum ptxt_kind)k;
		}
	}
	t.insn = rest;
	if (!outputs || t.n_in == t.n || !*rest) {
		return wrong(r, "bad insn line");
	}
	while (next_line(r) && *r->line) {
		char *p = r->line;
		unsigned k = 0;

		if (*p == '#') {
			continue;
		}
		while ((w = word(&p)) != NULL) {
			if (strcmp(w, "=") == 0
				    ? k != t.n_in
				    : k == t.n || !value_of(w, t.kinds[k], &t.rows[t.n_rows][k])) {
				return wrong(r, "bad row");
			}
			k += strcmp(w, "=") != 0;
		}
		if (k != t.n || t.n_rows == ROWS_MAX / 2 - 1) {
			return wrong(r, "bad row");
		}
		t.n_rows++;
	}
	if (t.n_rows == 0) {
		return wrong(r, "an insn without rows");
	}
	r->failures += run_table(r, &t, false);
	r->failures += run_table(r, &t, true);
	return 0;
}

static int read_case(struct reader *r, char *rest)
{
	struct ptxt_case c;
	int err;

	case_init(&c);
	c.line = r->number;
	snprintf(c.name, sizeof(c.name), "%s:%u: %.60s", r->path, r->number, rest);
	err = read_kernel(r, &c);
	if (err == 0) {
		r->failures += r->run(&c, r->arg);
	}
	case_finish(&c);
	return err;
}

int ptxt_file(const char *path, int (*run)(const struct ptxt_case *c, void *arg), void *arg)
{
	struct reader r = { .path = path, .run = run, .arg = arg };
	struct buf text;
	int err;

	buf_init(&text);
	err = buf_read_file(&text, path, (size_t)16 << 20);
	if (err < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(-err));
		return -1;
	}
	r.next = text.data;
	while (err == 0 && next_line(&r)) {
		char *p = r.line, *what = word(&p);

		if (!what || *what == '#') {
			continue;
		}
		if (strcmp(what, "insn") == 0) {
			err = read_table(&r, p);
		} else if (strcmp(what, "kernel") == 0) {
			err = read_case(&r, p);
		} else {
			err = wrong(&r, "kernel or insn is expected");
		}
	}
	buf_finish(&text);
	return err < 0 ? -1 : r.failures;
}
