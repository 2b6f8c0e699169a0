/* Learns how long blocks take from the times at which numbers of finished pieces are observed. The
 * results choose the size of pieces and the time of the next step; which blocks run never depends
 * on them. */
#include "gpu/cuda/gpu_run_pace_int.h"

#include "base/atomic.h"
#include "base/compiler.h"
#include "gpu/cuda/gpu_run_int.h"

#define MARK_MAX_NS 20000000u /* longest stretch over which a pace is measured */

static uint64_t clamp(uint64_t x, uint64_t min, uint64_t max)
{
	return x < min ? min : MIN(x, MAX(max, min));
}

/* Prefers the clone's latest pace to the entry's, which was estimated when the launch was appended.
 */
uint64_t gpu_run_pace_of(const struct gpu_run *run, const struct gpu_run_entry *l)
{
	return run->pace.clone_id == l->id && run->pace.block_ps ? run->pace.block_ps : l->block_ps;
}

/* Sets the pace of the clone, also for its pieces on the device. */
static void set_pace(struct gpu_run *run, struct gpu_run_entry *l, uint64_t ps)
{
	if (run->pace.clone_id == l->id && run->pace.block_ps == ps) {
		l->block_ps = ps;
		return;
	}
	l->block_ps = run->pace.block_ps = ps;
	run->pace.clone_id = l->id;
	for (uint32_t i = run->pieces.tail; i != run->pieces.head; i++) {
		struct gpu_run_piece *p = &run->pieces.piece[i % GPU_RUN_PIECES_MAX];

		if (gpu_run_entry_of(run, i)->id == l->id) {
			run->pieces.est_ns -= p->est_ns;
			p->est_ns = p->blocks * ps / 1000;
			run->pieces.est_ns += p->est_ns;
		}
	}
}

/* A number is observed between two looks, so the pace lies between two bounds. The previous value
 * changes only as far as the bounds demand: late or irregular looks widen the bounds but do not
 * bias the result. The longer the stretch without a pause, the closer the bounds. */
static void learn_pace(struct gpu_run *run, struct gpu_run_entry *l, uint32_t blocks,
		       const struct gpu_run_interval *end)
{
	uint64_t old = gpu_run_pace_of(run, l), min = 0, max = UINT64_MAX, n = blocks,
		 waves = blocks;
	struct gpu_run_interval since = run->pace.front;
	bool same = run->pace.clone_id == l->id;

	if (run->pieces.from_idle) { /* The front piece may have begun behind a previous last wave,
					and the last wave, which may be small, has not ended. */
		since = (struct gpu_run_interval){
			run->pieces.front_ns, run->pieces.front_ns + old * l->resident / 1000
		};
		n = blocks > l->resident ? blocks - l->resident : 0;
		waves = l->resident ? (blocks - 1) / l->resident * l->resident : blocks;
	} else if (run->pace.mark.to && same) {
		since = run->pace.mark;
		waves = n = run->pace.mark_blocks += blocks;
	}
	if (n) {
		min = (end->from - MIN(since.to, end->from)) * 1000 / waves;
		max = (end->to - MIN(since.from, end->to)) * 1000 / n;
	}
	if (old) {
		set_pace(run, l, clamp(old, min, max));
	} else if (n) {
		max = (end->to - MIN(since.from, end->to)) * 1000 / waves;
		set_pace(run, l, MAX(min / 2 + max / 2, 1));
	}
	if (run->pieces.from_idle || !run->pace.mark.to || !same ||
	    end->to - end->from < (run->pace.mark.to - run->pace.mark.from) / 2 ||
	    (end->to - end->from + run->pace.mark.to - run->pace.mark.from) * 16 <=
		    end->to - run->pace.mark.from ||
	    end->to - run->pace.mark.from > MARK_MAX_NS) {
		run->pace.mark = *end;
		run->pace.mark_blocks = 0;
	}
}

/* Learns only if all pieces are of one clone: how several share the time is unknown. A number means
 * that the last block has *begun*. So the time between two numbers is that of all blocks between,
 * but on a stream that was empty before, the duration of the last wave is missing. */
