/* Decodes a kernel: every function that it can reach is decoded once, then offsets are patched. */
#include "base/compiler.h"
#include "soft/server/exec/access_check.h"
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int exec_dec_fail(struct exec_decoder *d, const char *fmt, ...)
{
	struct buf text;
	va_list ap;

	buf_init(&text);
	if (d->insn) {
		ptx_insn_print(d->insn, &text);
		if (text.len && text.data[text.len - 1] == ';') {
			text.data[--text.len] = '\0';
		}
		if (text.len > 200) {
			text.len = 200;
			text.data[200] = '\0';
			buf_puts(&text, "...");
		}
		buf_puts(&text, ": ");
	}
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (!d->report->message.len) {
		report_place(d->report, "%s:%u", d->module->name, d->line);
	}
	report_set(d->report, -EINVAL, "ptx", "%s", buf_text(&text));
	buf_finish(&text);
	return -EINVAL;
}

int exec_dec_no_memory(struct exec_decoder *d)
{
	report_place(d->report, "%s:%u", d->module->name, d->line);
	return report_set(d->report, -ENOMEM, "ptx", "no memory for this module");
}

struct exec_op exec_dec_op(struct exec_decoder *d, exec_op_fn fn)
{
	struct exec_op op = d->op;

	op.fn = fn;
	op.line = d->line;
	return op;
}

int exec_dec_emit(struct exec_decoder *d, const struct exec_op *op)
{
	if (!op->fn) {
		return exec_dec_fail(d, "this combination is not supported");
	}
	if (d->module->operations++ >= DECODE_MODULE_MAX) {
		return exec_dec_fail(d, "the module's kernels have too many operations");
	}
	if (d->code.len >= (size_t)DECODE_CODE_MAX * sizeof(*op)) {
		return d->in_family ? -EAGAIN
				    : exec_dec_fail(d, "a kernel has more than %u operations",
						    DECODE_CODE_MAX);
	}
	return buf_add(&d->code, op, sizeof(*op)) < 0 ? exec_dec_no_memory(d) : 0;
}

int exec_dec_shape(struct exec_decoder *d, const char *name, uint32_t *ret)
{
	const struct ptx_function *f = strmap_get(d->functions, name);
	struct exec_function_shape *more;

	for (uint32_t i = 0; i < d->n_shapes; i++) {
		if (d->shapes[i].f == f) {
			*ret = i;
			return 0;
		}
	}
	if (!f->is_entry && d->n_functions++ == DECODE_FUNCTIONS_MAX) {
		return exec_dec_fail(d, "a kernel calls more than %u functions",
				     DECODE_FUNCTIONS_MAX);
	}
	more = realloc(d->shapes, (d->n_shapes + 1) * sizeof(*more));
	if (!more) {
		return exec_dec_no_memory(d);
	}
	d->shapes = more;
	more[d->n_shapes] = (struct exec_function_shape){ .f = f };
	*ret = d->n_shapes++;
	if (strmap_add(d->reached, f->name, unqual(f)) == -ENOMEM) {
		return exec_dec_no_memory(d);
	}
	return 0;
}

static int decode_insn(struct exec_decoder *d, const struct ptx_insn *insn)
{
	const struct exec_opcode *opcode = exec_dec_opcode_find(insn->opcode);
	struct ptx_operand guard = { .kind = PTX_NAME, .name = insn->guard };
	struct ptx_insn expanded;
	int err = exec_dec_expand(d, insn, &expanded);

	d->insn = insn;
	d->line = insn->item.line;
	d->used_modifiers = 0;
	d->op = (struct exec_op){ .guard = EXEC_NO_PRED, .line = d->line, .n = 1 };
	if (err == 0 && insn->guard) {
		err = exec_dec_pred(d, &guard, &d->op.guard, NULL);
		d->op.guard_not = insn->guard_not;
		if (err == 0 && d->op.guard == EXEC_NO_PRED) {
			err = exec_dec_fail(d, "a predicate is expected");
		}
	}
	if (err == 0 && !opcode) {
		err = exec_dec_fail(d, "unknown instruction");
	}
	if (err == 0 && !opcode->decode) {
		err = exec_dec_fail(d, "not supported: %s", opcode->missing);
	}
	if (err == 0) {
		d->insn = &expanded;
		err = opcode->decode(d, opcode->a, opcode->b);
	}
	d->insn = NULL;
	return err;
}

static int check_directive(struct exec_decoder *d, const struct ptx_directive *dir)
{
	static const char *const known[] = { ".loc", ".pragma", ".callprototype", ".file" };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (strncmp(dir->text, known[i], strlen(known[i])) == 0) {
			return 0;
		}
	}
	return exec_dec_fail(d, "unknown directive %.60s", dir->text);
}

