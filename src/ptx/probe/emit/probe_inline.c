/* A program as part of another body: its root becomes a scope in which the parameters are registers
 * and the end is a label. As a function it has a name space of its own, so before it is pasted each
 * name in it must be one that the root itself declares, a special register, or a function of the
 * program: then no instruction of it can mean a register or a label of the body around it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ptx/probe/emit/probe_emit.h"

struct check {
	struct ptx_probe_work *p;
	const struct ptx_probe_program *g;
	struct strmap names; /* functions, and labels of the scopes around this place */
	uint32_t n_insns;
	unsigned depth;
	const char *why;
};

/* ---- names ---- */

static bool is_special(const char *name)
{
	static const char *const names[] = {
		"%tid",
		"%ntid",
		"%laneid",
		"%warpid",
		"%nwarpid",
		"%smid",
		"%nsmid",
		"%gridid",
		"%clock",
		"%clock_hi",
		"%clock64",
		"%globaltimer",
		"%globaltimer_lo",
		"%globaltimer_hi",
		"%lanemask_eq",
		"%lanemask_lt",
		"%lanemask_le",
		"%lanemask_gt",
		"%lanemask_ge",
		"_",
	};
	size_t len = strcspn(name, ".");

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strlen(names[i]) == len && strncmp(names[i], name, len) == 0) {
			return true;
		}
	}
	return false;
}

/* Returns true for a name of the code around the program. */
static bool is_taken(const struct ptx_probe_work *p, const char *name)
{
	return strncmp(name + strspn(name, "%$"), p->stem, strlen(p->stem)) == 0;
}

static bool is_known(const struct check *c, const char *name, bool is_call)
{
	const struct ptx_item *it = strmap_get(&c->names, name);

	return ptx_probe_declared(&c->p->scopes, name) || is_special(name) ||
	       (it && it->kind == (is_call ? PTX_FUNCTION : PTX_LABEL));
}

static void check_operand(struct check *c, const struct ptx_operand *o, bool is_call)
{
	if (o->name && !is_known(c, o->name, is_call)) {
		c->why = "it uses a name that it does not declare";
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		check_operand(c, &o->args[i], is_call);
	}
}

/* ---- parameters ---- */

static bool is_param_load(const struct ptx_insn *insn)
{
	return strcmp(insn->opcode, "ld") == 0 && insn->n_modifiers &&
	       strcmp(insn->modifiers[0], ".param") == 0;
}

/* Returns the number of the root's parameter that the instruction loads; -1: none. */
int ptx_probe_inline_param(const struct ptx_function *root, const struct ptx_insn *insn)
{
	const struct ptx_operand *from = insn->n_operands == 2 ? &insn->operands[1] : NULL;

	if (!is_param_load(insn) || !from || from->kind != PTX_ADDRESS || !from->name) {
		return -1;
	}
	for (uint32_t i = 0; i < root->n_params; i++) {
		if (strcmp(from->name, root->params[i].name) == 0) {
			return (int)i;
		}
	}
	return -1;
}

/* The load must be one that a move of the same width can replace. */
static void check_param(struct check *c, const struct ptx_insn *insn, int i)
{
	const struct ptx_operand *from = &insn->operands[1];
	unsigned bytes = insn->n_modifiers == 2 ? ptx_type_bytes(insn->modifiers[1]) : 0;
	uint64_t size;

	if (ptx_probe_declared(&c->p->scopes, from->name)) {
		c->why = "it hides a parameter";
		return;
	}
	if (insn->guard || from->offset || from->n_args || insn->operands[0].kind != PTX_NAME ||
	    ptx_variable_bytes(&c->g->root->params[i], &size) < 0 || size != bytes) {
		c->why = "a parameter is loaded in an unknown form";
	}
	check_operand(c, &insn->operands[0], false);
}

uint32_t ptx_probe_root_address_of(const struct ptx_probe_program *g, uint32_t i)
{
	uint32_t map = 0;

	if (g->control && i-- == 0) {
		return PTX_PROBE_CONTROL;
	}
	while (!(g->maps >> map & 1) || i-- > 0) {
		map++;
	}
	return map;
}

/* Where no other address is known: brackets are launched for many kernels, whose row the launch
 * has; elsewhere it is the first one. */
static void control_words(struct ptx_probe_work *p, const char *reg)
{
	if (p->control_at) {
		ptx_probe_text(p, "\tld.param.u64 %s, [~launch+%zu];\n\tadd.s64 %s, %s, %%~e;\n",
			       reg, p->control_at, reg, reg);
	} else {
		ptx_probe_text(p, "\tmov.b64 %s, %%~e;\n", reg);
	}
}

