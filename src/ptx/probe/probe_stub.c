/* The PTX of entry stubs with programs. A program's root becomes a scope: its parameters are
 * registers, its end is a label. */
#include "ptx/probe_stub.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ptx/probe/probe_int.h"

#define STEM "gbpf$"

/* A program that becomes part of the stub. */
struct inlining {
	struct ptx_probe_work *p;
	const struct ptx_probe_program *g;
	const struct ptx_function *root;
	uint32_t label; /* of its end */
};

static int refuse(const struct inlining *n, const char *why)
{
	report_place(n->p->report, "%s", n->g->probe->name);
	(void)report_set(n->p->report, -ENOTSUP, "probe", "%s", why);
	report_hint(n->p->report, "probe the kernel's PTX, or simplify the program");
	return -ENOTSUP;
}

static int invalid(const struct inlining *n, const char *why)
{
	report_place(n->p->report, "%s", n->g->probe->name);
	return report_set(n->p->report, -EINVAL, "probe", "%s", why);
}

/* ---- bodies ---- */

/* Stores the register that has the value of parameter i: the environment, then the fields that the
 * program reads, in their order. */
static void param_register(const struct inlining *n, uint32_t i, char *ret, size_t bytes)
{
	uint32_t field = 0;

	if (i == 0) {
		snprintf(ret, bytes, "%%" STEM "e");
		return;
	}
	while (!(n->g->probe->fields >> field & 1) || --i > 0) {
		field++;
	}
	snprintf(ret, bytes, "%%" STEM "f%u", field);
}

/* ld.param of a parameter of the root becomes a move of the same width. */
static int take_param(const struct inlining *n, const struct ptx_insn *insn)
{
	const struct ptx_operand *from = insn->n_operands == 2 ? &insn->operands[1] : NULL;
	unsigned bytes = insn->n_modifiers == 2 ? ptx_type_bytes(insn->modifiers[1]) : 0;
	uint64_t size;
	char reg[32];

	for (uint32_t i = 0; from && i < n->root->n_params; i++) {
		const struct ptx_variable *v = &n->root->params[i];

		if (from->kind != PTX_ADDRESS || !from->name || from->offset || from->n_args ||
		    insn->operands[0].kind != PTX_NAME || strcmp(from->name, v->name) != 0) {
			continue;
		}
		if (insn->guard || ptx_variable_bytes(v, &size) < 0 || size != bytes) {
			break;
		}
		param_register(n, i, reg, sizeof(reg));
		ptx_probe_text(n->p, "\tmov.b%u %s, %s;\n", 8 * bytes, insn->operands[0].name, reg);
		return 0;
	}
	return invalid(n, "a parameter is loaded in an unknown form");
}

static bool is_param_access(const struct ptx_insn *insn)
{
	return (strcmp(insn->opcode, "ld") == 0 || strcmp(insn->opcode, "st") == 0) &&
	       insn->n_modifiers && strcmp(insn->modifiers[0], ".param") == 0;
}

static bool is_warp_wide(const struct ptx_insn *insn)
{
	static const char *const opcodes[] = { "activemask", "vote",  "shfl",
					       "match",	     "redux", "elect" };

	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
		if (strcmp(insn->opcode, opcodes[i]) == 0) {
			return true;
		}
	}
	return false;
}

static int print_insn(const struct inlining *n, const struct ptx_insn *insn)
{
	if (is_warp_wide(insn)) {
		return refuse(n, "it uses helpers of whole warps: in an entry stub one lane runs");
	}
	if (strcmp(insn->opcode, "call") == 0) {
		return refuse(n, "it calls functions: an entry stub has no stack");
	}
	if (strcmp(insn->opcode, "ret") == 0) {
		ptx_probe_text(n->p, "\t%s%s%s bra $~end%u;\n", insn->guard ? "@" : "",
			       insn->guard && insn->guard_not ? "!" : "",
			       insn->guard ? insn->guard : "", n->label);
		return 0;
	}
	if (is_param_access(insn)) {
		return take_param(n, insn);
	}
	ptx_item_print(&insn->item, n->p->out);
	return 0;
}

static bool is_ours(const char *name)
{
	return name && strncmp(name + strspn(name, "%$"), STEM, sizeof(STEM) - 1) == 0;
}

