/* What the lanes of a group know together: the mask, the lowest and highest address, the number of
 * sectors, the stride class, bank conflicts, and which of them take a branch. The group is the
 * lanes that executed activemask together; %~m holds it, and each instruction here names it, so the
 * values are exact whatever lanes are missing. %~g is its lanes that have an address. Each result
 * is in a register that all of the group hold. Targets from sm_70 on match values of lanes, and
 * from sm_80 on reduce them (probe_match.c). Others have loops over the lanes of the group: their
 * conditions are the same in all of them. */
#include "ptx/probe/emit/probe_emit.h"

#include <string.h>

/* GBPF_STRIDE_* of hooks.def. */
enum { STRIDE_MIXED, STRIDE_SAME, STRIDE_UNIT, STRIDE_CONSTANT };

/* Runs the text for each lane in the mask: %~i is its number. */
static void each(struct ptx_probe_work *p, const char *mask, const char *body)
{
	unsigned label = ++p->n_labels;

	ptx_probe_text(p,
		       "\tmov.u32 %%~r, %s;\n$~%u:\n\tbrev.b32 %%~i, %%~r;\n"
		       "\tclz.b32 %%~i, %%~i;\n",
		       mask, label);
	ptx_probe_text(p, "%s", body);
	ptx_probe_text(p,
		       "\tsub.u32 %%~t, %%~r, 1;\n\tand.b32 %%~r, %%~r, %%~t;\n"
		       "\tsetp.ne.u32 %%~p, %%~r, 0;\n\t@%%~p bra $~%u;\n",
		       label);
}

/* %~y = the value that %~x has in lane %~i. */
#define BROADCAST                                                                                  \
	"\tmov.b64 {%~u, %~v}, %~x;\n\tshfl.sync.idx.b32 %~u, %~u, %~i, 31, %~m;\n"                \
	"\tshfl.sync.idx.b32 %~v, %~v, %~i, 31, %~m;\n\tmov.b64 %~y, {%~u, %~v};\n"

static void range(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	if (ptx_probe_target(p) >= 80) {
		ptx_probe_reduce_range(p, s);
		return;
	}
	ptx_probe_text(p, "\tmov.u64 %%~lo, -1;\n\tmov.u64 %%~hi, 0;\n");
	each(p, "%~g", BROADCAST "\tmin.u64 %~lo, %~lo, %~y;\n\tmax.u64 %~hi, %~hi, %~y;\n");
}

/* The lowest lane of those with the same %~x >> 5 counts: %~w is 0 in it. */
static void sectors(struct ptx_probe_work *p, const struct ptx_probe_site *s, bool full)
{
	ptx_probe_text(p, "\tshr.u64 %%~z, %%~x, 5;\n");
	if (ptx_probe_target(p) >= 70) {
		ptx_probe_match_sectors(p, s, full);
		return;
	}
	ptx_probe_text(p, "\tmov.u32 %%~w, 0;\n\tmov.u32 %%~l, %%laneid;\n");
	each(p, "%~g",
	     BROADCAST "\tshr.u64 %~y, %~y, 5;\n\tsetp.eq.u64 %~p, %~y, %~z;\n"
		       "\tsetp.lt.and.u32 %~p, %~i, %~l, %~p;\n\t@%~p mov.u32 %~w, 1;\n");
	ptx_probe_text(p, "\tsetp.eq.u32 %%~p, %%~w, 0;\n"
			  "\tvote.sync.ballot.b32 %%~t, %%~p, %%~m;\n"
			  "\tand.b32 %%~t, %%~t, %%~g;\n\tpopc.b32 %%~s, %%~t;\n");
}

/* The difference to the lane before, which is the same in all but the first lane, or not. */
static void stride(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	unsigned label = ++p->n_labels;

	ptx_probe_text(p, "\tmov.u32 %%~i, %%lanemask_lt;\n\tand.b32 %%~i, %%~i, %%~g;\n"
			  "\tmov.u32 %%~t, %%lanemask_eq;\n\tand.b32 %%~t, %%~t, %%~g;\n"
			  "\tsetp.eq.u32 %%~o, %%~i, 0;\n\tsetp.eq.or.u32 %%~o, %%~t, 0, %%~o;\n"
			  "\tbfind.u32 %%~i, %%~i;\n"
			  "\t@%%~o mov.u32 %%~i, %%laneid;\n");
	ptx_probe_text(p, "%s", BROADCAST);
	/* %~i: the second lane, or the only one, whose difference is 0. */
	ptx_probe_text(p, "\tsub.s64 %%~z, %%~x, %%~y;\n\tsub.u32 %%~i, %%~g, 1;\n"
			  "\tand.b32 %%~i, %%~i, %%~g;\n\tsetp.eq.u32 %%~p, %%~i, 0;\n"
			  "\t@%%~p mov.u32 %%~i, %%~g;\n\tbrev.b32 %%~i, %%~i;\n"
			  "\tclz.b32 %%~i, %%~i;\n\tmov.b64 {%%~u, %%~v}, %%~z;\n"
			  "\tshfl.sync.idx.b32 %%~u, %%~u, %%~i, 31, %%~m;\n"
			  "\tshfl.sync.idx.b32 %%~v, %%~v, %%~i, 31, %%~m;\n"
			  "\tmov.b64 %%~y, {%%~u, %%~v};\n"
			  "\tsetp.eq.or.u64 %%~p, %%~z, %%~y, %%~o;\n"
			  "\tvote.sync.all.pred %%~p, %%~p, %%~m;\n");
	ptx_probe_text(p,
		       "\tmov.u32 %%~k, %u;\n\t@!%%~p bra $~%u;\n\tmov.u32 %%~k, %u;\n"
		       "\tsetp.eq.u64 %%~p, %%~y, %u;\n\t@%%~p mov.u32 %%~k, %u;\n"
		       "\tsetp.eq.u64 %%~p, %%~y, 0;\n\t@%%~p mov.u32 %%~k, %u;\n$~%u:\n",
		       STRIDE_MIXED, label, STRIDE_CONSTANT, s->bytes, STRIDE_UNIT, STRIDE_SAME,
		       label);
}

