/* What the host does: submits launches of a run, finds its stream idle with launches missing, reads
 * the counter and the gate, and submits what is missing (gpu/cuda/gpu_run_step.c, gpu_run_gate.c);
 * takes the counter and closes the gate when it suspects that blocks wait for others that have
 * left, and launches the missing ones on the bypass stream (gpu_run_bypass.c). */
#include "model.h"

static struct model_stream *run_stream(struct model_state *s)
{
	return &s->stream[s->host.run];
}

/* Lowest launch that the host's run has. */
static unsigned first_launch(const struct model_state *s)
{
	return s->host.run;
}

void model_host_begin(struct model *m, struct model_state *s)
{
	(void)m;
	for (unsigned i = 0; i < 2; i++) {
		s->stream[i].launch = MODEL_NONE;
	}
}

static void begin_on_stream(struct model *m, struct model_state *s, unsigned launch)
{
	struct model_stream *x = run_stream(s);
	const struct model_launch *l = &s->launch[launch];

	*x = (struct model_stream){ .launch = (uint8_t)launch,
				    .from = l->from,
				    .base = l->base,
				    .ask = l->ask,
				    .groups = l->groups,
				    .number = l->number };
	model_blocks_begin(m, s, x);
}

static void submit(struct model *m, struct model_state *s)
{
	struct model_host *h = &s->host;
	struct model_launch *l = &s->launch[h->next];
	bool gate = !m->scenario->launch[h->next].clone;

	l->from = m->fault == FAULT_FROM_MISSING && gate ? 0 : l->covered;
	l->base = h->base;
	l->groups = h->attempts < MODEL_ATTEMPTS;
	l->ask = h->attempts + 1 == MODEL_ATTEMPTS && m->scenario->ask
			 ? (uint8_t)(l->covered + m->scenario->ask)
			 : 0;
	l->number = ++h->number;
	l->out = 1;
	if (gate && m->fault != FAULT_BASE_OVERLAPS) {
		h->base += (uint8_t)model_total(m, h->next);
	}
	if (model_stream_idle(run_stream(s))) {
		begin_on_stream(m, s, h->next);
	}
	h->next++;
}

static unsigned launches_of_run(const struct model *m, const struct model_state *s)
{
	return m->scenario->reuse && !s->host.run ? 1 : model_launches(m);
}

/* Submits what there is; one by one at any time if the scenario says so. */
static bool may_submit(const struct model *m, const struct model_state *s)
{
	return s->host.phase == HOST_ACTIVE && s->host.next < launches_of_run(m, s);
}

static void submit_all(struct model *m, struct model_state *s)
{
	s->host.first_number = s->host.number + 1;
	do {
		submit(m, s);
	} while (!m->scenario->late && may_submit(m, s));
}

/* The run's next base is higher than all that blocks of it have raised the gate to. */
static void open_gate(struct model *m, struct model_state *s)
{
	if (m->fault == FAULT_NOT_OPENED) {
		return;
	}
	if (m->fault == FAULT_BASE_STAYS) {
		s->line[0].closed = 0;
		s->host.base = s->launch[first_launch(s)].base;
		return;
	}
	s->host.base = m->fault == FAULT_BASE_FALLS ? 0 : (uint8_t)(s->host.base + 1);
	s->line[0].gate = s->host.base;
	s->line[0].closed = 0;
}

/* The run's launch that the counter has reached, and how many of its tickets were drawn. */
static unsigned locate(struct model *m, const struct model_state *s, int counter, unsigned *ret)
{
	unsigned i = first_launch(s), n = launches_of_run(m, s);

	*ret = 0;
	while (i < n && counter >= model_first(m, i + 1)) {
		i++;
	}
	if (counter < model_first(m, i)) {
		model_violated(m, "the counter is before the run's launches");
		return n;
	}
	*ret = (unsigned)(counter - model_first(m, i));
	return i;
}

/* How far the run came. A launch with an entry stub moves the counter only at its end: the gate
 * says how much of it has run. */
