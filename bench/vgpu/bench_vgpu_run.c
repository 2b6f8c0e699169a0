/* One condition of bench-vgpu: starts the tenants, lets them work, and samples gbpfd's figures and
 * their own at the borders of windows. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bench/common/program.h"
#include "bench/vgpu/bench_vgpu.h"

/* "none": gBPF observes only, so the device's own time slices, or MPS, divide it. */
const char *const bench_vgpu_policies[VGPU_POLICIES] = { "band2",  "vgpu_auto",	 "band",
							 "credit", "fifo_share", "none" };
/* Their objects in the folder of installed policies, without .bpf.o. */
static const char *const paths[VGPU_POLICIES] = { "examples/band2",	 "vgpu_auto",
						  "examples/band",	 "examples/credit",
						  "examples/fifo_share", "none" };
const char *const bench_vgpu_lanes[VGPU_LANES] = { "process", "shared" };
const char *const bench_vgpu_kinds[VGPU_KINDS] = { "short", "long" };

#define POLL_NS 1000000u
#define ALONE_S 3.0 /* a tenant alone varies less than what is compared with it */

struct turn {
	struct bench_vgpu *b;
	const char *lane, *policy;
	const struct bench_vgpu_set *set; /* NULL: one tenant alone */
	enum bench_vgpu_kind kind[VGPU_TENANTS];
	struct bench_testbed_daemon *daemon;
	struct bench_testbed_client client[VGPU_TENANTS];
	unsigned n;
};

/* What is known of the tenants at one moment. */
struct sample {
	uint64_t at_ns, busy_ns[VGPU_TENANTS], finished[VGPU_TENANTS];
};

static struct bench_testbed_daemon *daemon_for(struct bench_vgpu *b, unsigned policy)
{
	if (!b->daemon[policy]) {
		b->daemon[policy] =
			bench_testbed_gbpfd_with(&b->testbed, b->policy_dir, paths[policy]);
	}
	return b->daemon[policy];
}

static int start_one(struct turn *t, unsigned i)
{
	struct bench_vgpu *b = t->b;
	const struct bench_vgpu_load *l = &b->load[t->kind[i]];
	struct bench_testbed_place place = { .lane = strcmp(t->lane, "shared") == 0
							     ? LANE_GBPF_SHARED
							     : LANE_GBPF,
					     .daemon = t->daemon,
					     .class_name = "normal",
					     .compute = t->set ? t->set->share[i] : 0,
					     .burst = t->set && b->burst,
					     .mps_priority = -1 };
	struct bench_testbed_command cmd;
	char name[48];
	int err;

	snprintf(name, sizeof(name), "%s%u", bench_vgpu_kinds[t->kind[i]], i);
	bench_command_init(&cmd);
	bench_command_option(&cmd, "--threads", "%u", b->threads);
	bench_command_option(&cmd, "--grid", "%u", l->grid);
	bench_command_option(&cmd, "--iterations", "%d", l->iterations);
	bench_command_option(&cmd, "--kernels", "%u", l->group);
	bench_command_option(&cmd, "--depth", "%u", l->depth);
	err = bench_client_start(&b->testbed, &t->client[i], name, &place, "share", &cmd);
	bench_command_finish(&cmd);
	return err;
}

static int take(struct turn *t, struct sample *s)
{
	uint64_t begin = clock_now_ns();
	uint32_t pid[VGPU_TENANTS];

	memset(s, 0, sizeof(*s));
	for (unsigned i = 0; i < t->n; i++) {
		s->finished[i] = load_acquire(&t->client[i].page->finished);
		pid[i] = t->client[i].page->pid;
	}
	if (bench_testbed_counters(&t->b->testbed, t->daemon, pid, t->n, "busy_ns", s->busy_ns) <
	    0) {
		return -1;
	}
	s->at_ns = begin + (clock_now_ns() - begin) / 2;
	return 0;
}

static int check_clients(struct turn *t)
{
	for (unsigned i = 0; i < t->n; i++) {
		const struct bench_page *p = t->client[i].page;

		if (load_acquire(&p->state) == PAGE_FAILED ||
		    !bench_testbed_lives(&t->b->testbed, t->client[i].pid)) {
			return bench_client_await(&t->client[i], 1); /* with its message */
		}
		if (p->wrong) {
			return bench_testbed_fail(&t->b->testbed, "%s: WRONG RESULTS",
						  t->client[i].name);
		}
	}
	return bench_testbed_interrupted() ? bench_testbed_fail(&t->b->testbed, "interrupted") : 0;
}

