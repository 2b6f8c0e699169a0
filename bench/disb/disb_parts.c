/* Parts of the time of DISB's requests: until the first kernel begins on the device, until some
 * have, and the rest; separately for requests that overlapped no other real-time task, since only
 * these can find batch on the device. And gbpfd's counts of each task meanwhile. */
#include "bench/disb/disb.h"

static uint64_t begin_of(const struct bench_page_request *r)
{
	return r->due_ns + (uint64_t)((double)MAX(r->late_us, 0) * 1e3);
}

static unsigned requests_of(const struct bench_page *p)
{
	return MIN(p->samples[0], PAGE_RECORDS);
}

/* Returns whether a task had a request open at that time. Its requests are in order, and end in
 * order; *at: where to search from, which only increases. */
static bool open_then(const struct bench_page *p, uint64_t when, unsigned *at)
{
	unsigned n = requests_of(p);

	while (*at < n) {
		const struct bench_page_request *r = &p->request[*at];
		uint64_t begin = begin_of(r);

		if (begin > when) {
			return false;
		}
		if (begin + (uint64_t)((double)r->took_us * 1e3) > when) {
			return true;
		}
		++*at;
	}
	return false;
}

static void add_parts(struct bench_disb_parts *to, const struct bench_page_request *r)
{
	double first = MAX((double)r->first_us, 0), front = MAX((double)r->front_us, first);

	to->n++;
	to->took_us += (double)r->took_us;
	to->us[PART_LATE] += (double)r->late_us;
	if (r->front_us < 0) {
		return; /* not measured */
	}
	to->stamped++;
	to->us[PART_FIRST] += first;
	to->us[PART_FRONT] += front - first;
	to->us[PART_REST] += (double)r->took_us - front;
}

static void note_task(const struct bench_disb_workload *w, struct bench_disb_row *row,
		      unsigned task, const struct bench_testbed_client *client)
{
	const struct bench_page *p = client[task].page;
	unsigned at[DISB_TASKS] = { 0 };

	for (unsigned i = 0; i < requests_of(p); i++) {
		uint64_t begin = begin_of(&p->request[i]);
		enum bench_disb_met met = MET_NOBODY;

		for (unsigned k = 0; k < w->tasks; k++) {
			if (k != task && w->task[k].rt && client[k].page &&
			    open_then(client[k].page, begin, &at[k])) {
				met = MET_OTHERS;
			}
		}
		add_parts(&row->parts[met], &p->request[i]);
	}
	for (unsigned i = 0; i < PAGE_STEPS; i++) {
		row->step_us[i] += p->step_us[i];
	}
	row->steps += p->steps;
}

void bench_disb_note_parts(const struct bench_disb_workload *w, struct bench_disb_condition *c,
			   const struct bench_testbed_client *client)
{
	for (unsigned i = 0; i < w->tasks; i++) {
		if (w->task[i].rt && client[i].page) {
			note_task(w, &c->row[i], i, client);
		}
	}
}

/* ---- statistics of gbpfd ---- */

static double number(const json_t *o, const char *name)
{
	return json_number_value(json_object_get(o, name));
}

static void add_tenant(struct bench_disb_tenant *to, const json_t *t)
{
	const json_t *s = json_object_get(t, "stats");

	to->rounds++;
	to->launches += number(s, "launches");
	to->block_launches += number(s, "block_launches");
	to->interruptions += number(s, "interruptions");
	to->holds += number(s, "holds");
	to->held_ns += number(s, "held_ns");
	to->limit_hits += number(s, "limit_hits");
	to->forced += number(s, "forced");
	to->requests += number(s, "requests");
	json_decref(to->kernels);
	to->kernels = json_incref(json_object_get(t, "kernels"));
}

void bench_disb_note_tenants(const struct bench_disb_workload *w, struct bench_disb_condition *c,
			     const struct bench_testbed_client *client, const json_t *tenants)
{
	const json_t *t;
	size_t i;

	json_array_foreach(tenants, i, t)
	{
		for (unsigned k = 0; k < w->tasks; k++) {
			if (client[k].page && (uint32_t)number(t, "pid") == client[k].page->pid) {
				add_tenant(&c->row[k].tenant, t);
			}
		}
	}
}

/* ---- the document ---- */

static json_t *met_json(const struct bench_disb_parts *p)
{
	double n = MAX(p->n, 1u);
	json_t *o = json_pack("{s:i, s:f, s:f}", "requests", (int)p->n, "mean_us", p->took_us / n,
			      "late_us", p->us[PART_LATE] / n);

	if (p->stamped) {
		n = p->stamped;
		json_object_update_new(o, json_pack("{s:f, s:f, s:f}", "first_us",
						    p->us[PART_FIRST] / n, "front_us",
						    p->us[PART_FRONT] / n, "rest_us",
						    p->us[PART_REST] / n));
	}
	return o;
}

static json_t *tenant_json(const struct bench_disb_tenant *t)
{
	double n = t->rounds;
	json_t *o = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "launches",
			      t->launches / n, "block_launches", t->block_launches / n,
			      "interruptions", t->interruptions / n, "holds", t->holds / n,
			      "held_ms", t->held_ns / n * 1e-6, "limit_hits", t->limit_hits / n,
			      "forced", t->forced / n, "requests", t->requests / n);

	if (t->kernels) {
		json_object_set(o, "kernels", t->kernels);
	}
	return o;
}

json_t *bench_disb_parts_json(const struct bench_disb_row *r)
{
	json_t *o = json_object();

	if (r->parts[MET_NOBODY].n + r->parts[MET_OTHERS].n) {
		json_object_set_new(o, "met_nobody", met_json(&r->parts[MET_NOBODY]));
		json_object_set_new(o, "met_others", met_json(&r->parts[MET_OTHERS]));
	}
	if (r->steps) {
		json_t *steps = json_array();
		unsigned n = PAGE_STEPS;

		while (n && r->step_us[n - 1] == 0) {
			n--;
		}
		for (unsigned i = 0; i < n; i++) {
			json_array_append_new(steps, json_real(r->step_us[i] / r->steps));
		}
		json_object_set_new(o, "steps_us", steps);
	}
	if (r->tenant.rounds) {
		json_object_set_new(o, "gbpf", tenant_json(&r->tenant));
	}
	return o;
}
