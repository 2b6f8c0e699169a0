/* Programs for targets older than sm_70. They are written for sm_70; the target of a kernel stays
 * as it is, because it decides what the kernel may expect of the lanes of a warp. So the orders and
 * scopes that older targets lack are written as they know them: volatile accesses, atomics without
 * an order (they are relaxed) and membar. Below sm_60 an atomic has the scope of the GPU. */
#include <string.h>

#include "ptx/probe/emit/probe_emit.h"

#define MODIFIERS_MAX (PTX_MODIFIERS_MAX + 1u)

unsigned ptx_probe_target(const struct ptx_probe_work *p)
{
	const char *t = p->slice->m->target + strcspn(p->slice->m->target, "0123456789");
	unsigned n = 0;

	for (; *t >= '0' && *t <= '9' && n < 10000; t++) {
		n = n * 10 + (unsigned)(*t - '0');
	}
	return n;
}

bool ptx_probe_is_old(const struct ptx_probe_work *p)
{
	return p->slice && ptx_probe_target(p) < 70;
}

static bool is_order(const char *modifier)
{
	static const char *const orders[] = { ".relaxed", ".acquire", ".release", ".acq_rel",
					      NULL };

	return ptx_is_one_of(modifier, orders);
}

static bool is_scope(const char *modifier)
{
	static const char *const scopes[] = { ".cta", ".gpu", ".sys", NULL };

	return ptx_is_one_of(modifier, scopes);
}

static const char *barrier_of(const struct ptx_insn *insn)
{
	return ptx_insn_has(insn, ".sys")   ? "membar.sys"
	       : ptx_insn_has(insn, ".gpu") ? "membar.gl"
					    : "membar.cta";
}

static bool is_atomic(const struct ptx_insn *insn)
{
	return strcmp(insn->opcode, "atom") == 0 || strcmp(insn->opcode, "red") == 0;
}

/* An access whose order is not relaxed is not emitted by the compiler. */
bool ptx_probe_is_new_insn(const struct ptx_insn *insn)
{
	return !is_atomic(insn) &&
	       (ptx_insn_has(insn, ".acquire") || ptx_insn_has(insn, ".release"));
}

void ptx_probe_print_old_insn(struct ptx_probe_work *p, const struct ptx_insn *from)
{
	bool keep_scope = is_atomic(from) && ptx_probe_target(p) >= 60;
	const char *modifiers[MODIFIERS_MAX];
	struct ptx_insn insn = *from;
	bool ordered = false;
	unsigned n = 0;

	for (unsigned i = 0; i < from->n_modifiers; i++) {
		ordered = ordered || is_order(from->modifiers[i]);
	}
	if (strcmp(from->opcode, "fence") == 0) {
		ptx_probe_text(p, "\t%s;\n", barrier_of(from));
		return;
	}
	if (!ordered) {
		ptx_item_print(&from->item, p->out);
		return;
	}
	if (!is_atomic(from)) {
		modifiers[n++] = ".volatile";
	}
	for (unsigned i = 0; i < from->n_modifiers; i++) {
		const char *m = from->modifiers[i];

		if (!is_order(m) && (keep_scope || !is_scope(m))) {
			modifiers[n++] = m;
		}
	}
	insn.modifiers = modifiers;
	insn.n_modifiers = (uint8_t)n;
	ptx_item_print(&insn.item, p->out);
	if (is_atomic(from) && ptx_insn_has(from, ".acq_rel")) {
		ptx_probe_text(p, "\t%s;\n", barrier_of(from));
	}
}

/* Recursion is bounded by the parser's limit on scopes. */
static int print_list(struct ptx_probe_work *p, const struct ptx_list *list)
{
	int err = 0;

	for (const struct ptx_item *it = list->first; it && err == 0; it = it->next) {
		if (it->kind == PTX_SCOPE) {
			ptx_probe_text(p, "\t{\n");
			err = print_list(p, &((const struct ptx_scope *)it)->body);
			ptx_probe_text(p, "\t}\n");
		} else if (it->kind != PTX_INSN) {
			ptx_item_print(it, p->out);
		} else if (ptx_probe_is_new_insn((const struct ptx_insn *)it)) {
			err = ptx_probe_refuse(p->slice, 0,
					       "a program needs sm_70, the kernel is for %s",
					       p->slice->m->target);
		} else {
			ptx_probe_print_old_insn(p, (const struct ptx_insn *)it);
		}
	}
	return err;
}

int ptx_probe_print_old(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	int err = 0;

	for (const struct ptx_item *it = g->module->items.first; it && err == 0; it = it->next) {
		const struct ptx_function *f = (const struct ptx_function *)it;

		if (it->kind != PTX_FUNCTION) {
			continue;
		}
		ptx_head_print(f, p->out);
		buf_puts(p->out, f->has_body ? "\n{\n" : ";\n");
		if (f->has_body) {
			err = print_list(p, &f->body);
			buf_puts(p->out, "}\n");
		}
	}
	return err;
}
