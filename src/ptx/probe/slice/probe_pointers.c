/* The words of a kernel's arguments from which the addresses of its accesses are computed. For each
 * register the pass keeps the set of words that its value may come from, over all instructions that
 * write it, whatever the order. A value of 64 bits that is loaded from memory may be an address:
 * its set has the bit MEMORY. The result is known only if each address of a global or generic
 * access has a set that is not empty and has no such bit. */
#include "ptx/probe_pointers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/strmap.h"

#define MEMORY (UINT64_C(1) << 63)
#define FUNCTIONS_MAX 64u
#define REGISTERS_MAX 65536u
#define ROUNDS_MAX 100u

struct walk {
	const struct ptx_module *m;
	const struct ptx_function *f; /* under way */
	struct ptx_pointers *ret;
	struct report *r;
	struct strmap regs; /* of f: > 1 + place in sets */
	uint64_t *sets;	    /* owned */
	uint32_t n_sets, cap;
	const struct ptx_function *todo[FUNCTIONS_MAX]; /* f and what it calls */
	uint32_t n_todo;
	bool checks; /* sets are final: accesses are checked now */
	bool changed;
	uint64_t used, written;
	int err;
};

static void refuse(struct walk *w, const struct ptx_item *at, const char *what, const char *name)
{
	if (!w->err) {
		report_place(w->r, "%s:%u", w->m->name, at->line);
		w->err = report_set(w->r, -ENOTSUP, "verify", "%s%s%s", what, name ? " " : "",
				    name ? name : "");
	}
}

/* Returns the bytes of the instruction's type, which is its last modifier that is one. */
static unsigned width(const struct ptx_insn *i)
{
	unsigned bytes = 0;

	for (unsigned k = i->n_modifiers; k-- > 0 && !bytes;) {
		bytes = ptx_type_bytes(i->modifiers[k]);
	}
	return bytes;
}

/* ---- registers ---- */

static uint64_t *set_of(struct walk *w, const char *name)
{
	uintptr_t at = (uintptr_t)strmap_get(&w->regs, name);
	uint64_t *more;

	if (at) {
		return &w->sets[at - 1];
	}
	if (w->n_sets == w->cap) {
		uint32_t cap = MAX(2 * w->cap, 256u);

		more = cap > REGISTERS_MAX ? NULL : reallocarray(w->sets, cap, sizeof(*more));
		if (!more) {
			w->err = -ENOMEM;
			return NULL;
		}
		w->sets = more;
		w->cap = cap;
	}
	w->sets[w->n_sets] = 0;
	if (strmap_add(&w->regs, name, (void *)(uintptr_t)(w->n_sets + 1)) < 0) {
		w->err = -ENOMEM;
		return NULL;
	}
	return &w->sets[w->n_sets++];
}

static bool is_index(const char *name)
{
	static const char *const names[] = { "%tid.", "%ntid.", "%ctaid.", "%nctaid.", NULL };

	return ptx_begins_with(name, names);
}

/* A part of a vector may be anything, and so may the address of a variable or a parameter. */
static uint64_t value(struct walk *w, const struct ptx_operand *o)
{
	uint64_t *s, all = 0;

	if (o->name) {
		s = o->name[0] == '%' && (!strchr(o->name, '.') || is_index(o->name))
			    ? set_of(w, o->name)
			    : NULL;
		all = s ? *s : MEMORY;
	}
	for (uint32_t k = 0; k < o->n_args && o->kind != PTX_ADDRESS; k++) {
		all |= value(w, &o->args[k]);
	}
	return all;
}

static void assign(struct walk *w, const struct ptx_operand *o, uint64_t set)
{
	uint64_t *s = o->name && o->name[0] == '%' ? set_of(w, o->name) : NULL;

	if (s && (*s | set) != *s) {
		*s |= set;
		w->changed = true;
	}
	for (uint32_t k = 0; k < o->n_args && o->kind != PTX_ADDRESS; k++) {
		assign(w, &o->args[k], set);
	}
}

/* ---- arguments ---- */

/* Returns the bit of a word of the entry's arguments. */
static uint64_t word(struct walk *w, const struct ptx_insn *i, uint32_t param, uint64_t offset)
{
	struct ptx_pointers *p = w->ret;

	for (uint32_t k = 0; k < p->n; k++) {
		if (p->at[k].param == param && p->at[k].offset == offset) {
			return UINT64_C(1) << k;
		}
	}
	if (offset + 8 > p->bytes[param] || p->n == PTX_POINTERS_MAX) {
		refuse(w, &i->item, "too many arguments", NULL);
		return MEMORY;
	}
	p->at[p->n] = (struct ptx_pointer){ .param = param, .offset = (uint32_t)offset };
	return UINT64_C(1) << p->n++;
}

