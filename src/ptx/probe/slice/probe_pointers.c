/* The words of a kernel's arguments from which the addresses of its accesses are computed. For each
 * register the pass keeps the set of words that its value may come from, over all instructions that
 * write it, whatever the order. A value of 64 bits that is loaded from memory may be an address:
 * its set has the mark MEMORY. A shorter one is an index, unless it becomes a part of an address by
 * a shift, a product or a vector: it gets the mark MEMORY then. So does a constant that may be an
 * address, which compilers at run time put into their code. The result is known only if the set of
 * each global or generic access has a word and no such mark. */
#include "ptx/probe_pointers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/strmap.h"

/* Marks of sets, above the words. */
#define MEMORY (UINT64_C(1) << 63)   /* may be an address from memory, or a part of one */
#define NARROW (UINT64_C(1) << 62)   /* at most 32 bits that were loaded from memory */
#define SCALED (UINT64_C(1) << 61)   /* such bits, multiplied */
#define SIZED (UINT64_C(1) << 60)    /* ... twice, the second time by the size of an element */
#define ARGUMENT (UINT64_C(1) << 59) /* an argument of at most 32 bits */
#define LARGE (UINT64_C(1) << 58)    /* a constant of INDEX_MAX and above */
#define WORDS (LARGE - 1)
#define LOADED (NARROW | SCALED | SIZED)
_Static_assert(PTX_POINTERS_MAX < 58, "words are below the marks");

#define SIZE_MAX_LOG2 4u   /* of an element */
#define INDEX_MAX_LOG2 16u /* of what an index is multiplied by */
#define INDEX_MAX (UINT64_C(1) << INDEX_MAX_LOG2)
#define ADDRESS_MIN (UINT64_C(1) << 32) /* no memory that moves is below */
#define FUNCTIONS_MAX 64u
#define REGISTERS_MAX 65536u
#define ROUNDS_MAX 100u

