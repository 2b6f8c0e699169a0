/* Loops by convergence: the rounds of an iterator or of a helper call with a callback. The heads of
 * such a loop are nodes. A path that returns to a head ends there if its state lies within the
 * state of the head; otherwise it continues with the join of both states. The number of rounds is
 * proved, so the loop costs that number times the most expensive way from one head to the next. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/verify_int.h"

#define MAX_JOINS 200u /* per loop; each join drops some knowledge */

uint32_t ebpf_verify_head(const struct ebpf_verifier *v)
{
	const struct ebpf_insn *in = &v->prog->insns[v->pc];
	const struct ebpf_reg *ptr = &ebpf_verify_frame(v)->regs[1];
	const struct ebpf_stack_slot *s;

	if (v->entering) {
		return v->entering;
	}
	if (in->code != (EBPF_JMP | EBPF_CALL) || in->src == EBPF_CALL_LOCAL ||
	    in->imm != HELPER_bpf_iter_num_next || ptr->type != REG_STACK ||
	    !ebpf_scalar_is_const(&ptr->v) || ptr->v.smin % 8 ||
	    ptr->v.smin < -(int)EBPF_STACK_BYTES || ptr->v.smin >= 0) {
		return 0;
	}
	s = &v->frames[ptr->frame]->slots[-ptr->v.smin / 8 - 1];
	return s->kind[0] == BYTE_ITER && !s->r.map ? s->r.id : 0;
}

/* Returns how many more rounds the loop may make. The path is at the first head of the loop. States
 * do not contain this number, so that the states of all rounds compare equal; the costs account for
 * the rounds instead. */
static int64_t rounds_left(const struct ebpf_verifier *v)
{
	const struct ebpf_reg *ptr = &ebpf_verify_frame(v)->regs[1];

	if (v->entering) {
		return (int64_t)v->frames[v->depth - 1]->regs[5].v.umax - 1;
	}
	return (int64_t)v->frames[ptr->frame]->slots[-ptr->v.smin / 8 - 1].r.v.umax;
}

/* ---- costs ---- */

static int64_t dearer(int64_t a, int64_t b)
{
	return MAX(a, b);
}

/* Multiplies with saturation: a program of that cost is refused in any case. */
static int64_t times(int64_t a, int64_t b)
{
	int64_t out;

	return checked_mul(a, b, &out) || out > INT64_MAX / 4 ? INT64_MAX / 4 : out;
}

static int64_t plus(int64_t a, int64_t b)
{
	return MIN(a + b, INT64_MAX / 4);
}

static int cost_to(struct ebpf_costs *c, struct ebpf_loop *l, int64_t cost)
{
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->to[i].loop == l) {
			c->to[i].cost = dearer(c->to[i].cost, cost);
			return 0;
		}
	}
	if (c->n == VERIFY_MAX_LOOPS) {
		return -E2BIG; /* cannot happen: no more loops are held at once */
	}
	c->to[c->n++] = (struct cost_to){ l, cost };
	return 0;
}

static int add_loop(struct ebpf_costs *out, struct ebpf_loop *l, int64_t before);

static int add_costs(struct ebpf_costs *out, const struct ebpf_costs *c, int64_t before)
{
	int err = 0;

	if (c->exit >= 0) {
		out->exit = dearer(out->exit, plus(before, c->exit));
	}
	for (uint32_t i = 0; err == 0 && i < c->n; i++) {
		const struct cost_to *t = &c->to[i];

		err = t->loop->closed ? add_loop(out, t->loop, plus(before, t->cost))
				      : cost_to(out, t->loop, plus(before, t->cost));
	}
	return err;
}

/* Replaces costs that lead into closed loops by the costs of these loops. Done once per loop,
 * because following eight nested loops at each use would take 3^8 steps. */
static int settle(struct ebpf_costs *c)
{
	struct ebpf_costs now = { .exit = -1 };
	int known = 0, err;

	for (uint32_t i = 0; i < c->n; i++) {
		known |= c->to[i].loop->closed;
	}
	if (!known) {
		return 0;
	}
	err = add_costs(&now, c, 0);
	*c = now;
	return err;
}

/* Adds the costs of everything that may follow a head of a closed loop. */
static int add_loop(struct ebpf_costs *out, struct ebpf_loop *l, int64_t before)
{
	int err = settle(&l->after);

	err = err ? err : settle(&l->broke);
	err = err ? err : add_costs(out, &l->after, plus(before, times(l->rounds, l->round)));
	return err || l->rounds < 1
		       ? err
		       : add_costs(out, &l->broke, plus(before, times(l->rounds - 1, l->round)));
}

static int add_node_costs(struct ebpf_costs *out, const struct ebpf_state_node *n, int64_t before)
{
	if (n->best >= 0) {
		out->exit = dearer(out->exit, plus(before, n->best));
	}
	return n->costs ? add_costs(out, n->costs, before) : 0;
}

