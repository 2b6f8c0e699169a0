/* The two clients of a pair: one answers requests and times them, one keeps the device full. */
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/client/load_client.h"

#define GAP_MIN_NS 1000000u
#define GAP_MAX_NS 4000000u
#define WARM 20u
#define MAX_STREAMS 64u
#define MAX_DEPTH 64u

/* xorshift64*: the same gaps in every condition. */
static uint64_t next_random(uint64_t *x)
{
	*x ^= *x >> 12;
	*x ^= *x << 25;
	*x ^= *x >> 27;
	return *x * 0x2545f4914f6cdd1du;
}

/* The kernels of a latency client. */
struct latency {
	struct bench_block_work full;  /* one block for each multiprocessor */
	struct bench_block_work third; /* a third of that: of host-bound requests */
};

/* Keeps the processor busy, as a program that prepares its next kernel does. */
static void think(const struct bench_client *c)
{
	uint64_t end = clock_now_ns() + c->think_us * UINT64_C(1000);

	while (clock_now_ns() < end) {
		cpu_relax();
	}
}

static void request(struct bench_client *c, struct latency *l, enum bench_page_kind kind)
{
	struct bench_block_work *w = kind == KIND_HOSTBOUND ? &l->third : &l->full;
	unsigned n = kind == KIND_ONE ? 1 : c->kernels;

	for (unsigned i = 0; i < n; i++) {
		bench_block_work_launch(w);
		if (kind == KIND_SYNCED && i + 1 < n) {
			CU(cuStreamSynchronize(w->stream));
		}
		if (kind == KIND_HOSTBOUND) {
			think(c);
		}
	}
	CU(cuStreamSynchronize(w->stream));
}

static void requests(struct bench_client *c, struct latency *l)
{
	struct bench_page *p = c->page;
	uint64_t seed = p->seed * 0x9e3779b97f4a7c15u + 1;
	uint32_t n = MIN(p->n, PAGE_SAMPLES);

	p->samples[0] = 0;
	p->begin_ns = clock_now_ns();
	while (p->samples[0] < n && clock_now_ns() - p->begin_ns < p->limit_ns &&
	       !bench_client_has_next(c)) {
		uint64_t gap = GAP_MIN_NS + next_random(&seed) % (GAP_MAX_NS - GAP_MIN_NS), begin;

		if (c->hint_us) {
			uint64_t ahead = MIN(gap, c->hint_us * UINT64_C(1000));

			clock_sleep_ns(gap - ahead);
			bench_client_announce(c);
			gap = ahead;
		}
		clock_sleep_ns(gap);
		begin = clock_now_ns();
		request(c, l, p->kind);
		p->us[0][p->samples[0]++] = (float)(clock_now_ns() - begin) * 1e-3f;
	}
	p->end_ns = clock_now_ns();
	bench_block_work_check(&l->full);
	bench_block_work_check(&l->third);
}

void bench_client_latency(struct bench_client *c)
{
	struct latency l;

	bench_block_work_init(&l.full, c, c->grid, c->threads, c->iterations);
	bench_block_work_init(&l.third, c, MAX(c->grid / 3, 1), c->threads, c->iterations);
	for (unsigned i = 0; i < WARM; i++) {
		request(c, &l, i % PAGE_KINDS);
	}
	bench_block_work_check(&l.full);
	bench_block_work_check(&l.third);
	bench_client_ready(c);
	for (;;) {
		switch (bench_client_next(c)) {
		case PAGE_REQUESTS:
			requests(c, &l);
			break;
		case PAGE_EXIT:
			return;
		default:
			break;
		}
		bench_client_answer(c);
	}
}

struct batch {
	struct bench_block_work work[MAX_STREAMS];
	CUevent done[MAX_STREAMS][MAX_DEPTH];
	uint64_t launched, finished[MAX_STREAMS];
	bool answered;
	struct bench_moving moving;
};

/* Launches once on every stream, when its oldest launch has ended. */
static void round_of(struct bench_client *c, struct batch *b)
{
	for (unsigned s = 0; s < c->streams; s++) {
		unsigned slot = (unsigned)(b->launched % c->depth);

		if (b->launched - b->finished[s] >= c->depth) {
			CU(cuEventSynchronize(b->done[s][slot]));
			b->finished[s]++;
			add_relaxed(&c->page->finished, 1);
		}
		bench_block_work_launch(&b->work[s]);
		CU(cuEventRecord(b->done[s][slot], b->work[s].stream));
	}
	b->launched++;
}

/* Launches depth kernels on every stream, with one synchronization for all, and then lets memory
 * move. */
static void burst_of(struct bench_client *c, struct batch *b)
{
	for (unsigned d = 0; d < c->depth; d++) {
		for (unsigned s = 0; s < c->streams; s++) {
			bench_block_work_launch(&b->work[s]);
		}
	}
	CU(cuCtxSynchronize());
	add_relaxed(&c->page->finished, (uint64_t)c->depth * c->streams);
	bench_moving_step(&b->moving);
}

static void work(struct bench_client *c, struct batch *b)
{
	uint64_t from = load_relaxed(&c->page->finished);
	bool answered = false;

	while (!bench_client_has_next(c)) {
		(c->burst ? burst_of : round_of)(c, b);
		if (!answered && load_relaxed(&c->page->finished) != from) {
			answered = true;
			bench_client_answer(c);
		}
	}
	CU(cuCtxSynchronize());
	for (unsigned s = 0; s < c->streams; s++) {
		add_relaxed(&c->page->finished, b->launched - b->finished[s]);
		b->finished[s] = b->launched;
		bench_block_work_check(&b->work[s]);
	}
	bench_moving_check(&b->moving);
}

void bench_client_batch(struct bench_client *c)
{
	struct batch *b = calloc(1, sizeof(*b));

	if (!b || c->streams > MAX_STREAMS || c->depth > MAX_DEPTH) {
		bench_client_fail(b ? "at most 64 streams, 64 deep" : "no memory");
	}
	for (unsigned s = 0; s < c->streams; s++) {
		bench_block_work_init(&b->work[s], c, c->grid, c->threads, c->iterations);
		for (unsigned d = 0; d < c->depth; d++) {
			CU(cuEventCreate(&b->done[s][d], CU_EVENT_DISABLE_TIMING));
		}
		bench_block_work_launch(&b->work[s]);
	}
	CU(cuCtxSynchronize());
	for (unsigned s = 0; s < c->streams; s++) {
		bench_block_work_check(&b->work[s]);
	}
	bench_moving_init(&b->moving, c);
	bench_client_ready(c);
	for (;;) {
		enum bench_page_op op = bench_client_next(c);

		if (op == PAGE_EXIT) {
			free(b);
			return;
		}
		if (op == PAGE_WORK) {
			work(c, b);
		} else {
			bench_client_answer(c);
		}
	}
}
