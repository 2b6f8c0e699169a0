/* The list of a run's unfinished launches, and submitting them in pieces. Each piece is one launch
 * to the driver, with exactly as many blocks as there are tickets for it; the block that draws its
 * last ticket stores the piece's number, so the host sees progress without asking the driver. The
 * blocks on the device stay within a budget: those that have not begun when a lease is raised must
 * all begin and leave, about 0.3 us per 1000. */
#include "gpu/cuda/gpu_run_submit_int.h"

#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"

#define MARK_MOST_NS 20000000u /* a pace is not measured over longer */

static struct gpu_run_entry *gpu_run_entry_of(struct gpu_run *c, uint32_t piece)
{
	return &c->launch[c->piece[piece % CHAIN_PIECES].launch % GPU_RUN_DEPTH];
}

uint32_t gpu_run_piece_blocks(uint32_t resident, uint64_t block_ps)
{
	uint64_t blocks = CHAIN_PIECE, least = (uint64_t)CHAIN_WAVES * resident;

	if (!resident) {
		return CHAIN_PIECE;
	}
	if (block_ps) { /* a block takes block_ps * resident ps, and 0.3 ns to be dropped */
		blocks = MIN(block_ps, (uint64_t)UINT32_MAX) * resident / 1000 / 4 * 10 / 3;
		blocks = MIN(blocks, CHAIN_PIECE_LONG_NS * UINT64_C(1000) / block_ps);
		least = MAX(least,
			    MIN(CHAIN_PIECE_NS * UINT64_C(1000) / block_ps, (uint64_t)CHAIN_PIECE));
	}
	blocks = MIN(MAX(blocks, least), (uint64_t)CHAIN_PIECE_MOST);
	return (uint32_t)MAX(blocks / resident, (uint64_t)1) * resident;
}

/* Returns the number of blocks of the entry's next piece. */
static uint64_t gpu_run_pace_of(const struct gpu_run *c, const struct gpu_run_entry *l)
{
	return c->learned == l->id && c->block_ps ? c->block_ps : l->block_ps;
}

/* Blocks of the next piece. */
static uint32_t next_piece_blocks(const struct gpu_run *c, const struct gpu_run_entry *l)
{
	uint32_t left = l->total - l->covered, piece = l->piece;

	if (left > (piece ? piece : CHAIN_PIECE)) {
		if (!piece) {
			piece = gpu_run_piece_blocks(l->resident, gpu_run_pace_of(c, l));
		} else if (l->resident && piece / 4 >= l->resident) {
			piece -= piece % l->resident;
		}
	}
	/* Include a small remainder: as a piece it would cost an end of its own. */
	return !piece || left <= piece || left - piece <= piece / 4 ? left : piece;
}

/* Returns true if the work on the device lasts longer than the host needs to react. */
static bool too_early(const struct gpu_run *c, const struct gpu_run_entry *l, uint32_t blocks,
		      uint64_t now)
{
	uint64_t ns = blocks * gpu_run_pace_of(c, l) / 1000;
	uint64_t ahead = ns >= CHAIN_LONG_NS ? CHAIN_AHEAD_LONG_NS : CHAIN_AHEAD_NS;

	return c->out_ns && c->front_ns + c->out_ns > now + ahead;
}

/* Estimates how many blocks of the front piece have begun. */
static uint32_t blocks_begun(const struct gpu_run *c, uint64_t now)
{
	const struct gpu_run_piece *p = &c->piece[c->p_tail % CHAIN_PIECES];
	uint64_t ns = now > c->front_ns ? now - c->front_ns : 0;

	return p->est_ns ? (uint32_t)(p->blocks * MIN(ns, p->est_ns) / p->est_ns) : 0;
}

static bool room_for(const struct gpu_run *c, const struct gpu_run_entry *l, uint32_t blocks)
{
	uint32_t pieces = c->p_head - c->p_tail, all = load_relaxed(&c->home->out);
	uint64_t now;

	if (!pieces) {
		return true;
	}
	if (pieces == CHAIN_PIECES) {
		return false;
	}
	if (c->out + blocks <= CHAIN_SMALL) {
		return true;
	}
	now = clock_now_ns();
	return !too_early(c, l, blocks, now) &&
	       (all - MIN(blocks_begun(c, now), all) + blocks <= CHAIN_BUDGET ||
		(pieces == 1 && all == c->out && blocks <= CHAIN_PIECE_MOST));
}

