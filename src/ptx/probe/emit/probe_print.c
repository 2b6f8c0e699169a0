/* Prints the new module: what the entry reaches in the order of the text, the table and the
 * programs before it, and code at the sites. Variables of the original become addresses from the
 * table. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ptx/block_facts.h"
#include "ptx/probe/emit/probe_emit.h"

void ptx_probe_text(struct ptx_probe_work *p, const char *fmt, ...)
{
	struct buf text;
	va_list ap;

	buf_init(&text);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	for (const char *at = buf_text(&text); *at;) {
		size_t n = strcspn(at, "~");

		buf_add(p->out, at, n);
		at += n;
		if (*at) {
			buf_puts(p->out, p->stem);
			at++;
		}
	}
	p->out->failed = text.failed ? text.failed : p->out->failed;
	buf_finish(&text);
}

/* ---- variables of the original ---- */

/* Whether a name stands for a function whose address is in the list. */
static bool is_listed(const struct ptx_probe_work *p, const struct ptx_probe_name *n)
{
	return n->f && n->listed && p->slice->list && p->slice->list->reached;
}

static bool is_by_address(const struct ptx_probe_work *p, const struct ptx_operand *o)
{
	const struct ptx_probe_name *n = o->name ? ptx_probe_find(p->slice, o->name) : NULL;

	return n && (n->place != PTX_PROBE_NO_PLACE || is_listed(p, n));
}

static bool mentions(const struct ptx_probe_work *p, const struct ptx_operand *o)
{
	bool any = is_by_address(p, o);

	for (uint32_t i = 0; i < o->n_args && !any; i++) {
		any = mentions(p, &o->args[i]);
	}
	return any;
}

/* Loads the address into a register of its own and names that instead. */
static int replace(struct ptx_probe_work *p, struct ptx_operand *o, unsigned *n)
{
	const struct ptx_probe_name *name = ptx_probe_find(p->slice, o->name);
	bool add = o->offset && (o->kind != PTX_ADDRESS || o->offset != (int32_t)o->offset);
	char text[64];

	snprintf(text, sizeof(text), "%%%sv%u", p->stem, (*n)++);
	ptx_probe_text(p, "\t.reg .b64 %s;\n\tld.const.b64 %s, [" PTX_PROBE_TABLE "+%u];\n", text,
		       text, (is_listed(p, name) ? p->slice->list : name)->place * 8);
	if (is_listed(p, name)) {
		ptx_probe_text(p, "\tld.global.b64 %s, [%s+%u];\n", text, text,
			       (name->listed - 1) * 8);
	}
	if (add) {
		ptx_probe_text(p, "\tadd.s64 %s, %s, %" PRId64 ";\n", text, text, o->offset);
		o->offset = 0;
	}
	o->name = ptx_arena_text(&p->ret->arena, text, strlen(text));
	return o->name ? 0 : -ENOMEM;
}

/* o is a copy; its arguments are still the original's. */
static int rewrite_operand(struct ptx_probe_work *p, struct ptx_operand *o, unsigned *n)
{
	struct ptx_operand *args;
	int err = 0;

	if (is_by_address(p, o)) {
		err = replace(p, o, n);
	}
	if (err < 0 || !o->n_args) {
		return err;
	}
	args = ptx_arena_array(&p->ret->arena, o->n_args, sizeof(*args));
	if (!args) {
		return -ENOMEM;
	}
	memcpy(args, o->args, o->n_args * sizeof(*args));
	o->args = args;
	for (uint32_t i = 0; i < o->n_args && err == 0; i++) {
		err = rewrite_operand(p, &args[i], n);
	}
	return err;
}

/* Constant variables are reached as global memory, through pointers, too. */
static int rewrite_space(struct ptx_probe_work *p, struct ptx_insn *insn)
{
	const char **copy;

	if (!ptx_insn_has(insn, ".const") ||
	    (strcmp(insn->opcode, "ld") != 0 && strcmp(insn->opcode, "cvta") != 0)) {
		return 0;
	}
	copy = ptx_arena_array(&p->ret->arena, insn->n_modifiers, sizeof(*copy));
	if (!copy) {
		return -ENOMEM;
	}
	for (unsigned i = 0; i < insn->n_modifiers; i++) {
		copy[i] =
			strcmp(insn->modifiers[i], ".const") == 0 ? ".global" : insn->modifiers[i];
	}
	insn->modifiers = copy;
	return 0;
}

