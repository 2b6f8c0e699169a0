/* Between the last acknowledgement and the flip: what is kept of the old version's maps is copied,
 * and init of the new version runs. Little is copied at once, so that nothing that happens
 * meanwhile is lost; more is the worker's, and gbpfd's loop goes on. */
#include "daemon/policy/policies_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/point.h"
#include "daemon/policy/daemon_hooks.h"

#define COPY_INLINE_BYTES (1u << 20) /* about 100 us */

struct copy {
	struct job job; /* first */
	struct request *q;
	struct live *old, *new;
	unsigned n;
	struct copy_one {
		enum ebpf_region region;
		const void *from;
		void *to;
	} one[SCHED_MAX_TENANTS + EBPF_REGIONS];
};

/* The version as it was: nobody has begun a call on the new one. */
static void refuse(struct request *q, int exit_code)
{
	struct daemon *d = q->d;

	q->readying = false;
	d->policies->pending = NULL;
	session_each(d, s)
	{
		s->wait_for = 0;
	}
	policy_drop_unused(d, 0);
	request_fail(q, exit_code);
}

static bool into_store(struct request *q)
{
	json_t *meta = q->meta;

	if (q->o.op != POLICY_LOAD) {
		return true;
	}
	q->meta = NULL;
	q->err = store_add(&q->d->policies->store, q->o.version, meta, &q->removed);
	if (q->err) {
		q->err = report_set(&q->report, -E2BIG, "limit",
				    "%u versions are kept and all are in use", STORE_VERSIONS);
		return false;
	}
	q->d->counters.loads++;
	POINT("daemon.ready.stored");
	return true;
}

/* The copying is done. */
static void finish(struct request *q)
{
	struct daemon *d = q->d;
	struct live *l = d->policies->pending;

	POINT("daemon.ready.kept");
	q->kept = q->keep ? keep_json(q->keep) : NULL;
	q->err = hook_init(l, q->o.gpu_mask, q->keep ? q->keep->n_kept : 0, q->name, &q->report);
	POINT("daemon.ready.inited");
	if (q->err) {
		refuse(q, 4);
	} else if (!into_store(q)) {
		refuse(q, 7);
	} else {
		swap_flip(q);
	}
}

/* ---- copying ---- */

static void copy_work(struct job *j)
{
	struct copy *c = (struct copy *)j;
	uint64_t begin = clock_now_ns();

	for (unsigned i = 0; i < c->n; i++) {
		keep_copy(c->q->keep, c->one[i].region, c->one[i].from, c->one[i].to);
		POINT("daemon.ready.copied");
	}
	c->q->copy_ns = clock_now_ns() - begin;
}

static void copy_done(struct job *j)
{
	struct copy *c = (struct copy *)j;
	struct request *q = c->q;

	live_copied(c->old);
	live_copied(c->new);
	free(c);
	finish(q);
}

static void copy_drop(struct job *j)
{
	free(j);
}

static void add(struct copy *c, enum ebpf_region region, const void *from, void *to)
{
	if (from && to && keep_bytes(c->q->keep, region)) {
		c->one[c->n++] = (struct copy_one){ region, from, to };
	}
}

static uint64_t collect(struct copy *c)
{
	uint64_t bytes = 0;

	for (int r = EBPF_REGION_GLOBAL; r < EBPF_REGIONS; r++) {
		add(c, (enum ebpf_region)r, c->old->run.region[r], c->new->run.region[r]);
	}
	for (uint32_t t = 0; t < SCHED_MAX_TENANTS; t++) {
		add(c, EBPF_REGION_TENANT, c->old->region[t].map, c->new->region[t].map);
	}
	for (unsigned i = 0; i < c->n; i++) {
		bytes += keep_bytes(c->q->keep, c->one[i].region);
	}
	return bytes;
}

static void copy(struct request *q, struct live *old)
{
	struct copy *c = calloc(1, sizeof(*c));

	if (!c) {
		q->err = report_set(&q->report, -ENOMEM, "memory", "out of memory");
		refuse(q, 1);
		return;
	}
	c->job = (struct job){ .work = copy_work, .done = copy_done, .drop = copy_drop };
	c->q = q;
	c->old = old;
	c->new = q->d->policies->pending;
	if (collect(c) <= COPY_INLINE_BYTES) {
		copy_work(&c->job);
		copy_done(&c->job);
	} else {
		c->old->copying = c->new->copying = true;
		worker_submit(&q->d->worker, &c->job);
	}
}

void swap_ready(struct request *q)
{
	struct policies *p = q->d->policies;
	struct live *old = policy_live_find(q->d, q->was_active);

	q->readying = true;
	q->waited_ns = MAX(clock_now_ns() - q->prepare_begin_ns, 1u);
	p->timer = sd_event_source_disable_unref(p->timer);
	if (!q->o.keep_maps || !old || old == p->pending) {
		finish(q);
		return;
	}
	q->keep = malloc(sizeof(*q->keep));
	if (!q->keep || keep_plan(q->keep, old->built, p->pending->built) < 0) {
		q->err = report_set(&q->report, -ENOMEM, "memory", "out of memory");
		refuse(q, 1);
		return;
	}
	copy(q, old);
}
