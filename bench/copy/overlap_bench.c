/* `gbpf bench dev copy --overlap`: tenants that upload, process and download images, alone and two
 * at once, by gBPF with and without shares and, as a control, without gBPF. Compute and copy queues
 * are separate, so that the kernels of one can run while the other copies: both together exceed 100
 * %. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/common/program.h"
#include "bench/copy/copy_bench.h"
#include "bench/copy/intervals.h"

#define TENANTS 2u
#define SHARE 50u		  /* % of compute and of copies, of each tenant */
#define SHARES_POLICY "vgpu_auto" /* the default where vGPUs have shares */
#define STARTS_S 2.0		  /* of a part: programs start, and begin to work */
#define SOFT_LINK                                                                                  \
	"268435456" /* bytes/s: a copy takes as long as a kernel that it can overlap with */

enum place { BY_GBPF, BY_GBPF_SHARES, NATIVE, PLACES };
static const char *const place_names[PLACES] = { "gbpf", "gbpf-shares", "native" };

/* The tenants alone show what one gets; of shares there is nothing to see alone. */
static const struct condition {
	enum place place;
	unsigned tenants;
} conditions[] = {
	{ BY_GBPF, 1 }, { BY_GBPF, TENANTS }, { BY_GBPF_SHARES, TENANTS },
	{ NATIVE, 1 },	{ NATIVE, TENANTS },
};

struct overlap {
	struct bench_copy *b;
	struct bench_testbed_daemon *daemon[PLACES]; /* borrowed; NATIVE: NULL */
	const struct condition *condition;
	unsigned kind;
	uint32_t iterations;		     /* of the kind's kernel */
	uint64_t seen[TENANTS][COPY_QUEUES]; /* operations that ended before the window */
	struct bench_copy_interval interval[TENANTS * COPY_LOG]; /* of one window */
	size_t n;
};

struct sample {
	uint64_t at_ns, images[COPY_CLIENTS_MAX], busy_ns[COPY_CLIENTS_MAX];
};

/* ---- operations in flight ---- */

/* Appends the tenant's operations that were in flight within [from_ns, to_ns), cut to it. */
static int collect(struct overlap *o, unsigned tenant, unsigned queue, uint64_t from_ns,
		   uint64_t to_ns)
{
	const struct bench_copy_page *p = o->b->client[tenant].page;
	uint64_t begun = load_acquire(&p->log[queue].begun), *seen = &o->seen[tenant][queue];
	uint64_t n = MIN(begun - *seen, COPY_LOG);

	for (uint64_t i = begun - n; i < begun; i++) {
		const struct bench_copy_interval *entry = &p->log[queue].entry[i % COPY_LOG];
		uint64_t end_ns = load_acquire(&entry->end_ns);
		uint64_t begin_ns = MAX(load_relaxed(&entry->begin_ns), from_ns);

		if (end_ns && end_ns <= to_ns) {
			*seen = i + 1;
		}
		end_ns = end_ns ? MIN(end_ns, to_ns) : to_ns;
		if (begin_ns < end_ns) {
			o->interval[o->n++] = (struct bench_copy_interval){ begin_ns, end_ns };
		}
	}
	/* Entries were read before the client began to use them again, unless it is that far ahead.
	 */
	return load_acquire(&p->log[queue].begun) - (begun - n) < COPY_LOG
		       ? 0
		       : bench_testbed_fail(&o->b->testbed, "too many images in a window; use "
							    "larger ones (--max)");
}

/* Stores how long an operation of at least one tenant was in the queue between two times. */
static int time_busy(struct overlap *o, unsigned queue, uint64_t from_ns, uint64_t to_ns,
		     uint64_t *ret_ns)
{
	int err = 0;

	o->n = 0;
	for (unsigned i = 0; i < o->condition->tenants && !err; i++) {
		err = collect(o, i, queue, from_ns, to_ns);
	}
	*ret_ns = err ? 0 : bench_copy_time_covered(o->interval, o->n);
	return err;
}

