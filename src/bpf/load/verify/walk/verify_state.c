/* The tree of walked paths: nodes where paths meet, pending branches, and the facts that each node
 * collects once all paths behind it are walked (which values mattered, the cost of the most
 * expensive path). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/verify/simt/simt_int.h"
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"

/* Returns the minimum number of instructions between two nodes of a path. Nodes are sparser on long
 * paths, so that the longest path fits into memory. */
static uint32_t node_distance(const struct ebpf_verifier *v)
{
	return 8 + (uint32_t)MIN(v->path_cost >> 15, 24u);
}

static void drop_state(struct ebpf_verifier *v, struct ebpf_state_node *n)
{
	if (n->state) {
		v->bytes -= ebpf_verify_packed_bytes(n->state);
		free(n->state);
		n->state = NULL;
		v->states--;
	}
}

static void free_node(struct ebpf_verifier *v, struct ebpf_state_node *n)
{
	drop_state(v, n);
	v->bytes -= sizeof(*n) + (n->costs ? sizeof(*n->costs) : 0);
	free(n->costs);
	free(n);
}

static int too_big(struct ebpf_verifier *v)
{
	char text[64];

	snprintf(text, sizeof(text), "too many different states to keep (%u MB)",
		 VERIFY_MAX_BYTES >> 20);
	return ebpf_verify_give_up(v, text);
}

static struct ebpf_state_node *new_node(struct ebpf_verifier *v)
{
	struct ebpf_state_node *n = calloc(1, sizeof(*n));

	if (!n) {
		return NULL;
	}
	v->bytes += sizeof(*n);
	n->parent = v->at;
	n->pc = v->pc;
	n->open = 1;
	n->heads = v->at ? v->at->heads : 0;
	n->best = -1;
	n->cost = v->cost;
	n->path_cost = v->path_cost;
	n->written = v->written;
	n->sources = v->sources;
	return n;
}

/* Makes n the last node of the path. */
static int go_on_at(struct ebpf_verifier *v, struct ebpf_state_node *n)
{
	v->at = n;
	v->cost = 0;
	v->since = 0;
	memset(&v->written, 0, sizeof(v->written));
	for (unsigned f = 0; f <= v->depth; f++) {
		for (unsigned i = 0; i < 10; i++) {
			v->sources.of[f][i] = (uint16_t)(1u << i);
		}
	}
	return v->bytes > VERIFY_MAX_BYTES ? too_big(v) : 0;
}

int ebpf_verify_add_node(struct ebpf_verifier *v, struct ebpf_loop *head)
{
	struct ebpf_packed_state *state = ebpf_verify_pack(v);
	struct ebpf_state_node *n = state ? new_node(v) : NULL;

	if (!n) {
		v->bytes -= state ? ebpf_verify_packed_bytes(state) : 0;
		free(state);
		return -ENOMEM;
	}
	v->states++;
	v->peak_states = MAX(v->peak_states, v->states);
	v->work += ebpf_verify_packed_work(state);
	n->state = state;
	n->head = head;
	n->heads += head != NULL;
	n->next = v->open[v->pc];
	v->open[v->pc] = n;
	return go_on_at(v, n);
}

int ebpf_verify_begin_round(struct ebpf_verifier *v, struct ebpf_loop *l)
{
	struct ebpf_state_node *n = new_node(v);

	if (!n) {
		return -ENOMEM;
	}
	n->inside = l;
	return go_on_at(v, n);
}

int ebpf_verify_start(struct ebpf_verifier *v)
{
	int err = ebpf_verify_add_node(v, NULL);

	v->root = v->at;
	return err;
}

void ebpf_verify_merge_read(struct ebpf_marks *into, const struct ebpf_marks *read,
			    const struct ebpf_marks *written, const struct ebpf_sources *sources)
{
	for (unsigned f = 0; f < EBPF_MAX_FRAMES; f++) {
		into->regs[f] |= read->regs[f] & (uint16_t)~written->regs[f];
		into->slots[f] |= read->slots[f] & ~written->slots[f];
		into->texts[f] |= read->texts[f] & ~written->slots[f];
		for (unsigned left = read->matter[f]; left; left &= left - 1) {
			into->matter[f] |= sources->of[f][__builtin_ctz(left)];
		}
	}
}

/* Returns whether half of the memory is used. Then only those states are kept that are most likely
 * to be met again. */