static int print_item(const struct inlining *n, const struct ptx_item *it)
{
	const struct ptx_variable *v = (const struct ptx_variable *)it;

	switch (it->kind) {
	case PTX_INSN:
		return print_insn(n, (const struct ptx_insn *)it);
	case PTX_VARIABLE:
		if (v->space != PTX_REG) {
			return refuse(n,
				      "its stack is in memory: an entry stub has registers only");
		}
		if (is_ours(v->name)) {
			return invalid(n, "it declares a name of the entry stub");
		}
		break;
	case PTX_LABEL:
		if (is_ours(((const struct ptx_label *)it)->name)) {
			return invalid(n, "it declares a name of the entry stub");
		}
		break;
	case PTX_DIRECTIVE:
		return 0; /* of debuggers and optimizers */
	default:
		return refuse(n, "it jumps through a table: an entry stub has no constants");
	}
	ptx_item_print(it, n->p->out);
	return 0;
}

/* Recursion is bounded by the parser's limit on scopes. */
static int print_list(const struct inlining *n, const struct ptx_list *list)
{
	int err = 0;

	for (const struct ptx_item *it = list->first; it && err == 0; it = it->next) {
		if (it->kind == PTX_SCOPE) {
			ptx_probe_text(n->p, "\t{\n");
			err = print_list(n, &((const struct ptx_scope *)it)->body);
			ptx_probe_text(n->p, "\t}\n");
		} else {
			err = print_item(n, it);
		}
	}
	return err;
}

/* ---- programs ---- */

static bool reads(const struct ptx_probe_program *g, uint32_t field)
{
	return g->probe->fields >> field & 1;
}

/* All lanes of a warp are active at entry, and the last warp may have fewer: their mask follows
 * from the numbers of threads. */
static void compute_active(struct ptx_probe_work *p)
{
	ptx_probe_text(p, "\tmov.u32 %%~m, %%tid.z;\n\tmov.u32 %%~t, %%ntid.y;\n"
			  "\tmov.u32 %%~u, %%tid.y;\n\tmad.lo.u32 %%~m, %%~m, %%~t, %%~u;\n"
			  "\tmov.u32 %%~t, %%ntid.x;\n\tmov.u32 %%~u, %%tid.x;\n"
			  "\tmad.lo.u32 %%~m, %%~m, %%~t, %%~u;\n"
			  "\tand.b32 %%~m, %%~m, 4294967264;\n"
			  "\tmov.u32 %%~u, %%ntid.y;\n\tmul.lo.u32 %%~t, %%~t, %%~u;\n"
			  "\tmov.u32 %%~u, %%ntid.z;\n\tmul.lo.u32 %%~t, %%~t, %%~u;\n"
			  "\tsub.u32 %%~t, %%~t, %%~m;\n\tmov.u32 %%~u, 1;\n"
			  "\tshl.b32 %%~m, %%~u, %%~t;\n\tsub.u32 %%~m, %%~m, 1;\n");
}

static void compute(struct ptx_probe_work *p, const struct ptx_probe_program *g, bool times)
{
	const struct ptx_probe_site s = { .hook = g->probe->hook };

	for (uint32_t k = 0; k < g->n_fields; k++) {
		if (reads(g, k) && ptx_probe_field_is_time(g->fields[k].name) == times) {
			ptx_probe_text(p, "\t.reg .b%u %%~f%u;\n", g->fields[k].bytes * 8, k);
			ptx_probe_field(p, g, k, &s);
		}
	}
}

static void compute_fields(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	bool active = false;

	for (uint32_t k = 0; k < g->n_fields; k++) {
		active = active || (reads(g, k) && ptx_probe_field_needs(g->fields[k].name));
	}
	if (active) {
		compute_active(p);
	}
	compute(p, g, false);
	compute(p, g, true);
}

/* The address is the sum of a constant and of a value that is 0 in the elected lane, but for all
 * that the compiler knows differs between lanes: of accesses to one address by several lanes it
 * makes instructions of whole warps. */
