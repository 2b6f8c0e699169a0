/* The list of a chain's unfinished launches, and putting them on the stream in pieces. Each piece
 * is a launch of its own to the driver, with exactly as many blocks as may draw tickets for it; its
 * last ticket stores its number, so the host sees how far the chain is without asking. The device
 * gets no more than a budget of blocks: those that have not begun when a lease comes must all begin
 * and leave, ~0.3 us a thousand. */
#include "gpu/chain_int.h"

#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"

static uint32_t resident_of(struct gpu_chain *c, const struct chain_launch *l)
{
	return chain_resident(c->d, c->home, l->twin, l->block[0] * l->block[1] * l->block[2],
			      l->smem);
}

static struct chain_launch *launch_of(struct gpu_chain *c, uint32_t piece)
{
	return &c->launch[c->piece[piece % CHAIN_PIECES].launch % GPU_CHAIN_DEPTH];
}

uint32_t chain_piece_blocks(uint32_t resident, uint64_t block_ps)
{
	uint64_t blocks = CHAIN_PIECE, least = (uint64_t)CHAIN_WAVES * resident;

	if (!resident) {
		return CHAIN_PIECE;
	}
	if (block_ps) { /* a block takes block_ps * resident, and 0.3 ns to be dropped */
		blocks = MIN(block_ps, (uint64_t)UINT32_MAX) * resident / 1000 / 4 * 10 / 3;
		blocks = MIN(blocks, CHAIN_PIECE_LONG_NS * UINT64_C(1000) / block_ps);
		least = MAX(least,
			    MIN(CHAIN_PIECE_NS * UINT64_C(1000) / block_ps, (uint64_t)CHAIN_PIECE));
	}
	blocks = MIN(MAX(blocks, least), (uint64_t)CHAIN_PIECE_MOST);
	return (uint32_t)MAX(blocks / resident, (uint64_t)1) * resident;
}

/* Blocks of the next piece. */
static uint32_t piece_of(struct gpu_chain *c, const struct chain_launch *l)
{
	uint32_t left = l->total - l->covered, piece = l->piece;

	if (left > (piece ? piece : CHAIN_PIECE)) {
		uint32_t resident = resident_of(c, l);

		if (!piece) {
			piece = chain_piece_blocks(resident, l->block_ps);
		} else if (resident && piece / 4 >= resident) {
			piece -= piece % resident;
		}
	}
	/* No small rest: it would cost an end of its own. */
	return !piece || left <= piece || left - piece <= piece / 4 ? left : piece;
}

static bool early(const struct gpu_chain *c, uint32_t blocks)
{
	return blocks > CHAIN_LARGE && c->out_ns &&
	       c->front_ns + c->out_ns > clock_now_ns() + CHAIN_AHEAD_NS;
}

static bool room_for(const struct gpu_chain *c, uint32_t blocks)
{
	uint32_t pieces = c->p_head - c->p_tail, all = load_relaxed(&c->home->out);

	if (!pieces) {
		return true;
	}
	if (pieces == CHAIN_PIECES) {
		return false;
	}
	return c->out + blocks <= CHAIN_SMALL ||
	       (!early(c, blocks) &&
		(all + blocks <= CHAIN_BUDGET ||
		 (pieces == 1 && all == c->out && blocks <= CHAIN_PIECE_MOST)));
}

static void fill_arg(struct gpu_chain *c, struct chain_launch *l, uint32_t end, bool forced)
{
	struct ptx_block_arg arg;

	memcpy(&arg, l->params + l->params_bytes, sizeof(arg)); /* the grid is there */
	arg.leases = load_relaxed(&c->home->leases);
	arg.tickets = c->counter;
	arg.done = c->done_device;
	arg.first = l->first;
	arg.total = end;
	arg.number = c->number + 1;
	arg.groups = forced ? 0 : load_acquire(&c->home->groups);
	arg.reserved = 0;
	memcpy(l->params + l->params_bytes, &arg, sizeof(arg));
}

static CUresult put(struct gpu_chain *c, const struct gpu_queue *q, struct chain_launch *l,
		    uint32_t blocks, bool forced)
{
	size_t bytes = l->params_bytes + sizeof(struct ptx_block_arg);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, l->params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	struct chain_piece *p = &c->piece[c->p_head % CHAIN_PIECES];
	uint64_t now = clock_now_ns();
	CUresult e;

	fill_arg(c, l, l->covered + blocks, forced);
	e = c->d->real->cuLaunchKernel(l->twin, blocks, 1, 1, l->block[0], l->block[1], l->block[2],
				       l->smem, q->stream, NULL, extra);
	if (e) {
		return e;
	}
	if (c->p_head == c->p_tail) {
		c->front_ns = now;
		c->fresh = true;
	}
	*p = (struct chain_piece){ .launch = c->next,
				   .number = ++c->number,
				   .blocks = blocks,
				   .start = l->covered,
				   .est_ns = blocks * l->block_ps / 1000 };
	c->p_head++;
	c->out += blocks;
	(void)add_acqrel(&c->home->out, blocks);
	l->covered += blocks;
	l->out++;
	c->out_ns += p->est_ns;
	store_relaxed(&c->end_ns, c->front_ns + c->out_ns);
	store_release(&c->newest, c->number); /* before unput: whoever sees 0 there sees this */
	(void)sub_acqrel(&c->unput, blocks);
	return CUDA_SUCCESS;
}

