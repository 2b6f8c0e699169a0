/* The code at a site: the active lanes collect what the programs read of the warp, elect one of
 * them, and that lane computes the other fields and runs the programs. Lanes that are not elected
 * branch over it. A program becomes part of the code, as ptxas does not make it so; where that is
 * not possible, or the form would grow too long, the code calls it. */
#include <inttypes.h>

#include "ptx/block.h"
#include "ptx/probe/emit/probe_emit.h"

static bool runs_here(const struct ptx_probe_work *p, const struct ptx_probe_program *g,
		      const struct ptx_probe_site *s, bool lanes)
{
	return g->probe->hook == s->hook && g->probe->lanes == lanes &&
	       ptx_probe_matches(p->slice, g, s);
}

/* Returns what the programs at this site need; -1: there is none. */
static int needs_of(const struct ptx_probe_work *p, const struct ptx_probe_site *s, bool lanes)
{
	int ret = -1;

	ptx_probe_each (p->read, g) {
		if (!runs_here(p, g, s, lanes)) {
			continue;
		}
		ret = MAX(ret, 0);
		for (uint32_t k = 0; k < g->n_fields; k++) {
			if (ptx_probe_reads(g, k)) {
				ret |= (int)ptx_probe_field_needs(g->fields[k].name);
			}
		}
	}
	return ret;
}

/* ---- programs ---- */

/* Computes the fields that are times, or those that are not. */
static void compute(struct ptx_probe_work *p, const struct ptx_probe_program *g,
		    const struct ptx_probe_site *s, bool times)
{
	for (uint32_t k = 0; k < g->n_fields; k++) {
		if (ptx_probe_reads(g, k) && ptx_probe_field_is_time(g->fields[k].name) == times) {
			ptx_probe_text(p, "\t.reg .b%u %%~f%u;\n", g->fields[k].bytes * 8, k);
			ptx_probe_field(p, g, k, s);
		}
	}
}

/* Returns true if the program becomes part of the body here, and counts it. */
static bool inlines(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	if (!p->code[g->place].n_insns ||
	    p->code[g->place].n_insns > PTX_PROBE_INLINE_MAX - p->n_inlined) {
		return false;
	}
	p->n_inlined += p->code[g->place].n_insns;
	return true;
}

/* Stores the address of the environment in %~e. ptxas makes instructions of whole warps, a vote
 * and a sum, of atomics of several lanes on one address. For an elected lane the address of a map
 * is the sum of a constant and of %~zero, the number %~n, which is 0 in this lane, but for all that
 * the compiler knows differs between lanes, so it does not. The lanes of gdev.lane/ gain by it. */
static void environment(struct ptx_probe_work *p, const struct ptx_probe_program *g, bool elected)
{
	ptx_probe_text(p, elected ? "\tcvt.u64.u32 %%~zero, %%~n;\n" : "\tmov.b64 %%~zero, 0;\n");
	if (p->code[g->place].map_at) {
		ptx_probe_text(p, "\tmov.b64 %%~e, 0x%" PRIx64 ";\n", g->probe->env_at);
	} else {
		ptx_probe_text(p, "\tld.const.b64 %%~e, [" PTX_PROBE_TABLE "+%u];\n", g->place * 8);
	}
}

void ptx_probe_run(struct ptx_probe_work *p, const struct ptx_probe_program *g,
		   const struct ptx_probe_site *s)
{
	ptx_probe_text(p, "\t{\n\t.reg .b32 %%~t, %%~u;\n"
			  "\t.reg .b64 %%~d, %%~e, %%~zero;\n");
	compute(p, g, s, false);
	environment(p, g, true);
	ptx_probe_args(p, g);
	ptx_probe_inline(p, g);
	ptx_probe_text(p, "\t}\n");
}

/* Declares the weight of a program's additions: the number of sites that it runs for. */
static void weigh(struct ptx_probe_work *p)
{
	char weight[16];

	ptx_probe_merge_weight(p, weight, sizeof(weight));
	ptx_probe_text(p,
		       "\t.reg .b32 %%~weight32;\n\t.reg .b64 %%~weight;\n"
		       "\tmov.u32 %%~weight32, %s;\n\tcvt.u64.u32 %%~weight, %%~weight32;\n",
		       weight);
}