/* Operations before now do not matter, except the one that may be in flight. */
static void skip(struct overlap *o)
{
	for (unsigned i = 0; i < o->condition->tenants * COPY_QUEUES; i++) {
		unsigned tenant = i / COPY_QUEUES, queue = i % COPY_QUEUES;
		uint64_t begun = load_acquire(&o->b->client[tenant].page->log[queue].begun);

		o->seen[tenant][queue] = begun ? begun - 1 : 0;
	}
}

/* ---- windows ---- */

static int take(struct overlap *o, struct sample *s)
{
	struct bench_copy *b = o->b;
	unsigned n = o->condition->tenants;

	memset(s, 0, sizeof(*s));
	s->at_ns = clock_now_ns();
	for (unsigned i = 0; i < n; i++) {
		s->images[i] = load_acquire(&b->client[i].page->images);
	}
	return b->daemon ? bench_copy_counters(b, n, "busy_ns", s->busy_ns) : 0;
}

static int record_window(struct overlap *o, unsigned windows, const struct sample *now,
			 const struct sample *before)
{
	const struct condition *c = o->condition;
	uint64_t ns[COPY_QUEUES];

	for (unsigned q = 0; q < COPY_QUEUES; q++) {
		if (time_busy(o, q, before->at_ns, now->at_ns, &ns[q]) < 0) {
			return -1;
		}
	}
	return bench_testbed_record(
		&o->b->testbed, "overlap",
		json_pack("{s:s, s:s, s:i, s:i, s:I, s:o, s:I, s:I, s:o}", "kind",
			  bench_copy_kinds[o->kind], "place", place_names[c->place], "tenants",
			  (int)c->tenants, "windows", (int)windows, "elapsed_ns",
			  (json_int_t)(now->at_ns - before->at_ns), "images",
			  bench_program_differences(now->images, before->images, c->tenants),
			  "copy_ns", (json_int_t)ns[COPY_QUEUE_COPY], "compute_ns",
			  (json_int_t)ns[COPY_QUEUE_COMPUTE], "busy_ns",
			  c->place == NATIVE ? json_null()
					     : bench_program_differences(
						       now->busy_ns, before->busy_ns, c->tenants)));
}

static unsigned windows_of(const struct bench_copy *b, const struct condition *c)
{
	return c->tenants > 1 ? b->seconds : 1;
}

static int windows(struct overlap *o)
{
	struct bench_copy *b = o->b;
	unsigned n = o->condition->tenants, count = windows_of(b, o->condition);
	struct sample last, now;
	int err = bench_copy_settle(b, 0, n);

	skip(o);
	err = err ? err : take(o, &last);
	for (unsigned k = 0; k < count && !err; k++) {
		err = bench_copy_wait(b, n, last.at_ns + COPY_WINDOW_NS);
		err = err ? err : take(o, &now);
		err = err ? err : record_window(o, count, &now, &last);
		last = now;
	}
	return bench_copy_stop(b, 0, n) < 0 ? -1 : err;
}

static void describe(struct overlap *o, unsigned client, enum bench_copy_job job)
{
	struct bench_copy_page *p = o->b->client[client].page;

	p->job = job;
	p->pinned = o->kind;
	p->bytes = o->b->max;
	p->iterations = o->iterations;
}

static int start(struct overlap *o)
{
	struct bench_copy *b = o->b;
	enum place at = o->condition->place;
	unsigned share = at == BY_GBPF_SHARES ? SHARE : 0;
	struct bench_testbed_place place = { .lane = at == NATIVE ? LANE_OWN : LANE_GBPF,
					     .daemon = o->daemon[at],
					     .class_name = "normal",
					     .compute = share,
					     .copy = share,
					     .mps_priority = -1 };
	int err = 0;

	b->daemon = o->daemon[at];
	for (unsigned i = 0; i < o->condition->tenants && !err; i++) {
		err = bench_copy_start_as(b, i, "image", &place);
	}
	return err;
}

