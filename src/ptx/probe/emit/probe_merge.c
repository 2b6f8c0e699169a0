/* Accesses that share one collection. Unrolled loops access memory through one register with
 * different offsets. In straight code, without a label, jump, barrier or call in between, the
 * register keeps its value and the lanes stay together. So the first site knows the addresses of
 * all of them and runs the programs for all; the others have no code. docs/DEVICE-CODE.md,
 * "Accesses of one register", has the argument.
 *
 * What lanes collect does not change when all addresses move by a multiple of 32 bytes. So sites
 * are of one class if their offsets differ by such a multiple, and the lanes collect once for each
 * class, in a loop. One round is enough if in each lane the addresses of all classes, modulo 32
 * bytes, are in one sector, as in rows that begin at a multiple of 32. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ptx/probe/emit/probe_emit.h"

#define SPAN 256u      /* items that are looked at behind a site */
#define TOTAL_MAX 255u /* a class's number of sites has 8 bits */
#define SECTOR 32u

/* ---- what can be merged ---- */

/* Returns true if several calls of the program with equal fields can become one, and if it does not
 * read the place of its site. */
static bool can_merge(const struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	return p->code[g->place].defers && !ptx_probe_reads_name(g, "site") &&
	       !ptx_probe_reads_name(g, "line") && !ptx_probe_reads_name(g, "place");
}

/* Returns true if the program's filter names places, which sites to come do not have yet. */
static bool names_places(const struct ptx_probe_program *g)
{
	return g->filter.number != PTX_PROBE_ANY || g->filter.file || g->filter.line;
}

/* Returns true if the same programs run at both sites, and are given the same constants. */
static bool same_programs(const struct ptx_probe_work *p, const struct ptx_probe_site *a,
			  const struct ptx_probe_site *b)
{
	ptx_probe_each (p->read, g) {
		if (g->probe->hook != PTX_PROBE_gdev_access) {
			continue;
		}
		if (ptx_probe_matches(p->slice, g, a) != ptx_probe_matches(p->slice, g, b) ||
		    (ptx_probe_reads_name(g, "op") && a->op != b->op)) {
			return false;
		}
	}
	return true;
}

/* Returns true if all programs at the site can run for several sites at once, as a part of the
 * body. */
static bool programs_can(const struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	uint32_t n = p->n_inlined, any = 0;

	ptx_probe_each (p->read, g) {
		if (g->probe->hook != PTX_PROBE_gdev_access) {
			continue;
		}
		if (names_places(g)) {
			return false;
		}
		if (ptx_probe_matches(p->slice, g, s)) {
			if (!can_merge(p, g)) {
				return false;
			}
			n += p->code[g->place].n_insns;
			any++;
		}
	}
	return any && n <= PTX_PROBE_INLINE_MAX;
}

static bool is_plain(const struct ptx_probe_site *s)
{
	return s->hook == PTX_PROBE_gdev_access && !s->guard && !s->size && !s->matrix.line &&
	       s->lanes == UINT32_MAX && !ptx_probe_is_bulk(s) && s->address->name &&
	       !strchr(s->address->name, '.');
}

/* ---- instructions behind a site ---- */

static bool mentions(const struct ptx_operand *o, const char *name)
{
	bool any = o->name && strcmp(o->name, name) == 0;

	for (uint32_t i = 0; i < o->n_args && !any; i++) {
		any = mentions(&o->args[i], name);
	}
	return any;
}

/* Results are in the first operand, which is an address if there are none. */
static bool writes(const struct ptx_insn *insn, const char *name)
{
	return insn->n_operands && insn->operands[0].kind != PTX_ADDRESS &&
	       mentions(&insn->operands[0], name);
}

/* Returns true for an instruction that may change which lanes run together. */
static bool parts(const struct ptx_insn *insn)
{
	static const char *const opcodes[] = { "bra",	     "brx",	 "call",  "ret",
					       "exit",	     "trap",	 "brkpt", "bar",
					       "barrier",    "mbarrier", "elect", "nanosleep",
					       "activemask", NULL };

	return ptx_is_one_of(insn->opcode, opcodes) || !ptx_probe_is_known(insn);
}