static int wait_until(struct turn *t, uint64_t at_ns)
{
	int err = 0;

	for (uint64_t now = clock_now_ns(); now < at_ns && !err; now = clock_now_ns()) {
		clock_sleep_ns(MIN(at_ns - now, 50 * (uint64_t)POLL_NS));
		err = check_clients(t);
	}
	return err;
}

static json_t *kinds_json(const struct turn *t)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < t->n; i++) {
		json_array_append_new(all, json_string(bench_vgpu_kinds[t->kind[i]]));
	}
	return all;
}

static int record_window(struct turn *t, const struct sample *now, const struct sample *before)
{
	return bench_testbed_record(
		&t->b->testbed, "window",
		json_pack("{s:s, s:s, s:o, s:o, s:I, s:o, s:o}", "lane", t->lane, "policy",
			  t->policy, "shares",
			  bench_program_integers(t->set ? t->set->share : NULL, t->set ? t->n : 0),
			  "kinds", kinds_json(t), "elapsed_ns",
			  (json_int_t)(now->at_ns - before->at_ns), "busy_ns",
			  bench_program_differences(now->busy_ns, before->busy_ns, t->n),
			  "finished",
			  bench_program_differences(now->finished, before->finished, t->n)));
}

static int measure(struct turn *t)
{
	struct bench_vgpu *b = t->b;
	double seconds = t->set ? b->seconds : MIN(b->seconds, ALONE_S);
	unsigned windows = (unsigned)(seconds / b->window_s + 0.001);
	uint64_t begin = clock_now_ns() + (uint64_t)(b->settle_s * 1e9);
	struct sample last, now;
	int err = wait_until(t, begin);

	err = err ? err : take(t, &last);
	for (unsigned i = 1; i <= windows && !err; i++) {
		err = wait_until(t, begin + (uint64_t)(i * b->window_s * 1e9));
		err = err ? err : take(t, &now);
		err = err ? err : record_window(t, &now, &last);
		last = now;
	}
	return err;
}

static int work(struct turn *t)
{
	int err = 0;

	for (unsigned i = 0; i < t->n && !err; i++) {
		err = start_one(t, i);
	}
	for (unsigned i = 0; i < t->n && !err; i++) {
		err = bench_client_await(&t->client[i], VGPU_READY_NS);
	}
	for (unsigned i = 0; i < t->n && !err; i++) {
		bench_client_send(&t->client[i], PAGE_WORK);
	}
	err = err ? err : measure(t);
	for (unsigned i = 0; i < t->n && !err; i++) {
		bench_client_send(&t->client[i], PAGE_PAUSE);
	}
	for (unsigned i = 0; i < t->n && !err; i++) {
		err = bench_client_await(&t->client[i], VGPU_READY_NS);
	}
	return err ? err : check_clients(t);
}

/* Names the part under way, and the time that this one and the rest take without the starts of
 * programs. */
static void tell(const struct turn *t, enum bench_vgpu_kind alone)
{
	struct bench_vgpu *b = t->b;
	char shares[64] = "";
	size_t n = 0;

	b->part++;
	for (unsigned i = 0; t->set && i < t->n && n < sizeof(shares) - 8; i++) {
		n += (size_t)snprintf(shares + n, sizeof(shares) - n, "%s%u", i ? "," : "",
				      t->set->share[i]);
	}
	bench_testbed_progress(&b->testbed,
			       "vgpu: part %u of %u, about %.0f s left: %s lane, %s, %s", b->part,
			       b->parts, (b->parts - b->part + 1) * (b->settle_s + b->seconds),
			       t->lane, t->policy, t->set ? shares : bench_vgpu_kinds[alone]);
}

int bench_vgpu_run(struct bench_vgpu *b, const char *lane, unsigned policy,
		   const struct bench_vgpu_set *set, enum bench_vgpu_kind alone)
{
	struct turn t = { .b = b,
			  .lane = lane,
			  .policy = bench_vgpu_policies[policy],
			  .set = set,
			  .n = set ? set->n : 1,
			  .daemon = daemon_for(b, policy) };
	int err;

	if (!t.daemon) {
		return -1;
	}
	for (unsigned i = 0; i < t.n; i++) {
		t.kind[i] = set ? (enum bench_vgpu_kind)(i % VGPU_KINDS) : alone;
	}
	tell(&t, alone);
	err = work(&t);
	for (unsigned i = 0; i < t.n; i++) {
		bench_client_stop(&t.client[i]);
	}
	return err;
}