int ebpf_verify_add_costs(struct ebpf_verifier *v, struct ebpf_state_node *n,
			  const struct ebpf_costs *c, uint64_t before)
{
	int err = 0;

	if (c->exit >= 0) {
		n->best = dearer(n->best, plus((int64_t)before, c->exit));
	}
	for (uint32_t i = 0; err == 0 && i < c->n; i++) {
		if (!n->costs) {
			n->costs = calloc(1, sizeof(*n->costs));
			if (!n->costs) {
				return -ENOMEM;
			}
			v->bytes += sizeof(*n->costs);
		}
		err = cost_to(n->costs, c->to[i].loop, plus((int64_t)before, c->to[i].cost));
	}
	return err;
}

void ebpf_verify_node_costs(const struct ebpf_state_node *n, struct ebpf_costs *ret)
{
	ret->exit = -1;
	ret->n = 0;
	add_node_costs(ret, n, 0);
}

/* A node inside a loop that is not closed yet is valid only for paths inside the same loop. */
int ebpf_verify_costs_of(const struct ebpf_verifier *v, const struct ebpf_state_node *n,
			 uint32_t arrived, struct ebpf_costs *ret)
{
	int err = 0;

	ret->exit = -1;
	ret->n = 0;
	if (arrived && n->head && n->head->closed) {
		err = add_loop(ret, n->head, 0);
	} else if (arrived && n->head) {
		err = n->head->id == arrived ? cost_to(ret, n->head, 0) : -EBUSY;
	} else {
		err = add_node_costs(ret, n, 0);
	}
	for (uint32_t i = 0; err == 0 && i < ret->n; i++) {
		err = ebpf_verify_ref(v, ret->to[i].loop->id) ? 0 : -EBUSY;
	}
	return err == 0;
}

/* ---- heads ---- */

static struct ebpf_loop *add_loop_here(struct ebpf_verifier *v, struct ebpf_ref *ref)
{
	struct ebpf_loop *l = calloc(1, sizeof(*l));

	if (!l) {
		return NULL;
	}
	ref->loop = l;
	l->id = ref->id;
	l->pc = v->entering ? ebpf_verify_frame(v)->ret - 1 : v->pc;
	l->began = v->entering != 0; /* the first round */
	l->rounds = rounds_left(v);
	l->before = (int64_t)v->path_cost;
	l->after.exit = l->broke.exit = -1;
	l->next = v->loops;
	v->loops = l;
	v->bytes += sizeof(*l);
	return l;
}

void ebpf_verify_free_loops(struct ebpf_verifier *v)
{
	while (v->loops) {
		struct ebpf_loop *l = v->loops;

		v->loops = l->next;
		free(l);
	}
}

static int check_budget(struct ebpf_verifier *v, struct ebpf_loop *l)
{
	int64_t total = plus(l->before, times(l->rounds, l->round));

	if (!v->worst || times(v->worst->rounds, v->worst->round) < times(l->rounds, l->round)) {
		v->worst = l;
	}
	return total > v->budget ? ebpf_verify_loop_over_budget(v, l, total) : 0;
}

int ebpf_verify_close_head(struct ebpf_verifier *v, struct ebpf_state_node *n)
{
	struct ebpf_loop *l = n->head;
	struct ebpf_costs c;
	int err = 0;

	ebpf_verify_node_costs(n, &c);
	l->after.exit = dearer(l->after.exit, c.exit);
	for (uint32_t i = 0; err == 0 && i < c.n; i++) {
		if (c.to[i].loop == l) {
			l->round = dearer(l->round, c.to[i].cost);
		} else {
			err = cost_to(&l->after, c.to[i].loop, c.to[i].cost);
		}
	}
	err = err ? err : check_budget(v, l);
	c = (struct ebpf_costs){ .exit = -1 };
	if (l->first != n) { /* the way to this head was a round of the loop */
		err = err ? err : cost_to(&c, l, 0);
		return err ? err : ebpf_verify_add_costs(v, n->parent, &c, n->cost);
	}
	l->closed = 1;
	err = err ? err : add_loop(&c, l, 0);
	if (err == 0 && c.exit > 0 && l->before + c.exit > v->budget) {
		err = ebpf_verify_loop_over_budget(v, v->worst, l->before + c.exit);
	}
	return err ? err : ebpf_verify_add_costs(v, n->parent, &c, n->cost);
}

int ebpf_verify_close_round(struct ebpf_verifier *v, struct ebpf_state_node *n)
{
	struct ebpf_loop *l = n->inside;
	struct ebpf_costs c, back = { .exit = -1 };
	int err = 0;

	ebpf_verify_node_costs(n, &c);
	l->broke.exit =
		c.exit < 0 ? l->broke.exit : dearer(l->broke.exit, plus(c.exit, (int64_t)n->cost));
	for (uint32_t i = 0; err == 0 && i < c.n; i++) {
		err = cost_to(c.to[i].loop == l ? &back : &l->broke, c.to[i].loop,
			      plus(c.to[i].cost, (int64_t)n->cost));
	}
	return err ? err : ebpf_verify_add_costs(v, n->parent, &back, 0);
}