/* ---- classes ---- */

static uint32_t residue(int64_t offset)
{
	return (uint32_t)((uint64_t)offset % SECTOR);
}

/* Returns the key of an offset's class. */
static uint32_t class_of(const struct ptx_probe_merge *m, int64_t offset)
{
	return m->needs & PTX_PROBE_NEEDS_SECTORS ? residue(offset) : 0;
}

/* Adds a site to its class. Returns false if there is no room. */
static bool add(struct ptx_probe_merge *m, int64_t offset)
{
	uint32_t class = class_of(m, offset), i = 0;

	while (i < m->n && class_of(m, m->offset[i]) != class) {
		i++;
	}
	if (i == PTX_PROBE_CLASSES_MAX) {
		return false;
	}
	if (i == m->n) {
		m->offset[m->n++] = offset;
		m->count[i] = 0;
	}
	m->count[i]++;
	m->total++;
	return true;
}

/* Moves the class with the lowest residue to the front. */
static void order(struct ptx_probe_merge *m)
{
	uint32_t low = 0, count;
	int64_t offset;

	for (uint32_t i = 1; i < m->n; i++) {
		low = residue(m->offset[i]) < residue(m->offset[low]) ? i : low;
	}
	offset = m->offset[0];
	count = m->count[0];
	m->offset[0] = m->offset[low];
	m->count[0] = m->count[low];
	m->offset[low] = offset;
	m->count[low] = count;
}

static bool is_follower(struct ptx_probe_work *p, const struct ptx_insn *insn,
			const struct ptx_probe_site *first, struct ptx_probe_site *s)
{
	*s = (struct ptx_probe_site){ 0 };
	if (!ptx_probe_access(insn, s)) {
		return false;
	}
	s->hook = first->hook;
	s->guard = insn->guard;
	return is_plain(s) && strcmp(s->address->name, first->address->name) == 0 &&
	       s->space == first->space && s->bytes == first->bytes && same_programs(p, first, s) &&
	       /* Conflicts stay the same if addresses move by whole words. */
	       (!(p->merge.needs & PTX_PROBE_NEEDS_CONFLICTS) ||
		(s->address->offset - first->address->offset) % 4 == 0);
}

static void find_followers(struct ptx_probe_work *p, const struct ptx_probe_site *first)
{
	const struct ptx_item *it = &first->insn->item;
	const char *name = first->address->name;
	struct ptx_probe_merge *m = &p->merge;
	struct ptx_probe_site s;

	for (uint32_t n = 0; n < SPAN && !writes((const struct ptx_insn *)it, name); n++) {
		do {
			it = it->next;
		} while (it && it->kind == PTX_DIRECTIVE);
		if (!it || it->kind != PTX_INSN || parts((const struct ptx_insn *)it)) {
			return;
		}
		if (m->total < TOTAL_MAX && m->n_followers < PTX_PROBE_FOLLOWERS_MAX &&
		    is_follower(p, (const struct ptx_insn *)it, first, &s) &&
		    add(m, s.address->offset)) {
			m->followers[m->n_followers++] = (const struct ptx_insn *)it;
		}
	}
}

void ptx_probe_merge_find(struct ptx_probe_work *p, const struct ptx_probe_site *s, uint32_t needs)
{
	struct ptx_probe_merge *m = &p->merge;

	m->n = m->total = 0;
	m->needs = needs;
	if (!s->insn || !is_plain(s) || !programs_can(p, s)) {
		return;
	}
	add(m, s->address->offset);
	find_followers(p, s);
	if (m->total == 1) {
		m->n = m->total = 0;
		return;
	}
	order(m);
	m->address = *s->address;
	m->address.offset = m->offset[0];
}

