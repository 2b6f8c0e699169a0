/* Calls through pointers, and addresses of functions, in modules that were prepared at load
 * (ptx/prepare.h). Pointers keep the numbers of the program's module, since they may be in its
 * memory: an address that is taken is read from the module's list. A call compares the pointer with
 * the list and calls the function of that place, of those with its prototype, in the new module. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ptx/block_facts.h"
#include "ptx/prepare.h"
#include "ptx/probe/probe_int.h"

#define WORK_MAX 20000000u /* items looked at for prototypes */
#define PARAMS_MAX 8192u   /* bytes of parameters and results that are copied */

int ptx_probe_via_open(struct ptx_probe_work *p)
{
	const struct ptx_operand *init;

	ptx_each (&p->m->items, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		if (it->kind == PTX_VARIABLE &&
		    strncmp(v->name, PTX_FUNCTIONS, strlen(PTX_FUNCTIONS)) == 0) {
			p->list = p->list ? NULL : strmap_get(&p->names, v->name);
			if (!p->list) {
				return 0; /* of several modules: which one a place is in is unknown
					   */
			}
		}
	}
	init = p->list && p->list->v ? p->list->v->init : NULL;
	for (uint32_t i = 0; init && i < init->n_args; i++) {
		const struct ptx_operand *o = &init->args[i];
		struct ptx_probe_name *n =
			o->kind == PTX_NAME && o->name ? strmap_get(&p->names, o->name) : NULL;

		if (!n || !n->f || !n->f->has_body || n->f->is_entry || n->listed) {
			init = NULL;
			break;
		}
		n->listed = i + 1;
	}
	p->list = init && init->kind == PTX_VECTOR ? p->list : NULL;
	return 0;
}

/* ---- prototypes ---- */

static bool same_variable(const struct ptx_variable *a, const struct ptx_variable *b)
{
	uint64_t x, y;

	return a->space == PTX_PARAM && b->space == PTX_PARAM && ptx_variable_bytes(a, &x) == 0 &&
	       ptx_variable_bytes(b, &y) == 0 && x == y && !a->n_dims == !b->n_dims;
}

static bool same_signature(const struct ptx_function *a, const struct ptx_function *b)
{
	bool same = a->n_params == b->n_params && a->n_returns == b->n_returns;

	for (uint32_t i = 0; same && i < a->n_params; i++) {
		same = same_variable(&a->params[i], &b->params[i]);
	}
	for (uint32_t i = 0; same && i < a->n_returns; i++) {
		same = same_variable(&a->returns[i], &b->returns[i]);
	}
	return same;
}

/* The prototype behind the label. Recursion is bounded by the parser's limit on scopes. */
static const struct ptx_function *find_prototype(const struct ptx_list *list, const char *label,
						 unsigned *work)
{
	const struct ptx_function *found = NULL;
	bool named = false;

	for (const struct ptx_item *it = list->first; it && !found; it = it->next) {
		++*work;
		if (it->kind == PTX_PROTOTYPE && named) {
			found = &((const struct ptx_prototype *)it)->function;
		} else if (it->kind == PTX_SCOPE) {
			found = find_prototype(&((const struct ptx_scope *)it)->body, label, work);
		}
		named = it->kind == PTX_LABEL &&
			strcmp(((const struct ptx_label *)it)->name, label) == 0;
	}
	return found;
}

/* Returns the prototype of a call through a register in the present function; NULL: none, or one of
 * a form that is not copied. */
static const struct ptx_function *prototype_of(struct ptx_probe_work *p,
					       const struct ptx_insn *insn)
{
	const struct ptx_operand *last =
		insn->n_operands > 1 ? &insn->operands[insn->n_operands - 1] : NULL;
	const struct ptx_function *f =
		last && last->kind == PTX_NAME && last != ptx_block_callee(insn)
			? find_prototype(&p->in->body, last->name, &p->via_work)
			: NULL;
	uint64_t all = 0;

	for (uint32_t i = 0; f && i < f->n_params + f->n_returns; i++) {
		const struct ptx_variable *v =
			i < f->n_params ? &f->params[i] : &f->returns[i - f->n_params];
		uint64_t bytes;

		if (v->space != PTX_PARAM || v->n_dims > 1 || ptx_variable_bytes(v, &bytes) < 0 ||
		    !bytes || bytes > PARAMS_MAX - all) {
			return NULL;
		}
		all += bytes;
	}
	return f && f->n_returns <= 1 ? f : NULL;
}

static unsigned via_of(struct ptx_probe_work *p, const struct ptx_function *prototype)
{
	unsigned i = 0;

	while (i < p->n_via && p->via[i] != prototype) {
		i++;
	}
	return i;
}

static bool fits(const struct ptx_probe_work *p, uint32_t i, const struct ptx_function *prototype,
		 struct ptx_probe_name **ret)
{
	*ret = strmap_get(&p->names, p->list->v->init->args[i].name);
	return *ret && same_signature((*ret)->f, prototype);
}

/* Whether an argument is the address of something of the module, which would have to be replaced.
 */