/* Shared memory delivers a word of each of 32 banks at a time; accesses of 8 and 16 bytes take
 * halves and quarters of a warp in turn. A lane's words are adjacent and aligned, so its first word
 * stands for all. %~a: word and turn, %~b: bank and turn. The lowest lane with a word counts, once
 * for its bank. */
static void conflicts(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	unsigned shift = s->bytes > 8 ? 3 : s->bytes > 4 ? 4 : 5;

	ptx_probe_text(p,
		       "\tcvt.u32.u64 %%~a, %%~x;\n\tshr.u32 %%~a, %%~a, 2;\n"
		       "\tmov.u32 %%~l, %%laneid;\n\tshr.u32 %%~t, %%~l, %u;\n"
		       "\tshl.b32 %%~b, %%~t, 5;\n\tshl.b32 %%~t, %%~t, 30;\n"
		       "\tor.b32 %%~a, %%~a, %%~t;\n\tand.b32 %%~t, %%~a, 31;\n"
		       "\tor.b32 %%~b, %%~b, %%~t;\n",
		       shift);
	if (ptx_probe_target(p) >= 70) {
		ptx_probe_match_conflicts(p, s);
		return;
	}
	ptx_probe_text(p, "\tmov.u32 %%~w, 0;\n");
	each(p, "%~g",
	     "\tshfl.sync.idx.b32 %~u, %~a, %~i, 31, %~m;\n\tsetp.eq.u32 %~p, %~u, %~a;\n"
	     "\tsetp.lt.and.u32 %~p, %~i, %~l, %~p;\n\t@%~p mov.u32 %~w, 1;\n");
	ptx_probe_text(p, "\tsetp.eq.u32 %%~p, %%~w, 0;\n"
			  "\tvote.sync.ballot.b32 %%~w, %%~p, %%~m;\n"
			  "\tand.b32 %%~w, %%~w, %%~g;\n\tmov.u32 %%~v, 0;\n");
	each(p, "%~w",
	     "\tshfl.sync.idx.b32 %~u, %~b, %~i, 31, %~m;\n\tsetp.eq.u32 %~p, %~u, %~b;\n"
	     "\t@%~p add.u32 %~v, %~v, 1;\n");
	ptx_probe_text(p, "\tmov.u32 %%~c, 1;\n");
	each(p, "%~g", "\tshfl.sync.idx.b32 %~u, %~v, %~i, 31, %~m;\n\tmax.u32 %~c, %~c, %~u;\n");
	ptx_probe_text(p, "\tsub.u32 %%~c, %%~c, 1;\n");
}

static void taken(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	ptx_probe_text(p, "\tvote.sync.ballot.b32 %%~k, %s%s, %%~m;\n", insn->guard_not ? "!" : "",
		       insn->guard);
}

void ptx_probe_size(struct ptx_probe_work *p, const struct ptx_probe_site *s, const char *reg)
{
	const struct ptx_variable *v = s->size ? ptx_probe_declared(&p->scopes, s->size) : NULL;

	if (v && ptx_type_bytes(v->type) == 8) {
		ptx_probe_text(p, "\tmov.u64 %s, %s;\n", reg, s->size);
	} else if (v && ptx_type_bytes(v->type) == 4) {
		ptx_probe_text(p, "\tcvt.u64.u32 %s, %s;\n", reg, s->size);
	} else {
		ptx_probe_text(p, "\tmov.u64 %s, %u;\n", reg, s->bytes);
	}
}

