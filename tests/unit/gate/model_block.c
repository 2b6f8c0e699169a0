/* What blocks do: the entry stub (ptx/block/block_gate.c) and a clone's prologue
 * (block_prologue.c), by the one thread that decides. A function stands for a part of the text,
 * named by its label. */
#include "model.h"

static const struct model_plan *plan(const struct model *m, const struct model_stream *x)
{
	return &m->scenario->launch[x->launch];
}

static bool faulty(const struct model *m, enum model_fault f)
{
	return m->fault == f;
}

/* %i: the index of the first block of the block's cluster. */
static unsigned index_of(const struct model *m, const struct model_stream *x,
			 const struct model_block *b)
{
	return faulty(m, FAULT_BLOCK_INDEX) ? b->number
					    : b->number - b->number % plan(m, x)->cluster;
}

/* %mine */
static unsigned mine(const struct model *m, const struct model_stream *x,
		     const struct model_block *b)
{
	return x->base + index_of(m, x, b) + 1u;
}

/* %first: the block asks for leases before it raises the gate. */
static bool asks_first(const struct model *m, const struct model_stream *x,
		       const struct model_block *b)
{
	return index_of(m, x, b) < plan(m, x)->wave;
}

void model_blocks_begin(struct model *m, struct model_state *s, struct model_stream *x)
{
	const struct model_plan *p = plan(m, x);
	unsigned n = p->clone ? p->blocks - x->from : p->blocks;

	if (!p->clone && !x->line && !s->line[0].closed && s->line[0].gate > x->base) {
		model_violated(m, "leases do not stop a launch: its base is below the gate");
	}
	for (unsigned i = 0; i < MODEL_BLOCKS; i++) {
		struct model_block *b = &x->block[i];

		*b = (struct model_block){ .at = AT_LEFT };
		if (i >= n) {
			continue;
		}
		b->number = (uint8_t)i;
		if (!p->clone && index_of(m, x, b) < x->from) {
			b->number = 0; /* setp.lt %i, from; exit */
			continue;
		}
		b->at = AT_ASK;
		b->asks = ASK_READY;
		if (x->groups && (p->clone || index_of(m, x, b) >= x->ask)) {
			b->asks |= ASK_LEASE;
		}
		if (!p->clone && !asks_first(m, x, b)) {
			b->asks |= ASK_GATE;
		}
		b->number = p->clone ? 0 : b->number;
	}
}

/* atom.max of 64 bits without sign: a closed gate, whose highest bit is set, does not change. */
static void raise_gate(const struct model *m, struct model_line *l, const struct model_stream *x,
		       struct model_block *b)
{
	unsigned value = mine(m, x, b);

	b->old = l->gate;
	b->closed = l->closed;
	if (l->closed && !faulty(m, FAULT_BOUND_MOVES)) {
		return;
	}
	if (faulty(m, FAULT_OR_FOR_MAX)) {
		l->gate |= (uint8_t)value;
	} else if (value > l->gate) {
		l->gate = (uint8_t)value;
	}
}

static void leave(struct model_block *b)
{
	*b = (struct model_block){ .at = AT_LEFT };
}

/* A body ends when the blocks that it waits for have begun. */
static bool end_body(const struct model *m, struct model_state *s, struct model_stream *x,
		     struct model_block *b)
{
	struct model_launch *l = &s->launch[x->launch];
	unsigned lower = (1u << b->number) - 1, all = (1u << plan(m, x)->blocks) - 1;
	unsigned want = plan(m, x)->wait == WAIT_LOWER	  ? lower
			: plan(m, x)->wait == WAIT_HIGHER ? all & ~lower
							  : 0;

	if ((l->begun & want) != want) {
		return false;
	}
	l->ended |= (uint8_t)(1u << b->number);
	*b = (struct model_block){ .at = AT_ENDED };
	return true;
}

/* $run. The block's bit is set when its body begins. */
static void run(struct model *m, struct model_state *s, struct model_stream *x,
		struct model_block *b)
{
	struct model_launch *l = &s->launch[x->launch];

