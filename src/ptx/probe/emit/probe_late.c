/* Ends of blocks in kernels whose code nothing can be inserted into. A table has a place for the
 * first warp of each block that a multiprocessor can hold. The entry stub stores the block that
 * begins in its place, by one atomic exchange, and reports the block that it finds there: that
 * block has ended, or its first warp would still have the place. The last bracket reports the
 * blocks that no block has followed. */
#include "ptx/probe_late.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "ptx/probe/emit/probe_emit.h"
#include "ptx/probe_bracket.h"
#include "ptx/probe_stub.h"

/* The block's number, and 1, in the low bits of a record; the launch's number is above. */
#define BLOCK_BITS 40u
#define BLOCK_MASK ((UINT64_C(1) << BLOCK_BITS) - 1)
#define TIMES_AT (8u * PTX_LATE_SLOTS) /* in a table */

_Static_assert(PTX_LATE_SLOTS % PTX_LATE_THREADS == 0, "each thread of a bracket has one slot");
_Static_assert(PTX_LATE_LAUNCH_MAX <= UINT64_MAX >> BLOCK_BITS, "a record has the launch's number");

const char *ptx_probe_late_why(const struct ptx_probe_program *g)
{
	static const char *const unknown[] = { "block_x",   "block_y", "block_z",   "grid_x",
					       "grid_y",    "grid_z",  "threads_x", "threads_y",
					       "threads_z", NULL };

	if (g->n_args) {
		return "it reads arguments of the kernel, which are not known of a block that has "
		       "ended";
	}
	if (ptx_probe_reads_launch(g->probe->hook, g->probe->fields)) {
		return "an entry stub reports the end of a block from a later launch, too, and "
		       "does not know the number (launch) of its own";
	}
	for (uint32_t k = 0; k < g->n_fields; k++) {
		if (ptx_probe_reads(g, k) && ptx_is_one_of(g->fields[k].name, unknown)) {
			return "an entry stub knows of a block that has ended its linear index "
			       "(block), not its coordinates or the launch's shape";
		}
	}
	return NULL;
}

/* ---- entry stubs ---- */

static bool reads_begin(const struct ptx_probe_work *p)
{
	return ptx_probe_reads_field(p->read, PTX_PROBE_gdev_block_exit, "begin_ns");
}

/* %~v: the time at which the block before this one began; %~g is that of this one, which follows
 * its record. */
static void exchange_times(struct ptx_probe_work *p)
{
	ptx_probe_text(p, "\tmembar.gl;\n\tatom.global.exch.b64 %%~v, [%%~c+%u], %%~g;\n",
		       TIMES_AT);
}

/* %~w: the record of the block before this one, 0: none. Nothing is stored if the launch has no
 * number, or if a record has no room for the place or the index. */
void ptx_probe_late_begin(struct ptx_probe_work *p, uint32_t label)
{
	ptx_probe_text(p,
		       "\t.reg .b64 %%~b, %%~v;\n\t{\n\t.reg .b32 %%~n, %%~i, %%~o;\n\t.reg .b64 "
		       "%%~w, %%~c, %%~g;\n"
		       "\tld.param.u32 %%~n, [arg+%zu];\n\tsetp.eq.u32 %%~p, %%~n, 0;\n"
		       "\t@%%~p bra $~end%u;\n",
		       offsetof(struct ptx_gate_arg, launch), label);
	ptx_probe_text(p,
		       "\tmov.u32 %%~o, %%smid;\n\tmov.u32 %%~i, %%warpid;\n"
		       "\tmad.lo.u32 %%~i, %%~o, %u, %%~i;\n\tsetp.ge.u32 %%~p, %%~i, %u;\n"
		       "\t@%%~p bra $~end%u;\n",
		       PTX_LATE_WARPS, PTX_LATE_SLOTS, label);
	ptx_probe_text(p, "\tmov.u32 %%~o, %%ctaid.z;\n\tmov.u32 %%~x, %%nctaid.y;\n"
			  "\tmul.lo.u32 %%~o, %%~o, %%~x;\n\tmov.u32 %%~x, %%ctaid.y;\n"
			  "\tadd.u32 %%~o, %%~o, %%~x;\n\tmov.u32 %%~x, %%nctaid.x;\n"
			  "\tmul.wide.u32 %%~b, %%~o, %%~x;\n\tmov.u32 %%~x, %%ctaid.x;\n"
			  "\tcvt.u64.u32 %%~c, %%~x;\n\tadd.u64 %%~b, %%~b, %%~c;\n"
			  "\tadd.u64 %%~b, %%~b, 1;\n");
	ptx_probe_text(p,
		       "\tsetp.gt.u64 %%~p, %%~b, %" PRIu64 ";\n\t@%%~p bra $~end%u;\n"
		       "\tcvt.u64.u32 %%~c, %%~n;\n\tshl.b64 %%~c, %%~c, %u;\n"
		       "\tor.b64 %%~b, %%~b, %%~c;\n",
		       BLOCK_MASK, label, BLOCK_BITS);
	if (reads_begin(p)) {
		ptx_probe_text(p, "\tmov.u64 %%~g, %%globaltimer;\n");
	}
	/* %~z is 0 (probe_stub.c). */
	ptx_probe_text(p,
		       "\tld.param.u64 %%~c, [arg+%zu];\n\tmul.wide.u32 %%~w, %%~i, 8;\n"
		       "\tadd.u64 %%~c, %%~c, %%~w;\n\tcvt.u64.u32 %%~w, %%~z;\n"
		       "\tadd.u64 %%~c, %%~c, %%~w;\n\tatom.global.exch.b64 %%~w, [%%~c], %%~b;\n",
		       offsetof(struct ptx_gate_arg, base));
	if (reads_begin(p)) {
		exchange_times(p);
	}
	ptx_probe_text(p,
		       "\tsetp.eq.u64 %%~p, %%~w, 0;\n\t@%%~p bra $~end%u;\n"
		       "\tand.b64 %%~b, %%~w, %" PRIu64 ";\n\tsub.u64 %%~b, %%~b, 1;\n\t}\n",
		       label, BLOCK_MASK);
}

