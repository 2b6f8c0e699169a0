/* Calls of programs at accesses that are deferred. A program that only adds to maps (GBPF_F_DEFER)
 * and computes what it adds from its fields does the same in n calls with equal fields as in one
 * that adds everything n times. So the elected lane keeps, in registers of the entry's body, the
 * fields of its last calls (%~keyN) and their number (%~sumN), and calls the program when other
 * fields come or it leaves the kernel. docs/DEVICE-CODE.md, "Deferred calls", has the argument.
 *
 * Only calls in loops are deferred: elsewhere the sum costs more than the addition that it saves.
 * Sites that the program cannot tell apart share a sum, or two in turn: in loops accesses to two
 * arrays often alternate. */
#include <string.h>

#include "ptx/probe/emit/probe_flat_int.h"

/* Max instructions of a program whose calls are deferred. Each sum has a copy of it. */
#define DEFER_MAX 256u
#define SHARE 2u /* sums of such sites */

/* Fields in a key: PTX_PROBE_NEEDS_* that a key has a place for. Lanes are at most 32, and so are
 * sectors; a class of strides is at most 3, and conflicts are at most 31. Bit 31 is 0. */
#define KEY_NEEDS                                                                                  \
	(PTX_PROBE_NEEDS_MASK | PTX_PROBE_NEEDS_SECTORS | PTX_PROBE_NEEDS_STRIDE |                 \
	 PTX_PROBE_NEEDS_CONFLICTS)

/* ---- what can be deferred ---- */

/* Returns true if the operand may have another value when it is read later. */
static bool is_time(const struct ptx_operand *o)
{
	if (o->name &&
	    (strncmp(o->name, "%clock", 6) == 0 || strncmp(o->name, "%globaltimer", 12) == 0)) {
		return true;
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		if (is_time(&o->args[i])) {
			return true;
		}
	}
	return false;
}

static bool is_addition(const struct ptx_insn *insn)
{
	const char *type = insn->n_modifiers ? insn->modifiers[insn->n_modifiers - 1] : "";

	return strcmp(insn->opcode, "red") == 0 && ptx_insn_has(insn, ".add") &&
	       insn->n_operands == 2 && (strcmp(type, ".u32") == 0 || strcmp(type, ".u64") == 0);
}

static bool can_defer_insn(const struct ptx_function *root, const struct ptx_insn *insn)
{
	static const char *const flow[] = { "bra", "ret", NULL };

	for (unsigned i = 0; i < insn->n_operands; i++) {
		if (is_time(&insn->operands[i])) {
			return false;
		}
	}
	return ptx_probe_inline_param(root, insn) >= 0 || ptx_flat_is_computation(insn) ||
	       is_addition(insn) || ptx_is_one_of(insn->opcode, flow);
}

/* Recursion is bounded by the parser. */
static bool can_defer_list(const struct ptx_function *root, const struct ptx_list *list)
{
	bool can = true;

	for (const struct ptx_item *it = list->first; it && can; it = it->next) {
		if (it->kind == PTX_INSN) {
			can = can_defer_insn(root, (const struct ptx_insn *)it);
		} else if (it->kind == PTX_SCOPE) {
			can = can_defer_list(root, &((const struct ptx_scope *)it)->body);
		}
	}
	return can;
}

/* Returns true for a field that a key has, or whose value for a lane and a site never changes. */
static bool can_defer_field(const char *name)
{
	return !(ptx_probe_field_needs(name) & ~(uint32_t)KEY_NEEDS) &&
	       strcmp(name, "active") != 0 && !ptx_probe_field_is_time(name);
}

bool ptx_probe_can_defer(const struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	bool can = g->sums && g->probe->hook == PTX_PROBE_gdev_access && !g->probe->lanes &&
		   p->code[g->place].n_insns && p->code[g->place].n_insns <= DEFER_MAX &&
		   !g->n_args && !ptx_probe_is_old(p);

	for (uint32_t k = 0; k < g->n_fields && can; k++) {
		can = !ptx_probe_reads(g, k) || can_defer_field(g->fields[k].name);
	}
	return can && can_defer_list(g->root, &g->root->body);
}

static bool has_exit(const struct ptx_list *list)
{
	bool has = false;

	for (const struct ptx_item *it = list->first; it && !has; it = it->next) {
		has = (it->kind == PTX_INSN &&
		       strcmp(((const struct ptx_insn *)it)->opcode, "exit") == 0) ||
		      (it->kind == PTX_SCOPE && has_exit(&((const struct ptx_scope *)it)->body));
	}
	return has;
}

/* Returns true if threads may leave in a function of the module, which cannot reach the entry's
 * registers. */
static bool leaves_elsewhere(const struct ptx_module *m)
{
	ptx_each (&m->items, it) {
		const struct ptx_function *f = (const struct ptx_function *)it;

		if (it->kind == PTX_FUNCTION && !f->is_entry && has_exit(&f->body)) {
			return true;
		}
	}
	return false;
}

/* ---- sums ---- */

