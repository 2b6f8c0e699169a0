/* Structural comparison of two modules, to check that a printer or a pass loses nothing. */
#include "ptx/module.h"

#include <string.h>

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_operands(const struct ptx_operand *a, const struct ptx_operand *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (a[i].kind != b[i].kind || a[i].negative != b[i].negative ||
		    a[i].n_args != b[i].n_args || a[i].value != b[i].value ||
		    a[i].offset != b[i].offset || !same_text(a[i].name, b[i].name) ||
		    !same_operands(a[i].args, b[i].args, a[i].n_args)) {
			return false;
		}
	}
	return true;
}

static bool same_insn(const struct ptx_insn *a, const struct ptx_insn *b)
{
	if (!same_text(a->guard, b->guard) || a->guard_not != b->guard_not ||
	    !same_text(a->opcode, b->opcode) || a->n_modifiers != b->n_modifiers ||
	    a->n_operands != b->n_operands) {
		return false;
	}
	for (unsigned i = 0; i < a->n_modifiers; i++) {
		if (!same_text(a->modifiers[i], b->modifiers[i])) {
			return false;
		}
	}
	return same_operands(a->operands, b->operands, a->n_operands);
}

static bool same_variables(const struct ptx_variable *a, const struct ptx_variable *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (a[i].space != b[i].space || !same_text(a[i].linkage, b[i].linkage) ||
		    !same_text(a[i].attributes, b[i].attributes) || a[i].align != b[i].align ||
		    a[i].ptr_align != b[i].ptr_align || a[i].vector != b[i].vector ||
		    !same_text(a[i].type, b[i].type) || !same_text(a[i].name, b[i].name) ||
		    a[i].has_bank != b[i].has_bank || a[i].bank != b[i].bank ||
		    a[i].has_range != b[i].has_range || a[i].range != b[i].range ||
		    a[i].open_array != b[i].open_array || a[i].n_dims != b[i].n_dims ||
		    memcmp(a[i].dims, b[i].dims, sizeof(a[i].dims)) != 0 ||
		    !a[i].init != !b[i].init ||
		    (a[i].init && !same_operands(a[i].init, b[i].init, 1))) {
			return false;
		}
	}
	return true;
}

static bool same_list(const struct ptx_list *a, const struct ptx_list *b);

static bool same_function(const struct ptx_function *a, const struct ptx_function *b)
{
	return same_text(a->linkage, b->linkage) && a->is_entry == b->is_entry &&
	       a->has_body == b->has_body && same_text(a->attributes, b->attributes) &&
	       same_text(a->name, b->name) && a->n_returns == b->n_returns &&
	       a->n_params == b->n_params && same_variables(a->returns, b->returns, a->n_returns) &&
	       same_variables(a->params, b->params, a->n_params) &&
	       same_list(&a->tuning, &b->tuning) && same_list(&a->body, &b->body);
}

static bool same_targets(const struct ptx_targets *a, const struct ptx_targets *b)
{
	if (!same_text(a->directive, b->directive) || a->n != b->n) {
		return false;
	}
	for (uint32_t i = 0; i < a->n; i++) {
		if (!same_text(a->names[i], b->names[i])) {
			return false;
		}
	}
	return true;
}

static bool same_item(const struct ptx_item *a, const struct ptx_item *b)
{
	if (a->kind != b->kind) {
		return false;
	}
	switch (a->kind) {
	case PTX_DIRECTIVE:
		return same_text(((const struct ptx_directive *)a)->text,
				 ((const struct ptx_directive *)b)->text);
	case PTX_VARIABLE:
		return same_variables((const struct ptx_variable *)a,
				      (const struct ptx_variable *)b, 1);
	case PTX_FUNCTION:
		return same_function((const struct ptx_function *)a,
				     (const struct ptx_function *)b);
	case PTX_LABEL:
		return same_text(((const struct ptx_label *)a)->name,
				 ((const struct ptx_label *)b)->name);
	case PTX_INSN:
		return same_insn((const struct ptx_insn *)a, (const struct ptx_insn *)b);
	case PTX_SCOPE:
		return same_list(&((const struct ptx_scope *)a)->body,
				 &((const struct ptx_scope *)b)->body);
	case PTX_TARGETS:
		return same_targets((const struct ptx_targets *)a, (const struct ptx_targets *)b);
	case PTX_PROTOTYPE:
		return same_function(&((const struct ptx_prototype *)a)->function,
				     &((const struct ptx_prototype *)b)->function);
	}
	return false;
}

/* Recursion is bounded by the parser's limit on scopes. */
static bool same_list(const struct ptx_list *a, const struct ptx_list *b)
{
	const struct ptx_item *x = a->first, *y = b->first;

	if (a->n != b->n) {
		return false;
	}
	for (; x && y; x = x->next, y = y->next) {
		if (!same_item(x, y)) {
			return false;
		}
	}
	return !x && !y;
}

bool ptx_module_equal(const struct ptx_module *a, const struct ptx_module *b)
{
	return a->version_major == b->version_major && a->version_minor == b->version_minor &&
	       a->address_size == b->address_size && same_text(a->target, b->target) &&
	       same_list(&a->items, &b->items);
}
