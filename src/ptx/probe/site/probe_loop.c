/* The loops of an entry, as far as its text shows them: from a label to a jump back to it. A site
 * between them may run many times in a thread. Labels of one name in several scopes count as one.
 * The result decides only which calls are deferred, so a wrong loop costs time and changes no
 * value. */
#include <string.h>

#include "ptx/probe/site/probe_site.h"

static void add_labels(struct strmap *labels, const struct ptx_list *list)
{
	for (struct ptx_item *it = list->first; it; it = it->next) {
		if (it->kind == PTX_LABEL) {
			(void)strmap_add(labels, ((const struct ptx_label *)it)->name, it);
		} else if (it->kind == PTX_SCOPE) {
			add_labels(labels, &((const struct ptx_scope *)it)->body);
		}
	}
}

static void add_loop(struct ptx_probe_loops *l, uint32_t first, uint32_t last)
{
	if (l->n == PTX_PROBE_LOOPS_MAX) {
		l->many = true;
		return;
	}
	l->first[l->n] = first;
	l->last[l->n++] = last;
}

static void add_jumps(struct ptx_probe_loops *l, const struct strmap *labels,
		      const struct ptx_list *list)
{
	for (struct ptx_item *it = list->first; it; it = it->next) {
		const struct ptx_insn *insn = (const struct ptx_insn *)it;
		const struct ptx_item *label;

		if (it->kind == PTX_SCOPE) {
			add_jumps(l, labels, &((const struct ptx_scope *)it)->body);
			continue;
		}
		if (it->kind != PTX_INSN || strcmp(insn->opcode, "bra") != 0 ||
		    insn->n_operands != 1 || !insn->operands[0].name) {
			l->many = l->many ||
				  (it->kind == PTX_INSN && strcmp(insn->opcode, "brx") == 0);
			continue;
		}
		label = strmap_get(labels, insn->operands[0].name);
		if (label && label->line <= it->line) {
			add_loop(l, label->line, it->line);
		}
	}
}

void ptx_probe_find_loops(struct ptx_probe_loops *l, const struct ptx_function *f)
{
	struct strmap labels;

	*l = (struct ptx_probe_loops){ 0 };
	strmap_init(&labels);
	add_labels(&labels, &f->body);
	add_jumps(l, &labels, &f->body);
	strmap_finish(&labels);
}

bool ptx_probe_in_loop(const struct ptx_probe_loops *l, uint32_t line)
{
	bool in = l->many;

	for (uint32_t i = 0; i < l->n && !in; i++) {
		in = l->first[i] <= line && line <= l->last[i];
	}
	return in;
}
