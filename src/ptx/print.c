/* The printer: one item per line, in the layout of clang and nvcc. */
#include "ptx/module.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *const space_names[] = { "",	      ".reg",	".sreg",  ".const",
					   ".global", ".local", ".param", ".shared" };

static void print_operand(const struct ptx_operand *o, struct buf *out);

static void print_args(const struct ptx_operand *o, const char *open, const char *between,
		       const char *close, struct buf *out)
{
	buf_puts(out, open);
	for (uint32_t i = 0; i < o->n_args; i++) {
		buf_puts(out, i ? between : "");
		print_operand(&o->args[i], out);
	}
	buf_puts(out, close);
}

static void print_offset(int64_t offset, struct buf *out)
{
	if (offset) {
		buf_printf(out, "+%" PRId64, offset); /* ptxas accepts "+-8", not "-8" */
	}
}

static void print_address(const struct ptx_operand *o, struct buf *out)
{
	buf_puts(out, "[");
	if (o->name) {
		buf_puts(out, o->name);
		print_offset(o->offset, out);
	} else {
		buf_printf(out, "%" PRIu64, (uint64_t)o->offset);
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		buf_puts(out, ", ");
		print_operand(&o->args[i], out);
	}
	buf_puts(out, "]");
}

/* Recursion is bounded: the parser and all passes respect PTX_OPERAND_NESTING_MAX. */
static void print_operand(const struct ptx_operand *o, struct buf *out)
{
	switch (o->kind) {
	case PTX_NAME:
		buf_puts(out, o->name);
		print_offset(o->offset, out);
		break;
	case PTX_INT:
		buf_printf(out, o->negative ? "-%" PRIu64 : "%" PRIu64,
			   o->negative ? 0 - o->value : o->value);
		break;
	case PTX_F32:
		buf_printf(out, "0f%08" PRIX32, (uint32_t)o->value);
		break;
	case PTX_F64:
		buf_printf(out, "0d%016" PRIX64, o->value);
		break;
	case PTX_ADDRESS:
		print_address(o, out);
		break;
	case PTX_VECTOR:
		print_args(o, "{", ", ", "}", out);
		break;
	case PTX_TUPLE:
		print_args(o, "(", ", ", ")", out);
		break;
	case PTX_PAIR:
		print_args(o, "", "|", "", out);
		break;
	case PTX_NOT:
		print_args(o, "!", "", "", out);
		break;
	case PTX_MINUS:
		print_args(o, "-", "", "", out);
		break;
	case PTX_GENERIC:
		buf_printf(out, "generic(%s)", o->name);
		print_offset(o->offset, out);
		break;
	case PTX_ELEMENT:
		buf_puts(out, o->name);
		print_args(o, "[", "", "]", out);
		break;
	case PTX_MASK:
		buf_printf(out, "0x%" PRIX64 "(%s", o->value, o->name);
		print_offset(o->offset, out);
		buf_puts(out, ")");
		break;
	}
}

void ptx_insn_print(const struct ptx_insn *insn, struct buf *out)
{
	if (insn->guard) {
		buf_printf(out, "@%s%s ", insn->guard_not ? "!" : "", insn->guard);
	}
	buf_puts(out, insn->opcode);
	for (unsigned i = 0; i < insn->n_modifiers; i++) {
		buf_puts(out, insn->modifiers[i]);
	}
	for (unsigned i = 0; i < insn->n_operands; i++) {
		buf_puts(out, i ? ", " : " ");
		print_operand(&insn->operands[i], out);
	}
	buf_puts(out, ";");
}

static void print_variable(const struct ptx_variable *v, struct buf *out)
{
	buf_printf(out, "%s%s%s", v->linkage, *v->linkage ? " " : "", space_names[v->space]);
	if (v->has_bank) {
		buf_printf(out, "[%u]", v->bank);
	}
	/* A .ptr parameter has its type first: ".param .u64 .ptr .global .align 4 name". */
	if (v->align) {
		buf_printf(out, " .align %u", v->align);
	}
	if (*v->attributes && v->space != PTX_PARAM) {
		buf_printf(out, " %s", v->attributes);
	}
	if (v->vector) {
		buf_printf(out, " .v%u", v->vector);
	}
	buf_printf(out, " %s", v->type);
	if (*v->attributes && v->space == PTX_PARAM) {
		buf_printf(out, " %s", v->attributes);
	}
	if (v->ptr_align) {
		buf_printf(out, " .align %u", v->ptr_align);
	}
	buf_printf(out, " %s", v->name);
	if (v->has_range) {
		buf_printf(out, "<%u>", v->range);
	}
	for (uint32_t i = 0; i < v->n_dims; i++) {
		if (i == 0 && v->open_array) {
			buf_puts(out, "[]");
		} else {
			buf_printf(out, "[%" PRIu64 "]", v->dims[i]);
		}
	}
	if (v->init) {
		buf_puts(out, " = ");
		print_operand(v->init, out);
	}
}

