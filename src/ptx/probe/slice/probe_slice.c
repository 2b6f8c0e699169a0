/* Marks the functions that the entry calls, directly or not, and the variables that it uses.
 * Refuses uses that a second module cannot make, or that would be of a copy there. */
#include <errno.h>
#include <string.h>

#include "ptx/block_facts.h"
#include "ptx/probe/slice/probe_slice.h"

static int refuse(const struct ptx_probe_slice *p, uint32_t line, const char *hint, const char *fmt,
		  va_list ap)
{
	struct buf text;

	buf_init(&text);
	buf_vprintf(&text, fmt, ap);
	if (line) {
		report_place(p->report, "%s:%u", p->m->name, line);
	} else {
		report_place(p->report, "%s", p->m->name);
	}
	report_set(p->report, -ENOTSUP, "probe", "%s", buf_text(&text));
	report_hint(p->report, "%s", hint);
	buf_finish(&text);
	return -ENOTSUP;
}

int ptx_probe_refuse(const struct ptx_probe_slice *p, uint32_t line, const char *fmt, ...)
{
	va_list ap;
	int err;

	va_start(ap, fmt);
	err = refuse(p, line, "use the entry stub or brackets", fmt, ap);
	va_end(ap);
	return err;
}

int ptx_probe_refuse_late(const struct ptx_probe_slice *p, uint32_t line, const char *fmt, ...)
{
	va_list ap;
	int err;

	va_start(ap, fmt);
	err = refuse(p, line,
		     "run the program with 'gbpf run --probes', or use the entry stub or "
		     "brackets",
		     fmt, ap);
	va_end(ap);
	return err;
}

/* ---- functions ---- */

int ptx_probe_reach_function(struct ptx_probe_slice *p, struct ptx_probe_name *n, uint32_t line)
{
	if (n->reached) {
		return 0;
	}
	if (n->alias) {
		return ptx_probe_refuse(p, line, "%s is an alias", n->name);
	}
	if (!n->f->has_body && ptx_block_is_device_runtime(n->name)) {
		return ptx_probe_refuse(p, line, "%s launches kernels", n->name);
	}
	if (!n->f->has_body && !ptx_block_is_harmless(n->name)) {
		return ptx_probe_refuse(p, line, "%s is a function of another module", n->name);
	}
	if (n->f->is_entry && n != p->entry) {
		return ptx_probe_refuse(p, line, "%s is a kernel", n->name);
	}
	if (*n->f->attributes) {
		return ptx_probe_refuse(p, n->f->item.line,
					"%s has attributes, which a second module cannot share",
					n->name);
	}
	n->reached = true;
	n->line = line;
	n->work = p->scan.work;
	p->scan.work = n;
	return 0;
}

/* ---- variables ---- */

static const char *variable_why(const struct ptx_variable *v)
{
	static const char *const references[] = { ".texref", ".surfref", ".samplerref", NULL };

	if (ptx_is_one_of(v->type, references)) {
		return "is a texture, surface or sampler reference";
	}
	if (strcmp(v->linkage, ".extern") == 0) {
		return "is a variable of another module";
	}
	if (strcmp(v->linkage, ".common") == 0) {
		return "is a common variable";
	}
	return v->has_bank && v->bank ? "is in another constant bank" : NULL;
}

static bool is_by_address(const struct ptx_variable *v)
{
	return v->space == PTX_GLOBAL || v->space == PTX_CONST;
}

int ptx_probe_reach_variable(struct ptx_probe_slice *p, struct ptx_probe_name *n, uint32_t line)
{
	const char *why;

	if (n->reached) {
		return 0;
	}
	n->reached = true;
	n->line = line;
	if (!is_by_address(n->v)) {
		return 0; /* shared memory belongs to the launch */
	}
	why = variable_why(n->v);
	if (why) {
		return ptx_probe_refuse(p, line, "%s %s", n->name, why);
	}
	p->scan.has_constants = p->scan.has_constants || n->v->space == PTX_CONST;
	n->place = p->read->n_programs + p->n_variables++;
	return 0;
}

/* ---- instructions ---- */

/* Returns true if the operand can be replaced by a register of 64 bits. */
static bool takes_address(const struct ptx_insn *insn, const struct ptx_operand *o)
{
	return o->kind == PTX_ADDRESS || strcmp(insn->opcode, "call") == 0 ||
	       (insn->n_modifiers && ptx_type_bytes(insn->modifiers[insn->n_modifiers - 1]) == 8);
}

static int scan_name(struct ptx_probe_slice *p, const struct ptx_insn *insn,
		     const struct ptx_operand *o)
{
	struct ptx_probe_name *n = ptx_probe_find(p, o->name);
	uint32_t line = insn->item.line;

	if ((p->read->warp_bytes || (ptx_probe_has_hook(p->read, PTX_PROBE_gdev_block_exit))) &&
	    ptx_block_sreg_of(o->name) == PTX_BLOCK_SREG_SHARED) {
		return ptx_probe_refuse(p, line,
					"reads its size of shared memory, which is larger "
					"with a program of block_exit or a WARP_SCRATCH");
	}
	if (!n) {
		return 0;
	}
	if (n->f && p->list && n->listed && takes_address(insn, o) &&
	    strcmp(insn->opcode, "call") != 0) {
		return ptx_probe_reach_variable(p, p->list, line);
	}
	if (n->f) {
		return ptx_probe_refuse_late(
			p, line,
			"takes the address of function %s, which is another number "
			"in another module",
			n->name);
	}
	if (is_by_address(n->v) && !takes_address(insn, o)) {
		return ptx_probe_refuse(p, line, "uses the address of %s in less than 64 bits",
					n->name);
	}
	return ptx_probe_reach_variable(p, n, line);
}

