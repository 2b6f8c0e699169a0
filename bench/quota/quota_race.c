/* Workers of one vGPU race for its memory; then some are killed. The workers' own count, gbpfd's
 * ledger and the driver's figure are compared. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "bench/common/program.h"
#include "bench/common/statistics.h"
#include "bench/quota/quota.h"

#define SAMPLE_NS 1000000u
#define NOBODY QUOTA_SLOTS
#define CLEAR_NS clock_patience(10000000000) /* longest wait for the ledger after a kill */
#define DRIVER_NS 5000000000ull
#define KILL_MIN_NS 20000000u /* of racing before a kill */
#define KILL_MAX_NS 200000000u

struct race {
	struct bench_quota *b;
	pid_t group;
	uint64_t base_free, idle_free; /* before the workers started, and before they allocate */
	uint64_t ledger_peak, samples;
	struct bench_quota_ledger ledger; /* the last one */
};

/* What the driver says is in use beyond the state before allocations, bytes; negative: less. */
static int64_t driver_used(const struct race *r, uint64_t available)
{
	return (int64_t)r->idle_free - (int64_t)available;
}

/* Watches the workers for a time. */
static int observe(struct race *r, uint64_t ns)
{
	uint64_t now = clock_now_ns(), next = now, end = now + ns;

	while (next < end) {
		if (bench_quota_check_clients(r->b, r->group) < 0) {
			return -1;
		}
		if (bench_quota_read_ledger(r->b, 0, &r->ledger)) {
			r->ledger_peak = MAX(r->ledger_peak, r->ledger.whole);
			r->samples++;
		}
		now = clock_now_ns();
		next = MAX(next + SAMPLE_NS, now);
		clock_sleep_ns(next - now);
	}
	return 0;
}

/* Lets the workers stop and reads all figures. */
static int settle(struct race *r, enum bench_quota_activity what, uint64_t *ret_free)
{
	int err;

	bench_quota_begin(r->b, what);
	err = bench_quota_await_quiet(r->b, r->group, NOBODY);
	err = err ? err : bench_quota_free_bytes(r->b, ret_free);
	if (!err && !bench_quota_read_ledger(r->b, 0, &r->ledger)) {
		err = bench_testbed_fail(&r->b->testbed, "gbpfd does not answer");
	}
	return err;
}

static json_t *counters(const struct bench_quota *b)
{
	uint64_t allocations = 0, refusals = 0;

	for (unsigned i = 0; i < b->processes; i++) {
		allocations += load_relaxed(&b->page->slot[i].allocations);
		refusals += load_relaxed(&b->page->slot[i].refusals);
	}
	return json_pack("{s:I, s:I}", "allocations", (json_int_t)allocations, "refusals",
			 (json_int_t)refusals);
}

static int race(struct race *r)
{
	struct bench_quota *b = r->b;
	uint64_t held, available = 0, after = 0, least;
	struct bench_quota_ledger ledger;
	int err;

	bench_testbed_progress(&b->testbed, "quota: race");
	add_acqrel(&b->page->probe_restarts, 1u);
	bench_quota_begin(b, QUOTA_RACE);
	err = observe(r, (uint64_t)(b->seconds * 1e9));
	err = err ? err : settle(r, QUOTA_HOLD, &available);
	if (err) {
		return err;
	}
	held = bench_quota_held(b);
	ledger = r->ledger;
	least = load_relaxed(&b->page->slot[QUOTA_PROBE].least_free);
	err = settle(r, QUOTA_RELEASE, &after);
	if (err) {
		return err;
	}
	return bench_testbed_record(
		&b->testbed, "race",
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
			  "held_peak", (json_int_t)load_acquire(&b->page->peak), "ledger_peak",
			  (json_int_t)r->ledger_peak, "samples", (json_int_t)r->samples,
			  "driver_peak", (json_int_t)driver_used(r, least), "held_end",
			  (json_int_t)held, "ledger_end", (json_int_t)ledger.used, "driver_end",
			  (json_int_t)driver_used(r, available), "ledger_limit",
			  (json_int_t)ledger.limit, "ledger_after", (json_int_t)r->ledger.used,
			  "driver_after", (json_int_t)driver_used(r, after), "overhead",
			  (json_int_t)ledger.overhead, "calls", counters(b)));
}

/* ---- kills ---- */

struct kill {
	double clear_ms;
	double exit_ms; /* of these, until the process has exited: the driver's and the kernel's */
	uint64_t held, ledger; /* of the survivors */
	int64_t driver;
	bool equal; /* the ledger is the sum of the processes that it lists: the survivors */
};

