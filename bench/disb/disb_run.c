/* The runs of `gbpf bench dev disb`: each workload has rounds, in which every condition gets a
 * turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/disb/disb.h"

#define READY_NS 120000000000ull
#define ANSWER_NS 60000000000ull
#define LEAD_NS 50000000ull /* from the command to the first request */

const struct bench_disb_def disb_defs[DISB_CONDITIONS] = {
	{ "rt", "real-time tasks alone, contexts of their own", LANE_OWN, false, false },
	{ "rt-again", "the same once more", LANE_OWN, false, true },
	{ "default", "all tasks, contexts of their own, the device's time slices", LANE_OWN, true,
	  false },
	{ "rt-mps", "real-time tasks alone, MPS clients", LANE_MPS, false, false },
	{ "rt-mps-again", "the same once more", LANE_MPS, false, true },
	{ "mps", "all tasks, MPS clients", LANE_MPS, true, false },
	{ "gbpf", "all tasks, gBPF, process lane", LANE_GBPF, true, false },
	{ "gbpf-shared", "all tasks, gBPF, shared lane", LANE_GBPF_SHARED, true, false },
};

/* ---- conditions ---- */

static int prepare(struct bench_disb *b, struct bench_disb_condition *c)
{
	if (c->def->lane == LANE_MPS) {
		return bench_testbed_mps(&b->testbed);
	}
	if (c->def->lane == LANE_OWN) {
		return 0;
	}
	if (c->def->lane == LANE_GBPF_SHARED && !bench_testbed_run_offers(&b->testbed, "--lane")) {
		return bench_testbed_fail(&b->testbed, "this gbpf run does not support --lane");
	}
	c->daemon = bench_testbed_gbpfd(&b->testbed, b->testbed.policy);
	return c->daemon ? 0 : -1;
}

static void choose(struct bench_disb *b)
{
	for (unsigned i = 0; i < DISB_CONDITIONS; i++) {
		struct bench_disb_condition *c = &b->condition[i];

		c->def = &disb_defs[i];
		c->chosen = !b->conditions || bench_program_lists(b->conditions, c->def->name);
		c->available = c->chosen && prepare(b, c) == 0;
		if (c->chosen && !c->available) {
			snprintf(c->why, sizeof(c->why), "%s", b->testbed.error);
		}
	}
}

/* ---- a turn ---- */

struct turn {
	struct bench_testbed_client client[DISB_TASKS];
	bool used[DISB_TASKS];
};

static const char *const loads[] = { "closed", "periodic", "poisson", "trace" };

static void load_options(const struct bench_disb_task *task, struct bench_testbed_command *k)
{
	bench_command_option(k, "--load", "%s", loads[task->load]);
	bench_command_option(k, "--rate", "%g", task->rate);
	bench_command_option(k, "--trace", "%u", disb_models[task->model].trace);
	if (task->rt) {
		bench_command_add(k, "--stamps");
	}
}

static int start_tasks(struct bench_disb *b, const struct bench_disb_workload *w,
		       struct bench_disb_condition *c, struct turn *t)
{
	int err = 0;

	for (unsigned i = 0; i < w->tasks && !err; i++) {
		const struct bench_disb_task *task = &w->task[i];
		struct bench_testbed_place place = { .lane = c->def->lane,
						     .daemon = c->daemon,
						     .class_name = task->rt ? "latency" : "batch",
						     .mps_priority = -1 };
		struct bench_testbed_command k;
		char name[48];

		t->used[i] = task->rt || c->def->batch;
		if (!t->used[i]) {
			continue;
		}
		snprintf(name, sizeof(name), "%s-%s%u", disb_models[task->model].name,
			 task->rt ? "rt" : "be", i);
		bench_command_init(&k);
		bench_disb_model_options(b, task->model, &k);
		if (!b->torch) {
			load_options(task, &k);
		}
		err = bench_client_start(&b->testbed, &t->client[i], name, &place,
					 bench_disb_role(b), &k);
		bench_command_finish(&k);
	}
	for (unsigned i = 0; i < w->tasks && !err; i++) {
		err = t->used[i] ? bench_client_await(&t->client[i], READY_NS) : 0;
	}
	return err;
}

static int check_lane(struct bench_disb *b, struct bench_disb_condition *c,
		      const struct bench_page *p)
{
	bool shared = c->def->lane == LANE_MPS || c->def->lane == LANE_GBPF_SHARED;

	if (shared == (p->mps != 0)) {
		return 0;
	}
	c->available = false;
	return bench_testbed_fail(&b->testbed,
				  shared ? "CUDA reports that the process is not a client of MPS"
					 : "CUDA reports that the process is a client of MPS");
}

