/* What the lanes of a group know together, by instructions that later targets have: match.any
 * (sm_70) gives each lane the mask of those with the same value, redux (sm_80) the smallest or
 * largest value. The registers are those of probe_collect.c, and so are the results. */
#include "ptx/probe/emit/probe_emit.h"

/* Returns true unless some lanes have no address. */
static bool all_lanes(const struct ptx_probe_site *s)
{
	return s->lanes == UINT32_MAX;
}

/* %~w = the lowest lane of each of the groups in %~v, of those that have an address: these are
 * lower than the others. */
static void lowest(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	ptx_probe_text(p, "\tmov.u32 %%~t, %%lanemask_lt;\n\tand.b32 %%~t, %%~t, %%~v;\n"
			  "\tsetp.eq.u32 %%~p, %%~t, 0;\n"
			  "\tvote.sync.ballot.b32 %%~w, %%~p, %%~m;\n");
	if (!all_lanes(s)) {
		ptx_probe_text(p, "\tand.b32 %%~w, %%~w, %%~g;\n");
	}
}

/* For a mask of all 32 lanes. Sets %~s if none is in a lower sector than the lane before it: then a
 * lane's sector differs from those of all lower lanes if it differs from the one before. The first
 * lane is given its own. Otherwise branches to `other`. */
static void sectors_in_order(struct ptx_probe_work *p, bool narrow, unsigned other)
{
	const char *order = narrow ? "lt.u32 %~p, %~t, %~v" : "lt.u64 %~p, %~z, %~y";
	const char *change = narrow ? "ne.u32 %~p, %~t, %~v" : "ne.u64 %~p, %~z, %~y";

	if (narrow) {
		ptx_probe_text(p, "\tshfl.sync.up.b32 %%~v, %%~t, 1, 0, %%~m;\n");
	} else {
		ptx_probe_text(p, "\tmov.b64 {%%~u, %%~v}, %%~z;\n"
				  "\tshfl.sync.up.b32 %%~u, %%~u, 1, 0, %%~m;\n"
				  "\tshfl.sync.up.b32 %%~v, %%~v, 1, 0, %%~m;\n"
				  "\tmov.b64 %%~y, {%%~u, %%~v};\n");
	}
	ptx_probe_text(p,
		       "\tsetp.%s;\n\tvote.sync.any.pred %%~p, %%~p, %%~m;\n\t@%%~p bra $~%u;\n"
		       "\tsetp.%s;\n\tvote.sync.ballot.b32 %%~w, %%~p, %%~m;\n"
		       "\tpopc.b32 %%~s, %%~w;\n\tadd.u32 %%~s, %%~s, 1;\n",
		       order, other, change);
}

void ptx_probe_match_sectors(struct ptx_probe_work *p, const struct ptx_probe_site *s, bool full)
{
	bool narrow = ptx_probe_is_narrow(s), ordered = full && all_lanes(s);
	unsigned other = ++p->n_labels, end = ++p->n_labels;

	if (narrow) {
		ptx_probe_text(p, "\tcvt.u32.u64 %%~t, %%~z;\n");
	}
	if (ordered) {
		sectors_in_order(p, narrow, other);
		ptx_probe_text(p, "\tbra $~%u;\n$~%u:\n", end, other);
	}
	ptx_probe_text(p, narrow ? "\tmatch.any.sync.b32 %%~v, %%~t, %%~m;\n"
				 : "\tmatch.any.sync.b64 %%~v, %%~z, %%~m;\n");
	lowest(p, s);
	ptx_probe_text(p, "\tpopc.b32 %%~s, %%~w;\n");
	if (ordered) {
		ptx_probe_text(p, "$~%u:\n", end);
	}
}

/* The largest %~v, which is at most 32, bit by bit. */
static void largest_by_votes(struct ptx_probe_work *p)
{
	ptx_probe_text(p, "\tmov.u32 %%~c, 0;\n");
	for (unsigned bit = 32; bit; bit /= 2) {
		ptx_probe_text(p,
			       "\tadd.u32 %%~t, %%~c, %u;\n\tsetp.ge.u32 %%~p, %%~v, %%~t;\n"
			       "\tvote.sync.any.pred %%~p, %%~p, %%~m;\n"
			       "\tselp.b32 %%~c, %%~t, %%~c, %%~p;\n",
			       bit);
	}
}

/* A lane without an address may count the words of a bank, too: that is one of the numbers. */
void ptx_probe_match_conflicts(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	ptx_probe_text(p, "\tmatch.any.sync.b32 %%~v, %%~a, %%~m;\n");
	lowest(p, s);
	ptx_probe_text(p, "\tmatch.any.sync.b32 %%~v, %%~b, %%~m;\n\tand.b32 %%~v, %%~v, %%~w;\n"
			  "\tpopc.b32 %%~v, %%~v;\n");
	if (ptx_probe_target(p) >= 80) {
		ptx_probe_text(p, "\tredux.sync.max.u32 %%~c, %%~v, %%~m;\n");
	} else {
		largest_by_votes(p);
	}
	ptx_probe_text(p, "\tsub.u32 %%~c, %%~c, 1;\n");
}

/* The extreme of the low words of the lanes whose high word is the extreme one; `none` is the value
 * of the other lanes, and has no influence. */
static void extreme(struct ptx_probe_work *p, const char *op, const char *none, const char *to)
{
	ptx_probe_text(p,
		       "\tredux.sync.%s.u32 %%~i, %%~v, %%~m;\n\tsetp.eq.u32 %%~p, %%~v, %%~i;\n"
		       "\tselp.b32 %%~t, %%~u, %s, %%~p;\n\tredux.sync.%s.u32 %%~t, %%~t, %%~m;\n"
		       "\tmov.b64 %s, {%%~t, %%~i};\n",
		       op, none, op, to);
}

/* Addresses of 32 bits have no high word. */
static void narrow_extreme(struct ptx_probe_work *p, const struct ptx_probe_site *s, const char *op,
			   const char *none, const char *to)
{
	if (all_lanes(s)) {
		ptx_probe_text(p, "\tmov.b32 %%~t, %%~u;\n");
	} else {
		ptx_probe_text(p,
			       "\tmov.u32 %%~t, %%lanemask_eq;\n\tand.b32 %%~t, %%~t, %%~g;\n"
			       "\tsetp.ne.u32 %%~p, %%~t, 0;\n\tselp.b32 %%~t, %%~u, %s, %%~p;\n",
			       none);
	}
	ptx_probe_text(p, "\tredux.sync.%s.u32 %%~t, %%~t, %%~m;\n\tcvt.u64.u32 %s, %%~t;\n", op,
		       to);
}

/* Only instructions on shared memory have lanes without an address. */
void ptx_probe_reduce_range(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	ptx_probe_text(p, "\tmov.b64 {%%~u, %%~v}, %%~x;\n");
	if (ptx_probe_is_narrow(s)) {
		narrow_extreme(p, s, "min", "-1", "%~lo");
		narrow_extreme(p, s, "max", "0", "%~hi");
	} else {
		extreme(p, "min", "-1", "%~lo");
		extreme(p, "max", "0", "%~hi");
	}
}
