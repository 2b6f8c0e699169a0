/* bpf_printk inside kernels: the host makes the text, so it must know the format, and the
 * conversions are checked here. */
#include "bpf/load/verify/call/verify_call_int.h"

#include <string.h>

#include "bpf/load/verify/verify_int.h"
#include "bpf/run/printk.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

static int is_constant_place(const struct ebpf_verifier *v, const struct ebpf_reg *r)
{
	return r->type == REG_VALUE && v->maps[r->map].is_data &&
	       (v->maps[r->map].flags & GBPF_F_RDONLY) && ebpf_scalar_is_const(&r->v);
}

/* Checks the text, if it is known here; else it may take all n_max arguments. */
static int check_text(struct ebpf_verifier *v, const struct ebpf_helper_call *c,
		      const struct ebpf_reg *regs, unsigned n_max, unsigned *ret_args)
{
	const uint8_t *text = v->prog->init ? v->prog->init[regs[1].map] : NULL;
	char bad;

	*ret_args = n_max;
	if (!text) {
		return 0;
	}
	bad = ebpf_print_check(text + regs[1].v.umax, (size_t)regs[2].v.umax, ret_args);
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

static int check_place(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	const struct ebpf_reg *r = &ebpf_verify_frame(v)->regs[1];

	if (is_constant_place(v, r)) {
		return 0;
	}
	report_hint(v->r, "write bpf_printk(\"text\", ...)");
	return ebpf_verify_refuse(v, v->pc, "type",
				  "%s: the format must be a constant text, but r1 is %s", c->what,
				  ebpf_verify_reg_text(v, r));
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
	int err = check_place(v, c);

	ebpf_mark_matter(v, v->depth, 1);
	ebpf_mark_matter(v, v->depth, 2);
	if (err == 0 && !ebpf_scalar_is_const(&regs[2].v)) {
		report_hint(v->r, "write bpf_printk(\"text\", ...)");
		err = ebpf_verify_refuse(v, v->pc, "bounds",
					 "%s: the size of the format must be a known number",
					 c->what);
	}
	err = err ? err : check_text(v, c, regs, EBPF_PRINT_REGISTERS, &n_args);
	for (unsigned k = 0; err == 0 && k < n_args; k++) {
		err = check_register(v, c, 3 + k);
	}
	return err;
}

int ebpf_verify_puts(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	const struct ebpf_reg *r = &ebpf_verify_frame(v)->regs[1];
	const uint8_t *text;
	uint64_t bytes;
	int err = check_place(v, c);

	ebpf_mark_matter(v, v->depth, 1);
	if (err) {
		return err;
	}
	bytes = v->maps[r->map].value_bytes;
	text = v->prog->init ? v->prog->init[r->map] : NULL;
	if (r->v.umax >= bytes) {
		return ebpf_verify_refuse(v, v->pc, "bounds",
					  "%s: the text begins behind the %llu bytes of map %s",
					  c->what, (unsigned long long)bytes, v->maps[r->map].name);
	}
	bytes -= r->v.umax;
	if (text && !memchr(text + r->v.umax, 0, bytes)) {
		return ebpf_verify_refuse(v, v->pc, "bounds", "%s: the text does not end", c->what);
	}
	if (text && memchr(text + r->v.umax, '%', strlen((const char *)text + r->v.umax))) {
		report_hint(v->r, "bpf_printk prints values, and %%%% for the character");
		return ebpf_verify_refuse(v, v->pc, "helper", "%s: the text has a '%%'", c->what);
	}
	return 0;
}

int ebpf_verify_print(struct ebpf_verifier *v, const struct ebpf_helper_call *c)
{
	const struct ebpf_reg *regs = ebpf_verify_frame(v)->regs;
	unsigned n_args;
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
	return check_text(v, c, regs, MIN((unsigned)(regs[4].v.umax / 8), EBPF_PRINT_ARGS),
			  &n_args);
}
