#include "sched_double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/object/stream_queue.h"

#define MAX_QUEUES 256

struct sched {
	struct sched_shared shared;
	struct sched_queue queues[MAX_QUEUES];
	unsigned n;
	uint64_t numbers;
};

void (*double_note)(const char *text);
void (*double_before_place)(void);
bool double_block_wanted;
char double_noted[160];
uint8_t double_why;

static struct sched double_sched = { .shared = { .active = 1 } };

struct sched *double_scheduler(void)
{
	return &double_sched;
}

struct sched_queue *double_queue(CUstream stream)
{
	for (unsigned i = 0; i < double_sched.n; i++) {
		if (double_sched.queues[i].open && double_sched.queues[i].stream == stream) {
			return &double_sched.queues[i];
		}
	}
	return NULL;
}

struct sched_queue *double_queue_in(CUstream stream, CUcontext ctx)
{
	for (unsigned i = 0; i < double_sched.n; i++) {
		struct sched_queue *q = &double_sched.queues[i];

		if (q->open && q->stream == stream && q->ctx == ctx) {
			return q;
		}
	}
	return NULL;
}

static void end(struct sched_queue *q, bool ok)
{
	q->submitted++;
	q->failed += !ok;
	if (double_note) {
		double_note("submitted");
	}
}

/* Submits the deferred calls that are ready. Returns true if there were any. */
static bool issue(struct sched_queue *q)
{
	struct sched_call *c;
	bool any = false;

	while ((c = q->first) != NULL && (!c->ready || c->ready(c))) {
		int err = c->run(c);

		if (c->is_launch) {
			end(q, err == 0);
		}
		q->first = c->next; /* while the call ran it still counted as deferred */
		if (!q->first) {
			q->last = &q->first;
		}
		c->free(c);
		any = true;
	}
	return any;
}

void double_issue(void)
{
	bool any = true;

	while (any) {
		any = false;
		for (unsigned i = 0; i < double_sched.n; i++) {
			any = issue(&double_sched.queues[i]) || any;
		}
	}
}

unsigned double_deferred(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < double_sched.n; i++) {
		for (struct sched_call *c = double_sched.queues[i].first; c; c = c->next) {
			n++;
		}
	}
	return n;
}

void double_reset(void)
{
	double_issue();
	for (unsigned i = 0; i < double_sched.n; i++) {
		struct sched_queue *q = &double_sched.queues[i];

		q->submits = q->submitted = q->failed = q->drained = q->queried = 0;
		q->defer = false;
	}
}

/* ---- sched.h ---- */

struct sched_queue *sched_queue_open(struct sched *s, void *dev_queue, uint32_t gpu,
				     int32_t priority)
{
	struct gpu_queue *dev = dev_queue;
	struct sched_queue *q = NULL;

	for (unsigned i = 0; i < s->n && !q; i++) {
		q = s->queues[i].open ? NULL : &s->queues[i];
	}
	if (!q) {
		if (s->n == MAX_QUEUES) {
			return NULL;
		}
		q = &s->queues[s->n++];
	}
	memset(q, 0, sizeof(*q));
	q->stream = dev->stream;
	q->ctx = dev->ctx;
	q->priority = priority;
	q->gpu = gpu;
	q->open = true;
	q->last = &q->first;
	return q;
}

void sched_queue_close(struct sched_queue *q)
{
	issue(q);
	q->open = false;
}

void sched_note(struct sched *s, const char *what, const char *text)
{
	snprintf(double_noted, sizeof(double_noted), "%s: %s", what, text);
}

void sched_note_once(struct sched *s, const char *what, const char *text)
{
	sched_note(s, what, text);
}

bool sched_block_wanted(const struct sched *s)
{
	return double_block_wanted;
}

void sched_kernel_set_block(struct sched_kernel *k, uint8_t why)
{
	double_why = why;
}