static int scan_operand(struct ptx_probe_slice *p, const struct ptx_insn *insn,
			const struct ptx_operand *o)
{
	int err = o->name ? scan_name(p, insn, o) : 0;

	for (uint32_t i = 0; i < o->n_args && err == 0; i++) {
		err = scan_operand(p, insn, &o->args[i]);
	}
	if (err == 0 && o->kind == PTX_ADDRESS && !o->name && ptx_insn_has(insn, ".const")) {
		err = ptx_probe_refuse(p, insn->item.line, "reads constant memory at a number");
	}
	return err;
}

static int scan_insn(struct ptx_probe_slice *p, const struct ptx_insn *insn)
{
	const struct ptx_operand *callee = ptx_block_callee(insn);
	struct ptx_probe_name *n = callee ? ptx_probe_find(p, callee->name) : NULL;
	int err = 0;

	if (strcmp(insn->opcode, "call") == 0) {
		err = n && n->f ? ptx_probe_reach_function(p, n, insn->item.line)
				: ptx_probe_via_reach(p, insn);
	}
	if (strcmp(insn->opcode, "isspacep") == 0 &&
	    (ptx_insn_has(insn, ".const") || ptx_insn_has(insn, ".global"))) {
		p->scan.spaces_line = insn->item.line;
	}
	for (unsigned i = 0; i < insn->n_operands && err == 0; i++) {
		if (&insn->operands[i] != callee) {
			err = scan_operand(p, insn, &insn->operands[i]);
		}
	}
	return err;
}

/* ---- bodies ---- */

static int scan_declaration(struct ptx_probe_slice *p, const struct ptx_variable *v)
{
	if (v->space == PTX_GLOBAL || v->space == PTX_CONST) {
		return ptx_probe_refuse_late(
			p, v->item.line,
			"%s is declared inside a body, so the driver does not find "
			"it by name",
			v->name);
	}
	return 0;
}

static int scan_directive(struct ptx_probe_slice *p, const struct ptx_directive *d)
{
	static const char *const known[] = { ".loc", ".pragma", ".file", NULL };

	return ptx_begins_with(d->text, known)
		       ? 0
		       : ptx_probe_refuse(p, d->item.line, "an unknown directive inside a body");
}

static int scan_targets(struct ptx_probe_slice *p, const struct ptx_targets *t)
{
	for (uint32_t i = 0; i < t->n; i++) {
		if (ptx_probe_find(p, t->names[i])) {
			return ptx_probe_refuse(p, t->item.line,
						"lists the targets of calls through a pointer");
		}
	}
	return 0;
}

/* Recursion is bounded by the parser's limit on scopes. */
static int scan_list(struct ptx_probe_slice *p, const struct ptx_list *list)
{
	int err = 0;

	ptx_probe_hide_list(p, list, 1);
	for (const struct ptx_item *it = list->first; it && err == 0; it = it->next) {
		switch (it->kind) {
		case PTX_INSN:
			err = scan_insn(p, (const struct ptx_insn *)it);
			break;
		case PTX_VARIABLE:
			err = scan_declaration(p, (const struct ptx_variable *)it);
			break;
		case PTX_DIRECTIVE:
			err = scan_directive(p, (const struct ptx_directive *)it);
			break;
		case PTX_SCOPE:
			err = scan_list(p, &((const struct ptx_scope *)it)->body);
			break;
		case PTX_TARGETS:
			err = scan_targets(p, (const struct ptx_targets *)it);
			break;
		default: /* labels and prototypes */
			break;
		}
	}
	ptx_probe_hide_list(p, list, -1);
	return err;
}

static int scan_function(struct ptx_probe_slice *p, const struct ptx_function *f)
{
	int err;

	for (uint32_t i = 0; i < f->n_params; i++) {
		if (strstr(f->params[i].attributes, ".const") || strstr(f->params[i].type, "ref")) {
			return ptx_probe_refuse(p, f->item.line,
						"parameter %s is of constant memory or a texture",
						f->params[i].name);
		}
	}
	p->scan.in = f;
	ptx_probe_hide_params(p, f, 1);
	err = scan_list(p, &f->body);
	ptx_probe_hide_params(p, f, -1);
	return err;
}

/* ---- the table's names ---- */

static int list_variables(struct ptx_probe_slice *p)
{
	const char **names = ptx_arena_array(p->arena, (size_t)p->n_variables + 1, sizeof(*names));

	if (!names) {
		return -ENOMEM;
	}
	strmap_each (&p->names, e) {
		const struct ptx_probe_name *n = e->value;

		if (n->place != PTX_PROBE_NO_PLACE) {
			names[n->place - p->read->n_programs] =
				ptx_arena_text(p->arena, n->name, strlen(n->name));
			if (!names[n->place - p->read->n_programs]) {
				return -ENOMEM;
			}
		}
	}
	p->variables = names;
	return 0;
}

int ptx_probe_slice(struct ptx_probe_slice *p)
{
	int err = ptx_probe_reach_function(p, p->entry, p->entry->f->item.line);

	while (err == 0 && p->scan.work) {
		const struct ptx_function *f = p->scan.work->f;

		p->scan.work = p->scan.work->work;
		err = scan_function(p, f);
	}
	if (err == 0 && p->scan.has_constants && p->scan.spaces_line) {
		err = ptx_probe_refuse(p, p->scan.spaces_line,
				       "tells constant from global memory, and constant variables "
				       "are reached as global memory");
	}
	return err ? err : list_variables(p);
}