static bool passes_address(const struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	for (unsigned i = 0; i < insn->n_operands; i++) {
		const struct ptx_operand *o = &insn->operands[i];

		for (uint32_t k = 0; o->kind == PTX_TUPLE && k < o->n_args; k++) {
			if (o->args[k].name && ptx_probe_find(p, o->args[k].name)) {
				return true;
			}
		}
	}
	return false;
}

int ptx_probe_via_reach(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	const struct ptx_function *prototype = p->list ? prototype_of(p, insn) : NULL;
	uint32_t line = insn->item.line, n = 0;
	int err;

	if (!p->list) {
		return ptx_probe_refuse_late(p, line, "calls through a pointer");
	}
	if (!prototype || passes_address(p, insn)) {
		return ptx_probe_refuse(p, line, "calls through a pointer in an unknown form");
	}
	if (p->via_work > WORK_MAX) {
		return ptx_probe_refuse(p, line, "too many calls through pointers");
	}
	if (via_of(p, prototype) < p->n_via) {
		return 0;
	}
	if (p->n_via == PTX_PROBE_VIA_MAX) {
		return ptx_probe_refuse(p, line,
					"calls through pointers of more than %u prototypes",
					PTX_PROBE_VIA_MAX);
	}
	p->via[p->n_via++] = prototype;
	err = ptx_probe_reach_variable(p, p->list, line);
	for (uint32_t i = 0; i < p->list->v->init->n_args && err == 0; i++) {
		struct ptx_probe_name *g;

		if (fits(p, i, prototype, &g)) {
			n++;
			err = ptx_probe_reach_function(p, g, line);
		}
	}
	return err || n ? err
			: ptx_probe_refuse(p, line,
					   "calls through a pointer, and no function of the module "
					   "has that prototype");
}

/* ---- printing ---- */

static void declare(struct ptx_probe_work *p, const struct ptx_variable *v, const char *name)
{
	uint64_t bytes = 0;

	(void)ptx_variable_bytes(v, &bytes);
	if (v->n_dims) {
		ptx_probe_text(p, ".param .align %u .b8 %s[%llu]", ptx_variable_align(v), name,
			       (unsigned long long)bytes);
	} else {
		ptx_probe_text(p, ".param %s %s", v->type, name);
	}
}

/* Copies a parameter in pieces as wide as both are aligned. */
static void copy(struct ptx_probe_work *p, const struct ptx_variable *a,
		 const struct ptx_variable *b, const char *from, const char *to)
{
	static const char *const registers[] = { [1] = "h", [2] = "h", [4] = "w", [8] = "d" };
	uint32_t wide = MIN(MIN(ptx_variable_align(a), ptx_variable_align(b)), 8u);
	uint64_t bytes = 0;

	(void)ptx_variable_bytes(a, &bytes);
	while (wide > 1 && bytes % wide) {
		wide /= 2;
	}
	for (uint64_t at = 0; at < bytes; at += wide) {
		ptx_probe_text(p,
			       "\tld.param.b%u %%~%s, [%s+%llu];\n"
			       "\tst.param.b%u [%s+%llu], %%~%s;\n",
			       wide * 8, registers[wide], from, (unsigned long long)at, wide * 8,
			       to, (unsigned long long)at, registers[wide]);
	}
}

/* One function of the list: calls it if the pointer is its number, and returns. */
static void print_candidate(struct ptx_probe_work *p, const struct ptx_function *prototype,
			    const struct ptx_function *g, uint32_t place)
{
	char from[32], to[32];

	ptx_probe_text(p,
		       "\tld.global.b64 %%~v, [%%~l+%u];\n\tsetp.ne.s64 %%~p, %%~f, %%~v;\n"
		       "\t@%%~p bra ~n%u;\n\t{\n",
		       place * 8, p->n_labels);
	for (uint32_t i = 0; i < g->n_returns; i++) {
		ptx_probe_text(p, "\t");
		declare(p, &g->returns[i], "~q");
		ptx_probe_text(p, ";\n");
	}
	for (uint32_t i = 0; i < g->n_params; i++) {
		snprintf(to, sizeof(to), "~b%u", i);
		ptx_probe_text(p, "\t");
		declare(p, &g->params[i], to);
		ptx_probe_text(p, ";\n");
	}
	for (uint32_t i = 0; i < g->n_params; i++) {
		snprintf(from, sizeof(from), "~a%u", i);
		snprintf(to, sizeof(to), "~b%u", i);
		copy(p, &prototype->params[i], &g->params[i], from, to);
	}
	if (ptx_probe_number_has(p, g)) {
		ptx_probe_number_store(p);
	}
	ptx_probe_text(p, g->n_returns ? "\tcall (~q), %s, (" : "\tcall %s, (", g->name);
	for (uint32_t i = 0; i < g->n_params; i++) {
		ptx_probe_text(p, "%s~b%u", i ? ", " : "", i);
	}
	if (ptx_probe_number_has(p, g)) {
		buf_printf(p->out, "%s%s", g->n_params ? ", " : "", ptx_probe_number_arg(p).name);
	}
	ptx_probe_text(p, ");\n");
	if (g->n_returns) {
		copy(p, &g->returns[0], &prototype->returns[0], "~q", "~r");
	}
	ptx_probe_text(p, "\tret;\n\t}\n~n%u:\n", p->n_labels++);
}

