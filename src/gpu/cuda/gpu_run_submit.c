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
#include "gpu/cuda/gpu_run_int.h"

#define PIECE_MIN_WAVES 24u
#define PIECE_NS 240000u
#define PIECE_MAX_NS 5000000u
#define SMALL_BLOCKS 4096u /* that each run may have on the device regardless of other runs */
#define AHEAD_NS 300000u   /* time before the expected end at which the next piece is submitted, */
#define AHEAD_LONG_NS 200000u /* and the same for long pieces */

uint32_t gpu_run_piece_blocks(uint32_t resident, uint64_t block_ps)
{
	uint64_t blocks = GPU_RUN_PIECE_BLOCKS, min = (uint64_t)PIECE_MIN_WAVES * resident;

	if (!resident) {
		return GPU_RUN_PIECE_BLOCKS;
	}
	if (block_ps) { /* a block takes block_ps * resident ps, and 0.3 ns to be dropped */
		blocks = MIN(block_ps, (uint64_t)UINT32_MAX) * resident / 1000 / 4 * 10 / 3;
		blocks = MIN(blocks, PIECE_MAX_NS * UINT64_C(1000) / block_ps);
		min = MAX(min, MIN(PIECE_NS * UINT64_C(1000) / block_ps,
				   (uint64_t)GPU_RUN_PIECE_BLOCKS));
	}
	blocks = MIN(MAX(blocks, min), (uint64_t)GPU_RUN_PIECE_MAX_BLOCKS);
	return (uint32_t)MAX(blocks / resident, (uint64_t)1) * resident;
}

/* Returns the number of blocks of the entry's next piece. */
static uint32_t next_piece_blocks(const struct gpu_run *run, const struct gpu_run_entry *l)
{
	uint32_t left = l->total - l->covered, piece = l->piece;

	if (l->gate) {
		return left;
	}
	if (left > (piece ? piece : GPU_RUN_PIECE_BLOCKS)) {
		if (!piece) {
			piece = gpu_run_piece_blocks(l->resident, gpu_run_pace_of(run, l));
		} else if (l->resident && piece / 4 >= l->resident) {
			piece -= piece % l->resident;
		}
	}
	/* Include a small remainder: as a piece it would cost an end of its own. */
	return !piece || left <= piece || left - piece <= piece / 4 ? left : piece;
}

/* Returns true if the work on the device lasts longer than the host needs to react. */
static bool too_early(const struct gpu_run *run, const struct gpu_run_entry *l, uint32_t blocks,
		      uint64_t now)
{
	uint64_t ns = blocks * gpu_run_pace_of(run, l) / 1000;
	uint64_t ahead = ns >= GPU_RUN_LONG_NS ? AHEAD_LONG_NS : AHEAD_NS;

	return run->pieces.est_ns && run->pieces.front_ns + run->pieces.est_ns > now + ahead;
}

/* Estimates how many blocks of the front piece have begun. */
static uint32_t blocks_begun(const struct gpu_run *run, uint64_t now)
{
	const struct gpu_run_piece *p = &run->pieces.piece[run->pieces.tail % GPU_RUN_PIECES_MAX];
	uint64_t ns = now > run->pieces.front_ns ? now - run->pieces.front_ns : 0;

	return p->est_ns ? (uint32_t)(p->blocks * MIN(ns, p->est_ns) / p->est_ns) : 0;
}

static bool room_for(const struct gpu_run *run, const struct gpu_run_entry *l, uint32_t blocks)
{
	uint32_t pieces = run->pieces.head - run->pieces.tail, all = load_relaxed(&run->home->out);
	uint64_t now;

	if (!pieces) {
		return true;
	}
	if (pieces == GPU_RUN_PIECES_MAX) {
		return false;
	}
	if (run->pieces.n_blocks + blocks <= SMALL_BLOCKS) {
		return true;
	}
	now = clock_now_ns();
	return !too_early(run, l, blocks, now) &&
	       (all - MIN(blocks_begun(run, now), all) + blocks <= GPU_RUN_BUDGET_BLOCKS ||
		(pieces == 1 && all == run->pieces.n_blocks &&
		 (l->gate || blocks <= GPU_RUN_PIECE_MAX_BLOCKS)));
}

static void fill_arg(struct gpu_run *run, struct gpu_run_entry *l, uint32_t end, bool forced)
{
	struct ptx_block_arg arg;

	memcpy(&arg, l->params + l->params_bytes,
	       sizeof(arg)); /* copy_params has stored the grid there */
	arg.leases = load_relaxed(&run->home->leases);
	arg.tickets = run->line.counter;
	arg.done = run->line.words_device;
	arg.first = l->first;
	arg.total = end;
	arg.number = run->pieces.number + 1;
	arg.groups = forced ? 0 : load_acquire(&run->home->groups);
	arg.reserved = 0;
	memcpy(l->params + l->params_bytes, &arg, sizeof(arg));
}