void ptx_probe_defer_open(struct ptx_probe_work *p)
{
	ptx_probe_each (p->read, g) {
		p->sums.any = p->sums.any || p->code[g->place].defers;
	}
	if (p->sums.any) {
		ptx_probe_find_loops(&p->sums.loops, p->at.in);
	}
	p->sums.any = p->sums.any && (p->sums.loops.n || p->sums.loops.many) &&
		      !leaves_elsewhere(p->slice->m);
	if (!p->sums.any) {
		return;
	}
	p->sums.leave_label = ++p->n_labels;
	ptx_probe_text(p, "\t.reg .b32 %%~key<%u>, %%~sum<%u>;\n", PTX_PROBE_SUMS_MAX,
		       PTX_PROBE_SUMS_MAX);
	for (unsigned i = 0; i < PTX_PROBE_SUMS_MAX; i++) {
		ptx_probe_text(p, "\tmov.u32 %%~key%u, 0;\n\tmov.u32 %%~sum%u, 0;\n", i, i);
	}
}

/* Returns true if sites of one hook are one place (struct ptx_probe_place). */
static bool is_same_place(const struct ptx_probe_site *a, const struct ptx_probe_site *b)
{
	return a->number == b->number || (a->line && a->line == b->line && a->file == b->file);
}

/* Returns true unless the program is given another value of the field at the other site. */
static bool is_same_field(const char *name, const struct ptx_probe_site *a,
			  const struct ptx_probe_site *b)
{
	return (strcmp(name, "site") != 0 || a->number == b->number) &&
	       (strcmp(name, "line") != 0 || a->line == b->line) &&
	       (strcmp(name, "place") != 0 || is_same_place(a, b)) &&
	       (strcmp(name, "space") != 0 || a->space == b->space) &&
	       (strcmp(name, "op") != 0 || a->op == b->op) &&
	       (strcmp(name, "bytes") != 0 || a->bytes == b->bytes);
}

static bool is_same(const struct ptx_probe_sum *sum, const struct ptx_probe_program *g,
		    const struct ptx_probe_site *s)
{
	bool same = sum->g == g;

	for (uint32_t k = 0; k < g->n_fields && same; k++) {
		same = !ptx_probe_reads(g, k) || is_same_field(g->fields[k].name, &sum->site, s);
	}
	return same;
}

static int new_sum(struct ptx_probe_work *p, const struct ptx_probe_program *g,
		   const struct ptx_probe_site *s)
{
	struct ptx_probe_sum *sum = &p->sums.at[p->sums.n];

	*sum = (struct ptx_probe_sum){ .g = g, .site = *s, .n_sites = 1 };
	for (uint32_t k = 0; k < g->n_fields; k++) {
		if (ptx_probe_reads(g, k)) {
			sum->needs |= ptx_probe_field_needs(g->fields[k].name);
		}
	}
	return (int)p->sums.n++;
}

/* Returns the sum with the fewest sites among those that the site may share; a new one if it may
 * have one; -1: none. */
static int sum_of(struct ptx_probe_work *p, const struct ptx_probe_program *g,
		  const struct ptx_probe_site *s)
{
	uint32_t n = 0;
	int least = -1;

	for (uint32_t i = 0; i < p->sums.n; i++) {
		if (is_same(&p->sums.at[i], g, s)) {
			n++;
			least = least < 0 || p->sums.at[i].n_sites < p->sums.at[least].n_sites
					? (int)i
					: least;
		}
	}
	if (n < SHARE && p->sums.n < PTX_PROBE_SUMS_MAX) {
		return new_sum(p, g, s);
	}
	if (least >= 0) {
		p->sums.at[least].n_sites++;
	}
	return least;
}

void ptx_probe_defer_site(struct ptx_probe_work *p, const struct ptx_probe_site *s,
			  const bool *runs)
{
	bool here = p->sums.any && p->at.in->is_entry && !ptx_probe_is_bulk(s) && s->insn &&
		    ptx_probe_in_loop(&p->sums.loops, s->insn->item.line);

	for (uint32_t i = 0; i < p->read->n_programs; i++) {
		const struct ptx_probe_program *g = &p->read->programs[i];

		p->code[i].sum = -1;
		if (here && runs[i] && p->code[g->place].defers &&
		    p->code[g->place].n_insns <= PTX_PROBE_INLINE_MAX - p->n_inlined) {
			p->code[i].sum = sum_of(p, g, s);
			p->n_inlined += p->code[i].sum < 0 ? 0 : p->code[g->place].n_insns;
		}
	}
}

/* ---- code ---- */

