/* Makes clones of entries, and copies of functions that read their block index: the same items
 * behind a prologue, with the block index and the grid size read from the prologue's registers.
 * Items are new; names, modifiers and operands that do not change are shared with the original. */
#include "ptx/block/block_int.h"

#include <errno.h>
#include <string.h>

static int clone_list(struct ptx_block_work *p, const struct ptx_list *from, struct ptx_list *to);

static void *copy(struct ptx_block_work *p, const void *from, size_t bytes)
{
	struct ptx_item *it = ptx_arena_alloc(&p->m->arena, bytes);

	if (it) {
		memcpy(it, from, bytes);
		it->prev = it->next = NULL;
		it->line = 0;
	}
	return it;
}

static struct ptx_block_function *cloned_callee(const struct ptx_block_work *p,
						const struct ptx_operand *o)
{
	struct ptx_block_function *f = o ? ptx_block_find(p, o->name) : NULL;

	return f && f->clone ? f : NULL;
}

static bool mentions(const struct ptx_operand *o)
{
	if (o->name && ptx_block_sreg_of(o->name) != PTX_BLOCK_SREG_NONE) {
		return true;
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		if (mentions(&o->args[i])) {
			return true;
		}
	}
	return false;
}

/* o is a copy; its arguments are still the original's. */
static int rewrite_operand(struct ptx_block_work *p, struct ptx_operand *o)
{
	enum ptx_block_sreg what = o->name ? ptx_block_sreg_of(o->name) : PTX_BLOCK_SREG_NONE;
	int err = 0;

	if (what == PTX_BLOCK_SREG_ZERO) {
		*o = (struct ptx_operand){ .kind = PTX_INT };
	} else if (what != PTX_BLOCK_SREG_NONE) {
		o->name = ptx_block_value(p, what);
		if (!o->name) {
			return -ENOMEM;
		}
	}
	if (o->n_args && mentions(o)) {
		struct ptx_operand *args = ptx_arena_array(&p->m->arena, o->n_args, sizeof(*args));

		if (!args) {
			return -ENOMEM;
		}
		memcpy(args, o->args, o->n_args * sizeof(*args));
		o->args = args;
		for (uint32_t i = 0; i < o->n_args && err == 0; i++) {
			err = rewrite_operand(p, &args[i]);
		}
	}
	return err;
}

/* "mov.u16 %h, %ctaid.x": the register that replaces %ctaid.x has 32 bits. */
static void widen_move(struct ptx_insn *insn)
{
	static const char *const narrow[] = { ".u16", ".u32" };

	if (strcmp(insn->opcode, "mov") == 0 && insn->n_modifiers == 1 &&
	    ptx_type_bytes(insn->modifiers[0]) == 2) {
		insn->opcode = "cvt";
		insn->modifiers = narrow;
		insn->n_modifiers = 2;
	}
}

/* "mov.v4.u32 {a, b, c, d}, %ctaid" becomes one move per component. */
static int rewrite_vector(struct ptx_block_work *p, const struct ptx_insn *insn,
			  enum ptx_block_sreg what, struct ptx_list *to)
{
	for (unsigned i = 0; i < 4; i++) {
		struct ptx_operand dest = insn->operands[0].args[i];
		struct ptx_operand *o = ptx_arena_array(&p->m->arena, 2, sizeof(*o));
		struct ptx_insn *move = copy(p, insn, sizeof(*move));

		if (!o || !move) {
			return -ENOMEM;
		}
		o[0] = dest;
		o[1] = (struct ptx_operand){ .kind = PTX_INT };
		if (i < 3) {
			o[1].kind = PTX_NAME;
			o[1].name = ptx_block_value(p, what + 1 + i);
			if (!o[1].name) {
				return -ENOMEM;
			}
		}
		move->operands = o;
		move->modifiers++; /* the type */
		move->n_modifiers = 1;
		if (dest.kind != PTX_NAME || strcmp(dest.name, "_") != 0) {
			ptx_list_append(to, &move->item);
		}
	}
	return 0;
}

/* A clone has 16 bytes more than f: PTX_BLOCK_SMEM of a multiple of 16. */
static int clone_bytes(struct ptx_block_work *p, const struct ptx_insn *from, struct ptx_list *to)
{
	struct ptx_insn *read = copy(p, from, sizeof(*read)), *sub = copy(p, from, sizeof(*sub));
	struct ptx_operand *o = ptx_arena_array(&p->m->arena, 3, sizeof(*o));

	if (!read || !sub || !o) {
		return -ENOMEM;
	}
	o[0] = o[1] = from->operands[0];
	o[2] = (struct ptx_operand){ .kind = PTX_INT, .value = 16 };
	sub->opcode = "sub";
	sub->operands = o;
	sub->n_operands = 3;
	ptx_list_append(to, &read->item);
	ptx_list_append(to, &sub->item);
	return 0;
}

