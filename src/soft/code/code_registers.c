/* How many registers a body needs. Those that it declares are counted. Where these are many, as of
 * programs that were pasted into an entry stub, registers share a place if their values are not
 * live at the same time, as any compiler arranges it: a register is live from the first to the last
 * instruction that names it, and to the end of a loop in which a value from in front of it is used.
 * One that holds a parameter or a constant needs no place: instructions take these as operands. */
#include "soft/code/code_entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/strmap.h"

#define SMALL_RANGE 16u	 /* of registers, in which it is looked for each */
#define DECLARED_MAX 64u /* declared registers from which on it matters when they are live */
#define LOOPS_MAX 256u

/* ---- declarations ---- */

static bool operand_names(const struct ptx_operand *o, const char *name)
{
	if (o->name && strcmp(o->name, name) == 0) {
		return true;
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		if (operand_names(&o->args[i], name)) {
			return true;
		}
	}
	return false;
}

static bool insn_names(const struct ptx_insn *i, const char *name)
{
	for (uint16_t k = 0; k < i->n_operands; k++) {
		if (operand_names(&i->operands[k], name)) {
			return true;
		}
	}
	return false;
}

static bool names(const struct ptx_list *body, const char *name)
{
	ptx_each (body, it) {
		if (it->kind == PTX_SCOPE ? names(&((const struct ptx_scope *)it)->body, name)
					  : it->kind == PTX_INSN &&
						    insn_names((const struct ptx_insn *)it, name)) {
			return true;
		}
	}
	return false;
}

/* Of a range of few registers only those that an instruction names. */
static uint64_t declared(const struct ptx_list *body, const struct ptx_variable *v)
{
	char name[64];
	uint64_t n = 0;

	if (!v->has_range || v->range > SMALL_RANGE || strlen(v->name) > sizeof(name) - 12) {
		return v->has_range ? v->range : 1;
	}
	for (uint32_t i = 0; i < v->range; i++) {
		snprintf(name, sizeof(name), "%s%u", v->name, i);
		n += names(body, name);
	}
	return n;
}

/* Those of scopes side by side do not live at the same time. */
static uint64_t count(const struct ptx_list *body, bool *barriers)
{
	uint64_t own = 0, inner = 0;

	ptx_each (body, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;
		const struct ptx_insn *i = (const struct ptx_insn *)it;

		if (it->kind == PTX_SCOPE) {
			inner = MAX(inner, count(&((const struct ptx_scope *)it)->body, barriers));
		} else if (it->kind == PTX_VARIABLE && v->space == PTX_REG &&
			   strcmp(v->type, ".pred") != 0) {
			own += declared(body, v) * ((MAX(ptx_type_bytes(v->type), 1u) + 3) / 4);
		} else if (it->kind == PTX_INSN && strncmp(i->opcode, "bar", 3) == 0) {
			*barriers = true;
		}
	}
	return own + inner;
}

/* ---- live ranges ---- */

struct range {
	uint32_t words;
	uint32_t first, last;  /* instructions, from 1 on; 0: none names it */
	bool written, operand; /* by one instruction at least; by such only as make it an operand */
};

struct live {
	struct strmap by_name; /* > struct range; names of one register in several scopes are one */
	struct range *all;     /* owned */
	uint32_t n, at;
	struct strmap labels; /* > number of the instruction behind it, plus 1 */
	struct {
		uint32_t first, last;
	} loops[LOOPS_MAX];
	uint32_t n_loops;
	bool failed; /* no memory, or too many loops */
};

static size_t count_variables(const struct ptx_list *body)
{
	size_t n = 0;

	ptx_each (body, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		if (it->kind == PTX_SCOPE) {
			n += count_variables(&((const struct ptx_scope *)it)->body);
		} else if (it->kind == PTX_VARIABLE && v->space == PTX_REG) {
			n += v->has_range ? v->range : 1;
		}
	}
	return n;
}

static void add(struct live *l, const char *name, uint32_t words)
{
	struct range *r = strmap_get(&l->by_name, name);

	if (r) {
		r->words = MAX(r->words, words);
		return;
	}
	r = &l->all[l->n++];
	*r = (struct range){ .words = words, .operand = true };
	l->failed = l->failed || strmap_add(&l->by_name, name, r) < 0;
}

static void declare(struct live *l, const struct ptx_variable *v)
{
	uint32_t words = (MAX(ptx_type_bytes(v->type), 1u) + 3) / 4;
	char name[64];

	if (v->space != PTX_REG || strcmp(v->type, ".pred") == 0) {
		return;
	}
	if (!v->has_range) {
		add(l, v->name, words);
		return;
	}
	for (uint32_t i = 0; i < v->range; i++) {
		if (snprintf(name, sizeof(name), "%s%u", v->name, i) >= (int)sizeof(name)) {
			l->failed = true;
			return;
		}
		add(l, name, words);
	}
}