	if (l->begun >> b->number & 1) {
		model_violated(m, "a block runs twice");
	}
	for (unsigned i = 0; i < x->launch && !m->scenario->reuse; i++) {
		if (s->launch[i].ended != (1u << m->scenario->launch[i].blocks) - 1) {
			model_violated(m, "a block runs before the launch before is complete");
		}
	}
	l->begun |= (uint8_t)(1u << b->number);
	*b = (struct model_block){ .at = AT_BODY, .number = b->number };
	if (plan(m, x)->wait == WAIT_NOTHING && !m->scenario->takes) {
		(void)end_body(m, s, x, b); /* nothing is to be seen of it meanwhile */
	}
}

/* The block of the last index, if it runs, publishes. */
static bool is_last(const struct model *m, const struct model_stream *x,
		    const struct model_block *b)
{
	if (faulty(m, FAULT_FIRST_PUBLISHES)) {
		return index_of(m, x, b) == x->from;
	}
	if (faulty(m, FAULT_GRID_BLOCKS)) {
		return index_of(m, x, b) + 1u == plan(m, x)->blocks;
	}
	return index_of(m, x, b) + plan(m, x)->cluster == plan(m, x)->blocks;
}

/* $decide */
static void decide(struct model *m, struct model_state *s, struct model_stream *x,
		   struct model_block *b)
{
	bool behind = b->old < mine(m, x, b) || faulty(m, FAULT_CLOSED_LEAVES);

	if (faulty(m, FAULT_ASK_IGNORES_GATE) && index_of(m, x, b) < x->ask) {
		behind = false;
	}
	if (b->closed && behind) {
		leave(b);
	} else if (is_last(m, x, b)) {
		b->at = faulty(m, FAULT_DONE_FIRST) ? AT_DONE : AT_COUNTER;
	} else {
		run(m, s, x, b);
	}
}

/* Behind the loads: the progress word is compared, then the leases. */
static void all_loaded(struct model *m, struct model_state *s, struct model_stream *x,
		       struct model_block *b)
{
	if (b->behind && !faulty(m, plan(m, x)->clone ? FAULT_CLONE_NO_READY : FAULT_NO_READY)) {
		leave(b);
	} else if (plan(m, x)->clone) {
		if (b->leased) {
			leave(b);
		} else {
			b->at = AT_DRAW;
		}
	} else if (b->leased) { /* $leased */
		if (faulty(m, FAULT_NO_CLOSE) && asks_first(m, x, b)) {
			leave(b);
		} else if (asks_first(m, x, b)) {
			b->at = AT_LOOK;
		} else if (b->closed) {
			decide(m, s, x, b);
		} else {
			b->at = AT_CLOSE;
		}
	} else if (asks_first(m, x, b)) { /* $draw */
		b->at = AT_RAISE;
	} else {
		decide(m, s, x, b);
	}
}

/* One of the accesses that are in flight together. */
static bool ask(struct model *m, struct model_state *s, struct model_stream *x,
		struct model_block *b, unsigned access)
{
	struct model_line *l = &s->line[x->line];
	uint8_t which = (uint8_t)(1u << access);

	if (!(b->asks & which) ||
	    (which == ASK_READY && b->asks != ASK_READY && !m->scenario->reuse)) {
		return false;
	}
	/* While a launch is on the device, only another run that has its line changes what it finds
	 * in the progress word. So without one this load needs no step of its own. */
	if (b->asks & ASK_READY && !m->scenario->reuse) {
		which |= ASK_READY;
	}
	b->asks &= (uint8_t)~which;
	if (which & ASK_READY) {
		b->behind = l->ready < model_first(m, x->launch);
	}
	if (which & ASK_LEASE) {
		b->leased = s->lease;
	}
	if (which & ASK_GATE) {
		raise_gate(m, l, x, b);
	}
	if (!b->asks) {
		all_loaded(m, s, x, b);
	}
	return true;
}

/* atom.or */
static void close_gate(struct model *m, struct model_state *s, struct model_stream *x,
		       struct model_block *b)
{
	struct model_line *l = &s->line[x->line];

