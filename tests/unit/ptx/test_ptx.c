/* PTX as data: printed text parses to the same module, and bad text is refused with its line. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx/module.h"

#define HEAD ".version 7.8\n.target sm_80, debug\n.address_size 64\n"

static const char *const sources[] = {
	HEAD,
	HEAD ".visible .entry k()\n{\n\tret;\n}\n",
	/* All kinds of variables. */
	HEAD
	".global .u32 a, b = 5, c[3] = {1, -2, 0x10};\n"
	".visible .global .align 16 .v4 .f32 v = {0f3F800000, 1.5, 0d3FF0000000000000, -1e3};\n"
	".weak .const .align 4 .b8 t[2][3] = {{1, 2, 3}, {4, 5, 6}};\n"
	".extern .shared .align 16 .b8 dyn[];\n.common .global .b64 z;\n"
	".global .u64 p = generic(a)+4, q = c-8;\n.global .u8 m[2] = {0xFF(a), 0xFF00(c+4)};\n"
	".global .attribute(.managed) .u32 managed;\n.global .texref tex;\n",
	/* Functions, parameters, tuning directives. */
	HEAD ".func (.param .b32 r, .param .f64 s) f(.param .align 8 .b8 a[16], .reg .u32 x, "
	     ".param .b8 v[]);\n"
	     ".extern .func g;\n.weak .func (.reg .u32 %o) h(.reg .u32 %i)\n.noreturn\n{ ret; }\n"
	     ".visible .entry k(.param .u64 .ptr .global .align 8 p, .param .f32 q)\n"
	     ".maxntid 256, 1, 1\n.minnctapersm 2\n.pragma \"nounroll\";\n{ ret; }\n"
	     ".entry e { exit; }\n",
	/* Operands. */
	HEAD
	".entry k(.param .u64 p) {\n.reg .pred %p<3>; .reg .b32 %r<9>, %x; .reg .v2 .f32 %v;\n"
	"ld.param.u64 %rd1, [p]; ld.global.v4.u32 {%r1, _, %r3, %r4}, [%rd1+-8];\n"
	"ld.u32 %r1, [16]; st.shared.u8 [sym-4], -1; @!%p1 bra L; @%p2 mov.u32 %r1, %tid.x;\n"
	"setp.lt.and.s32 %p1|%p2, %r1, %r2, !%p1; mov.f32 %f1, 0f00000000; mov.f64 %d, "
	"0dBFF0000000000000;\n"
	"call (r0), f, (a, %r1, 5); call.uni g; tex.2d.v4.f32.s32 {%a,%b,%c,%d}, [t, {%x, %y}];\n"
	"mov.f32 %f1, %v.x; mov.v2.f32 %v, { 0f00000000,%f1 }; st.v2.f32 [%rd1], %v; @ ! %p1 bra "
	"L; ld.global.L2::128B.b32 %r1, [%rd1]; mov.u64 %rd1, sym+12; add.u32 %r1, "
	"%r1, ~7; vmad.s32.u32.u32.sat %r1, -%r2.b1, %r3.h0, %r4; vmad.s32.u32.u32 %r1, %r2, %r3, "
	"- "
	"%r4;\n"
	"cp.async.ca.shared::cta.global [%r1], [%rd1], 16;\nL: ret;\n}\n",
	/* Scopes, tables, debug lines, unknown directives. */
	HEAD
	".file 1 \"a b.cu\"\n.entry k() {\n.loc 1 2 3\n{ .reg .b32 t; { $in: bra $in; } }\n"
	"$t: .branchtargets $a, $b;\nbrx.idx %r1, $t;\n$a:\n$b: ret;\n"
	"proto: .callprototype (.param .b32 _) _ (.param .b64 _);\ncall (r), %rd1, (a), proto;\n"
	".pragma \"x\";\n.future { a b { c } d }\n.other 1, 2;\n}\n"
	".section .debug_info {\n.b8 1\n.b64 sym+4\nL$x:\n.b8 2,3\n}\n.newthing foo bar\n.alias a, "
	"b;\n",
	/* Prototypes of every kind, attributes, banks, parameters without names. */
	HEAD
	".visible .func .attribute(.unified(19, 95)) (.param .b32 r) f(.param .b32 a) .noreturn;\n"
	".const[3] .align 8 .f64 d;\n.func (.param .b32) g(.param .b32, .param .b64 _);\n"
	".global .attribute(.unified(1, 2)) .attribute(.managed) .f32 u;\n"
	".global .attribute(.future(8.5 .b)) .f32 v;\n"
	".entry k() .explicitcluster .reqnctapercluster 1, 1, 1 {\n"
	"p0: .callprototype _ ();\np1: .callprototype ()_ (.param .align 8 .b8 _[12]) .noreturn;\n"
	"p2 : .callprototype (.reg .u32 _) _;\nt: .calltargets f, g;\n"
	"call (r), %rd1, (a), t; call %rd1, p0; ld.global.b128 %w, [%rd1];\n}\n",
	/* Constant expressions. */
	HEAD ".global .u32 a = (1 << 4) + 3 * 2, b = 1 ? 2 : 3, c = (.s64) -5, d = 7 & ~(10 / 3);\n"
	     ".global .s32 e[3] = {27 % 7 - 9, !(3 >= 2) || 0, (((1)))};\n"
	     ".entry k() { mov.u32 %r1, 4 * 3 - 11; setp.eq.u32 %p1|%p2, %r1, 1 == 1; ret; }\n"
	     ".global .s64 f = 1 << 63, g = -9223372036854775808, h = 9223372036854775807 + 1;\n"
	     ".global .s32 i[1][1][1][1][1][1][1][1] = {{{{{{{{-5}}}}}}}};\n"
	     ".global .u64 j[1][1][1][1][1][1][1] = {{{{{{{a-8}}}}}}};\n"
	     ".global .u64 k = 1 || 1 && 1 | 1 ^ 1 & 1 == 1 < 1 << 1 + 1 * -(-1);\n",
	/* Ranges: of registers and vectors as written, else a variable for each name. */
	HEAD ".shared .align 8 .u32 s<3>;\n.func f() {\n.reg .v2 .u32 %v<4>;\n"
	     ".param .u64 %P<2>, q; .local .b8 none<0>;\nst.param.u64 [%P1], %R0;\n}\n",
	"/* a comment */ .version 6.0 // one\n.target sm_70\n/* two\n lines */ .entry k() { /**/ "
	"ret; // end\n}\n",
};

