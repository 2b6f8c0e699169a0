/* Where the sides of a branch meet again, and what a branch decides about.
 *
 * All sides meet in the branch's immediate post-dominator (Cooper, Harvey and Kennedy, "A simple,
 * fast dominance algorithm", on the reversed graph). Before it, lanes that took different ways may
 * meet in other blocks: in those that two paths from the branch reach that have no block in common.
 * They are found by passing on labels (Karrenberg and Hack, "Improving performance of OpenCL on
 * CPUs", 2012). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/verify/simt/simt_int.h"

/* ---- post-dominators ---- */

/* The edges backward: those to block k are from[first[k]] to from[first[k + 1] - 1]. */
struct backward {
	uint32_t *first, *from; /* owned */
	uint32_t *stack, *next; /* owned; blocks on the way, and their next edges */
	uint32_t *by;		/* owned; blocks in postorder */
	uint32_t n;
};

static int turn_edges(const struct ebpf_simt *s, struct backward *w)
{
	uint32_t n = s->n_blocks;

	w->first = calloc(n + 2u, sizeof(*w->first));
	w->from = calloc(2u * n + 1, sizeof(*w->from));
	w->stack = calloc(n + 1u, sizeof(*w->stack));
	w->next = calloc(n + 1u, sizeof(*w->next));
	w->by = calloc(n + 1u, sizeof(*w->by));
	if (!w->first || !w->from || !w->stack || !w->next || !w->by) {
		return -ENOMEM;
	}
	for (uint32_t k = 0; k < n; k++) {
		for (uint32_t i = 0; i < s->blocks[k].n_succ; i++) {
			w->first[s->blocks[k].succ[i] + 2]++;
		}
	}
	for (uint32_t k = 2; k < n + 2; k++) {
		w->first[k] += w->first[k - 1];
	}
	for (uint32_t k = 0; k < n; k++) {
		for (uint32_t i = 0; i < s->blocks[k].n_succ; i++) {
			w->from[w->first[s->blocks[k].succ[i] + 1]++] = k;
		}
	}
	return 0;
}

static void finish_edges(struct backward *w)
{
	free(w->first);
	free(w->from);
	free(w->stack);
	free(w->next);
	free(w->by);
}

/* Numbers the blocks from which block k can be reached, in postorder, from 1 on. */
static void number(struct ebpf_simt *s, struct backward *w, uint32_t k)
{
	uint32_t depth = 0;

	w->stack[depth++] = k;
	w->next[k] = w->first[k];
	s->mark[k] = 1;
	while (depth > 0) {
		uint32_t top = w->stack[depth - 1];

		if (w->next[top] == w->first[top + 1]) {
			w->by[w->n++] = top;
			s->label[top] = w->n;
			depth--;
		} else {
			uint32_t from = w->from[w->next[top]++];

			if (!s->mark[from]) {
				s->mark[from] = 1;
				w->next[from] = w->first[from];
				w->stack[depth++] = from;
			}
		}
	}
}

/* Returns the first block that all ways from a and from b pass. */
static uint32_t meet(const struct ebpf_simt *s, uint32_t a, uint32_t b)
{
	while (a != b && a != SIMT_EXIT && b != SIMT_EXIT) {
		if (s->label[a] < s->label[b]) {
			a = s->blocks[a].join;
		} else {
			b = s->blocks[b].join;
		}
	}
	return a == b ? a : SIMT_EXIT;
}

/* Computes the join of one block from those of its successors that are known. */
static int improve(struct ebpf_simt *s, uint32_t k)
{
	struct ebpf_simt_block *b = &s->blocks[k];
	uint32_t join = SIMT_EXIT;
	int known = 0, changed;

	for (uint32_t i = 0; i < b->n_succ; i++) {
		if (s->mark[b->succ[i]]) {
			join = known ? meet(s, join, b->succ[i]) : b->succ[i];
			known = 1;
		}
	}
	changed = !s->mark[k] || b->join != join;
	s->mark[k] = 1;
	b->join = join;
	return changed;
}

