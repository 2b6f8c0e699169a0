/* Moves variables of bodies to the module, under names of their own, and lists the functions whose
 * addresses are taken. */
#include "ptx/prepare.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/strmap.h"
#include "ptx/block_facts.h"
#include "ptx/pass.h"

#define LISTED_MAX 4096u   /* functions in the list */
#define WORK_MAX 20000000u /* items looked at for names; variables beyond stay where they are */

struct preparing {
	struct ptx_module *m;
	uint64_t id;
	unsigned n_moved, work;
	struct strmap functions; /* by name; struct ptx_function with a body, no entries */
	struct strmap listed;	 /* of these: whose address is taken */
	bool too_many;
	int err;
};

static bool is_prepared(const struct ptx_module *m)
{
	ptx_each (&m->items, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		if (it->kind == PTX_VARIABLE &&
		    (strncmp(v->name, PTX_PREPARED, strlen(PTX_PREPARED)) == 0 ||
		     strncmp(v->name, PTX_FUNCTIONS, strlen(PTX_FUNCTIONS)) == 0)) {
			return true;
		}
	}
	return false;
}

/* ---- variables of bodies ---- */

/* Whether a list declares the name itself; ranges declare names that end with a number. */
static bool declares(const struct ptx_list *list, const char *name)
{
	ptx_each (list, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;
		size_t n;

		if (it->kind != PTX_VARIABLE) {
			continue;
		}
		n = strlen(v->name);
		if (v->has_range ? strncmp(v->name, name, n) == 0 && name[n] &&
					   strspn(name + n, "0123456789") == strlen(name + n)
				 : strcmp(v->name, name) == 0) {
			return true;
		}
	}
	return false;
}

static void rename_operand(struct ptx_operand *o, const char *from, const char *to)
{
	if (o->name && strcmp(o->name, from) == 0) {
		o->name = to;
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		rename_operand(&o->args[i], from, to);
	}
}

/* Inner declarations of the name hide it. Recursion is bounded by the parser's limit on scopes. */
static void rename_list(struct preparing *p, struct ptx_list *list, const char *from,
			const char *to)
{
	ptx_each (list, it) {
		p->work++;
		if (it->kind == PTX_INSN) {
			struct ptx_insn *insn = (struct ptx_insn *)it;

			for (unsigned i = 0; i < insn->n_operands; i++) {
				rename_operand(&insn->operands[i], from, to);
			}
		} else if (it->kind == PTX_VARIABLE && ((struct ptx_variable *)it)->init) {
			rename_operand(((struct ptx_variable *)it)->init, from, to);
		} else if (it->kind == PTX_SCOPE &&
			   !declares(&((struct ptx_scope *)it)->body, from)) {
			rename_list(p, &((struct ptx_scope *)it)->body, from, to);
		}
	}
}

/* References to textures belong to the module that declares them, and other linkage names another
 * variable. */
static bool moves(const struct ptx_variable *v)
{
	return (v->space == PTX_GLOBAL || (v->space == PTX_CONST && !(v->has_bank && v->bank))) &&
	       !*v->linkage && !strstr(v->type, "ref") && !v->has_range;
}

static void move_variable(struct preparing *p, struct ptx_function *f, struct ptx_list *list,
			  struct ptx_variable *v)
{
	char text[64];
	const char *from = v->name, *to;

	snprintf(text, sizeof(text), PTX_PREPARED "%016llx_%u", (unsigned long long)p->id,
		 p->n_moved++);
	to = ptx_arena_text(&p->m->arena, text, strlen(text));
	if (!to) {
		p->err = -ENOMEM;
		return;
	}
	rename_list(p, list, from, to);
	v->name = to;
	ptx_list_remove(list, &v->item);
	ptx_list_insert(&p->m->items, f->item.prev, &v->item);
}

/* Outer lists first: the initial values of inner variables may name outer ones. */
static void move_all(struct preparing *p, struct ptx_function *f, struct ptx_list *list)
{
	struct ptx_item *next;

	for (struct ptx_item *it = list->first; it && !p->err; it = next) {
		next = it->next;
		if (it->kind == PTX_VARIABLE && moves((struct ptx_variable *)it) &&
		    p->work < WORK_MAX) {
			move_variable(p, f, list, (struct ptx_variable *)it);
		}
	}
	ptx_each (list, it) {
		if (it->kind == PTX_SCOPE && !p->err) {
			move_all(p, f, &((struct ptx_scope *)it)->body);
		}
	}
}

/* ---- functions ---- */

static void take_name(struct preparing *p, const char *name)
{
	void *f = name ? strmap_get(&p->functions, name) : NULL;

	if (f && !strmap_get(&p->listed, name)) {
		p->too_many = p->too_many || p->listed.live == LISTED_MAX;
		p->err = !p->too_many && strmap_add(&p->listed, name, f) < 0 ? -ENOMEM : p->err;
	}
}