static struct ptx_module *parse(const char *text, size_t len)
{
	struct ptx_module *m = NULL;
	struct report r;

	report_init(&r);
	if (ptx_module_parse(&m, text, len, "test.ptx", &r) < 0) {
		fail_msg("%s: %s", buf_text(&r.place), buf_text(&r.message));
	}
	report_finish(&r);
	return m;
}

static void printing_loses_nothing(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		struct ptx_module *a = parse(sources[i], strlen(sources[i])), *b;
		struct buf first, second;

		buf_init(&first);
		buf_init(&second);
		assert_int_equal(ptx_module_print(a, &first), 0);
		b = parse(first.data, first.len);
		assert_int_equal(ptx_module_print(b, &second), 0);
		assert_true(ptx_module_equal(a, b));
		assert_string_equal(first.data, second.data);
		ptx_module_free(a);
		ptx_module_free(b);
		buf_finish(&first);
		buf_finish(&second);
	}
}

static void ranges_of_variables_become_variables(void **state)
{
	static const char a[] =
		HEAD ".global .align 4 .u16 g<2>, h; .func f() { .param .u64 p<12>; }";
	static const char b[] = HEAD
		".global .align 4 .u16 g0, g1, h; .func f() { .param .u64 p0, p1, p2, p3, p4, p5, "
		"p6, p7, p8, p9, p10, p11; }";
	struct ptx_module *m = parse(a, strlen(a)), *n = parse(b, strlen(b));

	(void)state;
	assert_true(ptx_module_equal(m, n));
	ptx_module_free(m);
	ptx_module_free(n);
}