struct walk {
	const struct ptx_module *m;
	const struct ptx_pointer_names *names;
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

/* Returns true if the instruction may make a value of more than 32 bits. */
static bool is_long(const struct ptx_insn *i)
{
	unsigned most = 0;

	for (unsigned k = 0; k < i->n_modifiers; k++) {
		most = MAX(most, ptx_type_bytes(i->modifiers[k]));
	}
	return !most || most > 4 || ptx_insn_has(i, ".wide");
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

/* Returns true for a constant whose amount is that or more. */
static bool is_constant(const struct ptx_operand *o, uint64_t least)
{
	return o->kind == PTX_INT && o->value >= least && -o->value >= least;
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
	if (is_constant(o, INDEX_MAX)) {
		all |= LARGE;
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

/* Returns the set of what an instruction loads from memory. */
static uint64_t loaded(const struct ptx_insn *i)
{
	unsigned bytes = width(i);

	return bytes && bytes <= 4 ? NARROW : MEMORY;
}

static void load_param(struct walk *w, const struct ptx_insn *i)
{
	const struct ptx_operand *to = &i->operands[0], *from = &i->operands[1];
	bool vector = to->kind == PTX_VECTOR;
	uint32_t n = vector ? to->n_args : 1, k = 0;

	while (w->f->is_entry && k < w->f->n_params &&
	       (!from->name || strcmp(w->f->params[k].name, from->name) != 0)) {
		k++;
	}
	if (width(i) != 8 || !w->f->is_entry) {
		assign(w, to,
		       w->f->is_entry && k < w->f->n_params && loaded(i) == NARROW ? ARGUMENT
										   : loaded(i));
		return;
	}
	for (uint32_t e = 0; e < n; e++) {
		uint64_t set = k < w->f->n_params && from->offset >= 0
				       ? word(w, i, k, (uint64_t)from->offset + 8u * e)
				       : MEMORY; /* what a call has returned */

		assign(w, vector ? &to->args[e] : to, set);
	}
}

/* ---- accesses ---- */

static const struct ptx_variable *variable(const struct walk *w, const char *name)
{
	return strmap_get(&w->names->variables, name);
}

/* Returns true for a variable of the module that it has itself: one of another image may have been
 * given any address. */
static bool is_own(const struct ptx_variable *v)
{
	return v && strcmp(v->linkage, ".extern") != 0;
}

/* Notes the set of an access. */
static void add_set(struct walk *w, const struct ptx_insn *i, uint64_t set)
{
	struct ptx_pointer_set s = { .words = set & WORDS, .from_memory = (set & LOADED) != 0 };
	struct ptx_pointers *p = w->ret;

	for (uint32_t k = 0; k < p->n_sets; k++) {
		if (p->set[k].words == s.words && p->set[k].from_memory == s.from_memory) {
			return;
		}
	}
	if (p->n_sets == PTX_POINTER_SETS_MAX) {
		refuse(w, &i->item, "its addresses come from too many arguments", NULL);
		return;
	}
	p->set[p->n_sets++] = s;
}

static void access_at(struct walk *w, const struct ptx_insn *i, const struct ptx_operand *o,
		      bool write)
{
	const uint64_t *s;

	if (!w->checks || ptx_insn_has(i, ".shared") || ptx_insn_has(i, ".shared::cta") ||
	    ptx_insn_has(i, ".local")) {
		return;
	}
	if (o->name && o->name[0] != '%' && !write && is_own(variable(w, o->name))) {
		return;
	}
	if (o->name && o->name[0] != '%') {
		refuse(w, &i->item,
		       write ? "it may write a variable," : "it reads what is not of its image,",
		       o->name);
		return;
	}
	s = o->name ? set_of(w, o->name) : NULL;
	if (!s || !(*s & WORDS) || *s & MEMORY || o->offset != (int32_t)o->offset) {
		refuse(w, &i->item,
		       "it uses an address that may not come from an argument:", i->opcode);
		return;
	}
	w->used |= *s;
	w->written |= write ? *s : 0;
	add_set(w, i, *s);
}

static void load(struct walk *w, const struct ptx_insn *i)
{
	if (ptx_insn_has(i, ".param") || ptx_insn_has(i, ".param::entry")) {
		load_param(w, i);
		return;
	}
	access_at(w, i, &i->operands[1], false);
	assign(w, &i->operands[0], loaded(i));
}

static void call(struct walk *w, const struct ptx_insn *i)
{
	const struct ptx_function *f = NULL;
	uint32_t k = 0;

	for (uint32_t o = 0; o < i->n_operands; o++) {
		if (!f && i->operands[o].kind == PTX_NAME && i->operands[o].name) {
			f = strmap_get(&w->names->functions, i->operands[o].name);
		}
		assign(w, &i->operands[o], MEMORY); /* if it is a register, as of a result */
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

static bool is(const struct ptx_insn *i, const char *opcode)
{
	return strcmp(i->opcode, opcode) == 0;
}

/* ---- computations ---- */

/* Returns the set of a product by a value with that set, or by 2^log2, which is 64 if it is not
 * known. An index is multiplied by the size of a row, and by that of an element. */
static uint64_t product(uint64_t set, uint64_t by, unsigned log2)
{
	bool scaled = set & (SCALED | SIZED);

	if ((set & (ARGUMENT | WORDS) && log2 >= 32 && log2 < 64) ||
	    (set & LOADED && ((log2 >= INDEX_MAX_LOG2 && log2 < 64) || by & LARGE)) ||
	    set & SIZED || (scaled && log2 > SIZE_MAX_LOG2)) {
		return set | MEMORY;
	}
	return set & LOADED ? set | (scaled ? SIZED : SCALED) : set;
}

/* Returns the number of bits by which a factor shifts, at least; 64: it is no number. */
static unsigned log2_of(const struct ptx_operand *o)
{
	uint64_t v = o->kind == PTX_INT ? MIN(o->value, -o->value) : 0;
	unsigned n = 0;

	if (o->kind != PTX_INT) {
		return 64;
	}
	while (n < 63 && UINT64_C(1) << n < v) {
		n++;
	}
	return n;
}

/* mul, and the product of mad. */
static uint64_t multiply(struct walk *w, const struct ptx_insn *i)
{
	const struct ptx_operand *x = &i->operands[1], *y = &i->operands[2];
	uint64_t a = value(w, x), b = value(w, y);

	if (ptx_insn_has(i, ".hi")) {
		return a | b | ((a | b) & ~LARGE ? MEMORY : 0);
	}
	return product(a, b, log2_of(y)) | product(b, a, log2_of(x));
}

static uint64_t shift_left(struct walk *w, const struct ptx_insn *i)
{
	const struct ptx_operand *by = &i->operands[2];
	uint64_t set = value(w, &i->operands[1]), bits = value(w, by);

	if (by->kind == PTX_INT) {
		return product(set, 0, (unsigned)MIN(by->value, UINT64_C(63)));
	}
	return set | bits | ((set | bits) & (LOADED | ARGUMENT) ? MEMORY : 0);
}

/* Returns true if the result has no more bits of an operand than that, in the same places or lower
 * ones. */
static bool keeps_places(const struct ptx_insn *i)
{
	static const char *const keeps[] = { "mov",  "cvt", "cvta", "add", "sub", "selp",
					     "slct", "min", "max",  "and", "or",  "xor",
					     "not",  "neg", "abs",  "div", "rem", "shr",
					     "setp", "set", "bfe",  NULL };
	static const char *const floats[] = {
		".f16", ".f32", ".f64", ".bf16", ".tf32", ".e", NULL
	};

	for (unsigned k = 0; k < i->n_modifiers; k++) {
		if (ptx_begins_with(i->modifiers[k], floats)) {
			return false;
		}
	}
	return ptx_is_one_of(i->opcode, keeps);
}

/* Returns true if the operand is a constant that may be, or be added to, the result's address: no
 * factor, mask or divisor. */
static bool may_be_address(const struct ptx_insn *i, uint32_t operand)
{
	static const char *const adds[] = { "mov", "add", "sub",  "or",	  "xor",
					    "min", "max", "selp", "slct", NULL };
	bool adds_it = ptx_is_one_of(i->opcode, adds) || (is(i, "mad") && operand == 3);

	return adds_it && is_constant(&i->operands[operand], ADDRESS_MIN);
}

/* Returns the set of what the instruction computes from the operands behind the first. Values of at
 * most 32 bits stay so. */
static uint64_t result(struct walk *w, const struct ptx_insn *i)
{
	bool vector = false;
	uint64_t set = 0;

	if (is_long(i) && is(i, "shl") && i->n_operands == 3) {
		return shift_left(w, i);
	}
	if (is_long(i) && (is(i, "mul") || is(i, "mad")) && i->n_operands >= 3) {
		set = i->n_operands > 3 ? value(w, &i->operands[3]) : 0;
		set |= i->n_operands > 3 && may_be_address(i, 3) ? MEMORY : 0;
		return multiply(w, i) | set;
	}
	for (uint32_t k = 1; k < i->n_operands; k++) {
		set |= value(w, &i->operands[k]) | (may_be_address(i, k) ? MEMORY : 0);
		vector |= i->operands[k].kind == PTX_VECTOR;
	}
	if (is_long(i) && (vector || (set & (LOADED | ARGUMENT) && !keeps_places(i)))) {
		set |= MEMORY;
	}
	return set;
}

static void compute(struct walk *w, const struct ptx_insn *i)
{
	for (uint32_t k = 0; k < i->n_operands; k++) {
		if (i->operands[k].kind == PTX_ADDRESS) {
			refuse(w, &i->item, "an instruction that is not followed:", i->opcode);
		}
	}
	if (i->n_operands) {
		assign(w, &i->operands[0], result(w, i));
	}
}

static void step(struct walk *w, const struct ptx_insn *i)
{
	static const char *const none[] = { "bra",     "ret",	 "exit",  "trap", "bar",
					    "barrier", "membar", "fence", NULL };

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
		assign(w, &i->operands[0], loaded(i));
	} else if (is(i, "prefetch") && i->n_operands >= 1) {
		access_at(w, i, &i->operands[0], false);
	} else if (is(i, "call")) {
		call(w, i);
	} else {
		compute(w, i);
	}
}

/* Names are not resolved: none may hide an argument or a variable of the module. Registers of a
 * range have names that are made of it: those without a '%' could be a variable's. */
static void declare(struct walk *w, const struct ptx_variable *v)
{
	bool hides =
		w->checks && (variable(w, v->name) != NULL || (v->has_range && v->name[0] != '%'));

	for (uint32_t k = 0; w->checks && k < w->f->n_params && !hides; k++) {
		hides = strcmp(w->f->params[k].name, v->name) == 0;
	}
	if (hides) {
		refuse(w, &v->item, "it declares a name twice,", v->name);
	}
}

/* The same for parameters and results, which may be registers. */
static void declare_params(struct walk *w, const struct ptx_function *f)
{
	for (uint32_t k = 0; k < f->n_params + f->n_returns; k++) {
		const struct ptx_variable *v =
			k < f->n_params ? &f->params[k] : &f->returns[k - f->n_params];

		if (variable(w, v->name)) {
			refuse(w, &f->item, "it declares a name twice,", v->name);
		}
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
		} else if (it->kind == PTX_VARIABLE) {
			declare(w, (const struct ptx_variable *)it);
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
	declare_params(w, f);
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

/* Returns the bits of a set at the places of those that are used. */
static uint64_t packed(uint64_t set, uint64_t used)
{
	uint64_t r = 0;
	unsigned n = 0;

	for (unsigned k = 0; k < PTX_POINTERS_MAX; k++) {
		if (used >> k & 1) {
			r |= (set >> k & 1) << n++;
		}
	}
	return r;
}

/* Stores the words from which addresses are computed. */
static void take_result(struct walk *w)
{
	struct ptx_pointers *p = w->ret;
	uint32_t n = 0;

	for (uint32_t k = 0; k < p->n_sets; k++) {
		p->set[k].words = packed(p->set[k].words, w->used);
	}

	for (uint32_t k = 0; k < p->n; k++) {
		if (w->used >> k & 1) {
			p->at[n] = p->at[k];
			p->at[n++].written = w->written >> k & 1;
		}
	}
	p->n = n;
}

/* ---- names ---- */

/* Of two items with a name the first one counts, but a function's definition before others. */
static int add_name(struct ptx_pointer_names *n, struct ptx_item *it)
{
	const struct ptx_variable *v = (const struct ptx_variable *)it;
	const struct ptx_function *f = (const struct ptx_function *)it, *before;
	int err = 0;

	if (it->kind == PTX_VARIABLE) {
		n->shares_registers |= v->space == PTX_REG;
		err = strmap_add(&n->variables, v->name, it);
	} else if (it->kind == PTX_FUNCTION) {
		before = strmap_get(&n->functions, f->name);
		if (before && !before->has_body && f->has_body) {
			(void)strmap_del(&n->functions, f->name);
		}
		err = strmap_add(&n->functions, f->name, it);
	}
	return err == -EEXIST ? 0 : err;
}

int ptx_pointer_names_open(struct ptx_pointer_names *n, const struct ptx_module *m)
{
	int err = 0;

	n->shares_registers = false;
	strmap_init(&n->variables);
	strmap_init(&n->functions);
	for (struct ptx_item *it = m->items.first; it && !err; it = it->next) {
		err = add_name(n, it);
	}
	if (err) {
		ptx_pointer_names_close(n);
	}
	return err;
}

void ptx_pointer_names_close(struct ptx_pointer_names *n)
{
	strmap_finish(&n->variables);
	strmap_finish(&n->functions);
}

int ptx_pointers_of(const struct ptx_module *m, const struct ptx_pointer_names *names,
		    const char *entry, struct ptx_pointers *ret, struct report *r)
{
	struct walk w = { .m = m, .names = names, .ret = ret, .r = r };
	const struct ptx_function *f = strmap_get(&names->functions, entry);

	*ret = (struct ptx_pointers){ .n = 0 };
	if (!f || !f->has_body || !f->is_entry) {
		return report_set(r, -ENOENT, "verify", "there is no entry %s", entry);
	}
	if (m->address_size != 64) {
		return report_set(r, -ENOTSUP, "verify", "its addresses are not of 64 bits");
	}
	if (names->shares_registers) {
		return report_set(r, -ENOTSUP, "verify", "its functions share registers");
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

int ptx_pointers_find(const struct ptx_module *m, const char *entry, struct ptx_pointers *ret,
		      struct report *r)
{
	struct ptx_pointer_names names;
	int err = ptx_pointer_names_open(&names, m);

	if (err) {
		return report_set(r, err, "verify", "out of memory");
	}
	err = ptx_pointers_of(m, &names, entry, ret, r);
	ptx_pointer_names_close(&names);
	return err;
}