static int clone_insn(struct ptx_block_work *p, const struct ptx_insn *from, struct ptx_list *to)
{
	enum ptx_block_sreg what = ptx_block_vector_move(from);
	struct ptx_block_function *callee = cloned_callee(p, ptx_block_callee(from));
	struct ptx_insn *insn;
	bool reads = false;
	int err = 0;

	if (what != PTX_BLOCK_SREG_NONE) {
		return rewrite_vector(p, from, what, to);
	}
	if (ptx_block_reads_bytes(from)) {
		return clone_bytes(p, from, to);
	}
	insn = copy(p, from, sizeof(*insn));
	if (!insn) {
		return -ENOMEM;
	}
	for (unsigned i = 0; i < insn->n_operands; i++) {
		reads = reads || mentions(&insn->operands[i]);
	}
	ptx_list_append(to, &insn->item);
	if (!reads && !callee) {
		return 0;
	}
	insn->operands = ptx_arena_array(&p->m->arena, insn->n_operands, sizeof(*insn->operands));
	if (!insn->operands) {
		return -ENOMEM;
	}
	memcpy(insn->operands, from->operands, insn->n_operands * sizeof(*insn->operands));
	if (callee) {
		insn->operands[ptx_block_callee(from) - from->operands].name = callee->clone;
	}
	for (unsigned i = 0; reads && i < insn->n_operands && err == 0; i++) {
		err = rewrite_operand(p, &insn->operands[i]);
	}
	if (reads) {
		widen_move(insn);
	}
	return err;
}

static int clone_scope(struct ptx_block_work *p, const struct ptx_scope *from, struct ptx_list *to)
{
	struct ptx_scope *s = copy(p, from, sizeof(*s));

	if (!s) {
		return -ENOMEM;
	}
	s->body = (struct ptx_list){ 0 };
	ptx_list_append(to, &s->item);
	return clone_list(p, &from->body, &s->body);
}

static size_t item_bytes(enum ptx_item_kind kind)
{
	switch (kind) {
	case PTX_DIRECTIVE:
		return sizeof(struct ptx_directive);
	case PTX_VARIABLE:
		return sizeof(struct ptx_variable);
	case PTX_LABEL:
		return sizeof(struct ptx_label);
	case PTX_TARGETS:
		return sizeof(struct ptx_targets);
	case PTX_PROTOTYPE:
		return sizeof(struct ptx_prototype);
	default:
		return 0;
	}
}

static int clone_item(struct ptx_block_work *p, const struct ptx_item *it, struct ptx_list *to)
{
	struct ptx_item *new;

	if (it->kind == PTX_INSN) {
		return clone_insn(p, (const struct ptx_insn *)it, to);
	}
	if (it->kind == PTX_SCOPE) {
		return clone_scope(p, (const struct ptx_scope *)it, to);
	}
	/* Drop line information: it would give two places for one line; debuggers use f's. */
	if (it->kind == PTX_DIRECTIVE &&
	    strncmp(((const struct ptx_directive *)it)->text, ".pragma", 7) != 0) {
		return 0;
	}
	new = copy(p, it, item_bytes(it->kind));
	if (!new) {
		return -ENOMEM;
	}
	ptx_list_append(to, new);
	return 0;
}

/* Recursion is bounded by the parser's limit on scopes. */
static int clone_list(struct ptx_block_work *p, const struct ptx_list *from, struct ptx_list *to)
{
	int err = 0;

	ptx_block_hide_list(p, from, 1);
	for (const struct ptx_item *it = from->first; it && err == 0; it = it->next) {
		err = clone_item(p, it, to);
	}
	ptx_block_hide_list(p, from, -1);
	return err;
}

static struct ptx_function *clone_function(struct ptx_block_work *p, const struct ptx_function *f,
					   const char *name)
{
	struct ptx_function *new = copy(p, f, sizeof(*new));
	int err = 0;

	if (!new) {
		return NULL;
	}
	new->name = name;
	new->body = (struct ptx_list){ 0 };
	if (f->has_body) {
		err = ptx_block_prologue(p, f->is_entry, &new->body);
		ptx_block_hide_params(p, f, 1);
		err = err ? err : clone_list(p, &f->body, &new->body);
		ptx_block_hide_params(p, f, -1);
		if (err == 0 && f->is_entry) {
			err = ptx_block_behind(p, &new->body);
		}
	}
	return err ? NULL : new;
}

int ptx_block_clone(struct ptx_block_work *p, struct ptx_block_function *b)
{
	struct ptx_function *f = b->f, *clone;
	struct ptx_variable *params =
		ptx_arena_array(&p->m->arena, (size_t)f->n_params + 1, sizeof(*params));
	const char *name = ptx_block_text(p, "%s" PTX_BLOCK_SUFFIX, f->name);
	const char *arg = ptx_block_text(p, "%sarg", p->stem);

	if (!params || !name || !arg) {
		return -ENOMEM;
	}
	if (f->n_params) {
		memcpy(params, f->params, f->n_params * sizeof(*params));
	}
	params[f->n_params] = (struct ptx_variable){
		.item.kind = PTX_VARIABLE,
		.space = PTX_PARAM,
		.linkage = "",
		.attributes = "",
		.align = 8,
		.type = ".b8",
		.name = arg,
		.n_dims = 1,
		.dims = { PTX_BLOCK_ARG_BYTES },
	};
	clone = clone_function(p, f, name);
	if (!clone) {
		return -ENOMEM;
	}
	clone->params = params;
	clone->n_params++;
	ptx_list_insert(&p->m->items, &f->item, &clone->item);
	return 0;
}

/* Adds a copy after each declaration and after the definition, so that names are declared before
 * use. */
int ptx_block_copy_functions(struct ptx_block_work *p)
{
	struct ptx_item *next;

	for (struct ptx_item *it = p->m->items.first; it; it = next) {
		struct ptx_function *f = (struct ptx_function *)it, *new;
		struct ptx_block_function *b;

		next = it->next;
		b = it->kind == PTX_FUNCTION ? strmap_get(&p->names, f->name) : NULL;
		if (!b || !b->clone) {
			continue;
		}
		new = clone_function(p, f, b->clone);
		if (!new) {
			return -ENOMEM;
		}
		new->linkage = "";
		ptx_list_insert(&p->m->items, it, &new->item);
	}
	return 0;
}