static CUresult launch_clone(struct gpu_run *run, const struct gpu_queue *q,
			     struct gpu_run_entry *l, uint32_t blocks, bool forced)
{
	size_t bytes = l->params_bytes + sizeof(struct ptx_block_arg);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, l->params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	fill_arg(run, l, l->covered + blocks, forced);
	return run->device->real->cuLaunchKernel(l->clone, blocks, 1, 1, l->block[0], l->block[1],
						 l->block[2], l->smem, q->stream, NULL, extra);
}

/* A grid that cannot be divided passes leases by as far as a piece of another one would. */
static uint32_t forced_piece(const struct gpu_run *run, const struct gpu_run_entry *l)
{
	return gpu_run_piece_blocks(l->resident, gpu_run_pace_of(run, l));
}

static CUresult submit_piece(struct gpu_run *run, const struct gpu_queue *q,
			     struct gpu_run_entry *l, uint32_t blocks, bool forced)
{
	struct gpu_run_piece *p = &run->pieces.piece[run->pieces.head % GPU_RUN_PIECES_MAX];
	uint64_t now = clock_now_ns();
	CUresult e;

	e = l->gate ? gpu_run_gate_launch(run, l, q->stream, forced ? forced_piece(run, l) : 0)
		    : launch_clone(run, q, l, blocks, forced);
	if (e) {
		return e;
	}
	if (run->pieces.head == run->pieces.tail) {
		run->pieces.front_ns = now;
		run->pieces.from_idle = true;
		run->pace.mark.to = 0;
	}
	*p = (struct gpu_run_piece){ .entry = run->list.next,
				     .number = ++run->pieces.number,
				     .blocks = blocks,
				     .start = l->covered,
				     .est_ns = blocks * gpu_run_pace_of(run, l) / 1000 };
	run->pieces.head++;
	run->pieces.n_blocks += blocks;
	(void)add_acqrel(&run->home->out, blocks);
	l->covered += blocks;
	l->out++;
	run->pieces.est_ns += p->est_ns;
	store_relaxed(&run->seen.end_ns, run->pieces.front_ns + run->pieces.est_ns);
	store_release(&run->seen.newest,
		      run->pieces.number); /* Before n_pending: a thread that reads 0 there reads
					      this number. Pairs with busy(). */
	(void)sub_acqrel(&run->seen.n_pending, blocks);
	return CUDA_SUCCESS;
}

/* Removes the launch from the run. None of its blocks has run and nothing behind it was submitted,
 * so its tickets go to the launches behind it. */
static void drop_entry(struct gpu_run *run, uint32_t index)
{
	struct gpu_run_entry *l = &run->list.entry[index % GPU_RUN_DEPTH];
	uint32_t blocks = l->total;

	l->total = l->covered = 0;
	for (uint32_t i = index + 1; i != run->list.head; i++) {
		run->list.entry[i % GPU_RUN_DEPTH].first -= blocks;
	}
	run->list.ticket -= blocks;
	(void)sub_acqrel(&run->seen.n_pending, blocks);
}

void gpu_run_fail(struct gpu_run *run, CUresult e)
{
	store_relaxed(&run->seen.error, (uint32_t)e);
	store_release(&run->seen.failed, (uint32_t)e);
	(void)sub_acqrel(&run->home->out, run->pieces.n_blocks);
	run->pieces.n_blocks = 0;
	run->pieces.est_ns = 0;
	run->pieces.tail = run->pieces.head;
	run->list.tail = run->list.next = run->list.head;
	store_release(&run->seen.n_pending, 0u);
	store_release(&run->seen.finished, load_relaxed(&run->seen.launched));
	store_relaxed(&run->seen.state, (uint32_t)GPU_RUN_ACTIVE);
}

/* Returns true if the entry has nothing left to submit. Records it if it is an event. */
static bool nothing_to_submit(struct gpu_run *run, const struct gpu_queue *q,
			      struct gpu_run_entry *l)
{
	CUresult e;

	if (l->covered != l->total) {
		return false;
	}
	if (!l->event || l->recorded) {
		return true;
	}
	e = run->device->real->cuEventRecord(l->event, q->stream);
	if (e) {
		store_relaxed(&run->seen.error, (uint32_t)e);
	}
	l->recorded = true;
	(void)sub_acqrel(&run->seen.n_pending, 1u);
	return true;
}

CUresult gpu_run_submit(struct gpu_run *run, const struct gpu_queue *q, uint32_t max, bool forced,
			uint32_t *ret_refused)
{
	*ret_refused = UINT32_MAX;
	while (run->list.next != run->list.head && max) {
		struct gpu_run_entry *l = &run->list.entry[run->list.next % GPU_RUN_DEPTH];
		uint32_t blocks;
		CUresult e;

		if (nothing_to_submit(run, q, l)) {
			run->list.next++;
			continue;
		}
		blocks = next_piece_blocks(run, l);
		if (!room_for(run, l, blocks)) {
			break;
		}
		e = submit_piece(run, q, l, blocks, forced || run->halt.force_all);
		if (e && l->covered) {
			gpu_run_fail(run, e);
			return e;
		}
		if (e) {
			drop_entry(run, run->list.next);
			*ret_refused = run->list.next;
			return e;
		}
		max--;
	}
	return CUDA_SUCCESS;
}