static int run_condition(struct overlap *o)
{
	struct bench_copy *b = o->b;
	const struct condition *c = o->condition;
	char what[96];
	int err;

	snprintf(what, sizeof(what), "%s, %s, %u tenant%s", bench_copy_kinds[o->kind],
		 place_names[c->place], c->tenants, c->tenants == 1 ? "" : "s");
	bench_copy_tell(b, STARTS_S + windows_of(b, c), what);
	err = start(o);
	for (unsigned i = 0; i < c->tenants && !err; i++) {
		describe(o, i, COPY_IMAGES);
		bench_copy_loop(&b->client[i]);
	}
	err = err ? err : windows(o);
	bench_copy_end_all(b);
	return err;
}

/* Finds the kernel that takes as long as the copies of this kind of memory by gBPF, without
 * neighbours. */
static int calibrate(struct overlap *o)
{
	struct bench_copy *b = o->b;
	struct bench_copy_client *c = &b->client[0];
	char what[96];
	int err;

	snprintf(what, sizeof(what), "%s, calibrating", bench_copy_kinds[o->kind]);
	bench_copy_tell(b, STARTS_S, what);
	o->condition = &conditions[0];
	err = start(o);
	if (!err) {
		describe(o, 0, COPY_CALIBRATE);
		bench_copy_order(c);
		err = bench_copy_await_done(b, c);
	}
	if (!err) {
		o->iterations = c->page->iterations;
		err = bench_testbed_record(&b->testbed, "image",
					   json_pack("{s:s, s:s, s:i, s:I, s:I, s:I}", "kind",
						     bench_copy_kinds[o->kind], "device",
						     c->page->device, "cores", (int)c->page->cores,
						     "iterations", (json_int_t)o->iterations,
						     "kernel_ns", (json_int_t)c->page->kernel_ns,
						     "copies_ns", (json_int_t)c->page->copies_ns));
	}
	bench_copy_end_all(b);
	return err;
}

static int record_set_up(struct bench_copy *b)
{
	json_int_t link = b->testbed.soft ? strtoll(b->testbed.link_bandwidth, NULL, 10) : 0;

	return bench_testbed_record(
		&b->testbed, "set_up",
		json_pack("{s:b, s:b, s:s, s:s, s:i, s:I, s:i, s:I}", "overlap", 1, "soft",
			  b->testbed.soft, "policy", b->testbed.policy_name, "policy_shares",
			  SHARES_POLICY, "share", (int)SHARE, "max", (json_int_t)b->max, "seconds",
			  (int)b->seconds, "link_bytes_s", link));
}

static int set_up(struct overlap *o)
{
	struct bench_copy *b = o->b;
	int err;

	if (b->testbed.soft && !b->testbed.link_bandwidth) {
		b->testbed.link_bandwidth = SOFT_LINK;
	}
	err = bench_testbed_init(&b->testbed);
	if (err) {
		return err;
	}
	o->daemon[BY_GBPF] = bench_testbed_gbpfd(&b->testbed, b->testbed.policy);
	o->daemon[BY_GBPF_SHARES] =
		o->daemon[BY_GBPF]
			? bench_testbed_gbpfd_with(&b->testbed, b->policy_dir, SHARES_POLICY)
			: NULL;
	return o->daemon[BY_GBPF_SHARES] ? record_set_up(b) : -1;
}

/* Counts the parts, and their time. */
static void plan(struct bench_copy *b)
{
	b->parts = COPY_KINDS * (1 + (unsigned)ARRAY_SIZE(conditions));
	b->left_s = b->parts * STARTS_S;
	for (size_t i = 0; i < ARRAY_SIZE(conditions); i++) {
		b->left_s += COPY_KINDS * windows_of(b, &conditions[i]);
	}
}

int bench_copy_overlap(struct bench_copy *b)
{
	static struct overlap o;
	int err;

	o.b = b;
	plan(b);
	err = set_up(&o);
	for (o.kind = 0; o.kind < COPY_KINDS && !err; o.kind++) {
		err = calibrate(&o);
		for (size_t i = 0; i < ARRAY_SIZE(conditions) && !err; i++) {
			o.condition = &conditions[i];
			err = run_condition(&o);
		}
	}
	return err;
}