static void print_caller(struct ptx_probe_work *p, unsigned number)
{
	const struct ptx_function *f = p->via[number];
	char name[32];

	ptx_probe_text(p, ".func ");
	if (f->n_returns) {
		ptx_probe_text(p, "(");
		declare(p, &f->returns[0], "~r");
		ptx_probe_text(p, ") ");
	}
	ptx_probe_text(p, "~via%u (.param .b64 ~f", number);
	for (uint32_t i = 0; i < f->n_params; i++) {
		snprintf(name, sizeof(name), "~a%u", i);
		ptx_probe_text(p, ", ");
		declare(p, &f->params[i], name);
	}
	if (p->passes_number) {
		buf_printf(p->out, ", .param .b64 %s", p->head->params[p->head->n_params - 1].name);
	}
	ptx_probe_text(p,
		       ")\n{\n\t.reg .pred %%~p;\n\t.reg .b16 %%~h;\n\t.reg .b32 %%~w;\n"
		       "\t.reg .b64 %%~d, %%~f, %%~l, %%~v;\n\tld.param.b64 %%~f, [~f];\n"
		       "\tld.const.b64 %%~l, [" PTX_PROBE_TABLE "+%u];\n",
		       p->list->place * 8);
	ptx_probe_number_begin(p);
	for (uint32_t i = 0; i < p->list->v->init->n_args; i++) {
		struct ptx_probe_name *g;

		if (fits(p, i, f, &g) && p->out->len <= PTX_TEXT_MAX) {
			print_candidate(p, f, g->f, i);
		}
	}
	ptx_probe_text(p, "\ttrap;\n\tret;\n}\n");
}

int ptx_probe_via_print(struct ptx_probe_work *p)
{
	const struct ptx_operand *init = p->n_via ? p->list->v->init : NULL;

	for (uint32_t i = 0; init && i < init->n_args; i++) {
		const struct ptx_probe_name *g = strmap_get(&p->names, init->args[i].name);

		if (g && g->reached) {
			ptx_probe_number_head(p, g->f);
			buf_puts(p->out, ";\n");
		}
	}
	for (unsigned i = 0; i < p->n_via; i++) {
		print_caller(p, i);
	}
	return p->out->len > PTX_TEXT_MAX
		       ? report_set(p->report, -EFBIG, "probe",
				    "the probed form is longer than %zu bytes", PTX_TEXT_MAX)
		       : 0;
}

bool ptx_probe_via_is(const struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	const struct ptx_operand *callee = ptx_block_callee(insn);
	const struct ptx_probe_name *n = callee ? ptx_probe_find(p, callee->name) : NULL;

	return callee && !(n && n->f);
}

void ptx_probe_via_call(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	const struct ptx_operand *callee = ptx_block_callee(insn);
	const struct ptx_function *prototype = prototype_of(p, insn);
	unsigned at = (unsigned)(callee - insn->operands);
	const struct ptx_operand *args =
		at + 1u < insn->n_operands && insn->operands[at + 1].kind == PTX_TUPLE
			? &insn->operands[at + 1]
			: NULL;
	struct ptx_operand own = { .kind = PTX_NAME }, all, callee_now = { .kind = PTX_NAME };
	struct ptx_operand list[3];
	struct ptx_insn call = *insn;
	char text[64];

	ptx_probe_text(p, "\t{\n\t.param .b64 ~f;\n\tst.param.b64 [~f], %s;\n", callee->name);
	ptx_probe_number_store(p);
	snprintf(text, sizeof(text), "%svia%u", p->stem, via_of(p, prototype));
	callee_now.name = ptx_arena_text(&p->ret->arena, text, strlen(text));
	snprintf(text, sizeof(text), "%sf", p->stem);
	own.name = ptx_arena_text(&p->ret->arena, text, strlen(text));
	all = (struct ptx_operand){ .kind = PTX_TUPLE,
				    .n_args = 1 + (args ? args->n_args : 0) + p->passes_number };
	all.args = ptx_arena_array(&p->ret->arena, all.n_args, sizeof(*all.args));
	if (!callee_now.name || !own.name || !all.args) {
		p->out->failed = -ENOMEM;
		return;
	}
	all.args[0] = own;
	if (args && args->n_args) {
		memcpy(&all.args[1], args->args, args->n_args * sizeof(*args->args));
	}
	if (p->passes_number) {
		all.args[all.n_args - 1] = ptx_probe_number_arg(p);
	}
	call.n_operands = 0;
	if (at) {
		list[call.n_operands++] = insn->operands[0];
	}
	list[call.n_operands++] = callee_now;
	list[call.n_operands++] = all;
	call.operands = list;
	ptx_item_print(&call.item, p->out);
	ptx_probe_text(p, "\t}\n");
}