/* Returns what a client has recorded. Times of a request are in us: the delay of its beginning
 * after due_ns, and from then to its first kernel, the PAGE_FRONT-th after it, and its end. */
static json_t *task_record(unsigned task, const struct bench_page *p)
{
	unsigned n = MIN(p->samples[0], PAGE_RECORDS), steps = PAGE_STEPS;
	json_t *requests = json_array();

	for (unsigned i = 0; i < n; i++) {
		const struct bench_page_request *r = &p->request[i];

		json_array_append_new(requests, json_pack("[I, f, f, f, f]", (json_int_t)r->due_ns,
							  (double)r->late_us, (double)r->first_us,
							  (double)r->front_us, (double)r->took_us));
	}
	while (steps && p->step_us[steps - 1] == 0) {
		steps--;
	}
	return json_pack("{s:i, s:i, s:I, s:o, s:i, s:o}", "task", (int)task, "pid", (int)p->pid,
			 "dropped", (json_int_t)p->dropped, "requests", requests, "steps",
			 (int)p->steps, "step_us", bench_program_doubles(p->step_us, steps));
}

static int record_turn(struct bench_disb *b, const struct bench_disb_workload *w,
		       const struct bench_disb_condition *c, const struct turn *t)
{
	json_t *tasks = json_array(),
	       *tenants = c->daemon ? bench_testbed_tenants(c->daemon) : NULL;

	for (unsigned i = 0; i < w->tasks; i++) {
		if (t->used[i]) {
			json_array_append_new(tasks, task_record(i, t->client[i].page));
		}
	}
	return bench_testbed_record(&b->testbed, "turn",
				    json_pack("{s:s, s:o, s:o*}", "condition", c->def->name,
					      "tasks", tasks, "tenants", tenants));
}

static int check_results(struct bench_disb *b, const struct bench_page *p)
{
	return p->wrong ? bench_testbed_fail(&b->testbed, "WRONG RESULTS: %llu of %llu values",
					     (unsigned long long)p->wrong,
					     (unsigned long long)p->checked)
			: 0;
}

/* Writes the times of the requests for clients that do not compute their schedule. Returns their
 * number; 0: a closed loop. */
static unsigned plan(const struct bench_disb_task *task, struct bench_page *p)
{
	static struct bench_schedule s;
	unsigned n = 0;

	if (task->load == SCHEDULE_CLOSED) {
		return 0;
	}
	bench_schedule_init(&s, task->load, task->rate, disb_models[task->model].trace, p->epoch_ns,
			    p->offset_ns, p->seed);
	while (n < PAGE_RECORDS && s.slot_ns < p->epoch_ns + p->limit_ns) {
		p->request[n++].due_ns = bench_schedule_next(&s, 0);
	}
	return n;
}

static int run_tasks(struct bench_disb *b, const struct bench_disb_workload *w,
		     struct bench_disb_condition *c, struct turn *t, unsigned round)
{
	uint64_t offset[DISB_TASKS], limit = (uint64_t)(b->seconds * 1e9);
	uint64_t epoch = clock_now_ns() + LEAD_NS;
	int err = 0;

	bench_disb_offsets(w, b->alone_ms, offset);
	for (unsigned i = 0; i < w->tasks; i++) {
		if (t->used[i]) {
			struct bench_page *p = t->client[i].page;

			p->kind = KIND_QUEUED;
			p->epoch_ns = epoch;
			p->limit_ns = limit;
			p->offset_ns = offset[i];
			p->seed = 1 + i + 100 * round;
			p->n = b->torch ? plan(&w->task[i], p) : 0;
			bench_client_send(&t->client[i], PAGE_REQUESTS);
		}
	}
	for (unsigned i = 0; i < w->tasks && !err; i++) {
		if (t->used[i]) {
			err = bench_client_await(&t->client[i], limit + ANSWER_NS);
			err = err ? err : check_results(b, t->client[i].page);
		}
	}
	return err ? err : record_turn(b, w, c, t);
}

static int turn(struct bench_disb *b, const struct bench_disb_workload *w,
		struct bench_disb_condition *c, unsigned round)
{
	static struct turn t;
	int err;