static void elements_of_arrays_become_addresses(void **state)
{
	static const char a[] =
		HEAD ".global .u32 a[2][3]; .entry k(.param .u64 p[4]) {\n"
		     ".reg .b32 %r<4>; .reg .b64 %rd1; .reg .pred %p1; .shared .b16 s[8];\n"
		     "ld.global.u32 %r1, a[2]; mov.u64 %rd1, s[1+2]; st.shared.u16 s[0], %r1;\n"
		     "{ .shared .u64 a[2]; mov.u64 %rd1, a[1]; } mov.u64 %rd1, a[1];\n"
		     "ld.param.u64 %rd1, p[1]; @!%p1 ld.global.u32 %r1, a[%r2 + 1];\n"
		     "mov.u32 %r1, s[%r2];\n}";
	static const char b[] =
		HEAD ".global .u32 a[2][3]; .entry k(.param .u64 p[4]) {\n"
		     ".reg .b32 %r<4>; .reg .b64 %rd1; .reg .pred %p1; .shared .b16 s[8];\n"
		     "ld.global.u32 %r1, [a+8]; mov.u64 %rd1, s+6; st.shared.u16 [s], %r1;\n"
		     "{ .shared .u64 a[2]; mov.u64 %rd1, a+8; } mov.u64 %rd1, a+4;\n"
		     "ld.param.u64 %rd1, [p+8];\n"
		     "{ .reg .b32 %element0_i; .reg .b64 %element0_a, %element0_b;\n"
		     "cvt.u32.u32 %element0_i, %r2; mad.lo.u32 %element0_i, %element0_i, 4, 4;\n"
		     "cvt.u64.u32 %element0_a, %element0_i; mov.u64 %element0_b, a;\n"
		     "add.u64 %element0_a, %element0_a, %element0_b;\n"
		     "@!%p1 ld.global.u32 %r1, [%element0_a]; }\n"
		     "{ .reg .b32 %element0_i; .reg .b32 %element0_a, %element0_b;\n"
		     "cvt.u32.u32 %element0_i, %r2; mad.lo.u32 %element0_i, %element0_i, 2, 0;\n"
		     "cvt.u32.u32 %element0_a, %element0_i; mov.u32 %element0_b, s;\n"
		     "add.u32 %element0_a, %element0_a, %element0_b;\n"
		     "mov.u32 %r1, %element0_a; }\n}";
	struct ptx_module *m = parse(a, strlen(a)), *n = parse(b, strlen(b));
	struct buf text;

	(void)state;
	buf_init(&text);
	assert_int_equal(ptx_module_print(m, &text), 0);
	ptx_module_free(m);
	m = parse(text.data, text.len);
	assert_true(ptx_module_equal(m, n));
	buf_finish(&text);
	ptx_module_free(m);
	ptx_module_free(n);
}

/* Names of scopes and ranges are found as the decoder finds them. */
static void indices_have_the_types_of_their_declarations(void **state)
{
	static const char a[] = HEAD
		".global .u32 a[9]; .entry k() { .reg .b32 %r1<4>, %s; .reg .f32 %r<9>;\n"
		"mov.u64 %rd1, a[%r12]; { .reg .u16 %s; mov.u64 %rd1, a[%s]; }\n"
		"{ .reg .u16 %s<7>; .reg .u64 %s2; { .reg .s16 %s<3>; mov.u64 %rd1, a[%s2]; }\n"
		"mov.u64 %rd1, a[%s2]; } mov.u64 %rd1, a[%s]; }";
	static const char *const types[] = { "cvt.u32.u32 %element0_i, %r12;",
					     "cvt.u32.u16 %element0_i, %s;",
					     "cvt.u32.s16 %element0_i, %s2;",
					     "cvt.u32.u64 %element0_i, %s2;",
					     "cvt.u32.u32 %element0_i, %s;" };
	struct ptx_module *m = parse(a, strlen(a));
	const char *at;
	struct buf text;

	(void)state;
	buf_init(&text);
	assert_int_equal(ptx_module_print(m, &text), 0);
	at = buf_text(&text);
	for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
		at = strstr(at, "cvt.u32");
		assert_non_null(at);
		assert_memory_equal(at, types[i], strlen(types[i]));
		at++;
	}
	buf_finish(&text);
	ptx_module_free(m);
}