static int is_tight(const struct ebpf_verifier *v)
{
	return v->bytes > VERIFY_MAX_BYTES / 2;
}

/* Moves a node to the closed list. Pending branches are taken up last in, first out, so the last
 * closed node is the one most likely to be met next. */
static void close_node(struct ebpf_verifier *v, struct ebpf_state_node *n)
{
	struct ebpf_state_node **link = &v->closed[n->pc];

	if (!n->state) {
		free_node(v, n); /* it is in no list */
		return;
	}
	v->open[n->pc] = n->next; /* the deepest open node of an instruction closes first */
	n->next = *link;
	*link = n;
	if (!is_tight(v)) {
		return;
	}
	for (int keep = 8; keep > 0 && *link; keep--) {
		link = &(*link)->next;
	}
	while (*link) {
		n = *link;
		*link = n->next;
		free_node(v, n);
	}
}

int ebpf_verify_path_end(struct ebpf_verifier *v, const struct ebpf_costs *tail)
{
	static const struct ebpf_costs end = { .exit = 0 };
	struct ebpf_state_node *n = v->at;
	int err;

	if (v->merging) {
		return ebpf_merge_end(v);
	}
	err = ebpf_verify_add_costs(v, n, tail ? tail : &end, v->cost);
	while (err == 0 && --n->open == 0 && n->parent) {
		struct ebpf_state_node *parent = n->parent;
		struct ebpf_costs c;

		if (n->head) {
			err = ebpf_verify_close_head(v, n);
		} else if (n->inside) {
			err = ebpf_verify_close_round(v, n);
		} else {
			ebpf_verify_node_costs(n, &c);
			err = ebpf_verify_add_costs(v, parent, &c, n->cost);
		}
		ebpf_verify_merge_read(&parent->read, &n->read, &n->written, &n->sources);
		close_node(v, n);
		n = parent;
	}
	v->at = err ? n : NULL; /* NULL until the next branch is taken up */
	return err;
}

static int refuse_endless(struct ebpf_verifier *v)
{
	report_hint(v->r, "let something that the loop's condition reads change in every round");
	return ebpf_verify_refuse(v, v->pc, "loop",
				  "the loop makes no progress: the same state is reached again");
}

enum {
	LOOKBACK = 16
}; /* rounds in which a repeated state is detected at once; beyond them the budget ends the loop */

/* Refuses a state that occurs twice on one path: that execution would never end. */
static int check_progress(struct ebpf_verifier *v)
{
	struct ebpf_state_node **link = &v->open[v->pc], *n;

	for (int i = 0; i < LOOKBACK && *link; i++) {
		/* a node above the head of a loop is separated from this one by a round that has a
		 * cost */
		if ((*link)->heads == v->at->heads && ebpf_verify_same(v, (*link)->state)) {
			return refuse_endless(v);
		}
		link = &(*link)->next;
	}
	n = *link;
	if (n && n->parent && !n->head && is_tight(v)) {
		*link = n->next;
		drop_state(v, n);
	}
	return 0;
}

/* Returns a closed node that contains the running state, or NULL. Frees nodes that are compared
 * often and rarely match. */
static struct ebpf_state_node *find_closed(struct ebpf_verifier *v, uint32_t arrived,
					   struct ebpf_costs *ret)
{
	struct ebpf_state_node **link = &v->closed[v->pc], *n;

	while ((n = *link) != NULL) {
		if (ebpf_verify_costs_of(v, n, arrived, ret) &&
		    ebpf_verify_within(v, n->state, &n->read, ret)) {
			if (n->hits < UINT16_MAX / 4) {
				n->hits++;
			}
			return n;
		}
		if (n->misses < UINT16_MAX) {
			n->misses++;
		}
		if (n->misses > n->hits * 3 + 3) {
			*link = n->next;
			free_node(v, n);
		} else {
			link = &n->next;
		}
	}
	return NULL;
}

static int end_at(struct ebpf_verifier *v, struct ebpf_state_node *n,
		  const struct ebpf_costs *costs)
{
	int err;

	if (costs->exit > 0 && v->path_cost + (uint64_t)costs->exit > v->budget) {
		v->path_cost += (uint64_t)costs->exit;
		return ebpf_verify_over_budget(v);
	}
	ebpf_verify_merge_read(&v->at->read, &n->read, &v->written, &v->sources);
	err = ebpf_verify_path_end(v, costs);
	return err ? err : 1;
}