bool ptx_probe_merge_take(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	struct ptx_probe_merge *m = &p->merge;

	for (uint32_t i = 0; i < m->n_followers; i++) {
		if (m->followers[i] == insn) {
			m->followers[i] = m->followers[--m->n_followers];
			return true;
		}
	}
	return false;
}

/* ---- code ---- */

/* Packs 8 bits of each class into a word: its number of sites, or its distance from the first
 * class. The first class has the lowest bits. */
static uint64_t pack(const struct ptx_probe_merge *m, bool counts)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < m->n; i++) {
		all |= (uint64_t)(counts ? m->count[i]
					 : residue(m->offset[i]) - residue(m->offset[0]))
		       << i * 8;
	}
	return all;
}

/* All lanes of the mask make the same number of rounds: their vote decides it. */
void ptx_probe_merge_begin(struct ptx_probe_work *p)
{
	struct ptx_probe_merge *m = &p->merge;
	uint32_t last = 0, some, end;

	if (m->n < 2) {
		return;
	}
	for (uint32_t i = 0; i < m->n; i++) {
		last = MAX(last, residue(m->offset[i]) - residue(m->offset[0]));
	}
	m->label = ++p->n_labels;
	some = ++p->n_labels;
	end = ++p->n_labels;
	ptx_probe_text(p,
		       "\t.reg .b64 %%~cx;\n\t.reg .b32 %%~ci, %%~ce, %%~cw;\n"
		       "\tmov.b64 %%~cx, %%~x;\n\tcvt.u32.u64 %%~t, %%~x;\n"
		       "\tand.b32 %%~t, %%~t, %u;\n\tsetp.lt.u32 %%~p, %%~t, %u;\n"
		       /* A full warp's mask is a constant: see probe_collect.c. */
		       "\tsetp.ne.u32 %%~o, %%~m, -1;\n\t@%%~o bra $~%u;\n"
		       "\tvote.sync.all.pred %%~p, %%~p, -1;\n\tbra $~%u;\n$~%u:\n"
		       "\tvote.sync.all.pred %%~p, %%~p, %%~m;\n$~%u:\n"
		       "\tselp.b32 %%~ce, 1, %u, %%~p;\n\tselp.b32 %%~cw, %u, %u, %%~p;\n"
		       "\tmov.u32 %%~ci, 0;\n$~%u:\n",
		       SECTOR - 1, SECTOR - last, some, end, some, end, m->n, m->total, m->count[0],
		       m->label);
}

void ptx_probe_merge_end(struct ptx_probe_work *p)
{
	const struct ptx_probe_merge *m = &p->merge;
	uint32_t end;

	if (m->n < 2) {
		return;
	}
	end = ++p->n_labels;
	ptx_probe_text(p,
		       "\tadd.u32 %%~ci, %%~ci, 1;\n\tsetp.ge.u32 %%~p, %%~ci, %%~ce;\n"
		       "\t@%%~p bra $~%u;\n\tmul.lo.u32 %%~t, %%~ci, 8;\n"
		       "\tmov.u64 %%~y, 0x%" PRIx64 ";\n\tshr.u64 %%~y, %%~y, %%~t;\n"
		       "\tand.b64 %%~y, %%~y, 255;\n\tadd.s64 %%~x, %%~cx, %%~y;\n"
		       "\tmov.u64 %%~y, 0x%" PRIx64 ";\n\tshr.u64 %%~y, %%~y, %%~t;\n"
		       "\tcvt.u32.u64 %%~cw, %%~y;\n\tand.b32 %%~cw, %%~cw, 255;\n"
		       "\tbra $~%u;\n$~%u:\n",
		       end, pack(m, false), pack(m, true), m->label, end);
}

void ptx_probe_merge_weight(const struct ptx_probe_work *p, char *ret, size_t size)
{
	const struct ptx_probe_merge *m = &p->merge;

	if (m->n < 2) {
		snprintf(ret, size, "%u", m->total ? m->total : 1);
	} else {
		snprintf(ret, size, "%%~cw");
	}
}