/* Removes the pieces up to `upto`, `blocks` in all, which have finished since the last observation.
 */
static void retire_pieces(struct gpu_run *run, uint32_t upto, uint32_t blocks, uint64_t now)
{
	struct gpu_run_interval end = { MAX(run->pace.looked_ns, run->pieces.from_idle
									 ? run->pieces.front_ns
									 : run->pace.front.from),
					now };
	uint64_t at;

	end.from = MIN(end.from, now);
	at = gpu_run_estimate_end(run, upto, &end);
	gpu_run_learn(run, upto, blocks, at, &end);
	for (; run->pieces.tail != upto; run->pieces.tail++) {
		gpu_run_entry_of(run, run->pieces.tail)->out--;
		run->pieces.est_ns -=
			run->pieces.piece[run->pieces.tail % GPU_RUN_PIECES_MAX].est_ns;
	}
	run->pieces.front_ns = at;
	run->pace.front = end;
	store_relaxed(&run->seen.end_ns, at + run->pieces.est_ns);
	run->pieces.from_idle = false;
	run->pieces.n_blocks -= blocks;
	(void)sub_acqrel(&run->home->out, blocks);
}

void gpu_run_count_tickets(struct gpu_run *run)
{
	store_relaxed(&run->seen.n_tickets,
		      run->list.tail == run->list.head
			      ? 0
			      : run->list.ticket -
					run->list.entry[run->list.tail % GPU_RUN_DEPTH].first);
}

void gpu_run_retire(struct gpu_run *run, uint64_t now)
{
	uint32_t word = load_acquire(run->line.words);
	uint32_t gone = 0, upto = run->pieces.tail;

	while (upto != run->pieces.head &&
	       (int32_t)(word - run->pieces.piece[upto % GPU_RUN_PIECES_MAX].number) >= 0) {
		gone += run->pieces.piece[upto++ % GPU_RUN_PIECES_MAX].blocks;
	}
	if (gone) {
		retire_pieces(run, upto, gone, now);
		run->pieces.none_done = false;
	}
	run->pace.looked_ns = now;
	while (run->list.tail != run->list.head) {
		struct gpu_run_entry *l = &run->list.entry[run->list.tail % GPU_RUN_DEPTH];

		if (l->covered != l->total || l->out || (l->event && !l->recorded)) {
			break;
		}
		gpu_run_store_duration(run, l);
		run->list.next =
			run->list.next == run->list.tail ? run->list.tail + 1 : run->list.next;
		run->list.tail++;
		store_release(&run->seen.finished, run->seen.finished + 1);
	}
	gpu_run_count_tickets(run);
}

/* Launch i has the tickets first .. first + total - 1, and launch i + 1 continues there. */
bool gpu_run_locate(const struct gpu_run *run, uint32_t counter, uint32_t *ret_i, uint32_t *ret_ran)
{
	uint32_t i = run->list.tail,
		 ran = counter - (gpu_run_unfinished(run) ? run->list.entry[i % GPU_RUN_DEPTH].first
							  : run->list.ticket);

	for (; i != run->list.head && ran >= run->list.entry[i % GPU_RUN_DEPTH].total; i++) {
		const struct gpu_run_entry *l = &run->list.entry[i % GPU_RUN_DEPTH];

		if (l->covered != l->total) {
			return false;
		}
		ran -= l->total;
	}
	*ret_i = i;
	*ret_ran = ran;
	return i == run->list.head ? ran == 0 : ran <= run->list.entry[i % GPU_RUN_DEPTH].covered;
}

bool gpu_run_rewind(struct gpu_run *run, uint32_t counter)
{
	uint32_t i, ran, missing = 0, again = 0;

	if (!gpu_run_locate(run, counter, &i, &ran)) {
		return false;
	}
	for (uint32_t k = run->list.tail; k != i; k++) {
		run->list.entry[k % GPU_RUN_DEPTH].out = 0;
	}
	run->list.next = i;
	for (uint32_t k = i; k != run->list.tail; k--) {
		const struct gpu_run_entry *l = &run->list.entry[(k - 1) % GPU_RUN_DEPTH];

		run->list.next = l->event && !l->recorded ? k - 1 : run->list.next;
	}
	for (; i != run->list.head; i++, ran = 0) {
		struct gpu_run_entry *l = &run->list.entry[i % GPU_RUN_DEPTH];

		missing += l->covered - ran;
		l->covered = ran;
		l->out = 0;
		again += l->event && l->recorded;
		l->recorded = false;
	}
	(void)add_acqrel(&run->seen.n_pending, missing + again);
	(void)sub_acqrel(&run->home->out, run->pieces.n_blocks);
	run->pieces.n_blocks = 0;
	run->pieces.est_ns = 0;
	run->pieces.tail = run->pieces.head;
	run->pieces.none_done = true;
	(void)add_relaxed(&run->device->runs->counts.resumed_blocks, missing);
	return true;
}
