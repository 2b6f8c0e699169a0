/* Judges kernels that were found hung. One that waits for blocks of higher index ends because the
 * missing blocks run; one whose blocks are merely long ends whenever it would have ended. A single
 * observation does not tell these apart, so a kernel is reported after several, of which each
 *  - follows a time of watching of another length, and of at least 4, 8 and 16 times a block's
 *    learned duration: a kernel whose blocks always take the same ends by itself in one of them;
 *  - has the stream idle shortly after the missing blocks could begin, and not before that;
 *  - has missing blocks that took much less time than the others had been on the device: blocks
 *    that are all equally long do not.
 * A kernel that ends by itself after a long time, or at another moment, loses more than it has won,
 * and is watched for four times as long from then on. Where the host has looked too late to tell,
 * the observation does not count. */
#include "gpu/cuda/gpu_run_strike_int.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "gpu/cuda/gpu_run_int.h"

#define STRIKES_MAX 3 /* then on_hung is called for the kernel */
#define SCORE_MIN -9
#define ACQUITTAL 3		    /* that much less where it has ended by itself */
#define LATE_PART 16u		    /* of the time watched: the end may be that late, */
#define LONG_PART 4u		    /* and the missing blocks may take that long */
#define PATIENCE_FACTOR 4u	    /* times the longest stay on the device */
#define PATIENCE_MAX_NS 1000000000u /* so long may a waiting kernel stand still */

/* Parts of the time by the score, in per cent: different, and no more than three times the first.
 */
static const uint32_t part[STRIKES_MAX] = { 100, 80, 120 };

/* The state is that of one kernel: another one that hangs begins anew. */
static void turn_to(struct gpu_run_strike *s, const struct gpu_run_entry *l)
{
	if (s->id != l->id || !s->clone) {
		s->id = l->id;
		s->score = 0;
		s->patience_ns = 0;
	}
	s->clone = l->clone;
}

static bool is_of(const struct gpu_run_strike *s, const struct gpu_run_entry *l)
{
	return s->clone && s->id == l->id;
}

/* Returns the learned duration of a block; 0: unknown. */
static uint64_t learned_ns(const struct gpu_run *run, const struct gpu_run_entry *l)
{
	return l->resident * gpu_run_pace_of(run, l) / 1000;
}

uint64_t gpu_run_strike_watch_ns(const struct gpu_run *run, const struct gpu_run_entry *l)
{
	const struct gpu_run_strike *s = &run->strike;
	int32_t score = is_of(s, l) ? MAX(s->score, 0) : 0;
	uint64_t ns =
		is_of(s, l) ? MAX(GPU_RUN_WATCH_MIN_NS, s->patience_ns) : GPU_RUN_WATCH_MIN_NS;

	ns = ns / 100 * part[score % STRIKES_MAX];
	return MAX(ns, learned_ns(run, l) * (UINT64_C(4) << MIN(score, STRIKES_MAX - 1)));
}

void gpu_run_strike_open(struct gpu_run *run, const struct gpu_run_entry *l, uint32_t missing,
			 uint64_t now)
{
	struct gpu_run_strike *s = &run->strike;

	turn_to(s, l);
	s->open = true;
	s->taken_ns = run->hang.watch_ns;
	s->watched_ns = now - s->taken_ns;
	s->learned_ns = learned_ns(run, l);
	s->waves = l->resident ? (missing - 1) / l->resident + 1 : 0;
	s->begin = s->stream = s->bypass = (struct gpu_run_interval){ .from = now };
}

static void see(struct gpu_run_interval *what, bool seen, uint64_t before)
{
	if (!what->to && seen) {
		what->to = clock_now_ns();
	} else if (!what->to) {
		what->from = before;
	}
}

void gpu_run_strike_see(struct gpu_run *run, bool stream_idle, bool bypass_idle, uint64_t now)
{
	struct gpu_run_strike *s = &run->strike;
	uint64_t between;

	see(&s->bypass, bypass_idle, now);
	see(&s->stream, stream_idle, now);
	/* Read after the stream was seen idle: if the bypass has not begun by then, it begins later
	 * than stream.to. */
	between = clock_now_ns();
	see(&s->begin, gpu_run_beat_seen(run, s->beat), between);
}

static void lengthen(struct gpu_run_strike *s, uint64_t stayed_ns)
{
	uint64_t ns = MIN(stayed_ns, PATIENCE_MAX_NS) * PATIENCE_FACTOR;

	s->patience_ns = MAX(s->patience_ns, MIN(ns, PATIENCE_MAX_NS));
}

static void exonerate(struct gpu_run_strike *s, int32_t by, uint64_t stayed_ns)
{
	s->score = MAX(s->score - by, SCORE_MIN);
	lengthen(s, stayed_ns);
}

static void blame(struct gpu_run *run)
{
	struct gpu_runs *all = run->device->runs;
	struct gpu_run_strike *s = &run->strike;

	if (s->score < STRIKES_MAX && ++s->score == STRIKES_MAX && all->on_hung) {
		all->on_hung(all->on_hung_arg, s->clone);
	}
}

void gpu_run_strike_close(struct gpu_run *run)
{
	struct gpu_run_strike *s = &run->strike;
	uint64_t late_ns = s->watched_ns / LATE_PART + s->learned_ns + s->learned_ns / 4;
	uint64_t long_ns = s->watched_ns / LONG_PART + 2 * s->learned_ns;
	uint64_t stayed_ns = s->stream.to - s->taken_ns;

	s->open = false;
	if (s->stream.to <= s->begin.from) { /* no missing block could have run */
		exonerate(s, ACQUITTAL, stayed_ns);
	} else if (s->stream.from > s->begin.to && s->stream.from - s->begin.to > late_ns) {
		exonerate(s, 1, stayed_ns);
	} else if (s->bypass.to - s->begin.from > long_ns * MAX(s->waves, 1u)) {
		exonerate(s, 0, MAX(stayed_ns, s->bypass.to - s->begin.from));
	} else if (s->stream.to - s->begin.from <= late_ns) {
		blame(run);
	}
}

void gpu_run_strike_ended(struct gpu_run *run, const struct gpu_run_entry *l, uint64_t now)
{
	uint64_t stayed_ns = now - run->hang.watch_ns;

	/* Soon it is an ordinary interruption: the device may have been busy elsewhere. */
	if (stayed_ns > gpu_run_strike_watch_ns(run, l) / 2) {
		turn_to(&run->strike, l);
		exonerate(&run->strike, ACQUITTAL, stayed_ns);
	}
}