	b->old = l->gate;
	b->closed = l->closed;
	l->closed = 1;
	if (asks_first(m, x, b) && !faulty(m, FAULT_CLOSER_RUNS)) {
		b->closed = 1; /* or.b64 %old, %old, %m */
	}
	decide(m, s, x, b);
}

/* atom.inc: the ticket. Differences are without sign, so one before `first` is large. */
static void draw(struct model *m, struct model_state *s, struct model_stream *x,
		 struct model_block *b)
{
	int at = s->line[x->line].counter++ - model_first(m, x->launch);

	if (at < 0 || at >= (int)plan(m, x)->blocks) {
		leave(b);
		return;
	}
	b->number = (uint8_t)at;
	if (at + 1 == (int)plan(m, x)->blocks) {
		b->at = AT_READY;
	} else {
		run(m, s, x, b);
	}
}

/* $last: the counter moves from the launch's first ticket to its end, unless it was taken or the
 * other blocks of the cluster have moved it. */
static void move_counter(struct model *m, struct model_state *s, struct model_stream *x,
			 struct model_block *b)
{
	struct model_line *l = &s->line[x->line];
	int first = model_first(m, x->launch);
	bool mine_to_publish = l->counter == first;

	if (faulty(m, FAULT_EACH_PUBLISHES) && l->counter >= first) {
		mine_to_publish = true;
	}
	if (faulty(m, FAULT_PUBLISH_TAKEN) && l->counter < first) {
		mine_to_publish = true;
	}
	if (!mine_to_publish) {
		run(m, s, x, b);
		return;
	}
	if (!faulty(m, FAULT_COUNTER_STAYS)) {
		l->counter = (int8_t)model_first(m, x->launch + 1u);
	}
	b->at = AT_READY;
}

static void store_ready(struct model *m, struct model_state *s, struct model_stream *x,
			struct model_block *b)
{
	s->line[x->line].ready = (int8_t)model_first(m, x->launch + 1u);
	if (faulty(m, FAULT_DONE_FIRST) && !plan(m, x)->clone) {
		run(m, s, x, b);
	} else {
		b->at = AT_DONE;
	}
}

static void store_done(struct model *m, struct model_state *s, struct model_stream *x,
		       struct model_block *b)
{
	struct model_line *l = &s->line[x->line];

	if (x->line == 0) {
		if (l->done >= x->number || s->launch[x->launch].published++) {
			model_violated(m, "a launch's end is published twice or late");
		}
	}
	l->done = x->number;
	if (faulty(m, FAULT_DONE_FIRST) && !plan(m, x)->clone) {
		b->at = AT_COUNTER;
	} else {
		run(m, s, x, b);
	}
}

bool model_block_step(struct model *m, struct model_state *s, struct model_stream *x,
		      struct model_block *b, unsigned access)
{
	struct model_line *l = &s->line[x->line];

	if (b->at == AT_ASK) {
		return ask(m, s, x, b, access);
	}
	if (access) {
		return false;
	}
	switch (b->at) {
	case AT_LOOK: /* ld.volatile of the gate */
		b->old = l->gate;
		b->closed = l->closed;
		if (b->closed) {
			decide(m, s, x, b);
		} else {
			b->at = AT_CLOSE;
		}
		return true;
	case AT_CLOSE:
		close_gate(m, s, x, b);
		return true;
	case AT_RAISE:
		raise_gate(m, l, x, b);
		decide(m, s, x, b);
		return true;
	case AT_DRAW:
		draw(m, s, x, b);
		return true;
	case AT_COUNTER:
		move_counter(m, s, x, b);
		return true;
	case AT_READY:
		store_ready(m, s, x, b);
		return true;
	case AT_DONE:
		store_done(m, s, x, b);
		return true;
	case AT_BODY:
		return end_body(m, s, x, b);
	default:
		return false;
	}
}

bool model_stream_idle(const struct model_stream *x)
{
	return x->launch == MODEL_NONE;
}
