/* A task of DISB: requests of a model, each a row of kernels that are launched without waiting and
 * one synchronization, by a schedule. Two kinds of command: requests of kind one are back to back
 * (stand-alone), others follow the schedule. */
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/client.h"
#include "bench/schedule.h"

#define WARM 10u
#define NEAR_NS 60000u /* what a sleep may be late */

static float infer(struct client *c, struct block_work *w)
{
	uint64_t begin = clock_now_ns();

	for (unsigned i = 0; i < c->kernels; i++) {
		block_work_launch(w);
	}
	CU(cuStreamSynchronize(w->stream));
	return (float)(clock_now_ns() - begin) * 1e-3f;
}

static void note(struct bench_page *p, float us)
{
	if (p->samples[0] < PAGE_SAMPLES) {
		p->us[0][p->samples[0]++] = us;
	}
	add_relaxed(&p->finished, 1);
}

/* Sleeps for the most of it. */
static void wait_until(uint64_t when)
{
	uint64_t now = clock_now_ns();

	if (when > now + NEAR_NS) {
		clock_sleep_ns(when - now - NEAR_NS);
	}
	while (clock_now_ns() < when) {
		cpu_relax();
	}
}

static void run_schedule(struct client *c, struct block_work *w)
{
	struct bench_page *p = c->page;
	uint64_t end = p->epoch_ns + p->limit_ns;
	static struct schedule s;
	int kind = schedule_kind_of(c->load ? c->load : "closed");

	schedule_init(&s, (enum schedule_kind)MAX(kind, 0), c->rate, c->trace, p->epoch_ns,
		      p->offset_ns, p->seed);
	for (;;) {
		uint64_t when = schedule_next(&s, clock_now_ns());

		if (when >= end || client_has_next(c)) {
			s.dropped +=
				s.kind != SCHEDULE_CLOSED && when != UINT64_MAX && s.taken_ns < end;
			break;
		}
		wait_until(when);
		note(p, infer(c, w));
	}
	schedule_finish(&s, end);
	p->dropped = s.dropped;
	if (clock_now_ns() < end) { /* so that all have ended when we say that we have */
		wait_until(end);
	}
}

void client_model(struct client *c)
{
	struct bench_page *p = c->page;
	struct block_work w;

	block_work_init(&w, c, c->grid, c->threads, c->iterations);
	for (unsigned i = 0; i < WARM; i++) {
		infer(c, &w);
	}
	block_work_check(&w);
	client_ready(c);
	for (;;) {
		enum page_op op = client_next(c);

		if (op == PAGE_EXIT) {
			return;
		}
		if (op == PAGE_REQUESTS) {
			p->samples[0] = 0;
			p->dropped = 0;
			p->begin_ns = clock_now_ns();
			for (unsigned i = 0; p->kind == KIND_ONE && i < p->n; i++) {
				note(p, infer(c, &w));
			}
			if (p->kind != KIND_ONE) {
				run_schedule(c, &w);
			}
			p->end_ns = clock_now_ns();
			block_work_check(&w);
		}
		client_answer(c);
	}
}