/* Calls the program once for all deferred calls of a sum, if there are any. */
static void flush(struct ptx_probe_work *p, unsigned n)
{
	const struct ptx_probe_sum *sum = &p->sums.at[n];
	unsigned none = ++p->n_labels;

	ptx_probe_text(p,
		       "\t{\n\t.reg .pred %%~p;\n\t.reg .b32 %%~m, %%~n, %%~s, %%~k, %%~c, "
		       "%%~weight32;\n\t.reg .b64 %%~weight;\n"
		       "\tsetp.eq.u32 %%~p, %%~sum%u, 0;\n\t@%%~p bra $~%u;\n",
		       n, none);
	if (sum->needs & PTX_PROBE_NEEDS_MASK) { /* only its population is read */
		ptx_probe_text(p,
			       "\tand.b32 %%~n, %%~key%u, 255;\n\tmov.u32 %%~m, 1;\n"
			       "\tshl.b32 %%~m, %%~m, %%~n;\n\tsub.u32 %%~m, %%~m, 1;\n",
			       n);
	}
	/* %~n: see environment() in probe_insert.c */
	ptx_probe_text(p,
		       "\tbfe.u32 %%~s, %%~key%u, 8, 8;\n\tbfe.u32 %%~k, %%~key%u, 16, 8;\n"
		       "\tbfe.u32 %%~c, %%~key%u, 24, 7;\n\tshr.u32 %%~n, %%~key%u, 31;\n"
		       "\tmov.u32 %%~weight32, %%~sum%u;\n\tcvt.u64.u32 %%~weight, %%~sum%u;\n",
		       n, n, n, n, n, n);
	p->weighted = true;
	ptx_probe_run(p, sum->g, &sum->site);
	p->weighted = false;
	ptx_probe_text(p, "\tmov.u32 %%~sum%u, 0;\n$~%u:\n\t}\n", n, none);
}

/* The key of this call, from what the lanes have collected, into %~q. */
static void key(struct ptx_probe_work *p, uint32_t needs)
{
	ptx_probe_text(p, needs & PTX_PROBE_NEEDS_MASK ? "\tpopc.b32 %%~q, %%~m;\n"
						       : "\tmov.u32 %%~q, 0;\n");
	if (needs & PTX_PROBE_NEEDS_SECTORS) {
		ptx_probe_text(p, "\tmad.lo.u32 %%~q, %%~s, 0x100, %%~q;\n");
	}
	if (needs & PTX_PROBE_NEEDS_STRIDE) {
		ptx_probe_text(p, "\tmad.lo.u32 %%~q, %%~k, 0x10000, %%~q;\n");
	}
	if (needs & PTX_PROBE_NEEDS_CONFLICTS) {
		ptx_probe_text(p, "\tmad.lo.u32 %%~q, %%~c, 0x1000000, %%~q;\n");
	}
}

/* A sum of 2^31 calls is full. */
void ptx_probe_defer(struct ptx_probe_work *p, uint32_t i)
{
	unsigned n = (unsigned)p->code[i].sum, same = ++p->n_labels;
	char weight[16];

	ptx_probe_merge_weight(p, weight, sizeof(weight));
	ptx_probe_text(p, "\t{\n\t.reg .b32 %%~q;\n");
	key(p, p->sums.at[n].needs);
	ptx_probe_text(p,
		       "\tsetp.ne.u32 %%~p, %%~q, %%~key%u;\n"
		       "\tsetp.lt.or.s32 %%~p, %%~sum%u, 0, %%~p;\n"
		       "\tand.pred %%~p, %%~p, %%~on;\n\t@!%%~p bra $~%u;\n",
		       n, n, same);
	flush(p, n);
	ptx_probe_text(p,
		       "\tmov.u32 %%~key%u, %%~q;\n$~%u:\n"
		       "\t@%%~on add.u32 %%~sum%u, %%~sum%u, %s;\n\t}\n",
		       n, same, n, n, weight);
}

void ptx_probe_defer_leave(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	if (!p->sums.any || !p->at.in->is_entry) {
		return;
	}
	if (insn && insn->guard) {
		ptx_probe_text(p, "\t@%s%s bra $~%u;\n", insn->guard_not ? "!" : "", insn->guard,
			       p->sums.leave_label);
	} else if (insn) { /* at its end they come there anyway */
		ptx_probe_text(p, "\tbra $~%u;\n", p->sums.leave_label);
	}
}

/* Two sums of the same sites are one if their keys are equal. */
static void join(struct ptx_probe_work *p, unsigned a, unsigned b)
{
	ptx_probe_text(p,
		       "\t{\n\t.reg .pred %%~p;\n\t.reg .b32 %%~t;\n"
		       "\tsetp.eq.u32 %%~p, %%~key%u, %%~key%u;\n"
		       "\tor.b32 %%~t, %%~sum%u, %%~sum%u;\n"
		       "\tsetp.lt.and.u32 %%~p, %%~t, 0x40000000, %%~p;\n"
		       "\t@%%~p add.u32 %%~sum%u, %%~sum%u, %%~sum%u;\n"
		       "\t@%%~p mov.u32 %%~sum%u, 0;\n\t}\n",
		       a, b, a, b, a, a, b, b);
}

void ptx_probe_defer_end(struct ptx_probe_work *p)
{
	if (!p->sums.any) {
		return;
	}
	ptx_probe_text(p, "$~%u:\n", p->sums.leave_label);
	for (unsigned b = 0; b < p->sums.n; b++) {
		for (unsigned a = 0; a < b; a++) {
			if (is_same(&p->sums.at[a], p->sums.at[b].g, &p->sums.at[b].site)) {
				join(p, a, b);
			}
		}
	}
	for (unsigned i = 0; i < p->sums.n; i++) {
		flush(p, i);
	}
	ptx_probe_text(p, "\tret;\n");
}