static int print_rewritten(struct ptx_probe_work *p, const struct ptx_insn *from)
{
	const struct ptx_operand *callee = ptx_block_callee(from);
	struct ptx_insn insn = *from;
	unsigned n = 0;
	int err = rewrite_space(p, &insn);

	insn.operands =
		ptx_arena_array(&p->ret->arena, insn.n_operands + 1u, sizeof(*insn.operands));
	if (err < 0 || !insn.operands) {
		return -ENOMEM;
	}
	memcpy(insn.operands, from->operands, insn.n_operands * sizeof(*insn.operands));
	ptx_probe_text(p, "\t{\n");
	for (unsigned i = 0; i < insn.n_operands && err == 0; i++) {
		if (&from->operands[i] != callee) {
			err = rewrite_operand(p, &insn.operands[i], &n);
		}
	}
	if (err == 0 && ptx_probe_number_passed(p, &insn)) {
		err = ptx_probe_number_pass(p, &insn);
	}
	ptx_item_print(&insn.item, p->out);
	ptx_probe_text(p, "\t}\n");
	return err;
}

static int print_insn_itself(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	const struct ptx_operand *callee = ptx_block_callee(insn);
	struct ptx_insn copy = *insn;
	int err;

	if (ptx_probe_via_is(p, insn)) {
		ptx_probe_via_call(p, insn);
		return 0;
	}
	if (ptx_probe_number_passed(p, insn)) {
		return print_rewritten(p, insn);
	}
	for (unsigned i = 0; i < insn->n_operands; i++) {
		if (&insn->operands[i] != callee && mentions(p, &insn->operands[i])) {
			return print_rewritten(p, insn);
		}
	}
	err = rewrite_space(p, &copy);
	ptx_item_print(&copy.item, p->out);
	return err;
}

/* ---- bodies ---- */

static int print_insn(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	int err;

	ptx_probe_before(p, insn);
	err = print_insn_itself(p, insn);
	ptx_probe_after(p, insn);
	return err;
}

/* ".loc file line column ..." */
static void note_line(struct ptx_probe_work *p, const struct ptx_directive *d)
{
	unsigned file, line;

	if (sscanf(d->text, ".loc %u %u", &file, &line) == 2) {
		p->at.loc = line;
		p->at.loc_file = file;
	}
}

/* A .loc that repeats the line of the one before, without a label between, is no new site. */
static void print_line(struct ptx_probe_work *p, const struct ptx_directive *d)
{
	uint32_t line = p->at.loc, file = p->at.loc_file;

	ptx_item_print(&d->item, p->out);
	if (strncmp(d->text, ".loc", 4) != 0) {
		return;
	}
	note_line(p, d);
	if (p->at.line_entered || p->at.loc != line || p->at.loc_file != file) {
		ptx_probe_line(p);
	}
	p->at.line_entered = false;
}

static int too_long(struct ptx_probe_work *p)
{
	return report_set(p->report, -EFBIG, "probe", "the probed form is longer than %zu bytes",
			  PTX_TEXT_MAX);
}

/* Recursion is bounded by the parser's limit on scopes. */
static int print_list(struct ptx_probe_work *p, const struct ptx_list *list)
{
	int err = 0;

	ptx_probe_hide_list(p->slice, list, 1);
	err = ptx_probe_enter_list(&p->scopes, list);
	for (const struct ptx_item *it = list->first; it && err == 0; it = it->next) {
		if (it == p->at.entry_place) {
			ptx_probe_enter_entry(p);
		}
		if (it->kind == PTX_INSN) {
			err = print_insn(p, (const struct ptx_insn *)it);
		} else if (it->kind == PTX_SCOPE) {
			ptx_probe_text(p, "\t{\n");
			err = print_list(p, &((const struct ptx_scope *)it)->body);
			ptx_probe_text(p, "\t}\n");
		} else if (it->kind == PTX_DIRECTIVE) {
			print_line(p, (const struct ptx_directive *)it);
		} else {
			ptx_item_print(it, p->out);
			p->at.line_entered = p->at.line_entered || it->kind == PTX_LABEL;
		}
		if (err == 0 && p->out->len > PTX_TEXT_MAX) {
			err = too_long(p);
		}
	}
	ptx_probe_leave_scope(&p->scopes);
	ptx_probe_hide_list(p->slice, list, -1);
	return err;
}

static bool is_end(const struct ptx_insn *insn)
{
	static const char *const opcodes[] = { "ret", "exit", "bra", "brx", "trap", NULL };

	return !insn->guard && ptx_is_one_of(insn->opcode, opcodes);
}

/* Returns true unless the last instruction surely leaves the list. */
static bool falls_through(const struct ptx_list *list)
{
	const struct ptx_item *it = list->last;

	while (it && (it->kind == PTX_DIRECTIVE || it->kind == PTX_VARIABLE)) {
		it = it->prev;
	}
	if (it && it->kind == PTX_SCOPE) {
		return falls_through(&((const struct ptx_scope *)it)->body);
	}
	return !it || it->kind != PTX_INSN || !is_end((const struct ptx_insn *)it);
}