/* flat: in all lanes, of which %~on is true in the elected one. */
static void run(struct ptx_probe_work *p, const struct ptx_probe_program *g,
		const struct ptx_probe_site *s, bool flat)
{
	ptx_probe_text(p, "\t{\n\t.reg .b32 %%~t, %%~u;\n"
			  "\t.reg .b64 %%~d, %%~e, %%~zero;\n");
	compute(p, g, s, false);
	compute(p, g, s, true);
	environment(p, g, !g->probe->lanes && !ptx_probe_is_bulk(s));
	ptx_probe_args(p, g);
	p->weighted = !g->probe->lanes && p->merge.total;
	if (p->weighted) {
		weigh(p);
	}
	if (flat) {
		p->n_inlined += p->code[g->place].n_insns;
		ptx_probe_flat(p, g);
	} else if (inlines(p, g)) {
		ptx_probe_inline(p, g);
	} else {
		ptx_probe_call(p, g);
		p->code[g->place].called = true;
	}
	p->weighted = false;
	ptx_probe_text(p, "\t}\n");
}

static void run_all(struct ptx_probe_work *p, const struct ptx_probe_site *s, bool lanes, bool flat)
{
	for (uint32_t i = 0; i < p->read->n_programs; i++) {
		if (runs_here(p, &p->read->programs[i], s, lanes) &&
		    (lanes || p->code[i].sum < 0)) {
			run(p, &p->read->programs[i], s, flat);
			p->ret->sites[i] += MAX(p->merge.total, 1);
		}
	}
}

/* Returns the number of programs of a warp whose calls are deferred here, or with direct of the
 * others. */
static uint32_t count(const struct ptx_probe_work *p, const struct ptx_probe_site *s, bool direct)
{
	uint32_t n = 0;

	ptx_probe_each (p->read, g) {
		n += runs_here(p, g, s, false) && (p->code[g->place].sum < 0) == direct;
	}
	return n;
}

/* Determines which programs of a warp are deferred at the site. */
static void find_deferred(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	bool runs[PTX_PROBES_MAX];

	for (uint32_t i = 0; i < p->read->n_programs; i++) {
		runs[i] = runs_here(p, &p->read->programs[i], s, false);
	}
	ptx_probe_defer_site(p, s, runs);
}

static void defer_all(struct ptx_probe_work *p)
{
	for (uint32_t i = 0; i < p->read->n_programs; i++) {
		if (p->code[i].sum >= 0) {
			ptx_probe_defer(p, i);
			p->ret->sites[i] += MAX(p->merge.total, 1);
		}
	}
}

/* Returns true if no program at the site needs a branch around it: the lanes at the site are those
 * that execute the code there. */
static bool all_flat(const struct ptx_probe_work *p, const struct ptx_probe_site *s, bool lanes)
{
	uint32_t n = p->n_inlined;

	ptx_probe_each (p->read, g) {
		if (runs_here(p, g, s, lanes) && (lanes || p->code[g->place].sum < 0)) {
			if (!p->code[g->place].flat ||
			    p->code[g->place].n_insns > PTX_PROBE_INLINE_MAX - n) {
				return false;
			}
			n += p->code[g->place].n_insns;
		}
	}
	return !s->guard && !ptx_probe_is_bulk(s) && (lanes || !p->merge.total);
}

/* ---- election ---- */

/* Opens a scope whose code runs in the lanes that are at the site. Returns its end's label. */
static uint32_t open_scope(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	uint32_t label = ++p->n_labels;

	ptx_probe_text(
		p, "\t{\n\t.reg .pred %%~p, %%~o, %%~on;\n\t.reg .b32 %%~m, %%~n, %%~t, %%~u;\n");
	if (s && s->guard) {
		ptx_probe_text(p, "\t@%s%s bra $~%u;\n", s->guard_not ? "" : "!", s->guard, label);
	}
	return label;
}

