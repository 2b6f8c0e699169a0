/* The number of the launch. The code and the constants of a form are those of all its launches,
 * which may run at the same time, so the number is passed with each: as a parameter of 8 bytes
 * behind f's own, of a name that the module does not have. A form whose programs do not read it has
 * f's parameters. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ptx/block_facts.h"
#include "ptx/probe/emit/probe_emit.h"

#define NUMBER_BYTES 8u
/* Behind the stem: of the parameter, and of that of a call in its scope. ptxas takes a variable of
 * the first name there for the parameter of the function around it. */
#define NAME "number"
#define PASSED "passed"

/* Returns the program that reads it first; NULL: none does. */
static const struct ptx_probe_program *reader(const struct ptx_probe_work *p)
{
	ptx_probe_each (p->read, g) {
		const struct ptx_probe *probe = g->probe;

		if (ptx_probe_reads_launch(probe->hook, probe->fields)) {
			return g;
		}
	}
	return NULL;
}

static int refuse(struct ptx_probe_work *p, const struct ptx_probe_program *g, const char *why)
{
	const struct ptx_function *f = p->slice->entry->f;

	report_place(p->report, "%s:%u", p->slice->m->name, f->item.line);
	(void)report_set(p->report, -ENOTSUP, "probe",
			 "%s reads the launch's number, which %s cannot be passed: %s",
			 g->probe->name, f->name, why);
	report_hint(p->report, "read it in a program of begin or end");
	return -ENOTSUP;
}

/* Returns a name that no name of the module has; NULL: out of memory. */
static const char *with_stem(struct ptx_probe_work *p, const char *rest)
{
	char text[64];
	int len = snprintf(text, sizeof(text), "%s%s", p->stem, rest);

	return ptx_arena_text(&p->ret->arena, text, (size_t)len);
}

/* Returns a copy of a function's head with the parameter; NULL: out of memory. */
static const struct ptx_function *with_param(struct ptx_probe_work *p, const struct ptx_function *f)
{
	struct ptx_arena *a = &p->ret->arena;
	struct ptx_function *head = ptx_arena_alloc(a, sizeof(*head));
	struct ptx_variable *params = ptx_arena_array(a, f->n_params + 1u, sizeof(*params));
	const char *name = with_stem(p, NAME);

	if (!head || !params || !name) {
		return NULL;
	}
	if (f->n_params) {
		memcpy(params, f->params, f->n_params * sizeof(*params));
	}
	params[f->n_params] = (struct ptx_variable){ .item.kind = PTX_VARIABLE,
						     .space = PTX_PARAM,
						     .linkage = "",
						     .attributes = "",
						     .type = ".b64",
						     .name = name };
	*head = *f;
	head->params = params;
	head->n_params++;
	return head;
}

int ptx_probe_number_open(struct ptx_probe_work *p)
{
	const struct ptx_probe_program *g = reader(p);
	const struct ptx_function *f = p->slice->entry->f;
	uint64_t end = 0, size, max = ptx_block_params_max(p->slice->m);

	if (!g) {
		return 0;
	}
	for (uint32_t i = 0; i < f->n_params; i++) {
		const struct ptx_variable *v = &f->params[i];

		if (v->open_array || ptx_variable_bytes(v, &size) < 0 || size > max) {
			return refuse(p, g, "the size of a parameter is not known");
		}
		end = ROUND_UP(end, (uint64_t)ptx_variable_align(v)) + size;
		if (end > max) {
			break;
		}
	}
	if (f->n_params == PTX_PARAMS_MAX || ROUND_UP(end, NUMBER_BYTES) + NUMBER_BYTES > max) {
		return refuse(p, g, "its own parameters leave no room");
	}
	p->ret->number =
		(struct ptx_probe_number){ .passed = true,
					   .n_params = f->n_params,
					   .end = (uint32_t)end,
					   .offset = ROUND_UP((uint32_t)end, NUMBER_BYTES) };
	p->number.passed = with_stem(p, PASSED);
	p->number.head = with_param(p, f);
	return p->number.head && p->number.passed ? 0 : -ENOMEM;
}

bool ptx_probe_number_has(const struct ptx_probe_work *p, const struct ptx_function *f)
{
	const struct ptx_probe_name *n = strmap_get(&p->slice->names, f->name);

	return p->number.passes && n && n->f && n->f->has_body && !n->f->is_entry;
}

void ptx_probe_number_head(struct ptx_probe_work *p, const struct ptx_function *f)
{
	if (f == p->slice->entry->f && p->number.head) {
		f = p->number.head;
	} else if (ptx_probe_number_has(p, f)) {
		f = with_param(p, f);
	}
	if (f) {
		ptx_head_print(f, p->out);
	} else {
		p->out->failed = -ENOMEM;
	}
}

void ptx_probe_number_begin(struct ptx_probe_work *p)
{
	if (p->number.passes) {
		ptx_probe_text(p, "\t.reg .b64 %%~" NAME ";\n\tld.param.b64 %%~" NAME ", [~" NAME
				  "];\n");
	}
}

void ptx_probe_number_load(struct ptx_probe_work *p, const char *reg)
{
	if (p->number.passes) {
		ptx_probe_text(p, "\tmov.b64 %s, %%~" NAME ";\n", reg);
	} else if (p->at.in == p->slice->entry->f) {
		ptx_probe_text(p, "\tld.param.b64 %s, [~" NAME "];\n", reg);
	} else {
		p->number.lacks = true;
	}
}

void ptx_probe_number_store(struct ptx_probe_work *p)
{
	if (p->number.passes) {
		ptx_probe_text(p, "\t.param .b64 ~" PASSED ";\n\tst.param.b64 [~" PASSED
				  "], %%~" NAME ";\n");
	}
}

struct ptx_operand ptx_probe_number_arg(const struct ptx_probe_work *p)
{
	return (struct ptx_operand){ .kind = PTX_NAME, .name = p->number.passed };
}

static bool ends(const struct ptx_insn *insn, const struct ptx_operand *o)
{
	return o == &insn->operands[insn->n_operands];
}

/* A call in any other form is none that a compiler accepts. */
bool ptx_probe_number_passed(const struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	const struct ptx_operand *callee = p->number.passes ? ptx_block_callee(insn) : NULL;
	const struct ptx_probe_name *n = callee ? ptx_probe_find(p->slice, callee->name) : NULL;

	return n && n->f && ptx_probe_number_has(p, n->f) &&
	       (ends(insn, callee + 1) || callee[1].kind == PTX_TUPLE);
}

int ptx_probe_number_pass(struct ptx_probe_work *p, struct ptx_insn *call)
{
	struct ptx_operand *args = ptx_block_callee(call) + 1, *list;
	bool none = ends(call, args);
	uint32_t n = none ? 0 : args->n_args;

	list = ptx_arena_array(&p->ret->arena, n + 1u, sizeof(*list));
	if (!list) {
		return -ENOMEM;
	}
	if (n) {
		memcpy(list, args->args, n * sizeof(*list));
	}
	list[n] = ptx_probe_number_arg(p);
	*args = (struct ptx_operand){ .kind = PTX_TUPLE, .n_args = n + 1, .args = list };
	call->n_operands = (uint16_t)(call->n_operands + none);
	ptx_probe_number_store(p);
	return 0;
}