void sched_kernel_set_form(struct sched *s, struct sched_kernel *k, uint8_t form, const char *why)
{
	(void)s;
	(void)k;
	(void)form;
	(void)why;
}

void sched_kernel_set_communicates(struct sched_kernel *k, bool communicates)
{
}

uint8_t sched_kernel_form(const struct sched_kernel *k)
{
	(void)k;
	return PROTO_FORM_UNKNOWN;
}

void sched_publish_kernels(struct sched *s)
{
	(void)s;
}

struct sched_kernel *sched_kernel_find(struct sched *s, const char *name)
{
	return NULL;
}

uint64_t sched_kernel_launches(const struct sched_kernel *k)
{
	return 0;
}

uint64_t sched_kernel_duration(const struct sched_kernel *k)
{
	return 0;
}

void sched_kernel_add_graph(struct sched *s, struct sched_kernel *k, uint64_t launches, uint64_t ns)
{
}

void sched_kernel_cover(struct sched *s, struct sched_kernel *graph, uint64_t launches,
			uint64_t divided_ns)
{
}

uint64_t sched_kernel_hash(const struct sched_kernel *k)
{
	return 0;
}

struct sched_kernel *sched_kernel_get(struct sched *s, const char *name)
{
	static char names[64][64];

	for (unsigned i = 0; i < 64; i++) {
		if (!names[i][0]) {
			strncpy(names[i], name, sizeof(names[i]) - 1);
		}
		if (strcmp(names[i], name) == 0) {
			return (struct sched_kernel *)names[i];
		}
	}
	return NULL;
}

enum sched_answer sched_ticket_begin(struct sched_ticket *t, struct sched_queue *q,
				     struct sched_launch *l)
{
	t->q = q;
	t->l = l;
	q->submits++;
	q->launch = *l;
	if (l->behind) {
		return SCHED_DEFER;
	}
	if (double_note) {
		double_note("submit");
	}
	if (l->may_hold && (q->first || q->defer)) {
		return SCHED_DEFER;
	}
	issue(q);
	return SCHED_GO;
}

void sched_ticket_commit(struct sched_ticket *t)
{
	end(t->q, true);
}

void sched_ticket_abort(struct sched_ticket *t)
{
	end(t->q, false);
}

void sched_defer(struct sched_queue *q, struct sched_call *c)
{
	void (*other)(void) = double_before_place;

	double_before_place = NULL;
	if (other) {
		other();
	}
	c->next = NULL;
	*q->last = c;
	q->last = &c->next;
	if (c->placed) {
		c->number = c->placed(c);
	} else {
		c->number = sched_next_number(&double_sched);
	}
}

uint64_t sched_next_number(struct sched *s)
{
	return ++s->numbers;
}

bool sched_any_touched(const struct sched *s)
{
	(void)s;
	return true;
}

bool sched_granted(const struct sched_queue *q, const struct sched_launch *l)
{
	(void)q;
	(void)l;
	return false;
}

bool sched_queue_alone(const struct sched_queue *q)
{
	return double_deferred() == 1 && q->first;
}

bool sched_queue_behind(struct sched_queue *q, uint64_t number)
{
	return q->first && q->first->number < number;
}

bool sched_run_join(struct sched_queue *q)
{
	return false;
}

void sched_run_joined(struct sched_queue *q)
{
}

void sched_drain_others(struct sched *s, const struct sched_queue *but)
{
	if (!but) { /* all runs make progress */
		(void)sched_drain(s, NULL);
	}
}

void sched_queue_add_extra(struct sched_queue *q, uint32_t n)
{
	(void)q;
	(void)n;
}

bool sched_queue_deferred(struct sched_queue *q)
{
	q->queried++;
	return q->first != NULL;
}

int sched_drain(struct sched *s, struct sched_queue *only)
{
	for (unsigned i = 0; i < s->n; i++) {
		if (!only || only == &s->queues[i]) {
			s->queues[i].queried++;
			(void)issue(&s->queues[i]);
			if (s->queues[i].first) { /* it waits for calls on other queues, which the
						     agent submits */
				double_issue();
			}
		}
	}
	return 0;
}