static void close_scope(struct ptx_probe_work *p, uint32_t label)
{
	ptx_probe_text(p, "$~%u:\n\t}\n", label);
}

/* Each election sets %~on in the lane that it chooses, and %~n to a number that is 0 in this lane;
 * see environment(). The lowest of the lanes in %~m: */
static void elect_lowest(struct ptx_probe_work *p)
{
	ptx_probe_text(p, "\tmov.u32 %%~n, %%lanemask_lt;\n\tand.b32 %%~n, %%~n, %%~m;\n"
			  "\tsetp.eq.u32 %%~on, %%~n, 0;\n");
}

/* All lanes of a warp begin, so either of these elects one of them whatever groups they form: the
 * instruction waits for all lanes that the warp has, and a warp has a lane 0. Of the elected lane
 * of the instruction ptxas knows that it is alone. */
static void elect_first(struct ptx_probe_work *p)
{
	if (ptx_probe_target(p) >= 90 && p->slice->m->version_major >= 8) {
		ptx_probe_text(p, "\telect.sync %%~t|%%~on, 0xffffffff;\n\tmov.u32 %%~n, 0;\n");
		return;
	}
	ptx_probe_text(p, "\tmov.u32 %%~n, %%laneid;\n\tsetp.eq.u32 %%~on, %%~n, 0;\n");
}

/* ptxas reads all three numbers at once in any case. It knows that their union is 0 in the lane
 * that is chosen, but not that %~n is. */
static void elect_thread(struct ptx_probe_work *p)
{
	ptx_probe_text(p, "\tmov.u32 %%~n, %%tid.x;\n\tmov.u32 %%~t, %%tid.y;\n"
			  "\tmov.u32 %%~u, %%tid.z;\n\tor.b32 %%~t, %%~t, %%~u;\n"
			  "\tor.b32 %%~t, %%~t, %%~n;\n\tsetp.eq.u32 %%~on, %%~t, 0;\n");
}

/* Lanes for which %~on is false leave. */
static void leave(struct ptx_probe_work *p, uint32_t label)
{
	ptx_probe_text(p, "\t@!%%~on bra $~%u;\n", label);
}

/* Returns false if there is no election: each lane is a group of its own. */
static bool elect(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	if (s->hook == PTX_PROBE_gdev_block_enter) {
		elect_thread(p);
	} else if (s->hook == PTX_PROBE_gdev_enter) {
		elect_first(p);
	} else if (!ptx_probe_is_bulk(s)) {
		elect_lowest(p);
	}
	return !ptx_probe_is_bulk(s);
}

/* Returns true if a program of a warp needs the mask for its election. */
static bool elects_by_mask(const struct ptx_probe_site *s)
{
	return s->hook != PTX_PROBE_gdev_block_enter && s->hook != PTX_PROBE_gdev_enter;
}

/* The mask is that of the lanes here; of a bulk copy, whose lanes are groups of one, the lane. */
static void collect(struct ptx_probe_work *p, const struct ptx_probe_site *s, uint32_t needs,
		    bool lanes)
{
	bool single = lanes || ptx_probe_is_bulk(s);

	if (ptx_probe_is_bulk(s) && !lanes) {
		ptx_probe_text(p, "\tmov.u32 %%~m, %%lanemask_eq;\n");
	} else if (needs || (!lanes && elects_by_mask(s))) {
		ptx_probe_text(p, "\tactivemask.b32 %%~m;\n");
	}
	if (needs & PTX_PROBE_NEEDS_ADDRESS) {
		ptx_probe_collect_access(p, s, needs, single);
	}
	if (needs & PTX_PROBE_NEEDS_TAKEN) {
		ptx_probe_collect_taken(p, s, single);
	}
}

/* Prints the leading test of the site's program, if it is the only one. At a block's beginning the
 * election comes first: it leaves one warp, whose lanes make the test. */
static void test_early(struct ptx_probe_work *p, const struct ptx_probe_site *s, bool lanes,
		       uint32_t label)
{
	const struct ptx_probe_program *only = NULL;
	uint32_t n = 0;

	ptx_probe_each (p->read, g) {
		if (runs_here(p, g, s, lanes)) {
			only = g;
			n++;
		}
	}
	if (n == 1 && p->code[only->place].early && !p->code[only->place].flat &&
	    s->hook != PTX_PROBE_gdev_block_enter) {
		ptx_probe_early(p, only, s, label);
	}
}

