/* Short programs without branches: printing. */
#include <stdio.h>
#include <string.h>

#include "ptx/probe/emit/probe_flat_int.h"

/* Sets ret to the name of a predicate of gBPF's. */
static void own(const struct ptx_flat *f, const char *name, uint32_t n, char ret[48])
{
	if (n) {
		snprintf(ret, 48, "%%%s%s%u", f->p->stem, name, n);
	} else {
		snprintf(ret, 48, "%%%s%s", f->p->stem, name);
	}
}

/* Computes the path and a condition into a predicate. */
static void both(const struct ptx_flat *f, const char *to, const char *condition, bool not )
{
	const char *op = *f->now ? "and" : "mov", *comma = *f->now ? ", " : "";

	if (not ) {
		ptx_probe_text(f->p, "\tnot.pred %%~if, %s;\n", condition);
	}
	ptx_probe_text(f->p, "\t%s.pred %s, %s%s%s;\n", op, to, f->now, comma,
		       not ? "%~if" : condition);
}

/* Lanes that jump wait for the label under a predicate of their own, which is false in others. */
static void print_branch(struct ptx_flat *f, uint32_t at)
{
	const struct ptx_insn *insn = f->items[at].insn;
	uint32_t target = f->items[at].target;
	char path[48], waits[48], leaves[48];

	own(f, "at", 0, path);
	own(f, "to", target + 1, waits);
	own(f, "leaves", 0, leaves);
	if (target < f->end) {
		struct ptx_flat_item *label = &f->items[target];

		if (insn->guard) {
			both(f, leaves, insn->guard, insn->guard_not);
		} else {
			buf_printf(f->p->out, "\tmov.pred %s, %s;\n", leaves, f->now);
		}
		if (label->joined) {
			buf_printf(f->p->out, "\tor.pred %s, %s, %s;\n", waits, waits, leaves);
		} else {
			buf_printf(f->p->out, "\t.reg .pred %s;\n\tmov.pred %s, %s;\n", waits,
				   waits, leaves);
		}
		label->joined = true;
	}
	if (insn->guard) {
		both(f, path, insn->guard, !insn->guard_not);
	} else {
		ptx_probe_text(f->p, "\txor.pred %%~at, %%~on, %%~on;\n");
	}
	memcpy(f->now, path, sizeof(path));
}

/* Nothing jumps to it, but reports of faults name the program by its labels. */
static void print_label(struct ptx_flat *f, uint32_t at)
{
	buf_printf(f->p->out, "%s:\n", f->items[at].label);
	if (f->items[at].joined) {
		char path[48], waits[48];

		own(f, "at", 0, path);
		own(f, "to", at + 1, waits);
		buf_printf(f->p->out, "\tor.pred %s, %s, %s;\n", path, path, waits);
	}
}

static void print_insn(struct ptx_flat *f, uint32_t at)
{
	struct ptx_insn copy = *f->items[at].insn;
	char guard[48];

	if (f->items[at].param >= 0) {
		ptx_probe_inline_take(f->p, f->g, &copy, (uint32_t)f->items[at].param);
		return;
	}
	if (*f->now && ptx_flat_on_path_only(f, at)) {
		if (copy.guard) {
			own(f, "both", 0, guard);
			both(f, guard, copy.guard, copy.guard_not);
			copy.guard = guard;
		} else {
			copy.guard = f->now;
		}
		copy.guard_not = false;
	}
	ptx_item_print(&copy.item, f->p->out);
}

void ptx_flat_declare(const struct ptx_flat *f)
{
	for (const struct ptx_item *it = f->g->root->body.first; it; it = it->next) {
		if (it->kind == PTX_VARIABLE) {
			ptx_item_print(it, f->p->out);
		}
	}
}

void ptx_probe_flat(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	struct ptx_flat f;

	if (!ptx_flat_read(&f, p, g)) {
		return;
	}
	if (f.elected) {
		own(&f, "on", 0, f.now);
	}
	ptx_probe_text(p, "\t{\n\t.reg .pred %%~at, %%~if, %%~both, %%~leaves;\n");
	ptx_flat_declare(&f);
	for (uint32_t i = 0; i < f.end; i++) {
		const struct ptx_flat_item *it = &f.items[i];

		if (it->label) {
			print_label(&f, i);
		} else if (it->target != PTX_FLAT_NOWHERE) {
			print_branch(&f, i);
		} else if (!it->dead) {
			print_insn(&f, i);
		}
	}
	ptx_probe_text(p, "\t}\n");
}