/* Nothing of it has run and nothing behind it was put, so its tickets go to those behind it. */
static void drop(struct gpu_chain *c, uint32_t index)
{
	struct chain_launch *l = &c->launch[index % GPU_CHAIN_DEPTH];
	uint32_t blocks = l->total;

	l->total = l->covered = 0;
	for (uint32_t i = index + 1; i != c->head; i++) {
		c->launch[i % GPU_CHAIN_DEPTH].first -= blocks;
	}
	c->ticket -= blocks;
	(void)sub_acqrel(&c->unput, blocks);
}

void chain_die(struct gpu_chain *c, CUresult e)
{
	store_relaxed(&c->error, (uint32_t)e);
	store_release(&c->dead, (uint32_t)e);
	(void)sub_acqrel(&c->home->out, c->out);
	c->out = 0;
	c->out_ns = 0;
	c->p_tail = c->p_head;
	c->tail = c->next = c->head;
	store_release(&c->unput, 0u);
	store_release(&c->finished, load_relaxed(&c->launched));
	store_relaxed(&c->state, (uint32_t)CHAIN_RUN);
}

/* True: there was nothing to put of it, or it is an event that is recorded now. */
static bool pass(struct gpu_chain *c, const struct gpu_queue *q, struct chain_launch *l)
{
	CUresult e;

	if (l->covered != l->total) {
		return false;
	}
	if (!l->event || l->recorded) {
		return true;
	}
	e = c->d->real->cuEventRecord(l->event, q->stream);
	if (e) {
		store_relaxed(&c->error, (uint32_t)e);
	}
	l->recorded = true;
	(void)sub_acqrel(&c->unput, 1u);
	return true;
}

CUresult chain_pump(struct gpu_chain *c, const struct gpu_queue *q, uint32_t most, bool forced,
		    uint32_t *ret_refused)
{
	*ret_refused = UINT32_MAX;
	while (c->next != c->head && most) {
		struct chain_launch *l = &c->launch[c->next % GPU_CHAIN_DEPTH];
		uint32_t blocks;
		CUresult e;

		if (pass(c, q, l)) {
			c->next++;
			continue;
		}
		blocks = piece_of(c, l);
		if (!room_for(c, blocks)) {
			break;
		}
		e = put(c, q, l, blocks, forced || c->force_all);
		if (e && l->covered) {
			chain_die(c, e);
			return e;
		}
		if (e) {
			drop(c, c->next);
			*ret_refused = c->next;
			return e;
		}
		most--;
	}
	return CUDA_SUCCESS;
}

/* ---- how long blocks take ---- */

/* For the pace. Where the device went on without a pause a look that is late by more or less than
 * the one before errs to either side; where it may have had nothing to do blocks look longer, never
 * shorter. */
static void learn_pace(struct gpu_chain *c, struct chain_launch *l, uint64_t ps, bool went_on)
{
	uint64_t old = l->block_ps;

	if (old && went_on) {
		ps = old - old / 4 + MIN(ps, 2 * old) / 4;
	} else if (old) {
		ps = MIN(ps, old + old / 8);
	}
	l->block_ps = c->block_ps = ps;
	c->learned = l->twin;
	for (uint32_t i = c->p_tail; !old && i != c->p_head; i++) { /* put before it was known */
		struct chain_piece *p = &c->piece[i % CHAIN_PIECES];

		if (!p->est_ns && launch_of(c, i)->twin == l->twin) {
			p->est_ns = p->blocks * ps / 1000;
			c->out_ns += p->est_ns;
		}
	}
}

/* The pieces up to `upto` are through, `blocks` in all, after ns, at most most_ns. Of one kernel
 * only: how several share a time is not known. A number says that the last block has *begun*: so
 * from one to the next is the whole time of what lies between, but on a stream that was empty the
 * time of the last wave is missing. */
static void learn(struct gpu_chain *c, uint32_t upto, uint32_t blocks, uint64_t ns,
		  uint64_t most_ns)
{
	struct chain_launch *l = launch_of(c, upto - 1);
	bool went_on = !c->fresh && upto != c->p_head;
	uint32_t seen = blocks;

	for (uint32_t i = c->p_tail; i != upto; i++) {
		if (launch_of(c, i)->twin != l->twin) {
			return;
		}
	}
	learn_pace(c, l, (went_on ? ns : most_ns) * 1000 / blocks, went_on);
	if (c->fresh) {
		seen -= MIN(resident_of(c, l), blocks);
	}
	for (uint32_t i = c->p_tail; seen && i != upto; i++) {
		uint32_t share =
			(uint32_t)((uint64_t)seen * c->piece[i % CHAIN_PIECES].blocks / blocks);

		launch_of(c, i)->used_ns += (uint64_t)((double)ns * share / seen);
		launch_of(c, i)->ran += share;
	}
}

