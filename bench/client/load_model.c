/* A task of DISB: requests of a model, each a sequence of kernels that are launched without waiting
 * and one synchronization, by a schedule. Requests of kind one are back to back (stand-alone),
 * others follow the schedule. With --stamps each kernel records when it began. */
#include "base/atomic.h"
#include "base/clock.h"
#include "bench/client/load_client.h"
#include "bench/common/schedule.h"

#define WARM 10u
#define NEAR_NS 60000u /* maximum delay of a sleep */

struct model {
	struct bench_client *c;
	struct bench_block_work w;
	volatile uint64_t *when; /* pinned: the GPU's clock at each kernel's start; or NULL */
	int64_t clock_ns;	 /* host's clock - GPU's */
};

static void infer(struct model *m)
{
	for (unsigned i = 0; i < m->c->kernels; i++) {
		m->w.when = m->when ? (CUdeviceptr)(uintptr_t)&m->when[MIN(i, PAGE_STEPS - 1)] : 0;
		bench_block_work_launch(&m->w);
	}
	CU(cuStreamSynchronize(m->w.stream));
}

static float us_between(int64_t from_ns, int64_t to_ns)
{
	return (float)((double)(to_ns - from_ns) * 1e-3);
}

/* Records the start times of the kernels on the host's clock, by the latest comparison of the
 * clocks. */
static void note_steps(struct model *m, struct bench_page_request *r, int64_t begin, int64_t end)
{
	unsigned n = MIN(m->c->kernels, PAGE_STEPS), front = MIN(PAGE_FRONT, n - 1);
	struct bench_page *p = m->c->page;
	int64_t before = (int64_t)load_relaxed(&m->when[0]) + m->clock_ns;

	r->first_us = us_between(begin, before);
	r->front_us = us_between(begin, (int64_t)load_relaxed(&m->when[front]) + m->clock_ns);
	for (unsigned i = 1; i <= n; i++) {
		int64_t at = i < n ? (int64_t)load_relaxed(&m->when[i]) + m->clock_ns : end;

		p->step_us[i - 1] += (double)(at - before) * 1e-3;
		before = at;
	}
	p->steps++;
}

static void request(struct model *m, uint64_t due)
{
	struct bench_page_request r = { .due_ns = due, .first_us = -1, .front_us = -1 };
	struct bench_page *p = m->c->page;
	uint64_t begin = clock_now_ns(), end;

	infer(m);
	end = clock_now_ns();
	r.late_us = us_between((int64_t)due, (int64_t)begin);
	r.took_us = us_between((int64_t)begin, (int64_t)end);
	if (m->when) {
		note_steps(m, &r, (int64_t)begin, (int64_t)end);
	}
	if (p->samples[0] < PAGE_RECORDS) {
		p->request[p->samples[0]++] = r;
	}
	add_relaxed(&p->finished, 1);
}

/* Corrects recorded times for the drift of the clocks: times between two comparisons are
 * interpolated. */
static void correct_clock(struct model *m, uint64_t from, uint64_t to)
{
	double drift_us = (double)(bench_block_work_clock(&m->w, m->when) - m->clock_ns) * 1e-3;
	struct bench_page *p = m->c->page;

	for (unsigned i = 0; i < p->samples[0] && to > from; i++) {
		struct bench_page_request *r = &p->request[i];
		double part =
			r->due_ns > from ? (double)(r->due_ns - from) / (double)(to - from) : 0;

		r->first_us += (float)(drift_us * MIN(part, 1.0));
		r->front_us += (float)(drift_us * MIN(part, 1.0));
	}
}

/* Sleeps for most of the time, then spins. */
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

static void run_schedule(struct model *m)
{
	struct bench_client *c = m->c;
	struct bench_page *p = c->page;
	uint64_t end = p->epoch_ns + p->limit_ns;
	static struct bench_schedule s;
	int kind = bench_schedule_kind_of(c->load ? c->load : "closed");

	bench_schedule_init(&s, (enum bench_schedule_kind)MAX(kind, 0), c->rate, c->trace,
			    p->epoch_ns, p->offset_ns, p->seed);
	for (;;) {
		uint64_t now = bench_client_has_next(c) ? end : clock_now_ns();
		uint64_t when = bench_schedule_next_before(&s, now, end);

		if (when == UINT64_MAX) {
			break;
		}
		wait_until(when);
		request(m, s.kind == SCHEDULE_CLOSED ? when : s.taken_ns);
	}
	p->dropped = s.dropped;
	if (clock_now_ns() <
	    end) { /* all requests have ended before the command is reported as done */
		wait_until(end);
	}
}

static void requests(struct model *m)
{
	struct bench_page *p = m->c->page;

	p->samples[0] = p->steps = 0;
	p->dropped = 0;
	for (unsigned i = 0; i < PAGE_STEPS; i++) {
		p->step_us[i] = 0;
	}
	m->clock_ns = m->when ? bench_block_work_clock(&m->w, m->when) : 0;
	p->begin_ns = clock_now_ns();
	if (p->kind == KIND_ONE) {
		for (unsigned i = 0; i < p->n; i++) {
			request(m, clock_now_ns());
		}
	} else {
		run_schedule(m);
	}
	p->end_ns = clock_now_ns();
	if (m->when) {
		correct_clock(m, p->begin_ns, p->end_ns);
	}
	bench_block_work_check(&m->w);
}

void bench_client_model(struct bench_client *c)
{
	struct model m = { .c = c };
	void *pinned = NULL;

	if (c->stamps) {
		CU(cuMemAllocHost_v2(&pinned, PAGE_STEPS * sizeof(uint64_t)));
		m.when = pinned;
	}
	bench_block_work_init(&m.w, c, c->grid, c->threads, c->iterations);
	for (unsigned i = 0; i < WARM; i++) {
		infer(&m);
	}
	bench_block_work_check(&m.w);
	bench_client_ready(c);
	for (;;) {
		enum bench_page_op op = bench_client_next(c);

		if (op == PAGE_EXIT) {
			return;
		}
		if (op == PAGE_REQUESTS) {
			requests(&m);
		}
		bench_client_answer(c);
	}
}