/* Waits until gbpfd's ledger contains nothing of the process. The survivors hold, so that the sum
 * over them is the vGPU's figure once the victim's line is clear. */
static int await_clear(struct race *r, pid_t victim, uint64_t since, struct kill *ret)
{
	struct bench_quota_ledger *l = &r->ledger;

	for (;;) {
		uint64_t now = clock_now_ns();

		if (bench_quota_read_ledger(r->b, victim, l) && !l->has_pid &&
		    l->used == l->of_all && l->tenants == r->b->processes - 1) {
			ret->clear_ms = (double)(clock_now_ns() - since) / 1e6;
			return 0;
		}
		if (bench_quota_check_clients(r->b, r->group) < 0) {
			return -1;
		}
		if (now - since > CLEAR_NS) {
			return bench_testbed_fail(&r->b->testbed,
						  "the ledger contains a killed process: %llu of "
						  "%llu bytes are those of the survivors",
						  (unsigned long long)l->of_all,
						  (unsigned long long)l->used);
		}
		clock_sleep_ns(QUOTA_POLL_NS);
	}
}

/* Kills a process and waits until it has exited: the driver frees its memory before that. gbpfd is
 * asked nothing meanwhile, so that it serves no request when the exit is reported to it. */
static int kill_and_wait(struct race *r, pid_t victim, uint64_t *ret_since, struct kill *ret)
{
	struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, victim, 0), .events = POLLIN };
	int n;

	*ret_since = clock_now_ns();
	if (p.fd < 0 || kill(victim, SIGKILL) < 0) {
		fd_close(p.fd);
		return bench_testbed_fail(&r->b->testbed, "kill: %s", strerror(errno));
	}
	bench_quota_begin(r->b, QUOTA_HOLD);
	do {
		n = poll(&p, 1, (int)(CLEAR_NS / 1000000));
	} while (n < 0 && errno == EINTR && !bench_testbed_interrupted());
	ret->exit_ms = (double)(clock_now_ns() - *ret_since) / 1e6;
	fd_close(p.fd);
	return n > 0 ? 0
		     : bench_testbed_fail(&r->b->testbed, "worker %d does not exit", (int)victim);
}

static int kill_one(struct race *r, unsigned slot, struct kill *ret)
{
	struct bench_quota *b = r->b;
	pid_t victim = (pid_t)load_acquire(&b->page->slot[slot].pid);
	int64_t peak = load_acquire(&b->page->peak);
	uint64_t since, available;
	int err;

	err = kill_and_wait(r, victim, &since, ret);
	err = err ? err : await_clear(r, victim, since, ret);
	err = err ? err : bench_quota_await_quiet(b, r->group, slot);
	if (err) {
		return err;
	}
	/* Again, once the survivors are quiet. */
	store_release(&b->page->slot[slot].held, (int64_t)0);
	ret->held = bench_quota_held(b);
	if (bench_quota_free_bytes(b, &available) < 0) {
		return -1;
	}
	ret->driver = driver_used(r, available);
	err = bench_quota_read_ledger(b, victim, &r->ledger) ? 0 : -1;
	ret->ledger = r->ledger.used;
	ret->equal = !err && r->ledger.used == r->ledger.of_all && !r->ledger.has_pid;
	/* The sum contained the victim's bytes, so since the kill it may exceed what is in use. */
	store_release(&b->page->total, (int64_t)ret->held);
	store_release(&b->page->peak, MAX(peak, (int64_t)ret->held));
	return err ? bench_testbed_fail(&b->testbed, "gbpfd does not answer")
		   : bench_quota_restart(b, r->group, slot);
}

static int record_kill(struct bench_quota *b, const struct kill *k)
{
	return bench_testbed_record(&b->testbed, "kill",
				    json_pack("{s:f, s:f, s:I, s:I, s:I, s:b}", "clear_ms",
					      k->clear_ms, "exit_ms", k->exit_ms, "driver",
					      (json_int_t)k->driver, "held", (json_int_t)k->held,
					      "ledger", (json_int_t)k->ledger, "equal", k->equal));
}