/* Declarations of one name, and of many, take time in proportion to the text. */
static void many_declarations_are_read_at_once(void **state)
{
	struct ptx_module *m;
	struct buf text;

	(void)state;
	buf_init(&text);
	buf_puts(&text, HEAD ".entry k() { .shared .u32 s[2];\n");
	for (unsigned i = 0; i < 300000; i++) {
		buf_printf(&text, ".reg .b32 a%x;\n", i);
	}
	buf_puts(&text, ".reg .b32 x");
	for (unsigned i = 0; i < 300000; i++) {
		buf_puts(&text, ",x");
	}
	buf_puts(&text, ";\nmov.u64 %rd1, s[1];\n}");
	m = parse(text.data, text.len);
	ptx_module_free(m);
	buf_finish(&text);
}

static void different_modules_differ(void **state)
{
	struct ptx_module *m[ARRAY_SIZE(sources)];

	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		m[i] = parse(sources[i], strlen(sources[i]));
	}
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(sources); k++) {
			assert_int_equal(ptx_module_equal(m[i], m[k]), i == k);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		ptx_module_free(m[i]);
	}
}

/* A module with one character of a body changed is another module, or none. */
static void every_change_is_seen(void **state)
{
	const char *text = sources[4];
	struct ptx_module *a = parse(text, strlen(text));
	char *copy = strdup(text);
	struct report r;

	for (size_t i = strlen(HEAD); text[i]; i++) {
		struct ptx_module *b;

		if (!strchr("0123456789", text[i]) || text[i - 1] == '\n') {
			continue;
		}
		copy[i] = text[i] == '7' ? '6' : '7';
		report_init(&r);
		if (ptx_module_parse(&b, copy, strlen(copy), "test.ptx", &r) == 0) {
			assert_false(ptx_module_equal(a, b));
			ptx_module_free(b);
		}
		report_finish(&r);
		copy[i] = text[i];
	}
	free(copy);
	ptx_module_free(a);
}

static void items_match_the_text(void **state)
{
	struct ptx_module *m = parse(sources[4], strlen(sources[4]));
	struct ptx_function *f = ptx_module_function(m, "k");
	const struct ptx_insn *ld;
	struct ptx_item *it;

	assert_int_equal(m->version_major, 7);
	assert_int_equal(m->version_minor, 8);
	assert_string_equal(m->target, "sm_80");
	assert_non_null(f);
	assert_true(f->is_entry);
	assert_int_equal(f->n_params, 1);
	it = f->body.first;
	while (it->kind != PTX_INSN) {
		it = it->next;
	}
	ld = (struct ptx_insn *)it->next;
	assert_string_equal(ld->opcode, "ld");
	assert_int_equal(ld->n_modifiers, 3);
	assert_string_equal(ld->modifiers[1], ".v4");
	assert_int_equal(ld->operands[0].kind, PTX_VECTOR);
	assert_int_equal(ld->operands[0].n_args, 4);
	assert_int_equal(ld->operands[1].offset, -8);
	assert_int_equal(ld->item.line, 6);
	ptx_module_free(m);
}

static void lists_can_be_rewritten(void **state)
{
	struct ptx_module *m = parse(sources[1], strlen(sources[1]));
	struct ptx_function *f = ptx_module_function(m, "k");
	struct ptx_label *label = ptx_arena_alloc(&m->arena, sizeof(*label));
	struct buf out;

	label->item.kind = PTX_LABEL;
	label->name = ptx_arena_text(&m->arena, "$new", 4);
	ptx_list_insert(&f->body, NULL, &label->item);
	buf_init(&out);
	ptx_module_print(m, &out);
	assert_non_null(strstr(out.data, "{\n$new:\n\tret;\n}"));
	ptx_list_remove(&f->body, &label->item);
	assert_int_equal(f->body.n, 1);
	ptx_list_remove(&f->body, f->body.first);
	assert_null(f->body.first);
	assert_null(f->body.last);
	buf_finish(&out);
	ptx_module_free(m);
}

static void tuning_and_sizes(void **state)
{
	struct ptx_module *m = parse(sources[3], strlen(sources[3]));
	struct ptx_function *k = ptx_module_function(m, "k");
	uint32_t v[3];
	uint64_t bytes;

	assert_int_equal(ptx_function_tuning(k, ".maxntid", v, 3), 3);
	assert_int_equal(v[0], 256);
	assert_int_equal(ptx_function_tuning(k, ".minnctapersm", v, 3), 1);
	assert_int_equal(v[0], 2);
	assert_int_equal(v[2], 1);
	assert_int_equal(ptx_function_tuning(k, ".maxnreg", v, 3), -ENOENT);
	assert_int_equal(k->params[0].ptr_align, 8);
	assert_int_equal(ptx_variable_bytes(&ptx_module_function(m, "f")->params[0], &bytes), 0);
	assert_int_equal(bytes, 16);
	ptx_module_free(m);
}

