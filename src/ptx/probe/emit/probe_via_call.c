/* Calls through pointers (slice/probe_via.c), and the functions of the new module that these call.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ptx/block_facts.h"
#include "ptx/probe/emit/probe_emit.h"

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
	const struct ptx_function *f = p->slice->via[number];
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
	if (p->number.passes) {
		buf_printf(p->out, ", .param .b64 %s",
			   p->number.head->params[p->number.head->n_params - 1].name);
	}
	ptx_probe_text(p,
		       ")\n{\n\t.reg .pred %%~p;\n\t.reg .b16 %%~h;\n\t.reg .b32 %%~w;\n"
		       "\t.reg .b64 %%~d, %%~f, %%~l, %%~v;\n\tld.param.b64 %%~f, [~f];\n"
		       "\tld.const.b64 %%~l, [" PTX_PROBE_TABLE "+%u];\n",
		       p->slice->list->place * 8);
	ptx_probe_number_begin(p);
	for (uint32_t i = 0; i < p->slice->list->v->init->n_args; i++) {
		const struct ptx_probe_name *g = ptx_probe_via_candidate(p->slice, i, f);

		if (g && p->out->len <= PTX_TEXT_MAX) {
			print_candidate(p, f, g->f, i);
		}
	}
	ptx_probe_text(p, "\ttrap;\n\tret;\n}\n");
}

int ptx_probe_via_print(struct ptx_probe_work *p)
{
	const struct ptx_operand *init = p->slice->n_via ? p->slice->list->v->init : NULL;

	for (uint32_t i = 0; init && i < init->n_args; i++) {
		const struct ptx_probe_name *g = strmap_get(&p->slice->names, init->args[i].name);

		if (g && g->reached) {
			ptx_probe_number_head(p, g->f);
			buf_puts(p->out, ";\n");
		}
	}
	for (unsigned i = 0; i < p->slice->n_via; i++) {
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
	const struct ptx_probe_name *n = callee ? ptx_probe_find(p->slice, callee->name) : NULL;

	return callee && !(n && n->f);
}

void ptx_probe_via_call(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	const struct ptx_operand *callee = ptx_block_callee(insn);
	unsigned work = 0;
	const struct ptx_function *prototype = ptx_probe_via_prototype(p->at.in, insn, &work);
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
	snprintf(text, sizeof(text), "%svia%u", p->stem, ptx_probe_via_of(p->slice, prototype));
	callee_now.name = ptx_arena_text(&p->ret->arena, text, strlen(text));
	snprintf(text, sizeof(text), "%sf", p->stem);
	own.name = ptx_arena_text(&p->ret->arena, text, strlen(text));
	all = (struct ptx_operand){ .kind = PTX_TUPLE,
				    .n_args = 1 + (args ? args->n_args : 0) + p->number.passes };
	all.args = ptx_arena_array(&p->ret->arena, all.n_args, sizeof(*all.args));
	if (!callee_now.name || !own.name || !all.args) {
		p->out->failed = -ENOMEM;
		return;
	}
	all.args[0] = own;
	if (args && args->n_args) {
		memcpy(&all.args[1], args->args, args->n_args * sizeof(*args->args));
	}
	if (p->number.passes) {
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