void ptx_probe_root_address(struct ptx_probe_work *p, const struct ptx_probe_program *g, uint32_t i,
			    const char *reg)
{
	uint32_t map = ptx_probe_root_address_of(g, i);

	if (map < PTX_PROBE_MAPS_MAX && g->owns >> map & 1) {
		ptx_probe_scratch_address(p, g, map, reg);
		return;
	}
	if (p->code[g->place].maps_place) {
		ptx_probe_text(p,
			       "\tld.const.b64 %s, [" PTX_PROBE_TABLE
			       "+%u];\n\tadd.s64 %s, %s, %%~zero;\n",
			       reg, 8 * (p->code[g->place].maps_place + i), reg, reg);
		return;
	}
	if (p->code[g->place].map_at) {
		ptx_probe_text(p, "\tadd.s64 %s, %%~zero, 0x%" PRIx64 ";\n", reg,
			       p->code[g->place].map_at[map]);
		return;
	}
	if (g->probe->map_offsets && g->probe->map_offsets[map] && !p->slice) {
		ptx_probe_text(p, "\tadd.s64 %s, %%~e, 0x%" PRIx64 ";\n", reg,
			       g->probe->map_offsets[map]);
		return;
	}
	if (map == PTX_PROBE_CONTROL) {
		control_words(p, reg);
		return;
	}
	ptx_probe_text(p, "\tcvta.to.global.u64 %s, %%~e;\n\tld.global.nc.b64 %s, [%s+%u];\n", reg,
		       reg, reg, 8 * map);
}

/* Stores the register that has the value of parameter i: the environment, or of the fields that the
 * program reads, in their order, and the arguments of the kernel. */
static void param_register(const struct ptx_probe_program *g, uint32_t i, char *ret, size_t bytes)
{
	uint32_t field = 0, n_fields = (uint32_t)__builtin_popcountll(g->probe->fields);

	if (i == 0) {
		snprintf(ret, bytes, "%%~e");
		return;
	}
	i -= ptx_probe_n_addresses(g);
	if (i > n_fields) {
		snprintf(ret, bytes, "%%~r%u", i - n_fields - 1);
		return;
	}
	while (!ptx_probe_reads(g, field) || --i > 0) {
		field++;
	}
	snprintf(ret, bytes, "%%~f%u", field);
}

void ptx_probe_inline_take(struct ptx_probe_work *p, const struct ptx_probe_program *g,
			   const struct ptx_insn *insn, uint32_t i)
{
	char reg[32];

	if (i > 0 && i <= ptx_probe_n_addresses(g)) {
		ptx_probe_root_address(p, g, i - 1, insn->operands[0].name);
		return;
	}
	param_register(g, i, reg, sizeof(reg));
	ptx_probe_text(p, "\tmov.b%u %s, %s;\n", 8 * ptx_type_bytes(insn->modifiers[1]),
		       insn->operands[0].name, reg);
}

/* ---- what can be pasted ---- */

static void check_insn(struct check *c, const struct ptx_insn *insn)
{
	bool is_call = strcmp(insn->opcode, "call") == 0;
	int param = ptx_probe_inline_param(c->g->root, insn);

	c->n_insns++;
	if (insn->guard && !is_known(c, insn->guard, false)) {
		c->why = "it uses a name that it does not declare";
	}
	if (ptx_probe_is_old(c->p) && ptx_probe_is_new_insn(insn)) {
		c->why = "it needs sm_70";
	}
	if (param >= 0) {
		check_param(c, insn, param);
		return;
	}
	for (unsigned i = 0; i < insn->n_operands && !c->why; i++) {
		check_operand(c, &insn->operands[i], is_call);
	}
}

static void check_variable(struct check *c, const struct ptx_variable *v)
{
	if (v->space != PTX_REG && v->space != PTX_PARAM) {
		c->why = "its stack is in memory";
	} else if (is_taken(c->p, v->name)) {
		c->why = "it declares a name of the code around it";
	} else if (ptx_probe_declare(&c->p->scopes, v) < 0) {
		c->why = "no memory";
	}
}

static void check_list(struct check *c, const struct ptx_list *list);

static void check_item(struct check *c, const struct ptx_item *it)
{
	switch (it->kind) {
	case PTX_INSN:
		check_insn(c, (const struct ptx_insn *)it);
		break;
	case PTX_VARIABLE:
		check_variable(c, (const struct ptx_variable *)it);
		break;
	case PTX_SCOPE:
		check_list(c, &((const struct ptx_scope *)it)->body);
		break;
	case PTX_LABEL: /* add_names() has seen it */
		break;
	case PTX_DIRECTIVE: /* of debuggers and optimizers */
		break;
	default:
		c->why = "it jumps through a table";
	}
}

/* Adds the list's items of a kind by their names. */
static void add_names(struct check *c, const struct ptx_list *list, enum ptx_item_kind kind)
{
	for (const struct ptx_item *it = list->first; it && !c->why; it = it->next) {
		const char *name = it->kind == PTX_LABEL ? ((const struct ptx_label *)it)->name
				   : it->kind == PTX_FUNCTION
					   ? ((const struct ptx_function *)it)->name
					   : NULL;

		if (!name || it->kind != kind) {
			continue;
		}
		if (is_taken(c->p, name)) {
			c->why = "it declares a name of the code around it";
		} else if (strmap_add(&c->names, name, unqual(it)) < 0 && kind == PTX_LABEL) {
			c->why = "a name is used twice";
		}
	}
}

