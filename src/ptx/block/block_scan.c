/* Scans each function: what excludes a clone, whether the block index is read, and which functions
 * are called. Facts of the function's own text only; block_graph.c adds those of its callees. */
#include "ptx/block/block_int.h"

#include <errno.h>
#include <string.h>

static void refuse(struct ptx_block_function *f, enum proto_block_why why, uint32_t line)
{
	if (f->why == PROTO_BLOCK_UNKNOWN) {
		f->why = why;
		f->line = line;
	}
}

bool ptx_block_is_device_runtime(const char *name)
{
	static const char *const words[] = { "cuda", "cnp", "__cuda", NULL };

	return ptx_begins_with(name, words);
}

bool ptx_block_is_harmless(const char *name)
{
	static const char *const names[] = { "vprintf", "malloc", "free", "__assertfail", NULL };

	return ptx_is_one_of(name, names);
}

/* Returns the reason against calling code outside of this module; PROTO_BLOCK_UNKNOWN: none. */
static enum proto_block_why outside(const struct ptx_function *f)
{
	if (f->has_body || ptx_block_is_harmless(f->name)) {
		return PROTO_BLOCK_UNKNOWN;
	}
	return ptx_block_is_device_runtime(f->name) ? PROTO_BLOCK_DEVICE_RUNTIME
						    : PROTO_BLOCK_EXTERN;
}

static void scan_sreg(struct ptx_block_function *f, enum ptx_block_sreg what,
		      const struct ptx_operand *o, uint32_t line)
{
	switch (what) {
	case PTX_BLOCK_SREG_NONE:
		break;
	case PTX_BLOCK_SREG_GRID:
		refuse(f, PROTO_BLOCK_GRID_ID, line);
		break;
	case PTX_BLOCK_SREG_CLUSTER:
		refuse(f, PROTO_BLOCK_CLUSTER, line);
		break;
	case PTX_BLOCK_SREG_SHARED:
		refuse(f, PROTO_BLOCK_SHARED, line);
		break;
	case PTX_BLOCK_SREG_CTAID:
	case PTX_BLOCK_SREG_NCTAID: /* vector moves have been handled before */
		refuse(f, PROTO_BLOCK_SOURCE, line);
		break;
	default:
		f->knows = true;
		if (o->kind != PTX_NAME || o->offset) {
			refuse(f, PROTO_BLOCK_SOURCE, line);
		}
		break;
	}
}

/* Notes that a name is used other than by a call. */
static void use(const struct ptx_block_work *p, const char *name, uint32_t line)
{
	struct ptx_block_function *g = ptx_block_find(p, name);

	if (!g) {
		return;
	}
	g->taken = true;
	if (outside(g->f)) {
		refuse(g, outside(g->f), line);
	}
}

static void scan_operand(struct ptx_block_work *p, struct ptx_block_function *f,
			 const struct ptx_operand *o, uint32_t line)
{
	if (o->name) {
		scan_sreg(f, ptx_block_sreg_of(o->name), o, line);
		use(p, o->name, line);
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		scan_operand(p, f, &o->args[i], line);
	}
}

static bool has_modifier(const struct ptx_insn *insn, const char *part)
{
	for (unsigned i = 0; i < insn->n_modifiers; i++) {
		if (strstr(insn->modifiers[i], part)) {
			return true;
		}
	}
	return false;
}

static enum proto_block_why opcode_why(const struct ptx_insn *insn)
{
	static const struct {
		const char *opcode, *modifier; /* NULL: any */
		enum proto_block_why why;
	} table[] = {
		{ "griddepcontrol", NULL, PROTO_BLOCK_DEPENDENT },
		{ "clusterlaunchcontrol", NULL, PROTO_BLOCK_CLUSTER },
		{ "mapa", NULL, PROTO_BLOCK_CLUSTER },
		{ "getctarank", NULL, PROTO_BLOCK_CLUSTER },
		{ "barrier", "cluster", PROTO_BLOCK_CLUSTER },
		{ "cp", "multicast::cluster", PROTO_BLOCK_CLUSTER },
		{ "tcgen05", "cta_group::2", PROTO_BLOCK_CLUSTER },
		{ "tcgen05", "multicast::cluster", PROTO_BLOCK_CLUSTER },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].opcode[0] == insn->opcode[0] &&
		    strcmp(table[i].opcode, insn->opcode) == 0 &&
		    (!table[i].modifier || has_modifier(insn, table[i].modifier))) {
			return table[i].why;
		}
	}
	return PROTO_BLOCK_UNKNOWN;
}

static void scan_call(struct ptx_block_work *p, struct ptx_block_function *f,
		      const struct ptx_operand *o, uint32_t line)
{
	struct ptx_block_function *g = o ? ptx_block_find(p, o->name) : NULL;
	struct ptx_block_caller *c;

	if (!g) {
		if (!f->indirect) {
			f->indirect = true;
			f->indirect_line = line;
		}
		return;
	}
	if (outside(g->f)) {
		refuse(f, outside(g->f), line);
		return;
	}
	c = ptx_arena_alloc(&p->m->arena, sizeof(*c));
	if (!c) {
		p->failed = true;
		return;
	}
	*c = (struct ptx_block_caller){ .caller = f, .next = g->callers };
	g->callers = c;
}