static void fill_arg(struct gpu_run *c, struct gpu_run_entry *l, uint32_t end, bool forced)
{
	struct ptx_block_arg arg;

	memcpy(&arg, l->params + l->params_bytes,
	       sizeof(arg)); /* copy_params has stored the grid there */
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

static CUresult put(struct gpu_run *c, const struct gpu_queue *q, struct gpu_run_entry *l,
		    uint32_t blocks, bool forced)
{
	size_t bytes = l->params_bytes + sizeof(struct ptx_block_arg);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, l->params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	struct gpu_run_piece *p = &c->piece[c->p_head % CHAIN_PIECES];
	uint64_t now = clock_now_ns();
	CUresult e;

	fill_arg(c, l, l->covered + blocks, forced);
	e = c->d->real->cuLaunchKernel(l->clone, blocks, 1, 1, l->block[0], l->block[1],
				       l->block[2], l->smem, q->stream, NULL, extra);
	if (e) {
		return e;
	}
	if (c->p_head == c->p_tail) {
		c->front_ns = now;
		c->fresh = true;
		c->mark.to = 0;
	}
	*p = (struct gpu_run_piece){ .launch = c->next,
				     .number = ++c->number,
				     .blocks = blocks,
				     .start = l->covered,
				     .est_ns = blocks * gpu_run_pace_of(c, l) / 1000 };
	c->p_head++;
	c->out += blocks;
	(void)add_acqrel(&c->home->out, blocks);
	l->covered += blocks;
	l->out++;
	c->out_ns += p->est_ns;
	store_relaxed(&c->end_ns, c->front_ns + c->out_ns);
	store_release(&c->newest, c->number); /* Before n_pending: a thread that reads 0 there reads
					      this number. Pairs with busy(). */
	(void)sub_acqrel(&c->unput, blocks);
	return CUDA_SUCCESS;
}

/* Removes the launch from the run. None of its blocks has run and nothing behind it was submitted,
 * so its tickets go to the launches behind it. */
static void drop(struct gpu_run *c, uint32_t index)
{
	struct gpu_run_entry *l = &c->launch[index % GPU_RUN_DEPTH];
	uint32_t blocks = l->total;

	l->total = l->covered = 0;
	for (uint32_t i = index + 1; i != c->head; i++) {
		c->launch[i % GPU_RUN_DEPTH].first -= blocks;
	}
	c->ticket -= blocks;
	(void)sub_acqrel(&c->unput, blocks);
}

void gpu_run_fail(struct gpu_run *c, CUresult e)
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

/* Returns true if the entry has nothing left to submit. Records it if it is an event. */
static bool pass(struct gpu_run *c, const struct gpu_queue *q, struct gpu_run_entry *l)
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

CUresult gpu_run_submit(struct gpu_run *c, const struct gpu_queue *q, uint32_t most, bool forced,
			uint32_t *ret_refused)
{
	*ret_refused = UINT32_MAX;
	while (c->next != c->head && most) {
		struct gpu_run_entry *l = &c->launch[c->next % GPU_RUN_DEPTH];
		uint32_t blocks;
		CUresult e;

		if (pass(c, q, l)) {
			c->next++;
			continue;
		}
		blocks = next_piece_blocks(c, l);
		if (!room_for(c, l, blocks)) {
			break;
		}
		e = put(c, q, l, blocks, forced || c->force_all);
		if (e && l->covered) {
			gpu_run_fail(c, e);
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

/* Removes the pieces up to `upto`, `blocks` in all, which have finished since the last observation.
 */
static uint64_t clamp(uint64_t x, uint64_t least, uint64_t most)
{
	return x < least ? least : MIN(x, MAX(most, least));
}

/* What is on the device takes as long as is known now. */
static void set_pace(struct gpu_run *c, struct gpu_run_entry *l, uint64_t ps)
{
	if (c->learned == l->id && c->block_ps == ps) {
		l->block_ps = ps;
		return;
	}
	l->block_ps = c->block_ps = ps;
	c->learned = l->id;
	for (uint32_t i = c->p_tail; i != c->p_head; i++) {
		struct gpu_run_piece *p = &c->piece[i % CHAIN_PIECES];

		if (gpu_run_entry_of(c, i)->id == l->id) {
			c->out_ns -= p->est_ns;
			p->est_ns = p->blocks * ps / 1000;
			c->out_ns += p->est_ns;
		}
	}
}

/* Numbers are only seen to have come between two looks, so the pace lies between two bounds, and
 * what was thought before is changed only as far as these demand: looks that come late or at odd
 * times do not mislead, they only say less. The longer a stretch without a pause the nearer the
 * bounds. */
static void learn_pace(struct gpu_run *c, struct gpu_run_entry *l, uint32_t blocks,
		       const struct gpu_run_interval *end)
{
	uint64_t old = gpu_run_pace_of(c, l), least = 0, most = UINT64_MAX, n = blocks,
		 waves = blocks;
	struct gpu_run_interval since = c->front;
	bool same = c->learned == l->id;

	if (c->fresh) { /* perhaps behind a last wave; and without its own, which may be small */
		since = (struct gpu_run_interval){ c->front_ns,
						   c->front_ns + old * l->resident / 1000 };
		n = blocks > l->resident ? blocks - l->resident : 0;
		waves = l->resident ? (blocks - 1) / l->resident * l->resident : blocks;
	} else if (c->mark.to && same) {
		since = c->mark;
		waves = n = c->marked += blocks;
	}
	if (n) {
		least = (end->from - MIN(since.to, end->from)) * 1000 / waves;
		most = (end->to - MIN(since.from, end->to)) * 1000 / n;
	}
	if (old) {
		set_pace(c, l, clamp(old, least, most));
	} else if (n) {
		most = (end->to - MIN(since.from, end->to)) * 1000 / waves;
		set_pace(c, l, MAX(least / 2 + most / 2, 1));
	}
	if (c->fresh || !c->mark.to || !same ||
	    end->to - end->from < (c->mark.to - c->mark.from) / 2 ||
	    (end->to - end->from + c->mark.to - c->mark.from) * 16 <= end->to - c->mark.from ||
	    end->to - c->mark.from > MARK_MOST_NS) {
		c->mark = *end;
		c->marked = 0;
	}
}

/* The pieces up to `upto` are through, `blocks` in all, at end_ns, about. Of one kernel only: how
 * several share a time is not known. A number says that the last block has *begun*: so from one to
 * the next is the whole time of what lies between, but on a stream that was empty the time of the
 * last wave is missing. */
static void learn(struct gpu_run *c, uint32_t upto, uint32_t blocks, uint64_t end_ns,
		  const struct gpu_run_interval *end)
{
	struct gpu_run_entry *l = gpu_run_entry_of(c, upto - 1);
	uint64_t ns = end_ns - MIN(c->front_ns, end_ns);
	uint32_t seen = blocks;

	for (uint32_t i = c->p_tail; i != upto; i++) {
		if (gpu_run_entry_of(c, i)->id != l->id) {
			c->mark.to = 0;
			return;
		}
	}
	learn_pace(c, l, blocks, end);
	if (c->fresh) {
		seen -= MIN(l->resident, blocks);
	}
	for (uint32_t i = c->p_tail; seen && i != upto; i++) {
		uint32_t share =
			(uint32_t)((uint64_t)seen * c->piece[i % CHAIN_PIECES].blocks / blocks);

		gpu_run_entry_of(c, i)->used_ns += (uint64_t)((double)ns * share / seen);
		gpu_run_entry_of(c, i)->ran += share;
	}
}

void chain_learn_stopped(struct gpu_run *c, uint32_t counter)
{
	const struct gpu_run_piece *p = &c->piece[c->p_tail % CHAIN_PIECES];
	struct gpu_run_entry *l = &c->launch[p->launch % GPU_RUN_DEPTH];
	uint32_t ran = counter - (l->first + p->start);
	uint64_t end = c->empty_ns, ps = l->block_ps;

	if (c->p_head == c->p_tail || !ran || ran > p->blocks) {
		return;
	}
	/* Once the request was there only blocks that had begun ran on. That the stream was empty
	 * is seen late where contexts are switched: at the request's end. */
	if (c->stop_ns > c->front_ns) {
		ps = ps ? ps : (c->stop_ns - c->front_ns) * 1000 / ran;
		end = MIN(end, c->stop_ns + ps * l->resident / 1000);
	}
	if (end > c->front_ns) {
		l->used_ns += end - c->front_ns;
		l->ran += ran;
	}
}

/* It is through: what it would have taken in one piece, if anything was seen of it. */
static void gpu_run_store_duration(struct gpu_run *c, const struct gpu_run_entry *l)
{
	uint64_t number = c->finished + 1, ns = 0;

	if (l->ran) {
		ns = (uint64_t)((double)l->used_ns * (double)l->total / (double)l->ran);
		ns = MIN(ns, UINT64_C(60000000000));
	}
	store_relaxed(&c->took[number % GPU_RUN_DEPTH], ns << 16 | (number & 0xffff));
}

/* When the last of the pieces up to `upto` was through: as was expected, if that can be. What is
 * behind it has not yet had the time that it takes. */
static uint64_t gpu_run_estimate_end(const struct gpu_run *c, uint32_t upto,
				     const struct gpu_run_interval *end)
{
	uint64_t from = end->from, ns = 0, next = 0;

	for (uint32_t i = c->p_tail; i != upto; i++) {
		if (!c->piece[i % CHAIN_PIECES].est_ns) {
			return chain_between(end->from, end->to);
		}
		ns += c->piece[i % CHAIN_PIECES].est_ns;
	}
	if (c->fresh) { /* the last block has only begun */
		const struct gpu_run_entry *l =
			&c->launch[c->piece[c->p_tail % CHAIN_PIECES].launch % GPU_RUN_DEPTH];

		ns -= MIN(ns, gpu_run_pace_of(c, l) * l->resident / 1000);
	}
	if (upto != c->p_head) {
		next = c->piece[upto % CHAIN_PIECES].est_ns;
		from = next && next < end->to ? MAX(from, end->to - next) : from;
	}
	return clamp(c->front_ns + ns, from, end->to);
}

/* The pieces up to `upto` are through, `blocks` in all; that was not so at the last look. */
static void retire(struct gpu_run *c, uint32_t upto, uint32_t blocks, uint64_t now)
{
	struct gpu_run_interval end = { MAX(c->looked_ns, c->fresh ? c->front_ns : c->front.from),
					now };
	uint64_t at;

	end.from = MIN(end.from, now);
	at = gpu_run_estimate_end(c, upto, &end);
	learn(c, upto, blocks, at, &end);
	for (; c->p_tail != upto; c->p_tail++) {
		gpu_run_entry_of(c, c->p_tail)->out--;
		c->out_ns -= c->piece[c->p_tail % CHAIN_PIECES].est_ns;
	}
	c->front_ns = at;
	c->front = end;
	store_relaxed(&c->end_ns, at + c->out_ns);
	c->fresh = false;
	c->out -= blocks;
	(void)sub_acqrel(&c->home->out, blocks);
}

void gpu_run_count_tickets(struct gpu_run *c)
{
	store_relaxed(&c->span, c->tail == c->head
					? 0
					: c->ticket - c->launch[c->tail % GPU_RUN_DEPTH].first);
}

void gpu_run_retire(struct gpu_run *c, uint64_t now)
{
	uint32_t word = __atomic_load_n((const uint32_t *)c->done, __ATOMIC_ACQUIRE);
	uint32_t gone = 0, upto = c->p_tail;

	while (upto != c->p_head && (int32_t)(word - c->piece[upto % CHAIN_PIECES].number) >= 0) {
		gone += c->piece[upto++ % CHAIN_PIECES].blocks;
	}
	if (gone) {
		retire(c, upto, gone, now);
		c->first = false;
	}
	c->looked_ns = now;
	while (c->tail != c->head) {
		struct gpu_run_entry *l = &c->launch[c->tail % GPU_RUN_DEPTH];

		if (l->covered != l->total || l->out || (l->event && !l->recorded)) {
			break;
		}
		gpu_run_store_duration(c, l);
		c->next = c->next == c->tail ? c->tail + 1 : c->next;
		c->tail++;
		store_release(&c->finished, c->finished + 1);
	}
	gpu_run_count_tickets(c);
}

/* Launch i has the tickets first .. first + total - 1, and launch i + 1 continues there. */
bool gpu_run_locate(const struct gpu_run *c, uint32_t counter, uint32_t *ret_i, uint32_t *ret_ran)
{
	uint32_t i = c->tail, ran = counter - c->launch[c->tail % GPU_RUN_DEPTH].first;

	for (; i != c->head && ran >= c->launch[i % GPU_RUN_DEPTH].total; i++) {
		const struct gpu_run_entry *l = &c->launch[i % GPU_RUN_DEPTH];

		if (l->covered != l->total) {
			return false;
		}
		ran -= l->total;
	}
	*ret_i = i;
	*ret_ran = ran;
	return i == c->head ? ran == 0 : ran <= c->launch[i % GPU_RUN_DEPTH].covered;
}

bool gpu_run_rewind(struct gpu_run *c, uint32_t counter)
{
	uint32_t i, ran, missing = 0, again = 0;

	if (!gpu_run_locate(c, counter, &i, &ran)) {
		return false;
	}
	for (uint32_t k = c->tail; k != i; k++) {
		c->launch[k % GPU_RUN_DEPTH].out = 0;
	}
	c->next = i;
	for (uint32_t k = i; k != c->tail; k--) {
		const struct gpu_run_entry *l = &c->launch[(k - 1) % GPU_RUN_DEPTH];

		c->next = l->event && !l->recorded ? k - 1 : c->next;
	}
	for (; i != c->head; i++, ran = 0) {
		struct gpu_run_entry *l = &c->launch[i % GPU_RUN_DEPTH];

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
	c->first = true;
	(void)add_relaxed(&c->d->runs->counts.resumed_blocks, missing);
	return true;
}
