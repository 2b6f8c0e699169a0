/* bpf_printk inside kernels: the host makes the text, so it must know the format, and the
 * conversions are checked here. */
#include "bpf/load/verify/call/verify_call_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"
#include "bpf/run/printk.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

/* A format or text. */
struct text {
	const uint8_t *at; /* in a map, or of the stack; NULL: not known here */
	size_t bytes;	   /* in which a terminator is looked for */
	char stack[EBPF_PRINT_TEXT];
};

static int is_constant_place(const struct ebpf_verifier *v, const struct ebpf_reg *r)
{
	return r->type == REG_VALUE && v->maps[r->map].is_data &&
	       (v->maps[r->map].flags & GBPF_F_RDONLY) && ebpf_scalar_is_const(&r->v);
}

static int check_place(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	const struct ebpf_reg *r = &ebpf_verify_frame(v)->regs[1];

	if (is_constant_place(v, r) || (r->type == REG_STACK && ebpf_scalar_is_const(&r->v))) {
		return 0;
	}
	report_hint(v->r, "write bpf_printk(\"text\", ...)");
	return ebpf_verify_refuse(v, v->pc, "type",
				  "%s: the format must be a constant text, but r1 is %s", c->what,
				  ebpf_verify_reg_text(v, r));
}

static int refuse_several(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
			  const char *which)
{
	report_hint(v->r, "print each format by a call of its own");
	return ebpf_verify_refuse(v, v->pc, "type", "%s: the format %s", c->what, which);
}

/* Keeps the text that this call finds on the stack: it must be the same on every path. */
static int keep(struct ebpf_verifier *v, const struct ebpf_helper_call *c, const char *text)
{
	struct ebpf_stack_texts *t = v->texts ? v->texts : calloc(1, sizeof(*t));
	uint32_t k = 0;

	v->texts = t;
	if (!t) {
		return -ENOMEM;
	}
	while (k < t->n && t->at[k].insn != v->pc) {
		k++;
	}
	if (v->info[v->pc] & INSN_CONST_TEXT) {
		return refuse_several(v, c, "is on the stack on some paths only");
	}
	if (k < t->n && strcmp(t->at[k].text, text) != 0) {
		return refuse_several(v, c, "on the stack is not the same on all paths");
	}
	if (k == EBPF_PRINT_STACK_TEXTS) {
		report_hint(v->r, "declare formats static const");
		return ebpf_verify_refuse(v, v->pc, "helper",
					  "%s: the program has more than %u formats on the stack",
					  c->what, EBPF_PRINT_STACK_TEXTS);
	}
	t->at[k].insn = v->pc;
	memcpy(t->at[k].text, text, EBPF_PRINT_TEXT);
	t->n = MAX(t->n, k + 1);
	return 0;
}

static int find_on_stack(struct ebpf_verifier *v, const struct ebpf_helper_call *c, uint64_t bytes,
			 struct text *ret)
{
	const struct ebpf_reg *r = &ebpf_verify_frame(v)->regs[1];
	int64_t at = 0;
	int err;

	memset(ret->stack, 0, sizeof(ret->stack));
	err = ebpf_verify_stack_text(v, r, bytes, ret->stack, sizeof(ret->stack), &at);
	if (err == -EDOM) {
		report_hint(v->r, "declare the format static const, or write it as one text that "
				  "nothing changes (char fmt[] = \"text\")");
		return ebpf_verify_refuse(v, v->pc, "type",
					  "%s: character %lld of the format on the stack (%s%lld) "
					  "is not a known ASCII character",
					  c->what, (long long)(at - (int64_t)r->v.t.value) + 1,
					  r->frame == v->depth ? "fp" : "caller's fp",
					  (long long)at);
	}
	if (err) {
		report_hint(v->r, "pass sizeof the format");
		return ebpf_verify_refuse(v, v->pc, "bounds",
					  "%s: the format on the stack does not end within %llu "
					  "bytes",
					  c->what, (unsigned long long)bytes);
	}
	ret->at = (const uint8_t *)ret->stack;
	ret->bytes = strlen(ret->stack);
	return keep(v, c, ret->stack);
}

/* Finds the text at r1, of at most as many bytes. */
static int find_text(struct ebpf_verifier *v, const struct ebpf_helper_call *c, uint64_t bytes,
		     struct text *ret)
{
	const struct ebpf_reg *r = &ebpf_verify_frame(v)->regs[1];
	const uint8_t *init;

	if (r->type == REG_STACK) {
		return find_on_stack(v, c, bytes, ret);
	}
	if (v->texts && ebpf_stack_text(v->texts, v->pc)) {
		return refuse_several(v, c, "is on the stack on some paths only");
	}
	v->info[v->pc] |= INSN_CONST_TEXT;
	init = v->prog->init ? v->prog->init[r->map] : NULL;
	ret->at = init ? init + r->v.umax : NULL;
	ret->bytes = (size_t)bytes;
	return 0;
}