/* Waits until a gbpfd that has been started lists the surviving workers, and nothing else. */
static int await_back(struct race *r, pid_t victim, uint64_t since, struct kill *ret)
{
	unsigned survivors = r->b->processes - (victim != 0);
	struct bench_quota_ledger *l = &r->ledger;

	for (;;) {
		if (bench_quota_read_ledger(r->b, victim, l) && !l->has_pid &&
		    l->used == l->of_all && l->tenants == survivors) {
			ret->clear_ms = (double)(clock_now_ns() - since) / 1e6;
			return 0;
		}
		if (bench_quota_check_clients(r->b, r->group) < 0) {
			return -1;
		}
		if (clock_now_ns() - since > CLEAR_NS) {
			return bench_testbed_fail(&r->b->testbed,
						  "gbpfd, started again, lists %u of %u workers "
						  "with %llu of %llu bytes",
						  l->tenants, survivors,
						  (unsigned long long)l->of_all,
						  (unsigned long long)l->used);
		}
		clock_sleep_ns(QUOTA_POLL_NS);
	}
}

/* Kills gbpfd amid the race, and a worker while it is away; then starts it again. NOBODY: no
 * worker. */
static int kill_gbpfd(struct race *r, unsigned slot, struct kill *ret)
{
	struct bench_quota *b = r->b;
	pid_t victim = slot == NOBODY ? 0 : (pid_t)load_acquire(&b->page->slot[slot].pid);
	int64_t peak = load_acquire(&b->page->peak);
	int err = bench_testbed_kill_gbpfd(&b->testbed, b->daemon);
	uint64_t since;

	if (!err && victim && kill(victim, SIGKILL) < 0) {
		err = bench_testbed_fail(&b->testbed, "kill: %s", strerror(errno));
	}
	err = err ? err : bench_testbed_restart_gbpfd(&b->testbed, b->daemon);
	if (err) {
		return err;
	}
	since = clock_now_ns();
	bench_quota_begin(b, QUOTA_HOLD);
	err = await_back(r, victim, since, ret);
	err = err ? err : bench_quota_await_quiet(b, r->group, slot);
	if (err) {
		return err;
	}
	if (victim) {
		store_release(&b->page->slot[slot].held, (int64_t)0);
	}
	ret->held = bench_quota_held(b);
	err = bench_quota_read_ledger(b, victim, &r->ledger) ? 0 : -1;
	ret->ledger = r->ledger.used;
	ret->equal = !err && r->ledger.used == r->ledger.of_all && !r->ledger.has_pid;
	store_release(&b->page->total, (int64_t)ret->held);
	store_release(&b->page->peak, MAX(peak, (int64_t)ret->held));
	if (err) {
		return bench_testbed_fail(&b->testbed, "gbpfd does not answer");
	}
	return victim ? bench_quota_restart(b, r->group, slot) : 0;
}

static int gbpfd_kills(struct race *r, uint64_t *random)
{
	struct bench_quota *b = r->b;
	struct kill k = { 0 };
	int err = 0;

	for (unsigned i = 0; i < b->gbpfd_kills && !err; i++) {
		unsigned victim = (unsigned)(bench_stats_random(random) >> 33) % b->processes;

		bench_testbed_progress(&b->testbed, "quota: kill of gbpfd %u of %u", i + 1,
				       b->gbpfd_kills);
		bench_quota_begin(b, QUOTA_RACE);
		err = observe(r, KILL_MIN_NS +
					 bench_stats_random(random) % (KILL_MAX_NS - KILL_MIN_NS));
		err = err ? err : kill_gbpfd(r, i % 2 ? NOBODY : victim, &k);
		err = err ? err
			  : bench_testbed_record(&b->testbed, "gbpfd_kill",
						 json_pack("{s:f, s:I, s:I, s:b}", "back_ms",
							   k.clear_ms, "held", (json_int_t)k.held,
							   "ledger", (json_int_t)k.ledger, "equal",
							   k.equal));
	}
	return err;
}

