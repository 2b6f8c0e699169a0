/* Loads of DISB; see schedule.h. The traces of the workload REAL are not stored: they are
 * generated, with a fixed seed, from their published properties (number, first and last request,
 * mean and deviation of the gaps; bursts of one model). */
#include "bench/common/schedule.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "bench/common/statistics.h"

#define TRACE_SEED 0x5dee7c0de5ull
#define BURST 4u
#define BURST_EVERY_MS 210.0
#define BURST_GAP_MIN_MS 3.0
#define BURST_GAP_MAX_MS 15.0

/* In the order of disb's models: ResNet-152, DenseNet-201, VGG-19, Inception-v3, DistilBERT. */
static const struct {
	unsigned n, first_ms;
	double gap_ms, deviation_ms;
} traces[SCHEDULE_TRACES] = {
	{ 375, 0, 103.7, 12.4 }, { 202, 120, 192.9, 42.6 }, { 560, 9, 0, 0 },
	{ 374, 0, 103.5, 23.8 }, { 173, 240, 224.0, 87.2 },
};

static double uniform(uint64_t *seed)
{
	return ((double)(bench_stats_random(seed) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *seed)
{
	return sqrt(-2 * log(uniform(seed))) * cos(2 * 3.14159265358979323846 * uniform(seed));
}

static void make_bursts(struct bench_schedule *s, uint64_t *seed, double at)
{
	for (unsigned i = 0; i < s->n_trace; i++) {
		if (i && i % BURST == 0) {
			at = (double)s->trace_ms[0] + BURST_EVERY_MS * (i / BURST);
		} else if (i) {
			at += BURST_GAP_MIN_MS +
			      uniform(seed) * (BURST_GAP_MAX_MS - BURST_GAP_MIN_MS);
		}
		s->trace_ms[i] = (uint32_t)at;
	}
}

static void make_trace(struct bench_schedule *s, unsigned which)
{
	uint64_t seed = TRACE_SEED + which;
	double at;

	which %= SCHEDULE_TRACES;
	at = traces[which].first_ms;
	s->n_trace = MIN(traces[which].n, SCHEDULE_MAX);
	if (traces[which].gap_ms == 0) {
		make_bursts(s, &seed, at);
		return;
	}
	for (unsigned i = 0; i < s->n_trace; i++) {
		double gap = traces[which].gap_ms + traces[which].deviation_ms * normal(&seed);

		s->trace_ms[i] = (uint32_t)at;
		at += MAX(gap, 1);
	}
}

/* Advances to the slot after slot_ns. */
static void step(struct bench_schedule *s)
{
	s->index++;
	switch (s->kind) {
	case SCHEDULE_PERIODIC:
		s->slot_ns += s->interval_ns;
		break;
	case SCHEDULE_POISSON: /* whole microseconds */
		s->slot_ns += (uint64_t)(-log(uniform(&s->seed)) / s->rate * 1e6) * 1000;
		break;
	case SCHEDULE_TRACE:
		s->slot_ns = s->index < s->n_trace
				     ? s->epoch_ns + s->trace_ms[s->index] * UINT64_C(1000000)
				     : UINT64_MAX;
		break;
	default:
		break;
	}
}

void bench_schedule_init(struct bench_schedule *s, enum bench_schedule_kind kind, double rate,
			 unsigned trace, uint64_t epoch_ns, uint64_t offset_ns, uint64_t seed)
{
	memset(s, 0, sizeof(*s));
	s->kind = kind;
	s->rate = MAX(rate, 1e-3);
	s->interval_ns = (uint64_t)(1e9 / s->rate);
	s->epoch_ns = epoch_ns;
	s->seed = seed * 0x9e3779b97f4a7c15ull + 1;
	s->slot_ns = epoch_ns + offset_ns;
	if (kind == SCHEDULE_TRACE) {
		make_trace(s, trace);
		s->slot_ns = epoch_ns + s->trace_ms[0] * UINT64_C(1000000);
	} else if (kind == SCHEDULE_POISSON) {
		step(s); /* the first gap is random, too */
		s->index = 0;
	}
}

uint64_t bench_schedule_next(struct bench_schedule *s, uint64_t now_ns)
{
	uint64_t mine;

	if (s->kind == SCHEDULE_CLOSED) {
		return MAX(now_ns, s->epoch_ns);
	}
	mine = s->slot_ns;
	if (mine == UINT64_MAX) {
		return mine;
	}
	for (step(s); s->slot_ns <= now_ns; step(s)) {
		s->dropped++;
		mine = s->slot_ns;
	}
	s->taken_ns = mine;
	return MAX(mine, now_ns);
}

uint64_t bench_schedule_next_before(struct bench_schedule *s, uint64_t now_ns, uint64_t end_ns)
{
	uint64_t when = bench_schedule_next(s, MIN(now_ns, end_ns - 1));

	if (now_ns < end_ns && when < end_ns) {
		return when;
	}
	if (s->kind != SCHEDULE_CLOSED) {
		s->dropped += when != UINT64_MAX && s->taken_ns < end_ns;
		for (; s->slot_ns < end_ns; step(s)) {
			s->dropped++;
		}
	}
	return UINT64_MAX;
}

int bench_schedule_kind_of(const char *name)
{
	static const char *const names[] = { "closed", "periodic", "poisson", "trace" };

	for (int i = 0; i < (int)ARRAY_SIZE(names); i++) {
		if (strcmp(names[i], name) == 0) {
			return i;
		}
	}
	return -1;
}