static void insert_mode(struct ptx_probe_work *p, const struct ptx_probe_site *s, bool lanes)
{
	int needs = needs_of(p, s, lanes);
	bool flat, elected;
	uint32_t label, behind;

	if (needs < 0) {
		return;
	}
	p->merge.n = p->merge.total = 0;
	if (!lanes) {
		ptx_probe_merge_find(p, s, (uint32_t)needs);
	}
	find_deferred(p, s);
	label = behind = open_scope(p, s);
	test_early(p, s, lanes, label);
	collect(p, s, (uint32_t)needs, lanes);
	elected = !lanes && elect(p, s);
	if (!lanes && count(p, s, false)) {
		defer_all(p);
	}
	if (lanes || count(p, s, true)) {
		flat = all_flat(p, s, lanes);
		if (p->merge.total) {
			behind = ++p->n_labels; /* all lanes make the next round */
		}
		if (elected && !flat) {
			leave(p, behind);
		}
		run_all(p, s, lanes, flat);
		if (behind != label) {
			ptx_probe_text(p, "$~%u:\n", behind);
		}
	}
	ptx_probe_merge_end(p);
	close_scope(p, label);
	p->merge.n = p->merge.total = 0;
}

void ptx_probe_insert(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	insert_mode(p, s, false);
	insert_mode(p, s, true);
}

/* ---- the end of a block ---- */

void ptx_probe_shared_end(struct ptx_probe_work *p)
{
	static const char bytes[] = PTX_BLOCK_BYTES_REG;

	ptx_probe_text(p,
		       "\t.reg .b32 %%~a, %s;\n\tmov.u32 %%~a, ~shared;\n"
		       "\tmov.u32 %s, %%dynamic_smem_size;\n\tadd.u32 %%~a, %%~a, %s;\n",
		       bytes, bytes, bytes);
}

/* One thread stores the number of threads and the time, and the barrier orders that before any of
 * them leaves. */
void ptx_probe_count_all(struct ptx_probe_work *p)
{
	uint32_t label = open_scope(p, NULL);

	elect_thread(p);
	leave(p, label);
	ptx_probe_shared_end(p);
	ptx_probe_text(p, "\tmov.u32 %%~t, %%ntid.x;\n\tmov.u32 %%~u, %%ntid.y;\n"
			  "\tmul.lo.u32 %%~t, %%~t, %%~u;\n\tmov.u32 %%~u, %%ntid.z;\n"
			  "\tmul.lo.u32 %%~t, %%~t, %%~u;\n\tst.shared.u32 [%%~a+-16], %%~t;\n");
	if (ptx_probe_reads_field(p->read, PTX_PROBE_gdev_block_exit, "begin_ns")) {
		ptx_probe_text(p, "\t.reg .b64 %%~d;\n\tmov.u64 %%~d, %%globaltimer;\n"
				  "\tst.shared.u64 [%%~a+-8], %%~d;\n");
	}
	close_scope(p, label);
	ptx_probe_text(p, "\tbar.sync 0;\n");
}

/* Subtracts the lanes that leave here; those that find no others left report the block's end. */
void ptx_probe_leave_block(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	uint32_t label = open_scope(p, s);

	find_deferred(p, s);
	ptx_probe_text(p, "\tactivemask.b32 %%~m;\n");
	elect_lowest(p);
	leave(p, label);
	ptx_probe_shared_end(p);
	ptx_probe_text(p,
		       "\tpopc.b32 %%~u, %%~m;\n\tneg.s32 %%~t, %%~u;\n"
		       "\tatom.shared.add.u32 %%~t, [%%~a+-16], %%~t;\n"
		       "\tsetp.ne.u32 %%~p, %%~t, %%~u;\n\t@%%~p bra $~%u;\n",
		       label);
	run_all(p, s, false, false);
	close_scope(p, label);
}