static void bad_text_is_refused_with_its_line(void **state)
{
	static const struct {
		const char *text, *place, *reason;
	} cases[] = {
		{ "", "t:1", "no .version" },
		{ "hello", "t:1", "a directive expected, found 'hello'" },
		{ ".version x\n", "t:1", ".version needs a number" },
		{ HEAD ".address_size 48\n", "t:4", ".address_size is 32 or 64" },
		{ HEAD ".entry k(\n", "t:5", "a state space" },
		{ HEAD ".entry k() {\nadd.u32 %r1, %r2;\n", "t:6", "found the end of the text" },
		{ HEAD ".entry k() {\nadd.u32 %r1 %r2;\n}", "t:5",
		  "',' or ';' expected, found '%r2'" },
		{ HEAD ".entry k() {\nmov.f32 %f1, 0f1234;\n}", "t:5",
		  "0f needs 8 hexadecimal digits" },
		{ HEAD ".entry k() {\nmov.u32 %r1, 99999999999999999999;\n}", "t:5",
		  "at most 64 bits" },
		{ HEAD ".entry k() {\nld.u32 %r1, [%r2;\n}", "t:5", "']' expected" },
		{ HEAD ".entry k() {\n/* never closed\n", "t:5", "comment is not closed" },
		{ HEAD ".entry k() {\n`\n}", "t:5", "a character that PTX does not use" },
		{ HEAD ".entry k() {\n@5 ret;\n}", "t:5", "a predicate expected" },
		{ HEAD ".entry k() {\nvmad.s32.u32.u32 %r1, %r2, %r3, --%r4;\n}", "t:5",
		  "a number expected" },
		{ HEAD ".entry k() {\nvmad.s32.u32.u32 %r1, %r2, %r3, -%r4+4;\n}", "t:5",
		  "a register behind the minus expected" },
		{ HEAD ".global .u32 a[2;\n", "t:4", "']' expected" },
		{ HEAD ".global a;\n", "t:4", "a type such as .u32" },
		{ HEAD ".global .align 3 .u32 a;\n", "t:4", "3 is no alignment" },
		{ HEAD ".section .debug { a\n", "t:4", "not closed" },
		{ HEAD ".entry k() {\n.new\n.loc 1 1 1\nret;\n}\n", "t:5", "not closed" },
		{ HEAD ".global .u8 a = {{{{{{{{{{{{1}}}}}}}}}}}};\n", "t:4",
		  "brackets inside each other" },
		{ HEAD "}", "t:4", "a directive expected" },
		{ HEAD ".global .u32 a; .entry k() {\nld.global.u32 %r1, a[1];\n}", "t:5",
		  "a is not an array that is declared before" },
		{ HEAD ".entry k() {\nmov.u64 %rd1, a[1];\n}\n.global .u32 a[2];", "t:5",
		  "a is not an array that is declared before" },
		{ HEAD ".entry k() {\n{ .shared .u32 a[2]; }\nmov.u64 %rd1, a[1];\n}", "t:6",
		  "a is not an array that is declared before" },
		{ HEAD ".global .u32 a[2]; .entry k() { .reg .f32 %f<3>;\nmov.u64 %rd1, a[%f1];\n}",
		  "t:5", "%f1 cannot be an index" },
		{ HEAD ".global .u32 a[2]; .entry k() {\nmov.u64 %rd1, a[1.5];\n}", "t:5",
		  "an index is a register or a whole number" },
		{ HEAD ".shared .u32 a[2]; .entry k() { .reg .u32 %r<3>;\nld.u32 %r1, a[%r1];\n}",
		  "t:5", "needs the space of a in the instruction" },
		{ HEAD ".shared .u32 a[2]; .entry k() { .reg .u32 %r<3>;\nmov.u64 a[%r1], 5;\n}",
		  "t:5", "an element of a is no destination" },
		{ HEAD ".global .u32 a[2]; .entry k() { .reg .u32 %r<3>;\nmov.u64 %rd1, a[%r7];\n}",
		  "t:5", "%r7 cannot be an index" },
		{ HEAD ".entry k() {\nld.u32 %r1, [%r2 + 4 < 5];\n}", "t:5", "']' expected" },
		{ HEAD ".shared .u32 a[2]; .entry k() {\nadd.u32 %r1, a[1], a[0];\n}", "t:5",
		  "more than one element" },
		{ HEAD ".shared .u32 a[2]; .entry k() {\nld.shared.u32 %r1, [a[1]];\n}", "t:5",
		  "']' expected" },
		{ HEAD ".global .u32 a[2]; .global .u64 b = a[1];", "t:4", "expected" },
		{ HEAD ".global .u32 a = 1.5 + 1;", "t:4", "a float and a whole number" },
		{ HEAD ".global .u32 a = 1 / (2 - 2);", "t:4", "divided by zero" },
		{ HEAD ".global .u32 a = 1.5 << 1.5;", "t:4", "operator of whole numbers" },
		{ HEAD ".global .u32 a = ~1.5;", "t:4", "operator of whole numbers" },
		{ HEAD ".global .f32 a = 0f3f800000 + 1.0;", "t:4", "a float of 32 bits" },
		{ HEAD ".global .u32 a = 1 ? 1.5 : 2;", "t:4", "a float in a choice" },
		{ HEAD ".global .u32 a = (.s64) 1.5;", "t:4", "cannot be cast" },
		{ HEAD ".global .u32 a = (.u32) 1;", "t:4", ".s64 or .u64 expected" },
		{ HEAD ".global .u32 a[1.5];", "t:4", "size is a whole number" },
		{ HEAD ".global .u64 a; .global .u64 b = a + 1.5;", "t:4", "a float and a whole" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ptx_module *m = NULL;
		struct report r;

		report_init(&r);
		assert_true(ptx_module_parse(&m, cases[i].text, strlen(cases[i].text), "t", &r) <
			    0);
		assert_null(m);
		if (strcmp(buf_text(&r.place), cases[i].place) != 0 ||
		    !strstr(buf_text(&r.message), cases[i].reason)) {
			fail_msg("case %zu: %s: %s", i, buf_text(&r.place), buf_text(&r.message));
		}
		report_finish(&r);
	}
}

/* Each prefix of a good text is refused or parsed, and nothing behind it is read: the copy has no
 * room behind it. */
static void truncated_text_is_harmless(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		for (size_t len = 0; len < strlen(sources[i]); len++) {
			char *cut = malloc(len + 1);
			struct ptx_module *m = NULL;
			struct report r;

			memcpy(cut, sources[i], len);
			cut = realloc(cut, len ? len : 1);
			report_init(&r);
			if (ptx_module_parse(&m, cut, len, "t", &r) == 0) {
				ptx_module_free(m);
			}
			report_finish(&r);
			free(cut);
		}
	}
}