static void load_param(struct walk *w, const struct ptx_insn *i)
{
	const struct ptx_operand *to = &i->operands[0], *from = &i->operands[1];
	bool vector = to->kind == PTX_VECTOR;
	uint32_t n = vector ? to->n_args : 1, k = 0;

	if (width(i) != 8 || !w->f->is_entry) {
		assign(w, to, width(i) < 8 ? 0 : MEMORY);
		return;
	}
	while (k < w->f->n_params &&
	       (!from->name || strcmp(w->f->params[k].name, from->name) != 0)) {
		k++;
	}
	for (uint32_t e = 0; e < n; e++) {
		uint64_t set = k < w->f->n_params && from->offset >= 0
				       ? word(w, i, k, (uint64_t)from->offset + 8u * e)
				       : MEMORY; /* what a call has returned */

		assign(w, vector ? &to->args[e] : to, set);
	}
}

/* ---- accesses ---- */

static bool is_variable(const struct ptx_module *m, const char *name)
{
	ptx_each (&m->items, it) {
		if (it->kind == PTX_VARIABLE &&
		    strcmp(((const struct ptx_variable *)it)->name, name) == 0) {
			return true;
		}
	}
	return false;
}

static void access_at(struct walk *w, const struct ptx_insn *i, const struct ptx_operand *o,
		      bool write)
{
	const uint64_t *s;

	if (!w->checks || ptx_insn_has(i, ".shared") || ptx_insn_has(i, ".shared::cta") ||
	    ptx_insn_has(i, ".local")) {
		return;
	}
	if (o->name && o->name[0] != '%' && !write && is_variable(w->m, o->name)) {
		return;
	}
	if (o->name && o->name[0] != '%') {
		refuse(w, &i->item, "it may write a variable,", o->name);
		return;
	}
	s = o->name ? set_of(w, o->name) : NULL;
	if (!s || !*s || *s & MEMORY) {
		refuse(w, &i->item,
		       "it uses an address that may not come from an argument:", i->opcode);
		return;
	}
	w->used |= *s;
	w->written |= write ? *s : 0;
}

static void load(struct walk *w, const struct ptx_insn *i)
{
	if (ptx_insn_has(i, ".param") || ptx_insn_has(i, ".param::entry")) {
		load_param(w, i);
		return;
	}
	access_at(w, i, &i->operands[1], false);
	assign(w, &i->operands[0], width(i) >= 8 ? MEMORY : 0);
}

static void call(struct walk *w, const struct ptx_insn *i)
{
	const struct ptx_function *f = NULL;
	uint32_t k = 0;

	for (uint32_t o = 0; o < i->n_operands && !f; o++) {
		f = i->operands[o].kind == PTX_NAME && i->operands[o].name
			    ? ptx_module_function(w->m, i->operands[o].name)
			    : NULL;
	}
	if (!f || !f->has_body) {
		refuse(w, &i->item, "it calls a function that is not known here", NULL);
		return;
	}
	while (k < w->n_todo && w->todo[k] != f) {
		k++;
	}
	if (k == FUNCTIONS_MAX) {
		refuse(w, &i->item, "it calls too many functions", NULL);
	} else if (k == w->n_todo) {
		w->todo[w->n_todo++] = f;
	}
}

/* Values move from the operands behind the first to the first. Halves that are packed may be an
 * address from memory. */
static void compute(struct walk *w, const struct ptx_insn *i)
{
	uint64_t set = 0;

	for (uint32_t k = 1; k < i->n_operands; k++) {
		const struct ptx_operand *o = &i->operands[k];

		if (o->kind == PTX_ADDRESS) {
			refuse(w, &i->item, "an instruction that is not followed:", i->opcode);
		}
		set |= value(w, o);
		set |= o->kind == PTX_VECTOR && strcmp(i->opcode, "mov") == 0 && width(i) >= 8 &&
				       !set
			       ? MEMORY
			       : 0;
	}
	if (i->n_operands) {
		if (i->operands[0].kind == PTX_ADDRESS) {
			refuse(w, &i->item, "an instruction that is not followed:", i->opcode);
		}
		assign(w, &i->operands[0], set);
	}
}