bool ptx_probe_late_field(struct ptx_probe_work *p, const struct ptx_probe_field *f, uint32_t k)
{
	if (f->hook != PTX_PROBE_gdev_block_exit) {
		return false;
	}
	if (strcmp(f->name, "block") == 0) {
		ptx_probe_text(p, "\tmov.u64 %%~f%u, %%~b;\n", k);
	} else if (strcmp(f->name, "begin_ns") == 0) {
		ptx_probe_text(p, "\tmov.u64 %%~f%u, %%~v;\n", k);
	} else if (strcmp(f->name, "late") == 0) {
		ptx_probe_text(p, "\tmov.u32 %%~f%u, 1;\n", k);
	} else {
		return false;
	}
	return true;
}

/* ---- brackets ---- */

/* Each thread has a slot, and the lanes of a warp run the programs one after the other, as programs
 * of one lane of a warp expect. The record is taken by compare and swap: a block of another launch
 * that begins in the place meanwhile reports it instead. */
void ptx_probe_late_entry(struct ptx_probe_work *p, void (*call_all)(struct ptx_probe_work *p))
{
	ptx_probe_text(
		p,
		"\tmov.u32 %%~i, %%ctaid.x;\n\tmov.u32 %%~t, %%tid.x;\n"
		"\tmad.lo.u32 %%~i, %%~i, %u, %%~t;\n\tld.param.u64 %%~slot, [~launch+%zu];\n"
		"\tmul.wide.u32 %%~d, %%~i, 8;\n\tadd.u64 %%~slot, %%~slot, %%~d;\n"
		"\tld.volatile.global.u64 %%~n, [%%~slot];\n\tshr.u64 %%~d, %%~n, %u;\n"
		"\tcvt.u32.u64 %%~sm, %%~d;\n\tld.param.u32 %%~warp, [~launch+%zu];\n"
		"\tsetp.eq.u32 %%~mine, %%~sm, %%~warp;\n"
		"\tvote.sync.any.pred %%~p, %%~mine, 4294967295;\n\t@!%%~p bra $~none;\n",
		PTX_LATE_THREADS, offsetof(struct ptx_bracket_arg, late), BLOCK_BITS,
		offsetof(struct ptx_bracket_arg, late_launch));
	if (reads_begin(p)) {
		ptx_probe_text(p,
			       "\tld.volatile.global.u64 %%~begin, [%%~slot+%u];\n\tmembar.gl;\n",
			       TIMES_AT);
	}
	ptx_probe_text(p,
		       "\tshr.u32 %%~sm, %%~i, %u;\n\tand.b32 %%~warp, %%~i, %u;\n"
		       "\tmov.u32 %%~tries, 0;\n$~again:\n"
		       "\tsetp.eq.and.u32 %%~p, %%~tries, %%~t, %%~mine;\n\t@!%%~p bra $~next;\n"
		       "\tatom.global.cas.b64 %%~d, [%%~slot], %%~n, 0;\n"
		       "\tsetp.ne.u64 %%~p, %%~d, %%~n;\n\t@%%~p bra $~next;\n"
		       "\tand.b64 %%~block, %%~n, %" PRIu64 ";\n\tsub.u64 %%~block, %%~block, 1;\n",
		       (uint32_t)__builtin_ctz(PTX_LATE_WARPS), PTX_LATE_WARPS - 1, BLOCK_MASK);
	call_all(p);
	ptx_probe_text(p,
		       "$~next:\n\tbar.warp.sync 4294967295;\n\tadd.u32 %%~tries, %%~tries, 1;\n"
		       "\tsetp.lt.u32 %%~p, %%~tries, %u;\n\t@%%~p bra $~again;\n$~none:\n",
		       PTX_LATE_THREADS);
}