/* Notes the line of the list's first .loc, also in scopes. */
static void first_line(struct ptx_probe_work *p, const struct ptx_list *list)
{
	for (const struct ptx_item *it = list->first; it && !p->at.loc; it = it->next) {
		if (it->kind == PTX_DIRECTIVE) {
			note_line(p, (const struct ptx_directive *)it);
		} else if (it->kind == PTX_SCOPE) {
			first_line(p, &((const struct ptx_scope *)it)->body);
		}
	}
}

static int print_function(struct ptx_probe_work *p, const struct ptx_function *f)
{
	int err;

	ptx_probe_number_head(p, f);
	if (!f->has_body) {
		buf_puts(p->out, ";\n");
		return 0;
	}
	p->at.in = f;
	p->at.loc = p->at.loc_file = 0;
	p->at.line_entered = true;
	first_line(p, &f->body);
	p->at.first_loc = p->at.loc;
	p->at.first_file = p->at.loc_file;
	buf_puts(p->out, "\n{\n");
	ptx_probe_hide_params(p->slice, f, 1);
	err = ptx_probe_enter_params(&p->scopes, f);
	ptx_probe_number_begin(p);
	ptx_probe_begin(p);
	err = err ? err : print_list(p, &f->body);
	if (err == 0 && falls_through(&f->body)) {
		ptx_probe_end(p);
	}
	if (err == 0 && f->is_entry) {
		ptx_probe_defer_end(p);
	}
	ptx_probe_leave_scope(&p->scopes);
	ptx_probe_hide_params(p->slice, f, -1);
	buf_puts(p->out, "}\n");
	return err;
}

/* ---- the module ---- */

static bool is_old(const struct ptx_module *m)
{
	return m->version_major < 6 || (m->version_major == 6 && m->version_minor < 2);
}

static int print_directive(struct ptx_probe_work *p, const struct ptx_directive *d, bool raise)
{
	static const char *const kept[] = { ".version", ".address_size", ".file", ".pragma", NULL };

	if (strncmp(d->text, ".version", 8) == 0 && raise) {
		buf_puts(p->out, ".version 6.2\n");
		return 0;
	}
	if (strncmp(d->text, ".target", 7) == 0) { /* "debug" would require the other sections */
		buf_printf(p->out, ".target %s\n", p->slice->m->target);
		return 0;
	}
	if (ptx_begins_with(d->text, kept)) {
		buf_printf(p->out, "%s\n", d->text);
		return 0;
	}
	if (strncmp(d->text, ".section", 8) == 0) {
		/* .loc names labels of this one. Others describe code that is not here. */
		const char *name = d->text + 8 + strspn(d->text + 8, " \t");

		if (strncmp(name, ".debug_str", 10) == 0 && strchr(" \t\r\n{", name[10])) {
			buf_printf(p->out, "%s\n", d->text);
		}
		return 0;
	}
	return strncmp(d->text, ".alias", 6) == 0
		       ? 0
		       : ptx_probe_refuse(p->slice, d->item.line, "an unknown directive");
}

static void print_table(struct ptx_probe_work *p)
{
	ptx_probe_text(p, ".visible .const .align 8 .b64 " PTX_PROBE_TABLE "[%u];\n",
		       p->read->n_programs + p->ret->n_variables + p->ret->n_maps);
	if (p->ret->needs_shared) {
		ptx_probe_text(p, ".extern .shared .align 16 .b8 ~shared[];\n");
	}
}

/* The functions of programs that have not become part of others altogether. */
static int print_programs(struct ptx_probe_work *p)
{
	int err = 0;

	for (uint32_t i = 0; i < p->read->n_programs && err == 0; i++) {
		if (!p->code[i].called) {
			continue;
		}
		if (ptx_probe_is_old(p)) {
			err = ptx_probe_print_old(p, &p->read->programs[i]);
		} else {
			buf_puts(p->out, p->read->programs[i].probe->text);
			buf_puts(p->out, "\n");
		}
	}
	return err ? err : ptx_probe_via_print(p);
}

static bool is_part(const struct ptx_probe_work *p, const struct ptx_item *it)
{
	const struct ptx_probe_name *n;

	if (it->kind == PTX_FUNCTION) {
		n = strmap_get(&p->slice->names, ((const struct ptx_function *)it)->name);
		return n && n->reached;
	}
	if (it->kind == PTX_VARIABLE) {
		n = strmap_get(&p->slice->names, ((const struct ptx_variable *)it)->name);
		return n && n->reached && n->place == PTX_PROBE_NO_PLACE;
	}
	return false;
}