static int inline_program(struct ptx_probe_work *p, const struct ptx_probe_program *g, uint64_t env)
{
	struct inlining n = { .p = p, .g = g, .label = ++p->n_labels };
	int err;

	ptx_probe_text(p,
		       "\t{\n\t.reg .b32 %%~m, %%~t, %%~u;\n\t.reg .b64 %%~d, %%~e;\n"
		       "\tcvt.u64.u32 %%~e, %%~z;\n\tadd.u64 %%~e, %%~e, 0x%" PRIx64 ";\n",
		       env);
	compute_fields(p, g);
	ptx_probe_text(p, "\t{\n");
	for (const struct ptx_item *it = g->module->items.first; it; it = it->next) {
		const struct ptx_function *f = (const struct ptx_function *)it;
		size_t len = strlen(g->probe->name);

		if (it->kind == PTX_FUNCTION && f->has_body &&
		    strcmp(f->name + len, "_f0") == 0) { /* the prefix was checked */
			n.root = f;
		}
	}
	err = n.root ? print_list(&n, &n.root->body) : invalid(&n, "no root");
	ptx_probe_text(p, "$~end%u:\n\t}\n\t}\n", n.label);
	return err;
}

/* Programs of one hook, in the lane that `elect` leaves; it sets %~z to a number that is 0 there.
 */
static int insert(struct ptx_probe_work *p, uint32_t hook, const uint64_t *envs, const char *elect)
{
	uint32_t label = ++p->n_labels;
	int err = 0;

	if (!(p->hooks & PTX_PROBE_HOOK_BIT(hook))) {
		return 0;
	}
	ptx_probe_text(p, "{\n\t.reg .pred %%~p;\n\t.reg .b32 %%~x, %%~y, %%~z;\n");
	ptx_probe_text(p, "%s\t@%%~p bra $~end%u;\n", elect, label);
	for (uint32_t i = 0; i < p->n_programs && err == 0; i++) {
		if (p->programs[i].probe->hook == hook) {
			err = inline_program(p, &p->programs[i], envs[i]);
		}
	}
	ptx_probe_text(p, "$~end%u:\n}\n", label);
	return err;
}

static int insert_all(struct ptx_probe_work *p, const uint64_t *envs)
{
	int err = insert(p, PTX_PROBE_gdev_block_enter, envs,
			 "\tmov.u32 %~z, %tid.x;\n\tmov.u32 %~x, %tid.y;\n"
			 "\tmov.u32 %~y, %tid.z;\n\tor.b32 %~x, %~x, %~y;\n"
			 "\tor.b32 %~x, %~x, %~z;\n\tsetp.ne.u32 %~p, %~x, 0;\n");

	return err ? err
		   : insert(p, PTX_PROBE_gdev_enter, envs,
			    "\tmov.u32 %~z, %laneid;\n\tsetp.ne.u32 %~p, %~z, 0;\n");
}

static int check(struct ptx_probe_work *p, const uint64_t *envs)
{
	for (uint32_t i = 0; i < p->n_programs; i++) {
		const struct inlining n = { .p = p, .g = &p->programs[i] };
		uint32_t hook = n.g->probe->hook;
		const struct ptx_probe_site site = { .hook = hook };

		if (hook != PTX_PROBE_gdev_block_enter && hook != PTX_PROBE_gdev_enter) {
			return refuse(&n, "an entry stub runs at the beginning of blocks and warps "
					  "only");
		}
		if (n.g->probe->lanes) {
			return refuse(&n, "an entry stub runs one lane of a warp");
		}
		if (!ptx_probe_matches(p, n.g, &site)) {
			return refuse(&n, "an entry stub is the site #0 of its hooks, without a "
					  "line");
		}
		if (!envs[i]) {
			return invalid(&n, "no environment");
		}
	}
	return 0;
}

int ptx_probe_stub(struct buf *out, unsigned arch, uint32_t pad, const char *kernel,
		   const struct ptx_probe *probes, const uint64_t *envs, uint32_t n,
		   struct report *r)
{
	struct ptx_probe_name entry = { .name = kernel };
	struct ptx_probe_work p = { .out = out, .stem = STEM, .entry = &entry, .report = r };
	int err = ptx_probe_programs(&p, probes, n);

	err = err ? err : check(&p, envs);
	if (err == 0) {
		ptx_gate_begin(out, arch, pad);
		err = insert_all(&p, envs);
		ptx_gate_end(out);
	}
	if (err == 0 && out->len > PTX_TEXT_MAX) {
		err = report_set(r, -EFBIG, "probe", "the entry stub is too long");
	}
	ptx_probe_programs_finish(&p);
	return err ? err : out->failed ? -ENOMEM : 0;
}