void gpu_run_learn(struct gpu_run *run, uint32_t upto, uint32_t blocks, uint64_t end_ns,
		   const struct gpu_run_interval *end)
{
	struct gpu_run_entry *l = gpu_run_entry_of(run, upto - 1);
	uint64_t ns = end_ns - MIN(run->pieces.front_ns, end_ns);
	uint32_t seen = blocks;

	for (uint32_t i = run->pieces.tail; i != upto; i++) {
		if (gpu_run_entry_of(run, i)->id != l->id) {
			run->pace.mark.to = 0;
			return;
		}
	}
	learn_pace(run, l, blocks, end);
	if (run->pieces.from_idle) {
		seen -= MIN(l->resident, blocks);
	}
	for (uint32_t i = run->pieces.tail; seen && i != upto; i++) {
		uint32_t share =
			(uint32_t)((uint64_t)seen *
				   run->pieces.piece[i % GPU_RUN_PIECES_MAX].blocks / blocks);

		gpu_run_entry_of(run, i)->used_ns += (uint64_t)((double)ns * share / seen);
		gpu_run_entry_of(run, i)->ran += share;
	}
}

void gpu_run_learn_stopped(struct gpu_run *run, uint32_t counter)
{
	const struct gpu_run_piece *p = &run->pieces.piece[run->pieces.tail % GPU_RUN_PIECES_MAX];
	struct gpu_run_entry *l = &run->list.entry[p->entry % GPU_RUN_DEPTH];
	uint32_t ran = counter - (l->first + p->start);
	uint64_t end = run->halt.empty_ns, ps = l->block_ps;

	if (run->pieces.head == run->pieces.tail || !ran || ran > p->blocks) {
		return;
	}
	/* After the request began only blocks that had begun went on. Where contexts are switched,
	 * the empty stream is noticed late, at the request's end. */
	if (run->halt.request_ns > run->pieces.front_ns) {
		ps = ps ? ps : (run->halt.request_ns - run->pieces.front_ns) * 1000 / ran;
		end = MIN(end, run->halt.request_ns + ps * l->resident / 1000);
	}
	if (end > run->pieces.front_ns) {
		l->used_ns += end - run->pieces.front_ns;
		l->ran += ran;
	}
}

/* The duration in one piece, extrapolated from the blocks that were observed; 0 if there are none.
 */
void gpu_run_store_duration(struct gpu_run *run, const struct gpu_run_entry *l)
{
	uint64_t number = run->seen.finished + 1, ns = 0;

	if (l->ran) {
		ns = (uint64_t)((double)l->used_ns * (double)l->total / (double)l->ran);
		ns = MIN(ns, UINT64_C(60000000000));
	}
	store_relaxed(&run->seen.took[number % GPU_RUN_DEPTH], ns << 16 | (number & 0xffff));
}

/* The expected end, limited to the interval in which it was noticed, and so that the next piece has
 * not yet run longer than expected. */
uint64_t gpu_run_estimate_end(const struct gpu_run *run, uint32_t upto,
			      const struct gpu_run_interval *end)
{
	uint64_t from = end->from, ns = 0, next = 0;

	for (uint32_t i = run->pieces.tail; i != upto; i++) {
		if (!run->pieces.piece[i % GPU_RUN_PIECES_MAX].est_ns) {
			return gpu_run_midpoint(end->from, end->to);
		}
		ns += run->pieces.piece[i % GPU_RUN_PIECES_MAX].est_ns;
	}
	if (run->pieces.from_idle) { /* the number says that the last block has begun, not ended */
		const struct gpu_run_entry *l =
			&run->list.entry[run->pieces.piece[run->pieces.tail % GPU_RUN_PIECES_MAX]
						 .entry %
					 GPU_RUN_DEPTH];

		ns -= MIN(ns, gpu_run_pace_of(run, l) * l->resident / 1000);
	}
	if (upto != run->pieces.head) {
		next = run->pieces.piece[upto % GPU_RUN_PIECES_MAX].est_ns;
		from = next && next < end->to ? MAX(from, end->to - next) : from;
	}
	return clamp(run->pieces.front_ns + ns, from, end->to);
}
