/* The PTX of brackets. A launch's time is kept in a slot from `begin` to `end`: a table with linear
 * probing, whose slots are claimed by compare and swap, so that launches on several streams share
 * it without waiting. */
#include "ptx/probe_bracket.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "ptx/probe/emit/probe_emit.h"

#define STEM "gbpf$"
#define ARCH_MIN 70u

_Static_assert((PTX_BRACKET_SLOTS & (PTX_BRACKET_SLOTS - 1)) == 0, "slots are found by a mask");

/* Fields that are not 0: an operand, or the offset of a parameter. */
static const struct value {
	const char *name, *operand;
	size_t param;
} values[] = {
	{ "clock", "%clock64", 0 },
	{ "time_ns", "%globaltimer", 0 },
	{ "begin_ns", "%~begin", 0 },
	{ "end_ns", "%~end", 0 },
	{ "warp_slot", "%warpid", 0 },
	{ "sm", "%smid", 0 },
	{ "active", "1", 0 },
	{ "lanes", "1", 0 },
	{ "launch", NULL, offsetof(struct ptx_bracket_arg, launch) },
	{ "kernel", NULL, offsetof(struct ptx_bracket_arg, kernel) },
	{ "grid_x", NULL, offsetof(struct ptx_bracket_arg, grid[0]) },
	{ "grid_y", NULL, offsetof(struct ptx_bracket_arg, grid[1]) },
	{ "grid_z", NULL, offsetof(struct ptx_bracket_arg, grid[2]) },
	{ "threads_x", NULL, offsetof(struct ptx_bracket_arg, threads[0]) },
	{ "threads_y", NULL, offsetof(struct ptx_bracket_arg, threads[1]) },
	{ "threads_z", NULL, offsetof(struct ptx_bracket_arg, threads[2]) },
	{ "shared_bytes", NULL, offsetof(struct ptx_bracket_arg, shared_bytes) },
};

/* ---- programs ---- */

/* Those of gdev_block_exit that are the block's. */
static const struct value late_values[] = {
	{ "block", "%~block", 0 },
	{ "late", "1", 0 },
	{ "sm", "%~sm", 0 },
	{ "warp_slot", "%~warp", 0 },
};

static const struct value *find(const struct value *table, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(table[i].name, name) == 0) {
			return &table[i];
		}
	}
	return NULL;
}

/* Computes field k into %~fk. */
static void compute_field(struct ptx_probe_work *p, const struct ptx_probe_program *g, uint32_t k)
{
	unsigned bits = g->fields[k].bytes * 8;
	const char *name = g->fields[k].name;
	const struct value *v = g->probe->hook == PTX_PROBE_gdev_block_exit
					? find(late_values, ARRAY_SIZE(late_values), name)
					: NULL;

	v = v ? v : find(values, ARRAY_SIZE(values), name);
	ptx_probe_text(p, "\t.reg .b%u %%~f%u;\n", bits, k);
	if (!v || v->operand) {
		ptx_probe_text(p, "\tmov.u%u %%~f%u, %s;\n", bits, k, v ? v->operand : "0");
	} else {
		ptx_probe_text(p, "\tld.param.u%u %%~f%u, [~launch+%zu];\n", bits, k, v->param);
	}
}

static void compute(struct ptx_probe_work *p, const struct ptx_probe_program *g, bool times)
{
	for (uint32_t k = 0; k < g->n_fields; k++) {
		const char *name = g->fields[k].name;
		bool time = strcmp(name, "clock") == 0 || strcmp(name, "time_ns") == 0;

		if (ptx_probe_reads(g, k) && time == times) {
			compute_field(p, g, k);
		}
	}
}

static void call(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	ptx_probe_text(p, "\t{\n\t.reg .b64 %%~d, %%~e;\n");
	compute(p, g, false);
	compute(p, g, true);
	ptx_probe_text(p, "\tld.const.b64 %%~e, [" PTX_PROBE_TABLE "+%u];\n", g->place * 8);
	ptx_probe_call(p, g);
	ptx_probe_text(p, "\t}\n");
}

static void call_all(struct ptx_probe_work *p, uint32_t hook)
{
	ptx_probe_each (p->read, g) {
		if (g->probe->hook == hook) {
			call(p, g);
		}
	}
}

/* ---- slots: number of the launch, then its time ---- */