static unsigned progress(struct model *m, const struct model_state *s, int counter, unsigned gate,
			 bool closed, bool idle, unsigned *ret_ran)
{
	unsigned i = locate(m, s, counter, ret_ran);
	const struct model_launch *l = &s->launch[i];
	unsigned total;

	if (i == launches_of_run(m, s) || m->scenario->launch[i].clone) {
		return i;
	}
	total = model_total(m, i);
	if (*ret_ran) {
		model_violated(m, "the counter is inside a launch with an entry stub");
	}
	*ret_ran = l->covered;
	if (l->out) {
		unsigned above = gate > l->base ? gate - l->base : 0;

		*ret_ran = above > l->from || m->fault == FAULT_FROM_FORGOTTEN ? above : l->from;
		/* After the take the last block does not publish, so blocks of the launch behind
		 * may have raised the gate further. They are there because all of this one have
		 * run. */
		if (!idle && *ret_ran > total && m->fault != FAULT_GATE_OF_NEXT) {
			*ret_ran = total;
		}
		/* No block was left, because the last cluster had run when the counter was taken.
		 */
		if (idle && !closed && l->from && m->fault != FAULT_NO_UNPUBLISHED) {
			*ret_ran = total;
			closed = idle = false;
		}
		if (*ret_ran > total || (idle && (*ret_ran == total || !closed))) {
			model_violated(m, "the gate's value is impossible");
		}
	}
	if (*ret_ran == total) {
		*ret_ran = 0;
		i++;
	}
	return i;
}

/* Submits launch i without its first `ran` clusters, and what is behind it. */
static void resume(struct model *m, struct model_state *s, unsigned i, unsigned ran)
{
	for (unsigned k = first_launch(s); k < MODEL_LAUNCHES; k++) {
		s->launch[k].out = 0;
		s->launch[k].covered = k < i ? (uint8_t)model_total(m, k) : 0;
	}
	if (i < MODEL_LAUNCHES) {
		s->launch[i].covered = (uint8_t)ran;
	}
	s->host.next = (uint8_t)i;
	s->host.attempts++;
	s->host.phase = HOST_ACTIVE;
	if (may_submit(m, s)) {
		submit_all(m, s);
	}
}

/* What is before launch i has run, though it may not have published that. */
static void set_counter(struct model *m, struct model_state *s, unsigned i, unsigned ran)
{
	s->line[0].counter = s->line[0].ready = (int8_t)(model_first(m, i) + (int)ran);
	for (unsigned k = 0; k < i && k < MODEL_LAUNCHES; k++) {
		s->launch[k].bypassed |= !s->launch[k].published;
	}
	if (i == launches_of_run(m, s)) {
		s->line[0].done = s->host.number; /* no block stores these numbers */
	}
}

/* The stream is idle and the last number is missing. Nothing changes what is read. */
static void read_and_resume(struct model *m, struct model_state *s)
{
	const struct model_line *l = &s->line[0];
	unsigned ran, i = progress(m, s, l->counter, l->gate, l->closed, true, &ran);
	bool lags = l->counter < model_first(m, i);

	if (i >= launches_of_run(m, s) && !lags) {
		model_violated(m, "all blocks have run, but the last number is missing");
		return;
	}
	if (s->host.attempts == MODEL_ATTEMPTS + MODEL_BLOCKS) {
		model_violated(m, "without leases there is no progress either");
		return;
	}
	if (lags) {
		set_counter(m, s, i, 0);
	}
	open_gate(m, s);
	resume(m, s, i, ran);
}

static void check_end(struct model *m, struct model_state *s)
{
	for (unsigned i = 0; i < model_launches(m); i++) {
		unsigned all = (1u << m->scenario->launch[i].blocks) - 1;

		if (s->launch[i].ended != all) {
			model_violated(m, "blocks are missing at the end");
		}
		if (s->launch[i].published != 1 && !s->launch[i].bypassed) {
			model_violated(m, "a launch's end was not published");
		}
	}
	s->host.phase = HOST_ENDED;
}

/* ---- bypass ---- */

/* atom.exch of the counter; bypass blocks continue at the old value. */
static void take_counter(struct model *m, struct model_state *s)
{
	(void)m;
	s->host.taken = s->line[0].counter;
	s->line[0].counter = MODEL_TAKEN;
	s->line[1].counter = s->line[1].ready = s->host.taken;
	s->host.phase = HOST_TAKING;
}

/* The launch has begun, or nothing was before it when it was submitted. Else what is before it can
 * end. */
static bool can_hang(const struct model *m, const struct model_state *s, unsigned i, unsigned ran)
{
	if (i >= launches_of_run(m, s) || !s->launch[i].out) {
		return false;
	}
	return ran || s->launch[i].number == s->host.first_number ||
	       (m->fault == FAULT_HANG_BEHIND && s->line[0].done < s->host.first_number);
}