static int decode_targets(struct exec_decoder *d, const struct ptx_targets *t, const char *label)
{
	struct exec_symbol *s = label ? strmap_get(&d->scope->symbols, label) : NULL;
	struct exec_table table = { .n = t->n };
	struct exec_label_use use = { .pc = UINT32_MAX };

	if (strcmp(t->directive, ".branchtargets") != 0) {
		return 0;
	}
	if (!s || s->kind != SYM_TABLE) {
		return exec_dec_fail(d, ".branchtargets needs a label");
	}
	if (exec_dec_module_takes(d, (uint64_t)t->n * sizeof(*table.targets)) < 0) {
		return -EINVAL;
	}
	s->ref = (uint32_t)(d->tables.len / sizeof(table));
	table.targets = calloc(MAX(t->n, 1u), sizeof(*table.targets));
	if (!table.targets || buf_add(&d->tables, &table, sizeof(table)) < 0) {
		free(table.targets);
		return exec_dec_no_memory(d);
	}
	use.table = s->ref;
	for (use.entry = 0; use.entry < t->n; use.entry++) {
		const struct exec_symbol *target = exec_dec_find(d, t->names[use.entry]);

		if (!target || target->kind != SYM_LABEL) {
			return exec_dec_fail(d, "there is no label %s here", t->names[use.entry]);
		}
		use.label = target->ref;
		if (buf_add(&d->label_uses, &use, sizeof(use)) < 0) {
			return exec_dec_no_memory(d);
		}
	}
	return 0;
}

/* Tables first: a branch may precede the table it uses. */
static int decode_tables(struct exec_decoder *d, const struct ptx_list *list)
{
	ptx_each (list, it) {
		int err;

		if (it->kind != PTX_TARGETS) {
			continue;
		}
		d->line = it->line;
		err = decode_targets(d, (struct ptx_targets *)it,
				     it->prev && it->prev->kind == PTX_LABEL
					     ? ((struct ptx_label *)it->prev)->name
					     : NULL);
		if (err < 0) {
			return err;
		}
	}
	return 0;
}

static int decode_list(struct exec_decoder *d, const struct ptx_list *list);

static int decode_item(struct exec_decoder *d, const struct ptx_item *it)
{
	struct exec_symbol *s;
	int err;

	d->line = it->line;
	switch (it->kind) {
	case PTX_INSN:
		return decode_insn(d, (const struct ptx_insn *)it);
	case PTX_VARIABLE:
		return exec_dec_declare(d, (const struct ptx_variable *)it);
	case PTX_LABEL:
		exec_dec_undefined_label(d);
		s = exec_dec_find(d, ((const struct ptx_label *)it)->name);
		if (s && s->kind == SYM_LABEL) {
			((uint32_t *)d->labels.data)[s->ref] =
				(uint32_t)(d->code.len / sizeof(struct exec_op));
		}
		return 0;
	case PTX_SCOPE:
		err = exec_dec_scope_open(d);
		if (err == 0) {
			err = decode_list(d, &((const struct ptx_scope *)it)->body);
			exec_dec_scope_close(d);
		}
		return err;
	case PTX_DIRECTIVE:
		return check_directive(d, (const struct ptx_directive *)it);
	default:
		return 0;
	}
}

/* Recursion is bounded by the parser's limit on nested scopes. */
static int decode_list(struct exec_decoder *d, const struct ptx_list *list)
{
	int err = exec_dec_declare_labels(d, list);

	if (err == 0) {
		err = decode_tables(d, list);
	}
	for (const struct ptx_item *it = list->first; err == 0 && it; it = it->next) {
		err = decode_item(d, it);
	}
	return err;
}

static int declare_kernel_params(struct exec_decoder *d, const struct ptx_function *f)
{
	struct exec_function *out = d->out;
	uint64_t at = 0;

	out->params = calloc(MAX(f->n_params, 1u), sizeof(*out->params));
	if (!out->params) {
		return exec_dec_no_memory(d);
	}
	for (uint32_t i = 0; i < f->n_params; i++) {
		const struct ptx_variable *v = &f->params[i];
		struct exec_symbol *s;
		uint64_t bytes;

		d->line = v->item.line;
		if (v->space != PTX_PARAM || v->open_array || ptx_variable_bytes(v, &bytes) < 0 ||
		    bytes > 65536) {
			return exec_dec_fail(d, "parameter %s is not supported", v->name);
		}
		s = exec_dec_symbol_new(d, v->name, SYM_PARAM);
		if (!s) {
			return -EINVAL;
		}
		at = ROUND_UP(at, ptx_variable_align(v));
		s->offset = at;
		s->bytes = bytes;
		out->params[i] =
			(struct exec_param){ .offset = (uint32_t)at, .bytes = (uint32_t)bytes };
		at += bytes;
		if (at > 65536) {
			return exec_dec_fail(d, "more than 64 KiB of parameters");
		}
	}
	out->info.n_params = f->n_params;
	out->info.params = out->params;
	out->info.param_bytes = (uint32_t)at;
	return 0;
}