/* Of a lane by itself. */
static void alone(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	ptx_probe_text(p,
		       "\tmov.u64 %%~lo, %%~x;\n\tmov.u64 %%~hi, %%~x;\n\tmov.u32 %%~k, %u;\n"
		       "\tmov.u32 %%~c, 0;\n\tmov.u32 %%~s, 0;\n",
		       STRIDE_SAME);
	ptx_probe_size(p, s, "%~y");
	ptx_probe_text(p, "\tsetp.eq.u64 %%~p, %%~y, 0;\n\tadd.s64 %%~y, %%~x, %%~y;\n"
			  "\tadd.s64 %%~y, %%~y, 31;\n\tshr.u64 %%~y, %%~y, 5;\n"
			  "\tshr.u64 %%~z, %%~x, 5;\n\tsub.s64 %%~y, %%~y, %%~z;\n"
			  "\tcvt.u32.u64 %%~s, %%~y;\n\t@%%~p mov.u32 %%~s, 0;\n");
}

static void values(struct ptx_probe_work *p, const struct ptx_probe_site *s, uint32_t needs,
		   bool full)
{
	ptx_probe_text(p, "\tand.b32 %%~g, %%~m, %u;\n", s->lanes);
	if (needs & PTX_PROBE_NEEDS_RANGE) {
		range(p, s);
	}
	if (needs & PTX_PROBE_NEEDS_SECTORS) {
		sectors(p, s, full);
	}
	if (needs & PTX_PROBE_NEEDS_STRIDE) {
		stride(p, s);
	}
	if (needs & PTX_PROBE_NEEDS_CONFLICTS) {
		if (ptx_probe_is_shared(s) && !s->matrix.line) {
			conflicts(p, s);
		} else {
			ptx_probe_text(p, "\tmov.u32 %%~c, 0;\n");
		}
	}
}

/* For an instruction of a warp whose mask it does not know ptxas compares the masks of all lanes,
 * which takes longer than the instruction. So a full warp has code of its own, whose mask is a
 * constant, and one lane alone needs no such instruction. */
static void values_by_mask(struct ptx_probe_work *p, const struct ptx_probe_site *s, uint32_t needs)
{
	unsigned some = ++p->n_labels, more = ++p->n_labels, end = ++p->n_labels;

	ptx_probe_text(p,
		       "\tsetp.ne.u32 %%~p, %%~m, -1;\n\t@%%~p bra $~%u;\n"
		       "\t{\n\t.reg .b32 %%~m;\n\tmov.u32 %%~m, -1;\n",
		       some);
	values(p, s, needs, true);
	ptx_probe_text(p, "\t}\n\tbra $~%u;\n$~%u:\n", end, some);
	if (s->lanes == UINT32_MAX) {
		ptx_probe_text(p,
			       "\tsub.u32 %%~t, %%~m, 1;\n\tand.b32 %%~t, %%~t, %%~m;\n"
			       "\tsetp.ne.u32 %%~p, %%~t, 0;\n\t@%%~p bra $~%u;\n"
			       "\tmov.u64 %%~lo, %%~x;\n\tmov.u64 %%~hi, %%~x;\n"
			       "\tmov.u32 %%~s, 1;\n\tmov.u32 %%~k, %u;\n\tmov.u32 %%~c, 0;\n"
			       "\tbra $~%u;\n$~%u:\n",
			       more, STRIDE_SAME, end, more);
	}
	values(p, s, needs, false);
	ptx_probe_text(p, "$~%u:\n", end);
}

void ptx_probe_collect_access(struct ptx_probe_work *p, const struct ptx_probe_site *s,
			      uint32_t needs, bool single)
{
	ptx_probe_text(p, "\t.reg .b64 %%~x, %%~y, %%~z, %%~lo, %%~hi;\n"
			  "\t.reg .b32 %%~r, %%~i, %%~v, %%~w, %%~l, %%~s, %%~k, %%~a, %%~b, %%~c, "
			  "%%~g;\n");
	ptx_probe_address(p, !single && p->merge.total ? &p->merge.address : s->address);
	if (s->matrix.line) {
		ptx_probe_wmma_share(p, s);
	}
	if (single) {
		alone(p, s);
		return;
	}
	ptx_probe_merge_begin(p);
	if (ptx_probe_target(p) >= 70) {
		values_by_mask(p, s, needs);
	} else {
		values(p, s, needs, false);
	}
}

void ptx_probe_collect_taken(struct ptx_probe_work *p, const struct ptx_probe_site *s, bool single)
{
	ptx_probe_text(p, "\t.reg .b32 %%~k;\n");
	if (single) {
		ptx_probe_text(p, "\tselp.b32 %%~k, 1, 0, %s;\n", s->insn->guard);
		if (s->insn->guard_not) {
			ptx_probe_text(p, "\txor.b32 %%~k, %%~k, 1;\n");
		}
		ptx_probe_text(p, "\tmov.u32 %%~t, %%laneid;\n\tshl.b32 %%~k, %%~k, %%~t;\n");
	} else {
		taken(p, s->insn);
	}
}
