/* The PTX of entry stubs with programs. A program's root becomes a scope: its parameters are
 * registers, its end is a label. */
#include "ptx/probe_stub.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "ptx/probe/emit/probe_emit.h"

#define STEM "gbpf$"
/* Bytes between the last argument that is read and the stub's own, so that no load takes parts of
 * both: their distance differs between the two compilations. */
#define ARGS_GAP 64u
#define PARAM_BYTES_MAX 4096u

/* A program that becomes part of the stub. */
struct inlining {
	struct ptx_probe_work *p;
	const struct ptx_probe_program *g;
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

/* Returns what a stub lacks for the item; NULL: nothing. */
static const char *lacks(const struct ptx_item *it)
{
	static const char *const warp_wide[] = { "activemask", "vote",	"shfl", "match",
						 "redux",      "elect", NULL };
	const struct ptx_variable *v = (const struct ptx_variable *)it;
	const struct ptx_insn *insn = (const struct ptx_insn *)it;

	switch (it->kind) {
	case PTX_INSN:
		return ptx_is_one_of(insn->opcode, warp_wide)
			       ? "it uses helpers of whole warps: in an entry stub one lane runs"
		       : strcmp(insn->opcode, "call") == 0
			       ? "it calls functions: an entry stub has no stack"
			       : NULL;
	case PTX_VARIABLE:
		return v->space != PTX_REG
			       ? "its stack is in memory: an entry stub has registers only"
			       : NULL;
	case PTX_TARGETS:
	case PTX_PROTOTYPE:
		return "it jumps through a table: an entry stub has no constants";
	default:
		return NULL;
	}
}

/* Recursion is bounded by the parser's limit on scopes. */
static int check_list(const struct inlining *n, const struct ptx_list *list)
{
	int err = 0;

	for (const struct ptx_item *it = list->first; it && err == 0; it = it->next) {
		const char *why = lacks(it);

		if (it->kind == PTX_SCOPE) {
			err = check_list(n, &((const struct ptx_scope *)it)->body);
		} else if (why) {
			err = refuse(n, why);
		}
	}
	return err;
}

static int check_root(const struct inlining *n)
{
	int err = check_list(n, &n->g->root->body);
	uint32_t n_insns;
	const char *why;

	if (err < 0) {
		return err;
	}
	if (n->g->owns) {
		return refuse(n, "an entry stub has no shared memory for its WARP_SCRATCH");
	}
	why = ptx_probe_inline_why(n->p, n->g, &n_insns);
	return why ? invalid(n, why) : 0;
}

/* ---- programs ---- */

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

/* The number is where the gate's argument has another value only if the gate is used. */
static void load_number(struct ptx_probe_work *p, uint32_t k)
{
	ptx_probe_text(p, "\tld.param.u64 %%~f%u, [arg+%zu];\n", k,
		       offsetof(struct ptx_gate_arg, done));
}

static void compute(struct ptx_probe_work *p, const struct ptx_probe_program *g, bool times)
{
	const struct ptx_probe_site s = { .hook = g->probe->hook };

	for (uint32_t k = 0; k < g->n_fields; k++) {
		if (ptx_probe_reads(g, k) && ptx_probe_field_is_time(g->fields[k].name) == times) {
			ptx_probe_text(p, "\t.reg .b%u %%~f%u;\n", g->fields[k].bytes * 8, k);
			if (ptx_probe_field_is_number(g->fields[k].name)) {
				load_number(p, k);
			} else if (!ptx_probe_late_field(p, &g->fields[k], k)) {
				ptx_probe_field(p, g, k, &s);
			}
		}
	}
}

/* Finds what an argument reads, as ptx_probe_param_part() does. */
static uint32_t part_of(const struct ptx_probe_work *p, const struct ptx_probe_arg *a,
			struct ptx_kernel_param *ret)
{
	if (a->kind != PTX_PROBE_ARG) {
		return ptx_probe_param_part(p->params, a, ret);
	}
	*ret = (struct ptx_kernel_param){ a->offset, a->bytes };
	return 0;
}

/* The padding begins where the kernel's parameters do. */
static void load_args(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	for (uint32_t k = 0; k < g->n_args; k++) {
		const struct ptx_probe_arg *a = &g->args[k];
		struct ptx_kernel_param part;
		uint32_t constant = part_of(p, a, &part);
		unsigned bits = 8 * PTX_PROBE_ARG_WIDTH(a->bytes);

		ptx_probe_text(p, "\t.reg .b%u %%~r%u;\n", bits, k);
		if (part.bytes) {
			ptx_probe_text(p, "\tld.param.u%u %%~r%u, [pad+%u];\n", 8 * part.bytes, k,
				       part.offset);
		} else {
			ptx_probe_text(p, "\tmov.b%u %%~r%u, %u;\n", bits, k, constant);
		}
	}
}

static void compute_fields(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	bool active = false;

	for (uint32_t k = 0; k < g->n_fields; k++) {
		active = active ||
			 (ptx_probe_reads(g, k) && ptx_probe_field_needs(g->fields[k].name));
	}
	if (active) {
		compute_active(p);
	}
	load_args(p, g);
	compute(p, g, false);
	compute(p, g, true);
}

/* The address is the sum of a constant and of a value that is 0 in the elected lane, but for all
 * that the compiler knows differs between lanes: of accesses to one address by several lanes it
 * makes instructions of whole warps. */
static void inline_program(struct ptx_probe_work *p, const struct ptx_probe_program *g,
			   uint64_t env)
{
	ptx_probe_text(p,
		       "\t{\n\t.reg .b32 %%~m, %%~t, %%~u;\n\t.reg .b64 %%~d, %%~e;\n"
		       "\tcvt.u64.u32 %%~e, %%~z;\n\tadd.u64 %%~e, %%~e, 0x%" PRIx64 ";\n",
		       env);
	compute_fields(p, g);
	ptx_probe_inline(p, g);
	ptx_probe_text(p, "\t}\n");
}

/* Programs of one hook, in the lane that `elect` leaves; it sets %~z to a number that is 0 there.
 */
static void insert(struct ptx_probe_work *p, uint32_t hook, const uint64_t *envs, const char *elect)
{
	uint32_t label = ++p->n_labels;

	if (!ptx_probe_has_hook(p->read, hook)) {
		return;
	}
	ptx_probe_text(p, "{\n\t.reg .pred %%~p;\n\t.reg .b32 %%~x, %%~y, %%~z;\n");
	ptx_probe_text(p, "%s\t@%%~p bra $~end%u;\n", elect, label);
	if (hook == PTX_PROBE_gdev_block_exit) {
		ptx_probe_late_begin(p, label);
	}
	for (uint32_t i = 0; i < p->read->n_programs; i++) {
		if (p->read->programs[i].probe->hook == hook) {
			inline_program(p, &p->read->programs[i], envs[i]);
		}
	}
	ptx_probe_text(p, "$~end%u:\n}\n", label);
}

static void insert_all(struct ptx_probe_work *p, const uint64_t *envs)
{
	static const char first[] = "\tmov.u32 %~z, %tid.x;\n\tmov.u32 %~x, %tid.y;\n"
				    "\tmov.u32 %~y, %tid.z;\n\tor.b32 %~x, %~x, %~y;\n"
				    "\tor.b32 %~x, %~x, %~z;\n\tsetp.ne.u32 %~p, %~x, 0;\n";

	insert(p, PTX_PROBE_gdev_block_exit, envs, first); /* of the block before */
	insert(p, PTX_PROBE_gdev_block_enter, envs, first);
	insert(p, PTX_PROBE_gdev_enter, envs,
	       "\tmov.u32 %~z, %laneid;\n\tsetp.ne.u32 %~p, %~z, 0;\n");
}

static int check(struct ptx_probe_work *p, const uint64_t *envs)
{
	int err = 0;

	for (uint32_t i = 0; i < p->read->n_programs && err == 0; i++) {
		const struct inlining n = { .p = p, .g = &p->read->programs[i] };
		uint32_t hook = n.g->probe->hook;
		const struct ptx_probe_site site = { .hook = hook };

		if (hook != PTX_PROBE_gdev_block_enter && hook != PTX_PROBE_gdev_enter &&
		    hook != PTX_PROBE_gdev_block_exit) {
			return refuse(&n,
				      "an entry stub runs at the beginning of blocks and warps, "
				      "and reports ends of blocks");
		}
		if (hook == PTX_PROBE_gdev_block_exit && ptx_probe_late_why(n.g)) {
			return refuse(&n, ptx_probe_late_why(n.g));
		}
		if (n.g->probe->lanes) {
			return refuse(&n, "an entry stub runs one lane of a warp");
		}
		if (!ptx_probe_matches(p->slice, n.g, &site)) {
			return refuse(&n, "an entry stub is the site #0 of its hooks, without a "
					  "line");
		}
		if (!envs[i]) {
			return invalid(&n, "no environment");
		}
		err = check_root(&n);
	}
	return err;
}

/* Stores where the bytes that the argument reads end. */
static int add_arg(struct ptx_stub_form *f, const struct inlining *n, const struct ptx_probe_arg *a,
		   uint64_t *ret_end)
{
	struct ptx_kernel_param part;

	if (a->kind != PTX_PROBE_ARG && !n->p->params) {
		return refuse(n, "it reads parameters by number, and the driver does not report "
				 "where those of the kernel lie");
	}
	(void)part_of(n->p, a, &part);
	*ret_end = (uint64_t)part.offset + part.bytes;
	if (!part.bytes) {
		*ret_end = 0;
		return 0;
	}
	if (f->n_args == PTX_STUB_ARGS_MAX) {
		return refuse(n, "the programs of an entry stub read too many arguments");
	}
	f->args[f->n_args++] = (struct ptx_stub_arg){ n->g->probe->name, part.offset, part.bytes };
	return 0;
}

/* Lists the arguments, and makes the padding longer than them. */
static int find_args(struct ptx_probe_work *p, uint32_t pad, struct ptx_stub_form *ret)
{
	uint64_t end = 0;

	ret->n_args = 0;
	ptx_probe_each (p->read, g) {
		const struct inlining n = { .p = p, .g = g };

		for (uint32_t k = 0; k < n.g->n_args; k++) {
			uint64_t arg_end = 0;
			int err = add_arg(ret, &n, &n.g->args[k], &arg_end);

			if (err < 0) {
				return err;
			}
			end = MAX(end, arg_end);
		}
		if (end > PARAM_BYTES_MAX - PTX_GATE_PAD_B - 2 * ARGS_GAP) {
			return refuse(&n, "it reads an argument that lies too far behind");
		}
	}
	ret->pad = pad + (end ? (uint32_t)ROUND_UP(end, (uint64_t)8) + ARGS_GAP : 0);
	return 0;
}

int ptx_probe_stub(struct buf *out, unsigned arch, uint32_t pad,
		   const struct ptx_stub_kernel *kernel, const struct ptx_probe *probes,
		   const uint64_t *envs, uint32_t n, struct ptx_stub_form *ret, struct report *r)
{
	struct ptx_probe_read read = { .report = r };
	struct ptx_probe_work p = { .read = &read,
				    .report = r,
				    .out = out,
				    .stem = STEM,
				    .kernel = kernel->name,
				    .params = kernel->params };
	int err = ptx_probe_programs(&read, probes, n);

	err = err ? err : check(&p, envs);
	err = err ? err : find_args(&p, pad, ret);
	if (err == 0) {
		ptx_gate_begin(out, arch, ret->pad);
		insert_all(&p, envs);
		ptx_gate_end(out);
	}
	if (err == 0 && out->len > PTX_TEXT_MAX) {
		err = report_set(r, -EFBIG, "probe", "the entry stub is too long");
	}
	ptx_probe_programs_finish(&read);
	return err ? err : out->failed ? -ENOMEM : 0;
}