static void name_operand(struct live *l, const struct ptx_operand *o)
{
	struct range *r = o->name ? strmap_get(&l->by_name, o->name) : NULL;

	if (r) {
		r->first = r->first ? r->first : l->at;
		r->last = l->at;
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		name_operand(l, &o->args[i]);
	}
}

/* Returns whether the instruction's result is a parameter, a constant, or a copy of one. */
static bool makes_operand(const struct live *l, const struct ptx_insn *i)
{
	const struct ptx_operand *from = i->n_operands > 1 ? &i->operands[1] : NULL;
	const struct range *r;

	if (i->guard || !from) {
		return false;
	}
	if (strcmp(i->opcode, "ld") == 0) {
		return i->n_modifiers && strcmp(i->modifiers[0], ".param") == 0;
	}
	r = from->name ? strmap_get(&l->by_name, from->name) : NULL;
	return strcmp(i->opcode, "mov") == 0 &&
	       (from->kind == PTX_INT || (from->kind == PTX_NAME && r && r->written && r->operand));
}

static void run_through(struct live *l, const struct ptx_insn *i)
{
	const struct ptx_operand *to = i->n_operands ? &i->operands[0] : NULL;
	uintptr_t label = to && to->name ? (uintptr_t)strmap_get(&l->labels, to->name) : 0;
	bool is_result = to && to->kind == PTX_NAME; /* and no address of a store */
	struct range *r = is_result ? strmap_get(&l->by_name, to->name) : NULL;

	l->at++;
	for (uint16_t k = 0; k < i->n_operands; k++) {
		name_operand(l, &i->operands[k]);
	}
	if (r) {
		r->operand = r->operand && makes_operand(l, i);
		r->written = true;
	}
	if (strcmp(i->opcode, "bra") == 0 && label) {
		if (l->n_loops == LOOPS_MAX) {
			l->failed = true;
			return;
		}
		l->loops[l->n_loops].first = (uint32_t)label;
		l->loops[l->n_loops++].last = l->at;
	}
}

/* Recursion is bounded by the parser's limit on scopes. */
static void walk(struct live *l, const struct ptx_list *body)
{
	ptx_each (body, it) {
		if (l->failed) {
			return;
		}
		if (it->kind == PTX_SCOPE) {
			walk(l, &((const struct ptx_scope *)it)->body);
		} else if (it->kind == PTX_VARIABLE) {
			declare(l, (const struct ptx_variable *)it);
		} else if (it->kind == PTX_INSN) {
			run_through(l, (const struct ptx_insn *)it);
		} else if (it->kind == PTX_LABEL) {
			const char *name = ((const struct ptx_label *)it)->name;

			(void)strmap_del(&l->labels, name);
			l->failed =
				strmap_add(&l->labels, name, (void *)(uintptr_t)(l->at + 1)) < 0;
		}
	}
}

/* Loops end in the order of their last instructions, so inner ones come first. */
static void extend(struct live *l)
{
	for (uint32_t k = 0; k < l->n_loops; k++) {
		for (uint32_t i = 0; i < l->n; i++) {
			struct range *r = &l->all[i];

			if (r->first < l->loops[k].first && r->last >= l->loops[k].first) {
				r->last = MAX(r->last, l->loops[k].last);
			}
		}
	}
}

/* Returns the most words that are live at an instruction; UINT64_MAX: no memory. */
static uint64_t max_live(struct live *l)
{
	int64_t *change = calloc((size_t)l->at + 2, sizeof(*change)), now = 0, most = 0;

	if (!change) {
		return UINT64_MAX;
	}
	for (uint32_t i = 0; i < l->n; i++) {
		const struct range *r = &l->all[i];

		if (r->first && !(r->written && r->operand)) {
			change[r->first] += r->words;
			change[r->last + 1] -= r->words;
		}
	}
	for (uint32_t i = 0; i < l->at + 2; i++) {
		now += change[i];
		most = MAX(most, now);
	}
	free(change);
	return (uint64_t)most;
}

static uint64_t count_live(const struct ptx_list *body)
{
	struct live *l = calloc(1, sizeof(*l));
	uint64_t n = UINT64_MAX;

	if (!l) {
		return n;
	}
	strmap_init(&l->by_name);
	strmap_init(&l->labels);
	l->all = calloc(count_variables(body) + 1, sizeof(*l->all));
	l->failed = !l->all;
	walk(l, body);
	if (!l->failed) {
		extend(l);
		n = max_live(l);
	}
	strmap_finish(&l->by_name);
	strmap_finish(&l->labels);
	free(l->all);
	free(l);
	return n;
}

uint32_t soft_entry_registers(const struct ptx_list *body, bool *barriers)
{
	uint64_t n = 2 + count(body, barriers), live;

	if (n > DECLARED_MAX) {
		live = count_live(body);
		n = MIN(n, MAX(live, (uint64_t)DECLARED_MAX));
	}
	return (uint32_t)MIN(n, (uint64_t)SOFT_ENTRY_REGISTERS_MAX);
}