int ebpf_simt_joins(struct ebpf_simt *s)
{
	struct backward w = { 0 };
	int err = turn_edges(s, &w), changed = 1;

	memset(s->mark, 0, s->n_blocks);
	for (uint32_t k = 0; err == 0 && k < s->n_blocks; k++) {
		s->blocks[k].join = SIMT_EXIT;
		if (s->blocks[k].n_succ == 0) {
			number(s, &w, k);
		}
	}
	memset(s->mark, 0, s->n_blocks);
	while (err == 0 && changed) {
		changed = 0;
		for (uint32_t i = w.n; i-- > 0;) {
			changed |= improve(s, w.by[i]);
		}
	}
	memset(s->mark, 0, s->n_blocks);
	finish_edges(&w);
	return err;
}

/* ---- what a branch decides about ---- */

enum { MARK_PENDING = 1, MARK_MEETS = 2, MARK_INSIDE = 4 };

/* The blocks between a branch and its join: s->inside[0] to [n - 1]. */
struct region {
	struct ebpf_simt *s;
	uint32_t branch;
	uint32_t n;
	uint32_t low, high; /* ranks of pending blocks */
	struct ebpf_simt_set wrote;
};

/* Passes a label on to block `to`. */
static void pass(struct region *g, uint32_t to, uint32_t label)
{
	struct ebpf_simt *s = g->s;

	if (to == s->blocks[g->branch].join) {
		return;
	}
	if (!(s->mark[to] & MARK_INSIDE)) {
		s->inside[g->n++] = to;
		s->label[to] = label;
		s->mark[to] |= MARK_INSIDE | MARK_PENDING;
	} else if (s->label[to] != label && !(s->mark[to] & MARK_MEETS)) {
		s->label[to] = to;
		s->mark[to] |= MARK_MEETS | MARK_PENDING;
	} else {
		return;
	}
	g->low = MIN(g->low, s->blocks[to].rank);
	g->high = MAX(g->high, s->blocks[to].rank);
}

/* Marks the blocks of the region, and those in which sides meet. */
static void explore(struct region *g)
{
	struct ebpf_simt *s = g->s;
	const struct ebpf_simt_block *b = &s->blocks[g->branch];

	g->low = UINT32_MAX;
	pass(g, b->succ[0], b->succ[0]);
	pass(g, b->succ[1], b->succ[1]);
	while (g->low <= g->high) {
		uint32_t k = s->order[g->low++];

		if (s->mark[k] & MARK_PENDING) {
			s->mark[k] &= (uint8_t)~MARK_PENDING;
			for (uint32_t i = 0; i < s->blocks[k].n_succ; i++) {
				pass(g, s->blocks[k].succ[i], s->label[k]);
			}
		}
	}
}

/* Values that were written behind the branch differ where lanes meet that took different sides. */
static void apply_joins(struct region *g, uint8_t level)
{
	struct ebpf_simt *s = g->s;
	const struct ebpf_simt_block *b = &s->blocks[g->branch];

	for (uint32_t i = 0; i < g->n; i++) {
		uint32_t k = s->inside[i];

		if (s->mark[k] & MARK_MEETS) {
			ebpf_simt_raise_set(&s->blocks[k].in, &g->wrote, level);
			ebpf_simt_dirty(s, k);
		}
		s->mark[k] = 0;
	}
	if (b->join != SIMT_EXIT) {
		ebpf_simt_raise_set(&s->blocks[b->join].in, &g->wrote, level);
		ebpf_simt_dirty(s, b->join);
	} else if (g->wrote.regs & 1) {
		ebpf_simt_result(s, b->func, level);
	}
}

void ebpf_simt_raise(struct ebpf_simt *s, uint32_t branch, uint8_t level)
{
	struct region g = { .s = s, .branch = branch };

	s->blocks[branch].level = level;
	explore(&g);
	for (uint32_t i = 0; i < g.n; i++) {
		struct ebpf_simt_block *b = &s->blocks[s->inside[i]];

		ebpf_simt_unite(&g.wrote, &b->wrote);
		if (b->control < level) {
			b->control = level;
			b->why = branch;
			ebpf_simt_dirty(s, s->inside[i]);
		}
	}
	s->blocks[branch].again = s->mark[branch] & MARK_INSIDE;
	apply_joins(&g, level);
}