int ebpf_verify_meet(struct ebpf_verifier *v)
{
	uint32_t head = ebpf_verify_head(v);
	struct ebpf_costs costs;
	struct ebpf_state_node *n;
	int err;

	if (v->merging) {
		return ebpf_merge_meet(v);
	}
	if (head) {
		ebpf_verify_drop_dead(v);
	}
	n = v->flags & EBPF_VERIFY_NO_PRUNE ? NULL : find_closed(v, head, &costs);
	if (n) {
		v->entering = 0;
		return end_at(v, n, &costs);
	}
	if (head) {
		err = ebpf_verify_round(v, head);
		v->entering = 0;
		return err;
	}
	err = check_progress(v);
	if (err) {
		return err;
	}
	if (v->since >= node_distance(v) || (!v->open[v->pc] && !v->closed[v->pc])) {
		return ebpf_verify_add_node(v, NULL);
	}
	return 0;
}

int ebpf_verify_push(struct ebpf_verifier *v, int outcome)
{
	struct ebpf_pending_branch *p = malloc(sizeof(*p));

	if (!p) {
		return -ENOMEM;
	}
	*p = (struct ebpf_pending_branch){
		.next = v->todo,
		.node = v->at,
		.state = ebpf_verify_pack(v),
		.pc = v->pc,
		.outcome = outcome,
		.cost = v->cost,
		.path_cost = v->path_cost,
		.since = v->since,
		.log = v->log.len,
		.written = v->written,
		.sources = v->sources,
	};
	if (!p->state) {
		free(p);
		return -ENOMEM;
	}
	v->todo = p;
	v->work += 2u * ebpf_verify_packed_work(
				p->state); /* work to pack it now and to unpack it later */
	v->at->open++;
	v->bytes += sizeof(*p);
	v->states++;
	v->peak_states = MAX(v->peak_states, v->states);
	return v->bytes > VERIFY_MAX_BYTES ? too_big(v) : 0;
}

static void free_pending(struct ebpf_verifier *v, struct ebpf_pending_branch *p)
{
	v->bytes -= sizeof(*p) + ebpf_verify_packed_bytes(p->state);
	v->states--;
	free(p->state);
	free(p);
}

int ebpf_verify_pop(struct ebpf_verifier *v, int *ret_outcome)
{
	struct ebpf_pending_branch *p = v->todo;

	if (!p) {
		return 0;
	}
	v->todo = p->next;
	ebpf_verify_unpack(v, p->state);
	v->at = p->node;
	v->pc = p->pc;
	v->entering = 0;
	v->cost = p->cost;
	v->path_cost = p->path_cost;
	v->since = p->since;
	v->written = p->written;
	v->sources = p->sources;
	*ret_outcome = p->outcome;
	if (v->log.len > p->log) {
		v->log.len = p->log;
		v->log.data[p->log] = 0;
	}
	free_pending(v, p);
	return 1;
}

/* Frees the open nodes. Those that have left their lists are reachable only through the path: every
 * open node is v->at or one of its ancestors. */
static void free_open(struct ebpf_verifier *v)
{
	struct ebpf_state_node *n = v->at, *parent;

	for (; n; n = parent) {
		parent = n->parent;
		if (!n->state) {
			free_node(v, n);
		}
	}
}

static void free_list(struct ebpf_verifier *v, struct ebpf_state_node *n)
{
	while (n) {
		struct ebpf_state_node *next = n->next;

		free_node(v, n);
		n = next;
	}
}

void ebpf_verify_free(struct ebpf_verifier *v)
{
	while (v->todo) {
		struct ebpf_pending_branch *p = v->todo;

		v->todo = p->next;
		free_pending(v, p);
	}
	if (v->at) {
		free_open(v);
	}
	for (uint32_t pc = 0; v->open && v->closed && pc < v->prog->n_insns; pc++) {
		free_list(v, v->open[pc]);
		free_list(v, v->closed[pc]);
	}
	for (unsigned f = 0; f < EBPF_MAX_FRAMES; f++) {
		free(v->frames[f]);
	}
	ebpf_verify_free_loops(v);
	ebpf_merge_free(v);
	free(v->other);
	free(v->open);
	free(v->closed);
	free(v->info);
	free(v->loads);
	ebpf_simt_free(v->simt);
	free(v->live);
	free(v->subprog_of);
	free(v->texts);
	buf_finish(&v->log);
}
