/* A short program without loops as instructions under predicates instead of branches. ptxas then
 * reads special registers and computes addresses among the kernel's own instructions, and keeps
 * stores without a branch. All lanes execute what computes registers; accesses are executed by the
 * lanes that are elected and whose path through the program leads to them.
 *
 * Lanes that jump over instructions must find the registers that they read later as they left them.
 * So an instruction between a branch and its target is executed under the predicate of its path if
 * it writes a register that is live at the target. */
#include <string.h>

#include "ptx/probe/emit/probe_flat_int.h"

#define BRANCHES_MAX 8u
#define INSNS_MAX 32u

/* ---- reading ---- */

static uint64_t bit_of(struct ptx_flat *f, const char *name)
{
	for (uint32_t i = 0; i < f->n_registers; i++) {
		if (strcmp(f->registers[i], name) == 0) {
			return UINT64_C(1) << i;
		}
	}
	if (f->n_registers == PTX_FLAT_REGISTERS_MAX) {
		f->impossible = true;
		return 0;
	}
	f->registers[f->n_registers] = name;
	return UINT64_C(1) << f->n_registers++;
}

static uint64_t bits_of(struct ptx_flat *f, const struct ptx_operand *o)
{
	uint64_t bits = o->name ? bit_of(f, o->name) : 0;

	for (uint32_t i = 0; i < o->n_args; i++) {
		bits |= bits_of(f, &o->args[i]);
	}
	return bits;
}

/* Returns true for an instruction that only computes registers and faults for no values. */
bool ptx_flat_is_computation(const struct ptx_insn *insn)
{
	static const char *const opcodes[] = { "mov",  "cvt", "cvta", "add",  "sub",  "mul",
					       "mad",  "and", "or",   "xor",  "not",  "neg",
					       "shl",  "shr", "min",  "setp", "selp", "max",
					       "popc", "clz", "bfe",  "bfi",  "abs",  NULL };

	return ptx_is_one_of(insn->opcode, opcodes) && !ptx_insn_has(insn, ".cc");
}

static void read_insn(struct ptx_flat *f, struct ptx_flat_item *it)
{
	const struct ptx_insn *insn = it->insn;
	unsigned first = 0;

	it->param = ptx_probe_inline_param(f->g->root, insn);
	it->effect = (strcmp(insn->opcode, "st") == 0 || strcmp(insn->opcode, "red") == 0) &&
		     !ptx_insn_has(insn, ".param");
	if (!it->effect && it->param < 0 && !ptx_flat_is_computation(insn)) {
		f->impossible = true;
		return;
	}
	if (!it->effect && insn->n_operands) {
		it->writes = bits_of(f, &insn->operands[0]);
		first = 1;
	}
	for (unsigned i = first; i < insn->n_operands && it->param < 0; i++) {
		it->reads |= bits_of(f, &insn->operands[i]);
	}
	if (insn->guard) {
		it->reads |= bit_of(f, insn->guard) | it->writes;
	}
}

static bool is_branch(const struct ptx_insn *insn)
{
	return insn && (strcmp(insn->opcode, "bra") == 0 || strcmp(insn->opcode, "ret") == 0);
}

void ptx_flat_read_item(struct ptx_flat *f, const struct ptx_item *from)
{
	struct ptx_flat_item *it = &f->items[f->n_items];

	if (from->kind == PTX_DIRECTIVE || from->kind == PTX_VARIABLE) {
		return;
	}
	if (f->n_items == PTX_FLAT_ITEMS_MAX ||
	    (from->kind != PTX_LABEL && from->kind != PTX_INSN)) {
		f->impossible = true;
		return;
	}
	*it = (struct ptx_flat_item){ .target = PTX_FLAT_NOWHERE, .param = -1 };
	f->n_items++;
	if (from->kind == PTX_LABEL) {
		it->label = ((const struct ptx_label *)from)->name;
		return;
	}
	it->insn = (const struct ptx_insn *)from;
	if (is_branch(it->insn)) {
		f->n_branches++;
		it->reads = it->insn->guard ? bit_of(f, it->insn->guard) : 0;
	} else {
		read_insn(f, it);
	}
}

