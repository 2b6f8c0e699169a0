/* A program's leading test. A program for a sample of blocks begins with a comparison of values
 * that are the same in all threads of a block, and returns in most of them. The lanes of a site
 * make this test before they collect values and elect one of them: in blocks that the program
 * leaves out it is all that they execute. The program makes it again, so its own code stays as it
 * is. */
#include <string.h>

#include "ptx/probe/emit/probe_flat_int.h"

/* A leading test: items up to its branch, of which some compute the condition. */
struct early {
	struct ptx_flat f;
	bool kept[PTX_FLAT_ITEMS_MAX];
	uint32_t branch;
	bool not ; /* the program returns if the condition is false */
};

/* Returns true for fields with one value for all threads of a block, at a site. */
static bool is_of_block(const char *name)
{
	static const char *const names[] = { "block",	  "block_x",   "block_y", "block_z",
					     "grid_x",	  "grid_y",    "grid_z",  "threads_x",
					     "threads_y", "threads_z", "kernel",  "function",
					     "site",	  "line",      "place",	  "launch",
					     NULL };

	return ptx_is_one_of(name, names);
}

/* Returns the number of the field that parameter i of a root is; -1: it is none. */
static int field_of(const struct ptx_probe_program *g, int i)
{
	i -= 1 + (int)ptx_probe_n_addresses(g);
	for (uint32_t k = 0; k < g->n_fields && i >= 0; k++) {
		if (ptx_probe_reads(g, k) && i-- == 0) {
			return (int)k;
		}
	}
	return -1;
}

/* Reads the root up to its first branch. Returns true if that depends on a condition, and all in
 * front of it computes registers. */
static bool read(struct early *e, struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	*e = (struct early){ .f = { .p = p, .g = g } };
	for (const struct ptx_item *it = g->root->body.first; it; it = it->next) {
		const struct ptx_flat_item *last;

		ptx_flat_read_item(&e->f, it);
		if (e->f.impossible) {
			return false;
		}
		last = e->f.n_items ? &e->f.items[e->f.n_items - 1] : NULL;
		if (last && last->effect) {
			return false;
		}
		if (e->f.n_branches) {
			e->branch = e->f.n_items - 1;
			return last && last->insn->guard;
		}
	}
	return false;
}

static const struct ptx_item *label_of(const struct ptx_probe_program *g,
				       const struct ptx_insn *insn)
{
	const char *name = insn->n_operands == 1 ? insn->operands[0].name : NULL;

	ptx_each (&g->root->body, it) {
		if (it->kind == PTX_LABEL && name &&
		    strcmp(((const struct ptx_label *)it)->name, name) == 0) {
			return it;
		}
	}
	return NULL;
}

/* Returns true if a program that arrives at an item of the root does nothing more than return. */
static bool only_returns(const struct early *e, const struct ptx_item *it)
{
	struct ptx_flat f = { .p = e->f.p, .g = e->f.g };

	for (unsigned jumps = 0; it; it = it->next) {
		const struct ptx_insn *insn = (const struct ptx_insn *)it;

		if (it->kind == PTX_INSN && !insn->guard && strcmp(insn->opcode, "ret") == 0) {
			return true;
		}
		if (it->kind == PTX_INSN && !insn->guard && strcmp(insn->opcode, "bra") == 0) {
			it = label_of(e->f.g, insn);
			if (!it || ++jumps > 8) {
				return false;
			}
			continue;
		}
		ptx_flat_read_item(&f, it);
		if (f.impossible || f.n_branches || (f.n_items && f.items[f.n_items - 1].effect)) {
			return false;
		}
	}
	return true;
}

/* Marks what computes the condition, which must be a comparison for equality: look-ups compare
 * indices with sizes by order, and nearly all pass. */
static bool keep(struct early *e)
{
	const struct ptx_insn *branch = e->f.items[e->branch].insn;
	uint64_t needed = e->f.items[e->branch].reads;
	bool any = false;

	for (uint32_t i = e->branch; i-- > 0;) {
		const struct ptx_flat_item *it = &e->f.items[i];
		int field = it->param >= 0 ? field_of(e->f.g, it->param) : -1;

		if (!it->insn || !(it->writes & needed)) {
			continue;
		}
		if (strcmp(it->insn->operands[0].name ? it->insn->operands[0].name : "",
			   branch->guard) == 0 &&
		    !ptx_insn_has(it->insn, ".eq") && !ptx_insn_has(it->insn, ".ne")) {
			return false;
		}
		if (it->param >= 0 && (field < 0 || !is_of_block(e->f.g->fields[field].name))) {
			return false;
		}
		any = any || field >= 0;
		needed = (needed & ~it->writes) | it->reads;
		e->kept[i] = true;
	}
	return any && !needed;
}

static bool find(struct early *e, struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	const struct ptx_insn *branch;
	const struct ptx_item *target;

	if (!p->code[g->place].n_insns || ptx_probe_is_old(p) || !read(e, p, g)) {
		return false;
	}
	branch = e->f.items[e->branch].insn;
	target = label_of(g, branch);
	if (strcmp(branch->opcode, "ret") == 0 || (target && only_returns(e, target))) {
		e->not = branch->guard_not;
	} else if (target && only_returns(e, branch->item.next)) {
		e->not = !branch->guard_not;
	} else {
		return false;
	}
	return keep(e);
}

bool ptx_probe_has_early(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	struct early e;

	return find(&e, p, g);
}

/* Prints the fields that are read, with the declarations that they need. */
static void fields(const struct early *e, const struct ptx_probe_site *s)
{
	struct ptx_probe_work *p = e->f.p;
	uint64_t done = 0;

	ptx_probe_text(p, "\t.reg .b32 %%~t, %%~u;\n\t.reg .b64 %%~d;\n");
	for (uint32_t i = 0; i < e->branch; i++) {
		int k = e->kept[i] && e->f.items[i].param >= 0
				? field_of(e->f.g, e->f.items[i].param)
				: -1;

		if (k >= 0 && !(done >> k & 1)) {
			done |= UINT64_C(1) << k;
			ptx_probe_text(p, "\t.reg .b%u %%~f%d;\n", e->f.g->fields[k].bytes * 8, k);
			ptx_probe_field(p, e->f.g, (unsigned)k, s);
		}
	}
}

void ptx_probe_early(struct ptx_probe_work *p, const struct ptx_probe_program *g,
		     const struct ptx_probe_site *s, uint32_t label)
{
	struct early e;

	if (!find(&e, p, g)) {
		return;
	}
	ptx_probe_text(p, "\t{\n");
	fields(&e, s);
	ptx_probe_text(p, "\t{\n");
	ptx_flat_declare(&e.f);
	for (uint32_t i = 0; i < e.branch; i++) {
		const struct ptx_flat_item *it = &e.f.items[i];

		if (e.kept[i] && it->param >= 0) {
			ptx_probe_inline_take(p, g, it->insn, (uint32_t)it->param);
		} else if (e.kept[i]) {
			ptx_item_print(&it->insn->item, p->out);
		}
	}
	ptx_probe_text(p, "\t@%s%s bra $~%u;\n\t}\n\t}\n", e.not ? "!" : "",
		       e.f.items[e.branch].insn->guard, label);
}