static void nesting_is_limited(void **state)
{
	struct ptx_module *m = NULL;
	struct report r;
	struct buf text;

	buf_init(&text);
	buf_puts(&text, HEAD ".entry k() ");
	for (int i = 0; i < 100000; i++) {
		buf_puts(&text, "{");
	}
	report_init(&r);
	assert_int_equal(ptx_module_parse(&m, text.data, text.len, "t", &r), -EFBIG);
	assert_non_null(strstr(buf_text(&r.message), "scopes inside each other"));
	report_finish(&r);
	buf_finish(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(printing_loses_nothing),
		cmocka_unit_test(ranges_of_variables_become_variables),
		cmocka_unit_test(elements_of_arrays_become_addresses),
		cmocka_unit_test(indices_have_the_types_of_their_declarations),
		cmocka_unit_test(many_declarations_are_read_at_once),
		cmocka_unit_test(different_modules_differ),
		cmocka_unit_test(every_change_is_seen),
		cmocka_unit_test(items_match_the_text),
		cmocka_unit_test(lists_can_be_rewritten),
		cmocka_unit_test(tuning_and_sizes),
		cmocka_unit_test(bad_text_is_refused_with_its_line),
		cmocka_unit_test(truncated_text_is_harmless),
		cmocka_unit_test(nesting_is_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