static int declare_function_params(struct exec_decoder *d, const struct ptx_function *f)
{
	struct exec_function_shape *shape = &d->shapes[d->current];
	uint32_t n = f->n_returns + f->n_params;
	struct exec_formal *formals = calloc((size_t)n + 1, sizeof(*formals));
	int err = formals ? exec_dec_formals(d, f, formals, &shape->local_bytes, &shape->n32,
					     &shape->n64, &shape->n_pred)
			  : exec_dec_no_memory(d);

	for (uint32_t i = 0; err == 0 && i < n; i++) {
		const struct ptx_variable *v =
			i < f->n_returns ? &f->returns[i] : &f->params[i - f->n_returns];
		struct exec_symbol *s = exec_dec_symbol_new(
			d, v->name, formals[i].in_register ? SYM_REGISTER : SYM_PARAM);

		if (!s) {
			err = -EINVAL;
			break;
		}
		s->type = formals[i].type;
		s->ref = formals[i].offset;
		s->bytes = formals[i].bytes;
		s->in_frame = !formals[i].in_register;
		err = s->in_frame ? 0 : exec_dec_written(d, s->ref);
	}
	free(formals);
	return err;
}

static int patch_labels(struct exec_decoder *d)
{
	const struct exec_label_use *uses = (const struct exec_label_use *)d->label_uses.data;
	const uint32_t *labels = (const uint32_t *)d->labels.data;
	struct exec_op *code = (struct exec_op *)d->code.data;
	struct exec_table *tables = (struct exec_table *)d->tables.data;

	for (size_t i = 0; i < d->label_uses.len / sizeof(*uses); i++) {
		uint32_t pc = labels[uses[i].label];

		if (pc == UINT32_MAX) {
			return exec_dec_fail(d, "a label has no place");
		}
		if (uses[i].pc != UINT32_MAX) {
			code[uses[i].pc].e = pc;
		} else {
			tables[uses[i].table].targets[uses[i].entry] = pc;
		}
	}
	buf_clear(&d->labels);
	buf_clear(&d->label_uses);
	return 0;
}

/* Recursion is bounded by the parser's limit on nested scopes. */
static bool uses_stack(const struct ptx_list *list)
{
	ptx_each (list, it) {
		if (it->kind == PTX_SCOPE
			    ? uses_stack(&((struct ptx_scope *)it)->body)
			    : it->kind == PTX_INSN &&
				      strcmp(((struct ptx_insn *)it)->opcode, "alloca") == 0) {
			return true;
		}
	}
	return false;
}

/* alloca memory of a function is freed when it returns. */
static int save_stack(struct exec_decoder *d)
{
	struct exec_op op = exec_dec_op(d, exec_op_stack_save);
	int err = exec_dec_new_register(d, TY_U64, &d->stack_saved);

	op.d = d->stack_saved;
	op.wide = WIDE_D;
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_restore_stack(struct exec_decoder *d)
{
	struct exec_op op = exec_dec_op(d, exec_op_stack_restore);

	op.a = d->stack_saved;
	op.wide = WIDE_A;
	return d->stack_saved == UINT32_MAX ? 0 : exec_dec_emit(d, &op);
}

int exec_dec_function(struct exec_decoder *d, uint32_t index)
{
	const struct ptx_function *f = d->shapes[index].f;
	struct exec_op end;
	int err;

	d->current = index;
	d->in_entry = f->is_entry;
	d->line = f->item.line;
	d->shapes[index].start = (uint32_t)(d->code.len / sizeof(struct exec_op));
	err = exec_dec_scope_open(d);
	if (err < 0) {
		return err;
	}
	exec_dec_undefined_begin(d);
	d->op = (struct exec_op){ .guard = EXEC_NO_PRED, .n = 1 };
	err = f->is_entry ? declare_kernel_params(d, f) : declare_function_params(d, f);
	d->stack_saved = UINT32_MAX;
	if (err == 0 && !f->is_entry && uses_stack(&f->body)) {
		err = save_stack(d);
	}
	if (err == 0) {
		err = decode_list(d, &f->body);
	}
	exec_dec_scope_close(d);
	if (err < 0) {
		return err;
	}
	/* Reaching the end is a return. */
	d->line = f->end_line;
	d->op = (struct exec_op){ .guard = EXEC_NO_PRED, .n = 1 };
	end = exec_dec_op(d, exec_op_ret);
	err = exec_dec_restore_stack(d);
	if (err == 0) {
		err = exec_dec_emit(d, &end);
	}
	return err < 0 ? err : patch_labels(d);
}

int exec_dec_kernel(struct exec_decoder *d, const struct ptx_function *entry,
		    struct exec_function *out)
{
	uint32_t index;
	int err;

	d->out = out;
	d->line = entry->item.line;
	out->module = d->module;
	err = exec_dec_scope_open(d);
	d->root = d->scope;
	if (err == 0) {
		err = exec_dec_shape(d, entry->name, &index);
	}
	for (uint32_t i = 0; err == 0 && i < d->n_shapes; i++) {
		err = exec_dec_function(d, i);
	}
	if (err == 0) {
		exec_dec_patch_calls(d);
		err = exec_dec_sizes(d, 0, out);
	}
	if (err == 0) {
		exec_dec_patch_dynamic_shared(d);
		err = exec_dec_hand_over(d);
	}
	exec_dec_finish(d);
	return err;
}