/* Returns the item behind `at` that a branch there leads to; PTX_FLAT_NOWHERE: none, so it is a
 * loop. */
static uint32_t target_of(const struct ptx_flat *f, uint32_t at)
{
	const struct ptx_insn *insn = f->items[at].insn;

	if (strcmp(insn->opcode, "ret") == 0) {
		return f->n_items;
	}
	for (uint32_t i = at + 1; insn->n_operands == 1 && insn->operands[0].name && i < f->n_items;
	     i++) {
		if (f->items[i].label && strcmp(f->items[i].label, insn->operands[0].name) == 0) {
			return i;
		}
	}
	return PTX_FLAT_NOWHERE;
}

/* ---- what is needed ---- */

static uint64_t live_at(const struct ptx_flat *f, uint32_t target)
{
	return target < f->n_items ? f->items[target].live : 0;
}

/* Marks the instructions whose results nothing reads. Branches lead forward, so one pass
 * suffices. */
static void find_live(struct ptx_flat *f)
{
	uint64_t live = 0;

	for (uint32_t i = f->n_items; i-- > 0;) {
		struct ptx_flat_item *it = &f->items[i];

		if (it->label) {
			it->live = live;
		} else if (it->target != PTX_FLAT_NOWHERE) {
			live = (it->insn->guard ? live : 0) | live_at(f, it->target) | it->reads;
		} else if (!it->effect && !(it->writes & live)) {
			it->dead = true;
		} else {
			live = (live & ~it->writes) | it->reads;
			f->end = f->end ? f->end : it->effect ? i + 1 : 0;
			f->n_alive++;
		}
	}
}

bool ptx_flat_on_path_only(const struct ptx_flat *f, uint32_t at)
{
	if (f->items[at].effect) {
		return true;
	}
	for (uint32_t i = 0; i < at; i++) {
		const struct ptx_flat_item *it = &f->items[i];

		if (it->target != PTX_FLAT_NOWHERE && it->target > at &&
		    (live_at(f, it->target) & f->items[at].writes)) {
			return true;
		}
	}
	return false;
}

bool ptx_flat_read(struct ptx_flat *f, struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	*f = (struct ptx_flat){ .p = p, .g = g, .elected = !g->probe->lanes };
	for (const struct ptx_item *it = g->root->body.first; it && !f->impossible; it = it->next) {
		ptx_flat_read_item(f, it);
	}
	for (uint32_t i = 0; i < f->n_items && !f->impossible; i++) {
		struct ptx_flat_item *it = &f->items[i];

		if (is_branch(it->insn)) {
			it->target = target_of(f, i);
			f->impossible = it->target == PTX_FLAT_NOWHERE;
		}
	}
	if (f->impossible || f->n_branches > BRANCHES_MAX) {
		return false;
	}
	find_live(f);
	for (uint32_t i = 0; i < f->end; i++) {
		const struct ptx_flat_item *it = &f->items[i];

		/* each lane: no predicate is known to be false. A load of a parameter has no guard.
		 */
		f->impossible =
			f->impossible ||
			(it->target != PTX_FLAT_NOWHERE && !f->elected && !it->insn->guard) ||
			(it->param >= 0 && !it->dead && ptx_flat_on_path_only(f, i));
	}
	return !f->impossible && f->n_alive <= INSNS_MAX;
}

bool ptx_probe_is_flat(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	bool forced = g->probe->branches == PTX_PROBE_PREDICATES;
	bool in_text = p->code[g->place].map_at || (forced && g->probe->maps_in_table);
	struct ptx_flat f;

	if (!p->code[g->place].n_insns || g->probe->branches == PTX_PROBE_BRANCHES ||
	    ptx_probe_is_old(p) || !(in_text || !ptx_probe_n_addresses(g)) ||
	    (!forced && ptx_probe_has_early(p, g))) {
		return false;
	}
	return ptx_flat_read(&f, p, g);
}
