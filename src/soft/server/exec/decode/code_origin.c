/* Whose code a line of the PTX is. Programs that gBPF has inserted into a kernel begin with a label
 * that has their name, and have labels with the number of the instruction (bpf/load/jit/ptx). They
 * end with the scope or the function that the label is in. The text may come from anyone: what it
 * says changes nothing but the words of a fault. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soft/server/exec/decode/load_int.h"

#define LABEL "$program$" /* EBPF_PTX_LABEL */
#define NAME_MAX_BYTES 48u

struct walk {
	struct exec_loader *l;
	struct buf origins, names;
	struct exec_origin last;
};

static bool same(const struct exec_origin *a, const struct exec_origin *b)
{
	return a->name == b->name && a->insn == b->insn;
}

static int add(struct walk *w, const struct exec_origin *now, uint32_t line)
{
	if (same(&w->last, now)) {
		return 0;
	}
	w->last = *now;
	w->last.line = line;
	return buf_add(&w->origins, &w->last, sizeof(w->last)) < 0 ? exec_load_no_memory(w->l) : 0;
}

static int add_name(struct walk *w, const char *name, uint32_t *ret)
{
	*ret = (uint32_t)w->names.len;
	return buf_add(&w->names, name, strnlen(name, NAME_MAX_BYTES)) < 0 ||
			       buf_add(&w->names, "", 1) < 0
		       ? exec_load_no_memory(w->l)
		       : 0;
}

/* Sets *now to what a label says. */
static int take_label(struct walk *w, const char *name, struct exec_origin *now)
{
	unsigned insn = 0;
	int end = 0;

	if (strncmp(name, LABEL, strlen(LABEL)) == 0) {
		now->insn = UINT32_MAX;
		return add_name(w, name + strlen(LABEL), &now->name);
	}
	if (now->name != UINT32_MAX && sscanf(name, "$L%9u%n", &insn, &end) == 1 && !name[end]) {
		now->insn = insn;
	}
	return 0;
}

/* Recursion is bounded by the parser's limit on nested scopes. */
static int walk_list(struct walk *w, const struct ptx_list *list, struct exec_origin now)
{
	int err = 0;

	for (const struct ptx_item *it = list->first; it && err == 0; it = it->next) {
		if (it->kind == PTX_LABEL) {
			err = take_label(w, ((const struct ptx_label *)it)->name, &now);
		}
		if (err == 0) {
			err = add(w, &now, it->line);
		}
		if (err == 0 && it->kind == PTX_SCOPE) {
			err = walk_list(w, &((const struct ptx_scope *)it)->body, now);
		}
	}
	return err;
}

int exec_load_origins(struct exec_loader *l)
{
	struct walk w = { .l = l, .last = { .insn = UINT32_MAX, .name = UINT32_MAX } };
	const struct exec_origin kernel = w.last;
	int err = 0;

	for (const struct ptx_item *it = l->ptx->items.first; it && err == 0; it = it->next) {
		if (it->kind == PTX_FUNCTION) {
			const struct ptx_function *f = (const struct ptx_function *)it;

			err = walk_list(&w, &f->body, kernel);
			err = err ? err : add(&w, &kernel, f->end_line);
		}
	}
	l->m->n_origins = (uint32_t)(w.origins.len / sizeof(kernel));
	l->m->origins = (struct exec_origin *)buf_steal(&w.origins);
	l->m->names = buf_steal(&w.names);
	return err;
}

const char *exec_origin_at(const struct exec_module *m, uint32_t line, uint32_t *ret_insn)
{
	uint32_t low = 0, high = m->n_origins;
	const struct exec_origin *o;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (m->origins[mid].line <= line) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	o = low ? &m->origins[low - 1] : NULL;
	*ret_insn = o ? o->insn : UINT32_MAX;
	return o && o->name != UINT32_MAX ? m->names + o->name : NULL;
}

void exec_program_text(char *out, size_t room, const char *program, uint32_t insn)
{
	if (!program) {
		out[0] = '\0';
	} else if (insn == UINT32_MAX) {
		snprintf(out, room, ", program %s", program);
	} else {
		snprintf(out, room, ", program %s, instruction %u", program, insn);
	}
}