/* Opens a loop over the slots of launch %~n: the address is in %~slot. */
static void each_slot(struct ptx_probe_work *p)
{
	ptx_probe_text(p,
		       "\tcvt.u32.u64 %%~i, %%~n;\n\tmov.u32 %%~tries, 0;\n"
		       "$~again:\n\tand.b32 %%~t, %%~i, %u;\n\tmul.wide.u32 %%~slot, %%~t, 16;\n"
		       "\tmov.u64 %%~d, ~slots;\n\tadd.u64 %%~slot, %%~slot, %%~d;\n",
		       PTX_BRACKET_SLOTS - 1);
}

static void next_slot(struct ptx_probe_work *p)
{
	ptx_probe_text(p,
		       "\tadd.u32 %%~i, %%~i, 1;\n\tadd.u32 %%~tries, %%~tries, 1;\n"
		       "\tsetp.lt.u32 %%~p, %%~tries, %u;\n\t@%%~p bra $~again;\n",
		       PTX_BRACKET_TRIES);
}

static void keep_time(struct ptx_probe_work *p)
{
	each_slot(p);
	ptx_probe_text(p, "\tatom.global.cas.b64 %%~d, [%%~slot], 0, %%~n;\n"
			  "\tsetp.eq.u64 %%~p, %%~d, 0;\n\t@%%~p bra $~found;\n");
	next_slot(p);
	ptx_probe_text(p,
		       "\tbra $~run;\n$~found:\n\tst.volatile.global.u64 [%%~slot+8], %%~begin;\n"
		       "$~run:\n");
}

/* The time is read before the slot is free: the next claim may follow at once. */
static void take_time(struct ptx_probe_work *p)
{
	each_slot(p);
	ptx_probe_text(p, "\tld.volatile.global.u64 %%~d, [%%~slot];\n"
			  "\tsetp.eq.u64 %%~p, %%~d, %%~n;\n\t@%%~p bra $~found;\n");
	next_slot(p);
	ptx_probe_text(p, "\tbra $~run;\n$~found:\n"
			  "\tld.volatile.global.u64 %%~begin, [%%~slot+8];\n\tmembar.gl;\n"
			  "\tst.volatile.global.u64 [%%~slot], 0;\n$~run:\n");
}

/* ---- the module ---- */

static void open_entry(struct ptx_probe_work *p, const char *name)
{
	ptx_probe_text(p,
		       ".visible .entry %s(.param .align 8 .b8 ~launch[%zu])\n{\n"
		       "\t.reg .pred %%~p;\n\t.reg .b32 %%~i, %%~t, %%~tries;\n"
		       "\t.reg .b64 %%~n, %%~d, %%~slot, %%~begin, %%~end;\n",
		       name, sizeof(struct ptx_bracket_arg));
	ptx_probe_text(p, "\tld.param.u64 %%~n, [~launch+%zu];\n",
		       offsetof(struct ptx_bracket_arg, launch));
}

/* The last entry of a launch counts it, so that the host sees how far its queue is. */
static void count_launch(struct ptx_probe_work *p)
{
	ptx_probe_text(p,
		       "\tld.param.u64 %%~d, [~launch+%zu];\n\tsetp.ne.u64 %%~p, %%~d, 0;\n"
		       "\t@%%~p red.global.sys.add.u64 [%%~d], 1;\n",
		       offsetof(struct ptx_bracket_arg, done));
}

static void print_begin(struct ptx_probe_work *p, const struct ptx_bracket_parts *parts)
{
	open_entry(p, PTX_BRACKET_BEGIN);
	ptx_probe_text(p, "\tmov.u64 %%~begin, %%globaltimer;\n");
	if (!parts->end && !parts->late) {
		count_launch(p);
	}
	if (parts->keeps_time) {
		keep_time(p);
	}
	call_all(p, PTX_PROBE_gdev_begin);
	ptx_probe_text(p, "\tret;\n}\n");
}

static void print_end(struct ptx_probe_work *p, bool keeps_time)
{
	open_entry(p, PTX_BRACKET_END);
	ptx_probe_text(p, "\tmov.u64 %%~end, %%globaltimer;\n\tmov.u64 %%~begin, 0;\n");
	count_launch(p);
	if (keeps_time) {
		take_time(p);
	}
	ptx_probe_text(p,
		       "\tld.param.u32 %%~t, [~launch+%zu];\n\tsetp.ne.u32 %%~p, %%~t, 0;\n"
		       "\t@%%~p ret;\n",
		       offsetof(struct ptx_bracket_arg, cancelled));
	call_all(p, PTX_PROBE_gdev_end);
	ptx_probe_text(p, "\tret;\n}\n");
}

static void call_late(struct ptx_probe_work *p)
{
	call_all(p, PTX_PROBE_gdev_block_exit);
}