static void take_operand(struct preparing *p, const struct ptx_operand *o)
{
	take_name(p, o->name);
	for (uint32_t i = 0; i < o->n_args; i++) {
		take_operand(p, &o->args[i]);
	}
}

/* A name that a body declares hides the function's; listing it in addition does no harm. */
static void take_list(struct preparing *p, const struct ptx_list *list)
{
	ptx_each (list, it) {
		const struct ptx_insn *insn = (const struct ptx_insn *)it;
		const struct ptx_operand *callee =
			it->kind == PTX_INSN ? ptx_block_callee(insn) : NULL;

		for (unsigned i = 0; it->kind == PTX_INSN && i < insn->n_operands; i++) {
			if (&insn->operands[i] != callee) {
				take_operand(p, &insn->operands[i]);
			}
		}
		if (it->kind == PTX_VARIABLE && ((const struct ptx_variable *)it)->init) {
			take_operand(p, ((const struct ptx_variable *)it)->init);
		} else if (it->kind == PTX_SCOPE) {
			take_list(p, &((const struct ptx_scope *)it)->body);
		} else if (it->kind == PTX_FUNCTION) {
			take_list(p, &((const struct ptx_function *)it)->body);
		} else if (it->kind == PTX_TARGETS) {
			const struct ptx_targets *t = (const struct ptx_targets *)it;

			for (uint32_t i = 0; i < t->n; i++) {
				take_name(p, t->names[i]);
			}
		}
	}
}

static void find_functions(struct preparing *p)
{
	ptx_each (&p->m->items, it) {
		struct ptx_function *f = (struct ptx_function *)it;

		if (it->kind == PTX_FUNCTION && f->has_body && !f->is_entry &&
		    strmap_add(&p->functions, f->name, f) == -ENOMEM) {
			p->err = -ENOMEM;
		}
	}
}

/* In the order of the text, so that the list depends on nothing else. */
static void add_list(struct preparing *p)
{
	struct ptx_variable *v = ptx_arena_array(&p->m->arena, 1, sizeof(*v));
	struct ptx_operand *init = ptx_arena_array(&p->m->arena, 1, sizeof(*init));
	struct ptx_operand *args = ptx_arena_array(&p->m->arena, p->listed.live + 1, sizeof(*args));
	char text[64];

	snprintf(text, sizeof(text), PTX_FUNCTIONS "%016llx", (unsigned long long)p->id);
	if (!v || !init || !args) {
		p->err = -ENOMEM;
		return;
	}
	*init = (struct ptx_operand){ .kind = PTX_VECTOR, .args = args };
	ptx_each (&p->m->items, it) {
		const struct ptx_function *f = (const struct ptx_function *)it;

		if (it->kind == PTX_FUNCTION && f->has_body && strmap_get(&p->listed, f->name)) {
			args[init->n_args++] =
				(struct ptx_operand){ .kind = PTX_NAME, .name = f->name };
		}
	}
	*v = (struct ptx_variable){ .item = { .kind = PTX_VARIABLE },
				    .space = PTX_GLOBAL,
				    .linkage = ".visible",
				    .attributes = "",
				    .align = 8,
				    .type = ".u64",
				    .name = ptx_arena_text(&p->m->arena, text, strlen(text)),
				    .n_dims = 1,
				    .dims = { init->n_args },
				    .init = init };
	p->err = v->name ? p->err : -ENOMEM;
	ptx_list_append(&p->m->items, &v->item);
}

int ptx_prepare(struct ptx_module *m, uint64_t id)
{
	struct preparing p = { .m = m, .id = id };
	bool listed;

	if (is_prepared(m) || m->address_size != 64) {
		return 0;
	}
	strmap_init(&p.functions);
	strmap_init(&p.listed);
	for (struct ptx_item *it = m->items.first; it && !p.err; it = it->next) {
		if (it->kind == PTX_FUNCTION) {
			move_all(&p, (struct ptx_function *)it, &((struct ptx_function *)it)->body);
		}
	}
	find_functions(&p);
	take_list(&p, &m->items);
	listed = p.listed.live && !p.too_many;
	if (listed && !p.err) {
		add_list(&p);
	}
	strmap_finish(&p.functions);
	strmap_finish(&p.listed);
	return p.err ? p.err : p.n_moved || listed;
}

static int run_pass(struct ptx_module *m, struct ptx_passes *p, struct report *r)
{
	int err = p->prepare ? ptx_prepare(m, p->id) : 0;

	p->changed = err > 0;
	return MIN(err, 0);
}

const struct ptx_pass ptx_prepare_pass = { .run = run_pass };