	memset(&t, 0, sizeof(t));
	bench_testbed_progress(&b->testbed, "disb: workload %s, round %u of %u: %s", w->name,
			       round + 1, b->rounds, c->def->name);
	err = start_tasks(b, w, c, &t);
	err = err ? err : check_lane(b, c, t.client[0].page);
	err = err ? err : run_tasks(b, w, c, &t, round);
	for (unsigned i = 0; i < w->tasks; i++) {
		if (t.client[i].w) {
			bench_client_stop(&t.client[i]);
		}
	}
	c->rounds += !err;
	return err;
}

static int record_workload(struct bench_disb *b, const struct bench_disb_workload *w)
{
	json_t *tasks = json_array();

	for (unsigned i = 0; i < w->tasks; i++) {
		json_array_append_new(tasks,
				      json_pack("{s:s, s:b, s:s, s:f}", "model",
						disb_models[w->task[i].model].name, "real_time",
						w->task[i].rt, "load", loads[w->task[i].load],
						"rate", w->task[i].rate));
	}
	return bench_testbed_record(&b->testbed, "workload",
				    json_pack("{s:s, s:o}", "workload", w->name, "tasks", tasks));
}

/* Writes the record that ends a workload: the state of each condition. */
static int record_conditions(struct bench_disb *b)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < DISB_CONDITIONS; i++) {
		const struct bench_disb_condition *c = &b->condition[i];
		const struct bench_disb_def *d = c->def;
		bool shared = d->lane == LANE_MPS || d->lane == LANE_GBPF_SHARED;

		if (!c->chosen) {
			continue;
		}
		json_array_append_new(
			all, json_pack("{s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:i, s:o}", "condition",
				       d->name, "is", d->doc, "shared", shared, "gbpf",
				       d->lane != LANE_OWN && d->lane != LANE_MPS, "batch",
				       d->batch, "again", d->again, "broken", c->broken, "rounds",
				       (int)c->rounds, "why", bench_program_text(c->why)));
	}
	return bench_testbed_record(&b->testbed, "conditions", all);
}

static int run_workload(struct bench_disb *b, const struct bench_disb_workload *w)
{
	for (unsigned i = 0; i < DISB_CONDITIONS; i++) {
		b->condition[i].rounds = 0;
		b->condition[i].broken = false;
	}
	if (record_workload(b, w) < 0) {
		return -1;
	}
	for (unsigned r = 0; r < b->rounds; r++) {
		for (unsigned i = 0; i < DISB_CONDITIONS; i++) {
			struct bench_disb_condition *c = &b->condition[(i + r) % DISB_CONDITIONS];

			if (!c->available || c->broken || turn(b, w, c, r) == 0) {
				continue;
			}
			if (bench_testbed_interrupted()) {
				return bench_testbed_fail(&b->testbed, "interrupted");
			}
			snprintf(c->why, sizeof(c->why), "%s", b->testbed.error);
			c->broken = c->available;
			b->failed |= c->broken;
		}
	}
	return record_conditions(b);
}

static int each_workload(struct bench_disb *b,
			 int (*visit)(struct bench_disb *b, const struct bench_disb_workload *w,
				      void *arg),
			 void *arg)
{
	int err = 0;

	for (unsigned i = 0; i < DISB_WORKLOADS && !err; i++) {
		struct bench_disb_workload w;

		if (bench_program_lists(b->workloads, disb_names[i]) &&
		    bench_disb_workload(disb_names[i], b->periodic, &w) == 0) {
			err = visit(b, &w, arg);
		}
	}
	return err;
}

static int note_models(struct bench_disb *b, const struct bench_disb_workload *w, void *used)
{
	for (unsigned i = 0; i < w->tasks; i++) {
		((bool *)used)[w->task[i].model] = true;
	}
	return 0;
}

static int measure(struct bench_disb *b, const struct bench_disb_workload *w, void *arg)
{
	return run_workload(b, w);
}

int bench_disb_run(struct bench_disb *b)
{
	bool used[DISB_MODELS] = { false };

	each_workload(b, note_models, used);
	if (bench_testbed_record(&b->testbed, "set_up",
				 json_pack("{s:s, s:f, s:i, s:b}", "policy", b->testbed.policy_name,
					   "seconds", b->seconds, "rounds", (int)b->rounds,
					   "periodic_batch", b->periodic)) < 0 ||
	    bench_testbed_init(&b->testbed) < 0 || bench_disb_models_fit(b, used) < 0) {
		return -1;
	}
	choose(b);
	return each_workload(b, measure, NULL) < 0 ? -1 : bench_disb_record_models(b);
}