/* atom.or of the gate, behind the exchange. Then it is known what has run, and that nothing of the
 * launches behind begins. */
static void close_and_look(struct model *m, struct model_state *s)
{
	struct model_host *h = &s->host;
	struct model_line *l = &s->line[0];
	unsigned ran, i = progress(m, s, h->taken, l->gate, l->closed, false, &ran);

	l->closed |= m->fault != FAULT_BYPASS_OPEN;
	h->hung = (uint8_t)i;
	h->ran = (uint8_t)ran;
	h->phase = can_hang(m, s, i, ran) ? HOST_WATCHING : HOST_WAITING;
}

/* The blocks that have begun do not end: launches the missing ones on the bypass stream, without
 * leases, on words of their own. */
static void bypass(struct model *m, struct model_state *s)
{
	struct model_host *h = &s->host;
	struct model_stream *x = &s->stream[1];

	*x = (struct model_stream){ .launch = h->hung,
				    .line = 1,
				    .from = m->fault == FAULT_BYPASS_ALL ? 0 : h->ran };
	s->line[1].gate = MODEL_BLOCKS + 1; /* higher than any of base 0 */
	s->launch[h->hung].bypassed = 1;
	model_blocks_begin(m, s, x);
	h->ran = (uint8_t)model_total(m, h->hung);
	h->phase = HOST_WAITING;
	if (m->fault == FAULT_BYPASS_BEHIND) {
		s->line[0].ready = s->line[0].counter = (int8_t)model_first(m, h->hung + 1u);
		s->line[0].closed = 0;
	}
}

/* Both streams are idle: restores the counter and the progress word, opens the gate, and submits
 * the rest. The counter is inside a clone's launch, or at the beginning of another one. */
static void restore(struct model *m, struct model_state *s)
{
	struct model_host *h = &s->host;
	unsigned i = h->hung, ran = h->ran;
	bool inside;

	if (i < launches_of_run(m, s) && ran == model_total(m, i)) {
		i++;
		ran = 0;
	}
	inside = i < launches_of_run(m, s) &&
		 (m->scenario->launch[i].clone || m->fault == FAULT_RESTORE_MIDDLE);
	set_counter(m, s, i, inside ? ran : 0);
	open_gate(m, s);
	if (h->attempts) { /* that was no interruption */
		h->attempts--;
	}
	resume(m, s, i, ran);
}

/* ---- the choices ---- */

static bool step_run(struct model *m, struct model_state *s)
{
	struct model_host *h = &s->host;
	bool idle = model_stream_idle(run_stream(s)), through = s->line[0].done == h->number;

	if (h->phase != HOST_ACTIVE || may_submit(m, s)) {
		return false;
	}
	if (through && m->scenario->reuse && !h->run) {
		h->run = 1; /* of the line; its first stream may still be busy */
		h->attempts = 0;
		submit_all(m, s);
		return true;
	}
	if (!idle || (through && !model_stream_idle(&s->stream[!h->run]))) {
		return false;
	}
	if (through) {
		check_end(m, s);
	} else {
		read_and_resume(m, s);
	}
	return true;
}

/* A suspicion may come at any time while a launch is on the device. */
static bool step_bypass(struct model *m, struct model_state *s)
{
	struct model_host *h = &s->host;
	bool idle = model_stream_idle(run_stream(s));

	switch (h->phase) {
	case HOST_ACTIVE:
		if (idle || (h->takes >= m->scenario->takes && !m->stands) ||
		    s->line[0].done == h->number) {
			return false;
		}
		h->takes++;
		h->phase = HOST_SUSPECTING; /* the kernel that takes it is launched */
		return true;
	case HOST_SUSPECTING:
		take_counter(m, s);
		return true;
	case HOST_TAKING:
		close_and_look(m, s);
		return true;
	case HOST_WATCHING:
		if (idle) {
			h->phase = HOST_WAITING;
		} else {
			bypass(m, s);
		}
		return true;
	case HOST_WAITING:
		if (!idle || !model_stream_idle(&s->stream[1])) {
			return false;
		}
		restore(m, s);
		return true;
	default:
		return false;
	}
}

bool model_host_step(struct model *m, struct model_state *s, unsigned choice)
{
	if (choice == 0) {
		if (!may_submit(m, s)) {
			return false;
		}
		if (s->host.next == 0) {
			submit_all(m, s);
		} else {
			submit(m, s);
		}
		return true;
	}
	return choice == 1 ? step_run(m, s) : step_bypass(m, s);
}