static void print_late(struct ptx_probe_work *p, const struct ptx_bracket_parts *parts)
{
	open_entry(p, PTX_BRACKET_LATE);
	ptx_probe_text(p, "\t.reg .pred %%~mine;\n\t.reg .b32 %%~sm, %%~warp;\n"
			  "\t.reg .b64 %%~block;\n\tmov.u64 %%~end, %%globaltimer;\n");
	if (!parts->end) { /* by one thread */
		ptx_probe_text(p, "\tmov.u32 %%~i, %%ctaid.x;\n\tmov.u32 %%~t, %%tid.x;\n"
				  "\tor.b32 %%~i, %%~i, %%~t;\n\tsetp.ne.u32 %%~p, %%~i, 0;\n"
				  "\t@%%~p bra $~counted;\n");
		count_launch(p);
		ptx_probe_text(p, "$~counted:\n");
	}
	ptx_probe_late_entry(p, call_late);
	ptx_probe_text(p, "\tret;\n}\n");
}

static void print_module(struct ptx_probe_work *p, const struct ptx_bracket_parts *parts)
{
	ptx_probe_text(p,
		       ".version 6.3\n.target sm_70\n.address_size 64\n"
		       ".visible .const .align 8 .b64 " PTX_PROBE_TABLE "[%u];\n",
		       p->read->n_programs);
	if (parts->keeps_time) {
		ptx_probe_text(p, ".global .align 16 .b64 ~slots[%u];\n", 2 * PTX_BRACKET_SLOTS);
	}
	ptx_probe_each (p->read, g) {
		buf_puts(p->out, g->probe->text);
		buf_puts(p->out, "\n");
	}
	if (parts->begin) {
		print_begin(p, parts);
	}
	if (parts->late) {
		print_late(p, parts);
	}
	if (parts->end) {
		print_end(p, parts->keeps_time);
	}
}

/* ---- checks ---- */

static int check(struct ptx_probe_work *p)
{
	ptx_probe_each (p->read, g) {
		const struct ptx_probe_site site = { .hook = g->probe->hook };

		bool late = g->probe->hook == PTX_PROBE_gdev_block_exit;

		report_place(p->report, "%s", g->probe->name);
		if (!late && !ptx_probe_is_bracket(g->probe->hook)) {
			return report_set(p->report, -EINVAL, "probe",
					  "not a program of begin or end, or of ends of blocks");
		}
		if (late && ptx_probe_late_why(g)) {
			return report_set(p->report, -ENOTSUP, "probe", "%s",
					  ptx_probe_late_why(g));
		}
		if (g->n_args) {
			return report_set(p->report, -ENOTSUP, "probe",
					  "it reads arguments of the kernel: begin and end have "
					  "none of them");
		}
		if (!ptx_probe_matches(p->slice, g, &site)) {
			return report_set(p->report, -ENOTSUP, "probe",
					  "begin and end are the site #0 of their hooks, without "
					  "a line");
		}
	}
	return 0;
}

static void find_parts(const struct ptx_probe_work *p, struct ptx_bracket_parts *ret)
{
	*ret = (struct ptx_bracket_parts){ .keeps_time = ptx_probe_reads_field(
						   p->read, PTX_PROBE_gdev_end, "begin_ns") };
	ret->begin = ret->keeps_time || ptx_probe_has_hook(p->read, PTX_PROBE_gdev_begin);
	ret->end = ptx_probe_has_hook(p->read, PTX_PROBE_gdev_end);
	ret->late = ptx_probe_has_hook(p->read, PTX_PROBE_gdev_block_exit);
}

int ptx_probe_bracket(struct buf *out, unsigned arch, const struct ptx_probe *probes, uint32_t n,
		      struct ptx_bracket_parts *ret, struct report *r)
{
	struct ptx_probe_read read = { .report = r };
	struct ptx_probe_work p = { .read = &read,
				    .report = r,
				    .out = out,
				    .stem = STEM,
				    .control_at = offsetof(struct ptx_bracket_arg, control) };
	int err = ptx_probe_programs(&read, probes, n);

	err = err ? err : check(&p);
	if (err == 0 && arch < ARCH_MIN) {
		err = report_set(r, -ENOTSUP, "probe", "sm_%u: begin and end need sm_%u", arch,
				 ARCH_MIN);
	}
	if (err == 0) {
		find_parts(&p, ret);
		print_module(&p, ret);
	}
	if (err == 0 && out->len > PTX_TEXT_MAX) {
		err = report_set(r, -EFBIG, "probe", "the programs of begin and end are too long");
	}
	ptx_probe_programs_finish(&read);
	return err ? err : out->failed ? -ENOMEM : 0;
}
