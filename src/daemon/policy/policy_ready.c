/* Between the last acknowledgement and the flip: copies the kept maps, runs init of the new
 * version, and continues with policy_rejoin.c. A small copy is made at once on the loop, so that no
 * write in between is lost; the worker makes a large one while the loop continues. */
#include "daemon/policy/policies_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/point.h"
#include "daemon/policy/daemon_hooks.h"
#include "daemon/vgpu/vgpu_list.h"

#define COPY_INLINE_BYTES (1u << 20) /* about 100 us */

struct copy_job {
	struct daemon_job job; /* first */
	struct daemon_policy_op *q;
	struct daemon_version *old, *new;
	unsigned n;
	struct copy_item {
		enum ebpf_region region;
		const void *from;
		void *to;
	} one[PROTO_MAX_TENANTS + EBPF_REGIONS];
};

/* No process has run the new version yet. */
void daemon_swap_refuse(struct daemon_policy_op *q, int exit_code)
{
	struct daemon *d = q->d;

	q->readying = false;
	d->policies->pending = NULL;
	daemon_session_each(d, s)
	{
		s->policy.awaited_ack = 0;
	}
	daemon_durable_undo(q);
	daemon_policy_drop_unused(d, 0);
	daemon_policy_op_fail(q, exit_code);
}

static bool into_store(struct daemon_policy_op *q)
{
	json_t *meta = q->meta;

	if (q->o.op != DAEMON_POLICY_LOAD) {
		return true;
	}
	q->meta = NULL;
	q->err = daemon_store_add(&q->d->policies->store, q->o.version, meta, &q->removed);
	if (q->err) {
		q->err = report_set(&q->report, -E2BIG, "limit",
				    "%u versions are kept and all are in use",
				    DAEMON_STORE_VERSIONS);
		return false;
	}
	if (q->o.is_volatile) {
		daemon_store_set_volatile(&q->d->policies->store, q->o.version, &q->o.object);
	}
	q->d->counters.loads++;
	POINT("daemon.ready.stored");
	return true;
}

/* Continues after the copying. */
static void finish(struct daemon_policy_op *q)
{
	struct daemon *d = q->d;
	struct daemon_version *l = d->policies->pending;

	POINT("daemon.ready.kept");
	q->kept = q->keep ? daemon_keep_json(q->keep) : NULL;
	daemon_vgpus_changed(d); /* also for versions that were being copied until now */
	q->err = daemon_hook_init(l, q->o.gpu_mask, q->keep ? q->keep->n_kept : 0, q->name,
				  &q->report);
	POINT("daemon.ready.inited");
	if (q->err) {
		daemon_swap_refuse(q, 4);
	} else if (!into_store(q)) {
		daemon_swap_refuse(q, 7);
	} else {
		daemon_swap_rejoin(q);
	}
}

/* ---- copying ---- */

static void copy_work(struct daemon_job *j)
{
	struct copy_job *c = (struct copy_job *)j;
	uint64_t begin = clock_now_ns();

	for (unsigned i = 0; i < c->n; i++) {
		daemon_keep_copy(c->q->keep, c->one[i].region, c->one[i].from, c->one[i].to);
		POINT("daemon.ready.copied");
	}
	c->q->copy_ns = clock_now_ns() - begin;
}

static void copy_done(struct daemon_job *j)
{
	struct copy_job *c = (struct copy_job *)j;
	struct daemon_policy_op *q = c->q;

	daemon_version_copy_done(c->old);
	daemon_version_copy_done(c->new);
	free(c);
	finish(q);
}

static void copy_drop(struct daemon_job *j)
{
	free(j);
}

static void add(struct copy_job *c, enum ebpf_region region, const void *from, void *to)
{
	if (from && to && daemon_keep_bytes(c->q->keep, region)) {
		c->one[c->n++] = (struct copy_item){ region, from, to };
	}
}

static uint64_t collect(struct copy_job *c)
{
	uint64_t bytes = 0;

	for (int r = EBPF_REGION_GLOBAL; r < EBPF_REGIONS; r++) {
		add(c, (enum ebpf_region)r, c->old->run.region[r], c->new->run.region[r]);
	}
	for (uint32_t t = 0; t < PROTO_MAX_TENANTS; t++) {
		add(c, EBPF_REGION_TENANT, c->old->region[t].map, c->new->region[t].map);
	}
	for (unsigned i = 0; i < c->n; i++) {
		bytes += daemon_keep_bytes(c->q->keep, c->one[i].region);
	}
	return bytes;
}

static void copy(struct daemon_policy_op *q, struct daemon_version *old)
{
	struct copy_job *c = calloc(1, sizeof(*c));

	if (!c) {
		q->err = report_set(&q->report, -ENOMEM, "memory", "out of memory");
		daemon_swap_refuse(q, 1);
		return;
	}
	c->job = (struct daemon_job){ .work = copy_work, .done = copy_done, .drop = copy_drop };
	c->q = q;
	c->old = old;
	c->new = q->d->policies->pending;
	if (collect(c) <= COPY_INLINE_BYTES) {
		copy_work(&c->job);
		copy_done(&c->job);
	} else {
		c->old->copying = c->new->copying = true;
		daemon_job_thread_submit(&q->d->worker, &c->job);
	}
}

void daemon_swap_copy(struct daemon_policy_op *q)
{
	struct daemon_policies *p = q->d->policies;
	struct daemon_version *old = daemon_version_find(q->d, q->was_active);

	if (!q->o.keep_maps || !old || old == p->pending) {
		finish(q);
		return;
	}
	q->keep = malloc(sizeof(*q->keep));
	if (!q->keep || daemon_keep_plan(q->keep, old->built, p->pending->built) < 0) {
		q->err = report_set(&q->report, -ENOMEM, "memory", "out of memory");
		daemon_swap_refuse(q, 1);
		return;
	}
	copy(q, old);
}

void daemon_swap_ready(struct daemon_policy_op *q)
{
	struct daemon_policies *p = q->d->policies;

	q->readying = true;
	q->waited_ns = MAX(clock_now_ns() - q->prepare_begin_ns, 1u);
	p->timer = sd_event_source_disable_unref(p->timer);
	if (q->o.must_store) {
		daemon_durable_begin(q);
	} else {
		daemon_swap_copy(q);
	}
}
