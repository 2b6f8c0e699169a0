/* Checks that the tables of a cubin agree with the code of a kernel, patched or not: parameters,
 * registers, barriers, exits, sizes. A GPU's driver relies on them without a check. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "soft/code/code_file.h"
#include "soft/code/code_insn.h"
#include "soft/code/code_patch.h"

struct checker {
	const struct soft_patch *p;
	const struct soft_view *v;
	const struct soft_entry *e;
	const uint8_t *code;
	uint64_t code_bytes;
	uint32_t n_params, param_bytes; /* expected */
	uint32_t params_seen, exits_seen;
	bool size_seen, bank_seen, barriers_seen;
	uint8_t *seen; /* owned: a bit for each parameter, 2 for each instruction: one array */
};

enum { SEEN_PARAM = 1, SEEN_EXIT = 2 };

static bool check_param(struct checker *c, const struct soft_view_attribute *a)
{
	uint32_t place = soft_view_word(a, 1), ordinal = place & UINT16_MAX;
	struct soft_entry_param is = { place >> 16, soft_view_word(a, 2) >> SOFT_KPARAM_BYTES };
	const struct soft_entry_param *want =
		ordinal < c->e->n_params ? &c->e->params[ordinal] : &c->p->argument;

	if (a->bytes != 12 || ordinal >= c->n_params || c->seen[ordinal] & SEEN_PARAM ||
	    is.offset != want->offset || is.bytes != want->bytes) {
		return false;
	}
	c->seen[ordinal] |= SEEN_PARAM;
	c->params_seen++;
	return true;
}

static bool check_bank(struct checker *c, const struct soft_view_attribute *a)
{
	c->bank_seen = true;
	return a->bytes == 8 &&
	       soft_view_word(a, 1) == (SOFT_INSN_PARAM_BASE | c->param_bytes << 16);
}

static bool check_exits(struct checker *c, const struct soft_view_attribute *a)
{
	for (uint32_t i = 0; i < a->bytes / 4; i++) {
		uint32_t at = soft_view_word(a, i);

		if (at % SOFT_INSN_BYTES || at >= c->code_bytes ||
		    soft_insn_kind(soft_insn_read(c->code + at)) != SOFT_INSN_EXIT ||
		    c->seen[at / SOFT_INSN_BYTES] & SEEN_EXIT) {
			return false;
		}
		c->seen[at / SOFT_INSN_BYTES] |= SEEN_EXIT;
		c->exits_seen++;
	}
	return true;
}

/* Returns the attribute's name if it does not agree with the code, else NULL. */
static const char *check_attribute(struct checker *c, const struct soft_view_attribute *a)
{
	switch (a->number) {
	case SOFT_ATTR_KPARAM_INFO:
		return check_param(c, a) ? NULL : "KPARAM_INFO";
	case SOFT_ATTR_CBANK_PARAM_SIZE:
		c->size_seen = true;
		return a->format == SOFT_FORMAT_HALF && a->value == c->param_bytes
			       ? NULL
			       : "CBANK_PARAM_SIZE";
	case SOFT_ATTR_PARAM_CBANK:
		return check_bank(c, a) ? NULL : "PARAM_CBANK";
	case SOFT_ATTR_NUM_BARRIERS:
		c->barriers_seen = a->format == SOFT_FORMAT_BYTE && a->value >= 1;
		return c->barriers_seen ? NULL : "NUM_BARRIERS";
	case SOFT_ATTR_EXIT_OFFSETS:
		return check_exits(c, a) ? NULL : "EXIT_INSTR_OFFSETS";
	default:
		return NULL;
	}
}

static const char *check_attributes(struct checker *c)
{
	struct soft_view_attribute a;
	const char *wrong = NULL;
	uint64_t at = 0;
	Elf64_Shdr s;
	int more = 1;

	if (!soft_view_section(c->v, c->p->info, &s)) {
		return ".nv.info";
	}
	while (!wrong && (more = soft_view_attribute(c->v, &s, &at, &a)) == 1) {
		wrong = check_attribute(c, &a);
	}
	return wrong ? wrong : more < 0 ? ".nv.info" : NULL;
}

static uint32_t count_exits(const struct checker *c)
{
	uint32_t n = 0;

	for (uint64_t at = 0; at < c->code_bytes; at += SOFT_INSN_BYTES) {
		n += soft_insn_kind(soft_insn_read(c->code + at)) == SOFT_INSN_EXIT;
	}
	return n;
}

/* Returns the name of the first table that does not agree with the code, or NULL. */
static const char *check_tables(struct checker *c)
{
	const struct soft_view_code *code = &c->v->code[c->p->text];
	const char *wrong = check_attributes(c);
	Elf64_Shdr s;

	if (wrong) {
		return wrong;
	}
	if (c->params_seen != c->n_params) {
		return "KPARAM_INFO";
	}
	if (c->n_params && (!c->size_seen || !c->bank_seen)) {
		return c->size_seen ? "PARAM_CBANK" : "CBANK_PARAM_SIZE";
	}
	if (c->exits_seen != count_exits(c)) {
		return "EXIT_INSTR_OFFSETS";
	}
	if (c->p->patched && !c->barriers_seen) {
		return "NUM_BARRIERS";
	}
	if (code->registers < MAX(c->e->registers, c->p->stub_registers)) {
		return "REGCOUNT";
	}
	if (code->symbol_bytes != c->code_bytes) {
		return "the symbol's size";
	}
	return soft_view_section(c->v, c->p->constants, &s) &&
			       s.sh_size == SOFT_INSN_PARAM_BASE + c->param_bytes
		       ? NULL
		       : ".nv.constant0";
}

int soft_patch_check(const struct soft_patch *p, const struct soft_view *v,
		     const struct soft_entry *e, struct report *r)
{
	struct checker c = { .p = p,
			     .v = v,
			     .e = e,
			     .n_params = e->n_params + p->patched,
			     .param_bytes = p->patched ? p->argument.offset + p->argument.bytes
						       : e->param_bytes };
	const char *wrong;
	Elf64_Shdr s;

	if (!soft_view_section(v, p->text, &s)) {
		return -EINVAL;
	}
	c.code = v->data + s.sh_offset;
	c.code_bytes = s.sh_size;
	c.seen = calloc(MAX((size_t)s.sh_size / SOFT_INSN_BYTES, (size_t)c.n_params) + 1, 1);
	if (!c.seen) {
		return -ENOMEM;
	}
	wrong = check_tables(&c);
	free(c.seen);
	return wrong ? report_set(r, -EINVAL, "cubin",
				  "kernel %s of the cubin: %s does not agree with its code",
				  e->name, wrong)
		     : 0;
}