/* Returns the nearest head of the loop on the path. */
static struct ebpf_state_node *head_above(const struct ebpf_verifier *v, const struct ebpf_loop *l)
{
	struct ebpf_state_node *n = v->at;

	while (n && n->head != l) {
		n = n->parent;
	}
	return n;
}

/* Returns a head of the loop at the current instruction whose state contains the running state, or
 * NULL. */
static struct ebpf_state_node *covering(struct ebpf_verifier *v, struct ebpf_loop *l)
{
	static const struct ebpf_marks none;
	struct ebpf_marks all = none;
	struct ebpf_costs same = { .n = 1, .to = { { l, 0 } } };

	for (unsigned f = 0; f < EBPF_MAX_FRAMES; f++) {
		all.slots[f] = all.texts[f] = UINT64_MAX;
		all.regs[f] = all.matter[f] = 0x3ff;
	}
	for (struct ebpf_state_node *n = v->open[v->pc]; n && n->heads >= l->first->heads;
	     n = n->next) {
		if (n->head == l && ebpf_verify_within(v, n->state, &all, &same)) {
			return n;
		}
	}
	for (struct ebpf_state_node *n = v->closed[v->pc]; n && (v->flags & EBPF_VERIFY_NO_PRUNE);
	     n = n->next) {
		if (n->head == l && ebpf_verify_within(v, n->state, &all, &same)) {
			return n;
		}
	}
	return NULL;
}

/* Ends the path at a head that contains its state. Marks everything in the state of the head as
 * needed. */
static int end_round(struct ebpf_verifier *v, const struct ebpf_state_node *head,
		     struct ebpf_loop *l)
{
	struct ebpf_costs c = { .exit = -1, .n = 1, .to = { { l, 0 } } };
	struct ebpf_marks marks;
	int err;

	ebpf_verify_all_marks(v, head->state, &marks);
	ebpf_verify_merge_read(&v->at->read, &marks, &v->written, &v->sources);
	err = ebpf_verify_path_end(v, &c);
	return err ? err : 1;
}

static int widen(struct ebpf_verifier *v, struct ebpf_loop *l)
{
	struct ebpf_state_node *n = v->open[v->pc];

	while (n && n->heads >= l->first->heads &&
	       !(n->head == l && ebpf_verify_same_calls(v, n->state))) {
		n = n->next;
	}
	if (!n || n->heads < l->first->heads) {
		return 0; /* first visit of this head */
	}
	if (++l->joins > MAX_JOINS) {
		report_hint(v->r, "let fewer variables change from round to round");
		return ebpf_verify_refuse(v, v->pc, "loop",
					  "what the loop changes does not settle in %u rounds",
					  MAX_JOINS);
	}
	return ebpf_verify_join(v, n->state, l->joins);
}

/* Refuses a next round while a loop that began inside this one is still running: the two loops
 * would alternate, and the cost of each would depend on the other. */
static int check_nesting(struct ebpf_verifier *v, const struct ebpf_loop *l)
{
	for (unsigned i = 0; i < v->n_refs; i++) {
		const struct ebpf_loop *other = v->refs[i].loop;

		if (other && other->first->heads > l->first->heads) {
			report_hint(v->r, "finish the inner loop first, or make its iterator in "
					  "each round of the outer one");
			return ebpf_verify_refuse(
				v, v->pc, "iter",
				"the iterator made at %s goes on from one round to "
				"the next of the loop around it",
				ebpf_verify_place_text(v, v->refs[i].pc));
		}
	}
	return 0;
}

int ebpf_verify_round(struct ebpf_verifier *v, uint32_t id)
{
	struct ebpf_ref *ref =
		unqual(ebpf_verify_ref(v, id)); /* not NULL: the reference of a head is held */
	struct ebpf_loop *l = ref->loop;
	struct ebpf_state_node *n;
	uint32_t joins;
	int err;

	if (!l) {
		l = add_loop_here(v, ref);
		err = l ? ebpf_verify_add_node(v, l) : -ENOMEM;
		if (l) {
			l->first = v->at;
		}
		return err;
	}
	n = head_above(v, l);
	l->round = dearer(l->round, (int64_t)(v->path_cost - n->path_cost));
	err = check_nesting(v, l);
	err = err ? err : check_budget(v, l);
	if (err) {
		return err;
	}
	n = covering(v, l);
	if (n) {
		return end_round(v, n, l);
	}
	joins = l->joins;
	err = widen(v, l);
	if (err == 0 && l->joins > joins && (v->flags & EBPF_VERIFY_EXPLAIN)) {
		ebpf_verify_log_join(v);
	}
	/* The cost of the loop already includes the rounds walked so far. */
	v->path_cost = (uint64_t)l->before;
	return err ? err : ebpf_verify_add_node(v, l);
}