static void remove_labels(struct check *c, const struct ptx_list *list)
{
	for (const struct ptx_item *it = list->first; it; it = it->next) {
		if (it->kind == PTX_LABEL) {
			(void)strmap_del(&c->names, ((const struct ptx_label *)it)->name);
		}
	}
}

/* Declarations count from their place on, labels in all of their scope, as in PTX. A form's body
 * has labels of the root's own list only. Recursion is bounded by the parser. */
static void check_list(struct check *c, const struct ptx_list *list)
{
	size_t n_names = c->names.n;

	c->depth++;
	add_names(c, list, PTX_LABEL);
	if (c->names.n > n_names && c->depth > 1 && c->p->slice) {
		c->why = "a scope in it has a label";
	}
	ptx_probe_enter(&c->p->scopes);
	for (const struct ptx_item *it = list->first; it && !c->why; it = it->next) {
		check_item(c, it);
	}
	ptx_probe_leave_scope(&c->p->scopes);
	if (!c->why) { /* each was added here */
		remove_labels(c, list);
	}
	c->depth--;
}

const char *ptx_probe_inline_why(struct ptx_probe_work *p, const struct ptx_probe_program *g,
				 uint32_t *ret_insns)
{
	struct check c = { .p = p, .g = g };

	strmap_init(&c.names);
	add_names(&c, &g->module->items, PTX_FUNCTION);
	if (!c.why) {
		check_list(&c, &g->root->body);
	}
	strmap_finish(&c.names);
	*ret_insns = c.n_insns;
	return c.why;
}

/* ---- printing ---- */

/* An addition: of the product of its operand and %~weight. */
static void print_weighted(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	static const char *const modifiers[][2] = { { ".lo", ".u32" }, { ".lo", ".u64" } };
	bool wide = ptx_type_bytes(insn->modifiers[insn->n_modifiers - 1]) == 8;
	char product[48], weight[48];
	struct ptx_operand factors[3] = { { .kind = PTX_NAME, .name = product },
					  insn->operands[1],
					  { .kind = PTX_NAME, .name = weight } };
	struct ptx_operand operands[2] = { insn->operands[0], factors[0] };
	struct ptx_insn mul = *insn, red = *insn;

	snprintf(product, sizeof(product), "%%%sproduct", p->stem);
	snprintf(weight, sizeof(weight), "%%%sweight%s", p->stem, wide ? "" : "32");
	mul.guard = NULL;
	mul.opcode = "mul";
	mul.modifiers = modifiers[wide];
	mul.n_modifiers = 2;
	mul.operands = factors;
	mul.n_operands = 3;
	red.operands = operands;
	ptx_probe_text(p, "\t{\n\t.reg .b%u %%~product;\n", wide ? 64 : 32);
	ptx_item_print(&mul.item, p->out);
	ptx_item_print(&red.item, p->out);
	ptx_probe_text(p, "\t}\n");
}

static void print_insn(struct ptx_probe_work *p, const struct ptx_probe_program *g,
		       const struct ptx_insn *insn, uint32_t end)
{
	int param = ptx_probe_inline_param(g->root, insn);

	if (strcmp(insn->opcode, "ret") == 0 && insn->guard) {
		ptx_probe_text(p, "\t@%s%s bra $~end%u;\n", insn->guard_not ? "!" : "", insn->guard,
			       end);
	} else if (strcmp(insn->opcode, "ret") == 0) {
		ptx_probe_text(p, "\tbra $~end%u;\n", end);
	} else if (param >= 0) {
		ptx_probe_inline_take(p, g, insn, (uint32_t)param);
	} else if (ptx_probe_is_old(p)) {
		ptx_probe_print_old_insn(p, insn);
	} else if (p->weighted && strcmp(insn->opcode, "red") == 0) {
		print_weighted(p, insn);
	} else {
		ptx_item_print(&insn->item, p->out);
	}
	p->code[g->place].called = p->code[g->place].called || strcmp(insn->opcode, "call") == 0;
}

/* Recursion is bounded by the parser's limit on scopes. */
static void print_list(struct ptx_probe_work *p, const struct ptx_probe_program *g,
		       const struct ptx_list *list, uint32_t end)
{
	for (const struct ptx_item *it = list->first; it; it = it->next) {
		if (it->kind == PTX_INSN) {
			print_insn(p, g, (const struct ptx_insn *)it, end);
		} else if (it->kind == PTX_SCOPE) {
			ptx_probe_text(p, "\t{\n");
			print_list(p, g, &((const struct ptx_scope *)it)->body, end);
			ptx_probe_text(p, "\t}\n");
		} else if (it->kind != PTX_DIRECTIVE) {
			ptx_item_print(it, p->out);
		}
	}
}

void ptx_probe_inline(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	uint32_t end = ++p->n_labels;

	ptx_probe_text(p, "\t{\n");
	print_list(p, g, &g->root->body, end);
	ptx_probe_text(p, "$~end%u:\n\t}\n", end);
}