void chain_learn_stopped(struct gpu_chain *c, uint32_t counter)
{
	const struct chain_piece *p = &c->piece[c->p_tail % CHAIN_PIECES];
	struct chain_launch *l = &c->launch[p->launch % GPU_CHAIN_DEPTH];
	uint32_t ran = counter - (l->first + p->start);
	uint64_t end = c->empty_ns, ps = l->block_ps;

	if (c->p_head == c->p_tail || !ran || ran > p->blocks) {
		return;
	}
	/* Once the request was there only blocks that had begun ran on. That the stream was empty
	 * is seen late where contexts are switched: at the request's end. */
	if (c->stop_ns > c->front_ns) {
		ps = ps ? ps : (c->stop_ns - c->front_ns) * 1000 / ran;
		end = MIN(end, c->stop_ns + ps * resident_of(c, l) / 1000);
	}
	if (end > c->front_ns) {
		l->used_ns += end - c->front_ns;
		l->ran += ran;
	}
}

/* It is through: what it would have taken in one piece, if anything was seen of it. */
static void took(struct gpu_chain *c, const struct chain_launch *l)
{
	uint64_t number = c->finished + 1, ns = 0;

	if (l->ran) {
		ns = (uint64_t)((double)l->used_ns * (double)l->total / (double)l->ran);
		ns = MIN(ns, UINT64_C(60000000000));
	}
	store_relaxed(&c->took[number % GPU_CHAIN_DEPTH], ns << 16 | (number & 0xffff));
}

void chain_retire(struct gpu_chain *c, uint64_t now)
{
	uint32_t word = __atomic_load_n((const uint32_t *)c->done, __ATOMIC_ACQUIRE);
	uint32_t gone = 0, upto = c->p_tail;
	uint64_t end;

	while (upto != c->p_head && (int32_t)(word - c->piece[upto % CHAIN_PIECES].number) >= 0) {
		gone += c->piece[upto++ % CHAIN_PIECES].blocks;
	}
	if (gone) {
		end = chain_between(MAX(c->looked_ns, c->front_ns), now);
		learn(c, upto, gone, end - MIN(c->front_ns, end), now - MIN(c->front_ns, now));
		for (; c->p_tail != upto; c->p_tail++) {
			launch_of(c, c->p_tail)->out--;
			c->out_ns -= c->piece[c->p_tail % CHAIN_PIECES].est_ns;
		}
		c->front_ns = end;
		store_relaxed(&c->end_ns, end + c->out_ns);
		c->fresh = false;
		c->out -= gone;
		(void)sub_acqrel(&c->home->out, gone);
	}
	c->looked_ns = now;
	while (c->tail != c->head) {
		struct chain_launch *l = &c->launch[c->tail % GPU_CHAIN_DEPTH];

		if (l->covered != l->total || l->out || (l->event && !l->recorded)) {
			break;
		}
		took(c, l);
		c->next = c->next == c->tail ? c->tail + 1 : c->next;
		c->tail++;
		store_release(&c->finished, c->finished + 1);
	}
}

/* Launch i has tickets first_i .. first_i + total_i - 1, and the next one's follow. */
bool chain_locate(const struct gpu_chain *c, uint32_t counter, uint32_t *ret_i, uint32_t *ret_ran)
{
	uint32_t i = c->tail, ran = counter - c->launch[c->tail % GPU_CHAIN_DEPTH].first;

	for (; i != c->head && ran >= c->launch[i % GPU_CHAIN_DEPTH].total; i++) {
		const struct chain_launch *l = &c->launch[i % GPU_CHAIN_DEPTH];

		if (l->covered != l->total) {
			return false;
		}
		ran -= l->total;
	}
	*ret_i = i;
	*ret_ran = ran;
	return i == c->head ? ran == 0 : ran <= c->launch[i % GPU_CHAIN_DEPTH].covered;
}

bool chain_rewind(struct gpu_chain *c, uint32_t counter)
{
	uint32_t i, ran, missing = 0, again = 0;

	if (!chain_locate(c, counter, &i, &ran)) {
		return false;
	}
	for (uint32_t k = c->tail; k != i; k++) {
		c->launch[k % GPU_CHAIN_DEPTH].out = 0;
	}
	c->next = i;
	for (uint32_t k = i; k != c->tail; k--) {
		const struct chain_launch *l = &c->launch[(k - 1) % GPU_CHAIN_DEPTH];

		c->next = l->event && !l->recorded ? k - 1 : c->next;
	}
	for (; i != c->head; i++, ran = 0) {
		struct chain_launch *l = &c->launch[i % GPU_CHAIN_DEPTH];

		missing += l->covered - ran;
		l->covered = ran;
		l->out = 0;
		again += l->event && l->recorded;
		l->recorded = false;
	}
	(void)add_acqrel(&c->unput, missing + again);
	(void)sub_acqrel(&c->home->out, c->out);
	c->out = 0;
	c->out_ns = 0;
	c->p_tail = c->p_head;
	(void)add_relaxed(&c->d->chains->counts.resumed_blocks, missing);
	return true;
}
