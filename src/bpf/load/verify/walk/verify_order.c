/* The order of instructions in a program whose loops are thought unrolled: for each instruction the
 * loops around it, and its rank inside the innermost one. Ranks follow the edges of the control
 * flow graph, but for the jumps back to the head of a loop, which begin its next round. So a place
 * in the unrolled program is a row of numbers, rank and round of each loop from the outside in and
 * then the rank of the instruction, and a run passes places in rising order.
 *
 * Loops are strongly connected components; taking the head of one away leaves the loops inside it.
 * It makes no difference how many jumps lead back to a head. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/verify/verify_int.h"
#include "bpf/load/verify/walk/verify_order_int.h"

#define NONE UINT32_MAX

/* One pass: the components of one level of nesting (Tarjan's algorithm without recursion). */
struct pass {
	const struct ebpf_verifier *v;
	unsigned level;
	uint32_t *within;    /* component of the level above, or NONE: in no loop that deep */
	uint32_t *found;     /* order of discovery, from 1; 0: not yet */
	uint32_t *lowest;    /* the lowest `found` that is reached from here */
	uint32_t *component; /* NONE: not closed yet */
	uint32_t *stack, *path;
	uint8_t *next_edge;
	uint32_t n_stack, n_path, n_found, n_components;
};

static uint32_t successors(const struct ebpf_verifier *v, uint32_t pc, uint32_t ret[2])
{
	const struct ebpf_insn *in = &v->prog->insns[pc];
	unsigned class = EBPF_CLASS(in->code), op = EBPF_OP(in->code);
	int is_jump = (class == EBPF_JMP || class == EBPF_JMP32) && op != EBPF_CALL;
	uint32_t n = 0;

	if (in->code == (EBPF_JMP | EBPF_EXIT)) {
		return 0;
	}
	if (!is_jump || op != EBPF_JA) {
		ret[n++] = pc + (in->code == EBPF_LD_IMM64 ? 2 : 1);
	}
	if (is_jump) {
		ret[n++] = ebpf_verify_target(in, pc);
	}
	return n;
}

/* Returns whether the edge belongs to this level: both ends in one loop of the level above, and not
 * back to its head. */
static int is_inside(const struct pass *p, uint32_t from, uint32_t to)
{
	return p->within[from] == p->within[to] && p->within[to] != NONE;
}

static void discover(struct pass *p, uint32_t pc)
{
	p->found[pc] = p->lowest[pc] = ++p->n_found;
	p->next_edge[pc] = 0;
	p->stack[p->n_stack++] = pc;
	p->path[p->n_path++] = pc;
}

static void close_component(struct pass *p, uint32_t root)
{
	uint32_t pc;

	do {
		pc = p->stack[--p->n_stack];
		p->component[pc] = p->n_components;
	} while (pc != root);
	p->n_components++;
}

static void search(struct pass *p, uint32_t start)
{
	discover(p, start);
	while (p->n_path > 0) {
		uint32_t pc = p->path[p->n_path - 1], to[2];
		uint32_t n = successors(p->v, pc, to);

		if (p->next_edge[pc] < n) {
			uint32_t t = to[p->next_edge[pc]++];

			if (!is_inside(p, pc, t)) {
				continue;
			}
			if (!p->found[t]) {
				discover(p, t);
			} else if (p->component[t] == NONE) {
				p->lowest[pc] = MIN(p->lowest[pc], p->found[t]);
			}
			continue;
		}
		if (p->lowest[pc] == p->found[pc]) {
			close_component(p, pc);
		}
		if (--p->n_path > 0) {
			uint32_t up = p->path[p->n_path - 1];

			p->lowest[up] = MIN(p->lowest[up], p->lowest[pc]);
		}
	}
}

/* Finds the loops of this level and their heads. A component is a loop if an edge stays inside it;
 * its head is the first instruction that is entered from outside. */
static void find_heads(struct pass *p, uint32_t *head, uint8_t *is_loop)
{
	uint32_t n = p->v->prog->n_insns;

	memset(head, 0xff, n * sizeof(*head));
	memset(is_loop, 0, n);
	for (uint32_t pc = 0; pc < n; pc++) {
		uint32_t to[2], n_to = p->found[pc] ? successors(p->v, pc, to) : 0;

		for (uint32_t i = 0; i < n_to; i++) {
			if (is_inside(p, pc, to[i]) && p->component[to[i]] == p->component[pc]) {
				is_loop[p->component[pc]] = 1;
			}
		}
	}
	for (uint32_t pc = 0; pc < n; pc++) {
		uint32_t to[2], n_to = (p->v->info[pc] & INSN_START) ? successors(p->v, pc, to) : 0;

		for (uint32_t i = 0; i < n_to; i++) {
			uint32_t t = to[i], c = p->found[t] ? p->component[t] : NONE;

			if (c != NONE && (!p->found[pc] || p->component[pc] != c)) {
				head[c] = MIN(head[c], t);
			}
		}
	}
	for (uint32_t pc = 0; pc < n; pc++) { /* a loop that nothing enters begins a function */
		if (p->found[pc] && head[p->component[pc]] == NONE) {
			head[p->component[pc]] = pc;
		}
	}
}

/* Stores the ranks of this level. Returns whether there is a level below. */
static int store(struct pass *p, const uint32_t *head, const uint8_t *is_loop)
{
	int more = 0;

	for (uint32_t pc = 0; pc < p->v->prog->n_insns; pc++) {
		uint32_t c = p->component[pc];
		struct ebpf_place *at = &p->v->places[pc];

		if (!p->found[pc]) {
			continue;
		}
		/* components are closed in the reverse of the order of edges; 0 is for heads */
		at->rank[p->level] = p->n_components - c;
		p->within[pc] = NONE;
		if (is_loop[c]) {
			at->loops = (uint8_t)(p->level + 1);
			at->is_head = pc == head[c];
			at->rank[p->level + 1] = 0;
			p->within[pc] = at->is_head ? NONE : c;
			more |= !at->is_head;
		}
	}
	return more;
}

static int one_level(struct pass *p, uint32_t *head, uint8_t *is_loop)
{
	uint32_t n = p->v->prog->n_insns;

	memset(p->found, 0, n * sizeof(*p->found));
	memset(p->component, 0xff, n * sizeof(*p->component));
	p->n_found = p->n_components = 0;
	for (uint32_t pc = 0; pc < n; pc++) {
		if ((p->v->info[pc] & INSN_START) && p->within[pc] != NONE && !p->found[pc]) {
			search(p, pc);
		}
	}
	find_heads(p, head, is_loop);
	return store(p, head, is_loop);
}

int ebpf_order_start(struct ebpf_verifier *v)
{
	uint32_t n = v->prog->n_insns;
	uint32_t *room = calloc((size_t)n * 7, sizeof(*room));
	uint8_t *bytes = calloc((size_t)n * 2, 1);
	struct pass p = { .v = v };
	int more = 1;

	v->places = calloc(n, sizeof(*v->places));
	if (!room || !bytes || !v->places) {
		free(room);
		free(bytes);
		return -ENOMEM;
	}
	p.within = room;
	p.found = room + n;
	p.lowest = room + 2 * (size_t)n;
	p.component = room + 3 * (size_t)n;
	p.stack = room + 4 * (size_t)n;
	p.path = room + 5 * (size_t)n;
	p.next_edge = bytes;
	while (more && p.level < ORDER_MAX_LOOPS) {
		more = one_level(&p, room + 6 * (size_t)n, bytes + n);
		p.level++;
	}
	free(room);
	free(bytes);
	return more ? -E2BIG : 0;
}