static int kills(struct race *r)
{
	struct bench_quota *b = r->b;
	uint64_t random = 0x9e3779b97f4a7c15u ^ b->seed, after = 0, held;
	struct kill k = { 0 };
	int err = 0;

	r->ledger_peak = 0;
	add_acqrel(&b->page->probe_restarts, 1u);
	store_release(&b->page->whole, 1u); /* so that bytes asked for are bytes charged */
	store_release(&b->page->peak, (int64_t)0);
	for (unsigned i = 0; i < b->kills && !err; i++) {
		bench_testbed_progress(&b->testbed, "quota: kill %u of %u", i + 1, b->kills);
		bench_quota_begin(b, QUOTA_RACE);
		err = observe(r, KILL_MIN_NS +
					 bench_stats_random(&random) % (KILL_MAX_NS - KILL_MIN_NS));
		err = err ? err
			  : kill_one(r,
				     (unsigned)(bench_stats_random(&random) >> 33) % b->processes,
				     &k);
		err = err ? err : record_kill(b, &k);
	}
	err = err ? err : gbpfd_kills(r, &random);
	err = err ? err : settle(r, QUOTA_RELEASE, &after);
	held = bench_quota_held(b);
	return err ? err
		   : bench_testbed_record(
			     &b->testbed, "kills_end",
			     json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "driver_peak",
				       (json_int_t)driver_used(
					       r, load_relaxed(
							  &b->page->slot[QUOTA_PROBE].least_free)),
				       "held_peak", (json_int_t)load_acquire(&b->page->peak),
				       "ledger_peak", (json_int_t)r->ledger_peak, "held",
				       (json_int_t)held, "ledger", (json_int_t)r->ledger.used,
				       "driver", (json_int_t)driver_used(r, after)));
}

static int record_start(struct race *r)
{
	int64_t taken = (int64_t)r->base_free - (int64_t)r->idle_free;

	return bench_testbed_record(&r->b->testbed, "start",
				    json_pack("{s:I}", "process_bytes",
					      (json_int_t)(taken / (int64_t)r->b->processes)));
}

/* Waits until the driver has taken back what the ended workers had: a moment, if it ever does so
 * to the byte. */
static int await_end(const struct race *r)
{
	uint64_t available = 0, deadline = clock_now_ns() + DRIVER_NS;
	int err;

	do {
		err = bench_quota_free_bytes(r->b, &available);
	} while (!err && available < r->base_free && clock_now_ns() < deadline);
	return err;
}

int bench_quota_race(struct bench_quota *b)
{
	const struct bench_testbed_place place = { .lane = LANE_GBPF,
						   .daemon = b->daemon,
						   .class_name = "normal",
						   .mps_priority = -1,
						   .mem = b->page->limit };
	struct race r = { .b = b };
	bool with_race = !b->parts || bench_program_lists(b->parts, "race");
	bool with_kills = !b->parts || bench_program_lists(b->parts, "kills");
	int err;

	if (!with_race && !with_kills) {
		return 0;
	}
	store_release(&b->page->whole, 0u);
	err = bench_quota_free_bytes(b, &r.base_free);
	err = err ? err : bench_quota_start_group(b, &place, b->paths, false, &r.group);
	err = err ? err : bench_quota_free_bytes(b, &r.idle_free);
	err = err ? err : record_start(&r);
	err = err || !with_race ? err : race(&r);
	err = err || !with_kills || !(b->kills + b->gbpfd_kills) ? err : kills(&r);
	bench_testbed_end(&b->testbed, r.group, 0);
	return err ? err : await_end(&r);
}

/* ---- the control ---- */

int bench_quota_control(struct bench_quota *b)
{
	const struct bench_testbed_place own = { .lane = LANE_OWN, .mps_priority = -1 };
	struct race r = { .b = b };
	int err;

	if (b->parts && !bench_program_lists(b->parts, "control")) {
		return 0;
	}
	bench_testbed_progress(&b->testbed, "quota: control");
	store_release(&b->page->whole, 1u); /* as the driver counts: bytes held are bytes in use */
	/* The driver's figure does not contain managed memory before it is used, and pools grow in
	 * steps: not for a control that is to be as careful as it can. */
	err = bench_quota_start_group(b, &own, "alloc,pitch,create,array", true, &r.group);
	err = err ? err : bench_quota_free_bytes(b, &b->page->base_free);
	if (!err) {
		bench_quota_begin(b, QUOTA_RACE);
		for (uint64_t end = clock_now_ns() + (uint64_t)(b->seconds * 1e9);
		     !err && clock_now_ns() < end; clock_sleep_ns(SAMPLE_NS)) {
			err = bench_quota_check_clients(b, r.group);
		}
		bench_quota_begin(b, QUOTA_HOLD);
		err = err ? err : bench_quota_await_quiet(b, r.group, NOBODY);
	}
	if (!err) {
		err = bench_testbed_record(
			&b->testbed, "control",
			json_pack("{s:I, s:I, s:o}", "driver_peak",
				  (json_int_t)load_acquire(&b->page->driver_peak), "held_peak",
				  (json_int_t)load_acquire(&b->page->peak), "calls", counters(b)));
	}
	bench_testbed_end(&b->testbed, r.group, 0);
	return err;
}