static void print_targets(const struct ptx_targets *t, struct buf *out)
{
	buf_puts(out, t->directive);
	for (uint32_t i = 0; i < t->n; i++) {
		buf_printf(out, "%s%s", i ? ", " : " ", t->names[i]);
	}
	buf_puts(out, ";\n");
}

static void print_params(const struct ptx_variable *params, uint32_t n, struct buf *out)
{
	buf_puts(out, "(\n");
	for (uint32_t i = 0; i < n; i++) {
		buf_puts(out, "\t");
		print_variable(&params[i], out);
		buf_puts(out, i + 1 < n ? ",\n" : "\n");
	}
	buf_puts(out, ")");
}

/* Prints results, name, parameters and tuning directives. */
static void print_signature(const struct ptx_function *f, struct buf *out)
{
	if (f->n_returns) {
		print_params(f->returns, f->n_returns, out);
		buf_puts(out, " ");
	}
	buf_puts(out, f->name);
	print_params(f->params, f->n_params, out);
	ptx_each (&f->tuning, it) {
		buf_printf(out, "\n%s", ((struct ptx_directive *)it)->text);
	}
}

void ptx_item_print(const struct ptx_item *it, struct buf *out)
{
	if (it->kind == PTX_LABEL) {
		buf_printf(out, "%s:\n", ((const struct ptx_label *)it)->name);
		return;
	}
	buf_puts(out, "\t");
	switch (it->kind) {
	case PTX_DIRECTIVE:
		buf_printf(out, "%s\n", ((const struct ptx_directive *)it)->text);
		break;
	case PTX_VARIABLE:
		print_variable((const struct ptx_variable *)it, out);
		buf_puts(out, ";\n");
		break;
	case PTX_INSN:
		ptx_insn_print((const struct ptx_insn *)it, out);
		buf_puts(out, "\n");
		break;
	case PTX_SCOPE:
		buf_puts(out, "{\n");
		ptx_body_print(&((const struct ptx_scope *)it)->body, out);
		buf_puts(out, "\t}\n");
		break;
	case PTX_TARGETS:
		print_targets((const struct ptx_targets *)it, out);
		break;
	case PTX_PROTOTYPE:
		buf_puts(out, ".callprototype ");
		print_signature(&((const struct ptx_prototype *)it)->function, out);
		buf_puts(out, ";\n");
		break;
	default:
		break;
	}
}

/* Recursion is bounded by PTX_NESTING_MAX. */
void ptx_body_print(const struct ptx_list *list, struct buf *out)
{
	ptx_each (list, it) {
		ptx_item_print(it, out);
	}
}

void ptx_head_print(const struct ptx_function *f, struct buf *out)
{
	buf_printf(out, "%s%s%s ", f->linkage, *f->linkage ? " " : "",
		   f->is_entry ? ".entry" : ".func");
	if (*f->attributes) {
		buf_printf(out, "%s ", f->attributes);
	}
	print_signature(f, out);
}

static void print_function(const struct ptx_function *f, struct buf *out)
{
	ptx_head_print(f, out);
	if (!f->has_body) {
		buf_puts(out, ";\n");
		return;
	}
	buf_puts(out, "\n{\n");
	ptx_body_print(&f->body, out);
	buf_puts(out, "}\n");
}

int ptx_module_print(const struct ptx_module *m, struct buf *out)
{
	ptx_each (&m->items, it) {
		switch (it->kind) {
		case PTX_DIRECTIVE:
			buf_printf(out, "%s\n", ((struct ptx_directive *)it)->text);
			break;
		case PTX_VARIABLE:
			print_variable((struct ptx_variable *)it, out);
			buf_puts(out, ";\n");
			break;
		case PTX_FUNCTION:
			print_function((struct ptx_function *)it, out);
			break;
		default:
			break;
		}
	}
	return out->failed;
}