const uint8_t *sched_queue_touched(const struct sched_queue *q)
{
	static const uint8_t always = 1;

	return &always;
}

void sched_copied(struct sched *s, bool up, uint64_t bytes)
{
	(void)s;
	(void)up;
	(void)bytes;
}

void sched_copied_in_pieces(struct sched *s, uint64_t bytes)
{
	(void)s;
	(void)bytes;
}

void sched_copied_directly(struct sched *s, uint64_t bytes)
{
	(void)s;
	(void)bytes;
}

void sched_synced(struct sched *s, struct sched_queue *q)
{
	q->drained++;
}

uint64_t sched_agent_step(struct sched *s)
{
	return UINT64_MAX;
}

int sched_create(struct sched **ret, const struct sched_config *cfg)
{
	*ret = &double_sched;
	return 0;
}

bool sched_set_pages(struct sched *s, const struct proto_directory *dir, struct proto_board *own,
		     struct proto_stats *stats, const uint32_t gpu_index[PROTO_MAX_GPUS])
{
	return true;
}

int sched_board_add(struct sched *s, enum sched_board_kind kind, uint32_t slot, uint32_t tenant,
		    const struct proto_board *board)
{
	return 0;
}

bool sched_board_remove(struct sched *s, enum sched_board_kind kind, uint32_t slot)
{
	return true;
}

void sched_will_communicate(struct sched *s)
{
}

bool sched_may_communicate(const struct sched *s)
{
	return false;
}

int sched_policy_prepare(struct sched *s, uint64_t version, uint32_t gpus, int image_fd,
			 const int region_fds[EBPF_REGIONS])
{
	return 0;
}

bool sched_policy_is_prepared(const struct sched *s, uint64_t version, uint32_t gpus)
{
	return true;
}

bool sched_policy_sweep(struct sched *s)
{
	return true;
}

void sched_policy_drop(struct sched *s, uint64_t version, uint32_t gpus)
{
}

void sched_set_uid(struct sched *s, uint32_t uid)
{
	(void)s;
	(void)uid;
}

void sched_set_vgpu(struct sched *s, uint32_t place)
{
	(void)s;
	(void)place;
}

void sched_set_group(struct sched *s, uint32_t number)
{
	(void)s;
	(void)number;
}

void sched_set_class(struct sched *s, uint32_t class_id, uint32_t weight)
{
}

uint32_t sched_queue_sm_percent(const struct sched_queue *q)
{
	(void)q;
	return 100;
}

void sched_report_cap(struct sched *s, uint32_t percent, enum proto_cap why)
{
	(void)s;
	(void)percent;
	(void)why;
}

void sched_set_lane(struct sched *s, uint32_t lane)
{
}

int sched_announce(struct sched *s, uint32_t gpu, uint64_t at_ns, uint64_t deadline_ns)
{
	return 0;
}

void sched_set_rhythm(struct sched *s, enum sched_rhythm how, uint64_t period_ns)
{
}

void sched_set_lead(struct sched *s, uint64_t lease_ns, uint64_t warm_ns)
{
}

void sched_set_limits(struct sched *s, uint64_t hold_limit_ns, uint32_t min_share_ppm)
{
}

void sched_set_off(struct sched *s, bool off)
{
}

void sched_after_fork_child(struct sched *s)
{
}

bool sched_copy_may_go(struct sched_copy *c)
{
	return true;
}

void sched_copy_end(struct sched_copy *c)
{
}

void sched_moved(struct sched *s, bool out, uint64_t bytes)
{
}

void sched_used_in_place(struct sched *s)
{
}

bool sched_mem_decide(struct sched *s, struct sched_mem_fault *f, uint32_t *ret_verdict)
{
	return false;
}