static void scan_insn(struct ptx_block_work *p, struct ptx_block_function *f,
		      const struct ptx_insn *insn)
{
	const struct ptx_operand *callee = NULL;
	uint32_t line = insn->item.line;
	enum proto_block_why why = opcode_why(insn);

	if (why != PROTO_BLOCK_UNKNOWN) {
		refuse(f, why, line);
	}
	if (ptx_block_vector_move(insn) != PTX_BLOCK_SREG_NONE) {
		f->knows = true;
		scan_operand(p, f, &insn->operands[0], line);
		return;
	}
	if (ptx_block_reads_bytes(insn)) {
		f->knows = true;
		return;
	}
	if (strcmp(insn->opcode, "call") == 0) {
		callee = ptx_block_callee(insn);
		scan_call(p, f, callee, line);
		if (callee && ptx_block_sreg_of(callee->name) != PTX_BLOCK_SREG_NONE) {
			refuse(f, PROTO_BLOCK_SOURCE, line); /* no valid PTX calls it */
		}
	}
	for (unsigned i = 0; i < insn->n_operands; i++) {
		if (&insn->operands[i] != callee) {
			scan_operand(p, f, &insn->operands[i], line);
		}
	}
}

static void scan_variable(struct ptx_block_work *p, struct ptx_block_function *f,
			  const struct ptx_variable *v)
{
	if (v->space == PTX_GLOBAL || v->space == PTX_CONST ||
	    ptx_block_sreg_of(v->name) != PTX_BLOCK_SREG_NONE) {
		refuse(f, PROTO_BLOCK_SOURCE,
		       v->item.line); /* a kernel needs exactly one, and it would hide ours */
	}
	if (v->init) {
		scan_operand(p, f, v->init, v->item.line);
	}
}

static void scan_directive(struct ptx_block_function *f, const struct ptx_directive *d)
{
	if (strncmp(d->text, ".loc", 4) != 0 && strncmp(d->text, ".pragma", 7) != 0 &&
	    strncmp(d->text, ".file", 5) != 0) {
		refuse(f, PROTO_BLOCK_SOURCE, d->item.line);
	}
}

/* Recursion is bounded by the parser's limit on scopes. */
static void scan_list(struct ptx_block_work *p, struct ptx_block_function *f,
		      const struct ptx_list *list)
{
	ptx_block_hide_list(p, list, 1);
	ptx_each (list, it) {
		const struct ptx_targets *t = (const struct ptx_targets *)it;

		switch (it->kind) {
		case PTX_INSN:
			scan_insn(p, f, (const struct ptx_insn *)it);
			break;
		case PTX_VARIABLE:
			scan_variable(p, f, (const struct ptx_variable *)it);
			break;
		case PTX_DIRECTIVE:
			scan_directive(f, (const struct ptx_directive *)it);
			break;
		case PTX_SCOPE:
			scan_list(p, f, &((const struct ptx_scope *)it)->body);
			break;
		case PTX_TARGETS:
			for (uint32_t i = 0; i < t->n; i++) {
				use(p, t->names[i], it->line);
			}
			break;
		case PTX_LABEL:
		case PTX_PROTOTYPE:
			break;
		default:
			refuse(f, PROTO_BLOCK_SOURCE, it->line);
			break;
		}
	}
	ptx_block_hide_list(p, list, -1);
}

/* Scans the directives between an entry's parameters and its body. */
static void scan_tuning(struct ptx_block_function *f)
{
	static const char *const copied[] = { ".maxntid",      ".reqntid", ".minnctapersm",
					      ".maxnctapersm", ".maxnreg", ".pragma",
					      ".noreturn",     ".abi_",	   NULL };
	static const char *const clusters[] = { ".explicitcluster", ".reqnctapercluster",
						".maxclusterrank", ".blocksareclusters", NULL };

	ptx_each (&f->f->tuning, it) {
		const char *text = ((const struct ptx_directive *)it)->text;

		if (ptx_begins_with(text, clusters)) {
			refuse(f, PROTO_BLOCK_CLUSTER, it->line);
		}
		if (!ptx_begins_with(text, copied)) {
			refuse(f, PROTO_BLOCK_SOURCE, it->line);
		}
	}
}

static void scan_function(struct ptx_block_work *p, struct ptx_block_function *f)
{
	const struct ptx_function *pf = f->f;

	scan_tuning(f);
	if (*pf->attributes) {
		refuse(f, PROTO_BLOCK_SOURCE,
		       pf->item.line); /* such as an identity, which two functions cannot share */
	}
	for (uint32_t i = 0; i < pf->n_params + pf->n_returns; i++) {
		const struct ptx_variable *v =
			i < pf->n_params ? &pf->params[i] : &pf->returns[i - pf->n_params];

		if (ptx_block_sreg_of(v->name) != PTX_BLOCK_SREG_NONE) {
			refuse(f, PROTO_BLOCK_SOURCE, v->item.line);
		}
	}
	ptx_block_hide_params(p, pf, 1);
	scan_list(p, f, &pf->body);
	ptx_block_hide_params(p, pf, -1);
}

int ptx_block_scan(struct ptx_block_work *p)
{
	struct ptx_block_function top = { 0 };

	ptx_each (&p->m->items, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		if (it->kind == PTX_VARIABLE && v->init) {
			scan_operand(p, &top, v->init, it->line);
		}
	}
	for (uint32_t i = 0; i < p->n; i++) {
		struct ptx_block_function *f = &p->functions[i];

		if (f->f->has_body) {
			scan_function(p, f);
		}
	}
	return p->failed ? -ENOMEM : 0;
}