static bool is(const struct ptx_insn *i, const char *opcode)
{
	return strcmp(i->opcode, opcode) == 0;
}

static void step(struct walk *w, const struct ptx_insn *i)
{
	static const char *const none[] = { "bra", "ret",     "exit",	"trap",	 "prefetch",
					    "bar", "barrier", "membar", "fence", NULL };

	if (ptx_is_one_of(i->opcode, none)) {
		return;
	}
	if ((is(i, "ld") || is(i, "ldu")) && i->n_operands >= 2) {
		load(w, i);
	} else if (is(i, "st") && i->n_operands >= 2 && !ptx_insn_has(i, ".bulk")) {
		if (!ptx_insn_has(i, ".param") && !ptx_insn_has(i, ".param::func")) {
			access_at(w, i, &i->operands[0], true);
		}
	} else if (is(i, "red") && i->n_operands >= 2 && !ptx_insn_has(i, ".async")) {
		access_at(w, i, &i->operands[0], true);
	} else if (is(i, "atom") && i->n_operands >= 3) {
		access_at(w, i, &i->operands[1], true);
		assign(w, &i->operands[0], width(i) >= 8 ? MEMORY : 0);
	} else if (is(i, "call")) {
		call(w, i);
	} else {
		compute(w, i);
	}
}

/* Recursion is bounded by the parser's limit on scopes. */
static void walk_list(struct walk *w, const struct ptx_list *list)
{
	for (const struct ptx_item *it = list->first; it && !w->err; it = it->next) {
		if (it->kind == PTX_INSN) {
			step(w, (const struct ptx_insn *)it);
		} else if (it->kind == PTX_SCOPE) {
			walk_list(w, &((const struct ptx_scope *)it)->body);
		} else if (it->kind == PTX_TARGETS || it->kind == PTX_PROTOTYPE) {
			refuse(w, it, "it jumps or calls through a table", NULL);
		}
	}
}

/* Functions share no registers, and what is passed between them is followed no further. */
static void walk_function(struct walk *w, const struct ptx_function *f)
{
	uint32_t n = 0;

	w->f = f;
	w->n_sets = 0;
	w->checks = false;
	strmap_init(&w->regs);
	for (w->changed = true; w->changed && !w->err; n++) {
		w->changed = false;
		walk_list(w, &f->body);
		if (n == ROUNDS_MAX) {
			refuse(w, &f->item, "it takes too long to follow its addresses", NULL);
		}
	}
	w->checks = true;
	walk_list(w, &f->body);
	strmap_finish(&w->regs);
}

static int take_params(struct walk *w, const struct ptx_function *f)
{
	struct ptx_pointers *p = w->ret;

	p->n_params = f->n_params;
	for (uint32_t i = 0; i < f->n_params; i++) {
		uint64_t bytes = 0;

		if (f->n_params > PTX_POINTER_PARAMS_MAX ||
		    ptx_variable_bytes(&f->params[i], &bytes) < 0 || bytes > 4096) {
			return report_set(w->r, -ENOTSUP, "verify", "it has too many arguments");
		}
		p->bytes[i] = (uint32_t)bytes;
	}
	return 0;
}

/* Stores the words from which addresses are computed. */
static void take_result(struct walk *w)
{
	struct ptx_pointers *p = w->ret;
	uint32_t n = 0;

	for (uint32_t k = 0; k < p->n; k++) {
		if (w->used >> k & 1) {
			p->at[n] = p->at[k];
			p->at[n++].written = w->written >> k & 1;
		}
	}
	p->n = n;
}

int ptx_pointers_find(const struct ptx_module *m, const char *entry, struct ptx_pointers *ret,
		      struct report *r)
{
	struct walk w = { .m = m, .ret = ret, .r = r };
	const struct ptx_function *f = ptx_module_function(m, entry);

	*ret = (struct ptx_pointers){ .n = 0 };
	if (!f || !f->has_body || !f->is_entry) {
		return report_set(r, -ENOENT, "verify", "there is no entry %s", entry);
	}
	w.err = take_params(&w, f);
	w.todo[w.n_todo++] = f;
	for (uint32_t k = 0; k < w.n_todo && !w.err; k++) {
		walk_function(&w, w.todo[k]);
	}
	free(w.sets);
	if (w.err == -ENOMEM) {
		return report_set(r, -ENOMEM, "verify", "out of memory");
	}
	if (!w.err) {
		take_result(&w);
	}
	return w.err;
}