static int print_items(struct ptx_probe_work *p, const struct ptx_item *it)
{
	int err = 0;

	for (; it && err == 0; it = it->next) {
		if (it->kind == PTX_DIRECTIVE) {
			err = print_directive(p, (const struct ptx_directive *)it,
					      p->ret->version_raised);
		} else if (is_part(p, it) && it->kind == PTX_FUNCTION) {
			err = print_function(p, (const struct ptx_function *)it);
		} else if (is_part(p, it)) {
			ptx_item_print(it, p->out);
		}
	}
	return err;
}

/* Prints what follows the header. Which programs are called is known behind the bodies. */
static int print_parts(struct ptx_probe_work *p, const struct ptx_item *first)
{
	struct buf *out = p->out, parts;
	int err;

	print_table(p);
	buf_init(&parts);
	p->out = &parts;
	err = print_items(p, first);
	p->out = out;
	err = err ? err : print_programs(p);
	buf_add(out, parts.data, parts.len);
	err = err ? err : parts.failed;
	buf_finish(&parts);
	return err;
}

/* Gives control words and maps their places in the table, behind the variables. */
static int place_maps(struct ptx_probe_work *p)
{
	uint32_t place = p->read->n_programs + p->ret->n_variables, n = 0;
	struct ptx_probe_map *maps;

	ptx_probe_each (p->read, g) {
		if (g->probe->maps_in_table && !p->code[g->place].map_at) {
			p->code[g->place].maps_place = place + n;
			n += ptx_probe_n_addresses(g);
		}
	}
	maps = ptx_arena_array(&p->ret->arena, n + 1u, sizeof(*maps));
	if (!maps) {
		return -ENOMEM;
	}
	p->ret->maps = maps;
	for (uint32_t i = 0; i < p->read->n_programs; i++) {
		const struct ptx_probe_program *g = &p->read->programs[i];

		for (uint32_t k = 0; k < ptx_probe_n_addresses(g) && p->code[g->place].maps_place;
		     k++) {
			maps[p->ret->n_maps++] =
				(struct ptx_probe_map){ i, ptx_probe_root_address_of(g, k) };
		}
	}
	return 0;
}

/* Returns the number of bytes of the functions that the entry reaches, printed without programs;
 * any number above max if there are more. */
static size_t slice_bytes(const struct ptx_probe_work *p, size_t max)
{
	struct buf text;
	size_t bytes;

	buf_init(&text);
	for (const struct ptx_item *it = p->slice->m->items.first; it && text.len <= max;
	     it = it->next) {
		if (it->kind == PTX_FUNCTION && is_part(p, it)) {
			ptx_head_print((const struct ptx_function *)it, &text);
			ptx_body_print(&((const struct ptx_function *)it)->body, &text);
		}
	}
	bytes = text.failed ? SIZE_MAX : text.len;
	buf_finish(&text);
	return bytes;
}

/* Short forms have addresses as constants of their text. */
static void choose_addresses(struct ptx_probe_work *p)
{
	uint32_t max = 0;
	size_t bytes;

	ptx_probe_each (p->read, g) {
		const struct ptx_probe *probe = g->probe;

		max = probe->map_at ? MAX(max, probe->text_max) : max;
	}
	bytes = max ? slice_bytes(p, max) : SIZE_MAX;
	ptx_probe_each (p->read, g) {
		p->code[g->place].map_at = bytes <= g->probe->text_max ? g->probe->map_at : NULL;
		p->ret->has_addresses = p->ret->has_addresses || p->code[g->place].map_at;
	}
}

int ptx_probe_print(struct ptx_probe_work *p)
{
	const struct ptx_item *it = p->slice->m->items.first;
	int err;

	choose_addresses(p);
	err = place_maps(p);

	ptx_probe_each (p->read, g) {
		if (ptx_probe_inline_why(p, g, &p->code[g->place].n_insns)) {
			p->code[g->place].n_insns = 0;
		}
		p->code[g->place].early = ptx_probe_has_early(p, g);
		p->code[g->place].flat = ptx_probe_is_flat(p, g);
		p->code[g->place].defers = ptx_probe_can_defer(p, g);
	}
	p->ret->version_raised = is_old(p->slice->m);
	for (; it && it->kind == PTX_DIRECTIVE && err == 0; it = it->next) {
		err = print_directive(p, (const struct ptx_directive *)it, p->ret->version_raised);
	}
	err = err ? err : print_parts(p, it);
	if (err == 0 && p->out->len > PTX_TEXT_MAX) {
		err = too_long(p);
	}
	return err ? err : p->out->failed;
}
