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
#include "daemon/policy/vgpu_maps.h"

#define COPY_INLINE_BYTES (1u << 20) /* about 100 us */
#define COPIES_MAX (PROTO_MAX_TENANTS + EBPF_REGIONS)

struct copy_job {
	struct daemon_job job; /* first */
	struct daemon_policy_op *q;
	unsigned n;
	struct copy_item {
		enum ebpf_region region;
		const void *from;
		void *to;
	} one[]; /* COPIES_MAX for each instance */
};

/* No process has run the new version yet. */
void daemon_swap_refuse(struct daemon_policy_op *q, int exit_code)
{
	struct daemon *d = q->d;

	q->readying = false;
	daemon_swap_not_pending(d->policies);
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

	POINT("daemon.ready.kept");
	q->kept = q->keep ? daemon_keep_json(q->keep) : NULL;
	daemon_vgpu_maps_write_all(d); /* also for versions that were being copied until now */
	for (uint32_t i = 0; i < PROTO_MAX_GPUS && !q->err; i++) {
		struct daemon_version *l = daemon_version_on(d, q->o.version, i);

		if (l && l->pending) {
			q->err = daemon_hook_init(l, l->copied ? q->keep->n_kept : 0, q->name,
						  &q->report);
		}
	}
	q->inited = true;
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

	for (struct daemon_version *l = q->d->policies->live_versions; l; l = l->next) {
		daemon_version_copy_done(l);
	}
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

static void add_instance(struct copy_job *c, const struct daemon_version *old,
			 struct daemon_version *new)
{
	new->copied = true;
	for (int r = EBPF_REGION_GLOBAL; r < EBPF_REGION_ALL_GPUS; r++) {
		add(c, (enum ebpf_region)r, old->run.region[r], new->run.region[r]);
	}
	for (uint32_t t = 0; t < PROTO_MAX_TENANTS; t++) {
		add(c, EBPF_REGION_TENANT, old->region[t].map, new->region[t].map);
	}
}

static uint64_t collect(struct copy_job *c)
{
	const struct daemon_version *from = NULL;
	struct daemon_version *to = NULL;
	struct daemon *d = c->q->d;
	bool in_use = false; /* the new version, on another GPU: its maps of all GPUs, too */
	uint64_t bytes = 0;

	for (struct daemon_version *l = d->policies->live_versions; l; l = l->next) {
		struct daemon_version *old = daemon_version_on(d, c->q->was_active, l->gpu);

		in_use |= l->version == c->q->o.version && !l->pending &&
			  daemon_policy_active_version(d, l->gpu) == l->version;
		if (l->pending && old) {
			add_instance(c, old, l);
			from = old;
			to = l;
		}
	}
	if (in_use) {
		daemon_keep_leave_out(c->q->keep, EBPF_REGION_ALL_GPUS,
				      "is in use on another GPU: its contents there apply");
	} else if (to) {
		add(c, EBPF_REGION_ALL_GPUS, from->run.region[EBPF_REGION_ALL_GPUS],
		    to->run.region[EBPF_REGION_ALL_GPUS]);
	}
	for (unsigned i = 0; i < c->n; i++) {
		bytes += daemon_keep_bytes(c->q->keep, c->one[i].region);
	}
	return bytes;
}

static unsigned count_pending(const struct daemon_policies *p)
{
	unsigned n = 0;

	for (const struct daemon_version *l = p->live_versions; l; l = l->next) {
		n += l->pending;
	}
	return n;
}

/* The worker is about to copy between instances of these versions. */
static void mark_copying(struct daemon_policy_op *q)
{
	for (struct daemon_version *l = q->d->policies->live_versions; l; l = l->next) {
		l->copying = l->pending || l->version == q->was_active;
	}
}

static void copy(struct daemon_policy_op *q)
{
	unsigned items = COPIES_MAX * count_pending(q->d->policies);
	struct copy_job *c = calloc(1, sizeof(*c) + items * sizeof(c->one[0]));

	if (!c) {
		q->err = report_set(&q->report, -ENOMEM, "memory", "out of memory");
		daemon_swap_refuse(q, 1);
		return;
	}
	c->job = (struct daemon_job){ .work = copy_work, .done = copy_done, .drop = copy_drop };
	c->q = q;
	if (collect(c) <= COPY_INLINE_BYTES) {
		copy_work(&c->job);
		copy_done(&c->job);
	} else {
		mark_copying(q);
		daemon_job_thread_submit(&q->d->worker, &c->job);
	}
}

void daemon_swap_copy(struct daemon_policy_op *q)
{
	struct daemon_version *old = daemon_version_find(q->d, q->was_active);
	struct daemon_version *new = daemon_version_find(q->d, q->o.version);

	if (!q->o.keep_maps || !old || old->version == new->version) {
		finish(q);
		return;
	}
	q->keep = malloc(sizeof(*q->keep));
	if (!q->keep || daemon_keep_plan(q->keep, old->built, new->built) < 0) {
		q->err = report_set(&q->report, -ENOMEM, "memory", "out of memory");
		daemon_swap_refuse(q, 1);
		return;
	}
	copy(q);
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