/* Checks the text, if it is known here; else it may take all n_max arguments. */
static int check_text(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
		      const struct text *text, unsigned n_max, unsigned *ret_args)
{
	char bad;

	*ret_args = n_max;
	if (!text->at) {
		return 0;
	}
	bad = ebpf_print_check(text->at, text->bytes, ret_args);
	if (bad) {
		report_hint(v->r,
			    "%%d %%i %%u %%x %%X %%o %%c %%p are possible, with l, ll, h, hh, "
			    "z and a width");
		return ebpf_verify_refuse(v, v->pc, "helper",
					  "%s: the format has a conversion '%c' that cannot be "
					  "printed",
					  c->what, bad >= ' ' && bad < 127 ? bad : '?');
	}
	if (*ret_args > n_max) {
		report_hint(v->r, "print fewer values, or in two lines");
		return ebpf_verify_refuse(v, v->pc, "helper",
					  "%s: the format takes %u arguments, but there are %u",
					  c->what, *ret_args, n_max);
	}
	return 0;
}

static int check_register(struct ebpf_verifier *v, const struct ebpf_helper_call *c, unsigned reg)
{
	int err = 0;
	const struct ebpf_reg *r = ebpf_verify_read(v, reg, &err);

	if (!r) {
		return err;
	}
	if (r->type != REG_SCALAR) {
		report_hint(v->r, "addresses cannot be printed");
		return ebpf_verify_refuse(v, v->pc, "type", "%s: r%u must be a number, but is %s",
					  c->what, reg, ebpf_verify_reg_text(v, r));
	}
	return 0;
}

int ebpf_verify_print_registers(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	const struct ebpf_reg *regs = ebpf_verify_frame(v)->regs;
	unsigned n_args = 0;
	struct text text;
	int err = check_place(v, c);

	ebpf_mark_matter(v, v->depth, 1);
	ebpf_mark_matter(v, v->depth, 2);
	if (err == 0 && !ebpf_scalar_is_const(&regs[2].v)) {
		report_hint(v->r, "write bpf_printk(\"text\", ...)");
		err = ebpf_verify_refuse(v, v->pc, "bounds",
					 "%s: the size of the format must be a known number",
					 c->what);
	}
	err = err ? err : find_text(v, c, regs[2].v.umax, &text);
	err = err ? err : check_text(v, c, &text, EBPF_PRINT_REGISTERS, &n_args);
	for (unsigned k = 0; err == 0 && k < n_args; k++) {
		err = check_register(v, c, 3 + k);
	}
	return err;
}

/* Finds the text of bpf_puts, which has no size. */
static int find_terminated(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
			   struct text *ret)
{
	const struct ebpf_reg *r = &ebpf_verify_frame(v)->regs[1];
	const struct ebpf_map_def *m;
	int err;

	if (r->type == REG_STACK) {
		return find_text(v, c, EBPF_STACK_BYTES, ret);
	}
	m = &v->maps[r->map];
	if (r->v.umax >= m->value_bytes) {
		return ebpf_verify_refuse(v, v->pc, "bounds",
					  "%s: the text begins behind the %u bytes of map %s",
					  c->what, m->value_bytes, m->name);
	}
	err = find_text(v, c, m->value_bytes - r->v.umax, ret);
	if (err == 0 && ret->at && !memchr(ret->at, 0, ret->bytes)) {
		err = ebpf_verify_refuse(v, v->pc, "bounds", "%s: the text does not end", c->what);
	}
	return err;
}

int ebpf_verify_puts(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	struct text text;
	int err = check_place(v, c);

	ebpf_mark_matter(v, v->depth, 1);
	err = err ? err : find_terminated(v, c, &text);
	if (err == 0 && text.at && strchr((const char *)text.at, '%')) {
		report_hint(v->r, "bpf_printk prints values, and %%%% for the character");
		return ebpf_verify_refuse(v, v->pc, "helper", "%s: the text has a '%%'", c->what);
	}
	return err;
}

int ebpf_verify_print(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	const struct ebpf_reg *regs = ebpf_verify_frame(v)->regs;
	unsigned n_args;
	struct text text;
	int err;

	for (unsigned i = 1; i <= 4; i++) {
		ebpf_mark_matter(v, v->depth, i);
	}
	err = check_place(v, c);
	if (err) {
		return err;
	}
	if (!ebpf_scalar_is_const(&regs[2].v) || !ebpf_scalar_is_const(&regs[4].v) ||
	    regs[4].v.umax % 8 || regs[4].v.umax > 8 * (EBPF_PRINT_ARGS + 1)) {
		report_hint(v->r, "write bpf_printk(\"text\", ...) with at most %u values",
			    EBPF_PRINT_ARGS);
		return ebpf_verify_refuse(v, v->pc, "bounds",
					  "%s: the sizes must be known numbers, and that of the "
					  "arguments a multiple of 8, at most %u",
					  c->what, 8 * (EBPF_PRINT_ARGS + 1));
	}
	err = find_text(v, c, regs[2].v.umax, &text);
	return err ? err
		   : check_text(v, c, &text, MIN((unsigned)(regs[4].v.umax / 8), EBPF_PRINT_ARGS),
				&n_args);
}
