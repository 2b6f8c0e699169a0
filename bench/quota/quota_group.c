/* Starts and awaits the clients of `gbpf bench memory`, and reads gbpfd's and the driver's figures.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "bench/quota/quota.h"

#define COMMAND_NS 300000000000ull

static int spawn(struct bench_quota *b, const struct bench_testbed_place *where, const char *name,
		 const char *role, const struct bench_testbed_command *options, pid_t *ret_pid)
{
	struct bench_testbed_command k;
	char log[160];

	snprintf(log, sizeof(log), "%s/%s.log", b->testbed.dir, name);
	bench_command_init(&k);
	bench_testbed_put_in_place(&b->testbed, &k, where, name);
	bench_command_add(&k, "%s", b->testbed.client);
	bench_command_add(&k, "%s", role);
	bench_command_option(&k, "--page", "%d", b->fd);
	if (where->lane == LANE_OWN) {
		bench_command_option(&k, "--libcuda", "%s", b->testbed.libcuda);
	}
	bench_command_option(&k, "--driver", "%s", b->testbed.libcuda);
	for (unsigned i = 0; i < options->n; i++) {
		bench_command_add(&k, "%s", options->argv[i]);
	}
	k.failed |= options->failed;
	*ret_pid = bench_testbed_spawn(&b->testbed, &k, log, b->fd, NULL);
	bench_command_finish(&k);
	return *ret_pid > 0 ? 0 : -1;
}

int bench_quota_start_client(struct bench_quota *b, const struct bench_testbed_place *where,
			     const char *role, const char *name, unsigned slot, pid_t *ret_pid)
{
	struct bench_testbed_command k;
	int err;

	bench_command_init(&k);
	bench_command_option(&k, "--slot", "%u", slot);
	err = spawn(b, where, name, role, &k, ret_pid);
	bench_command_finish(&k);
	return err;
}

static void want(struct bench_quota *b, unsigned slot)
{
	struct bench_quota_slot *s = &b->page->slot[slot];

	store_release(&s->state, (uint32_t)QUOTA_STARTING);
	store_release(&s->quiet, 0u);
	store_release(&s->held, (int64_t)0);
	store_release(&s->wanted, s->wanted + 1);
}

int bench_quota_start_group(struct bench_quota *b, const struct bench_testbed_place *where,
			    const char *paths, bool check, pid_t *ret_pid)
{
	struct bench_testbed_command k;
	int err;

	store_release(&b->page->total, (int64_t)0);
	store_release(&b->page->peak, (int64_t)0);
	store_release(&b->page->driver_peak, (int64_t)0);
	bench_quota_begin(b, QUOTA_HOLD);
	for (unsigned i = 0; i < b->processes; i++) {
		b->page->slot[i].allocations = b->page->slot[i].refusals = 0;
		want(b, i);
	}
	bench_command_init(&k);
	bench_command_option(&k, "--processes", "%u", b->processes);
	bench_command_option(&k, "--threads", "%u", b->threads);
	bench_command_option(&k, "--seed", "%u", b->seed);
	bench_command_option(&k, "--check", "%d", check);
	if (paths) {
		bench_command_option(&k, "--paths", "%s", paths);
	}
	err = spawn(b, where, check ? "control" : "group", "group", &k, ret_pid);
	bench_command_finish(&k);
	for (unsigned i = 0; i < b->processes && !err; i++) {
		err = bench_quota_await_ready(b, *ret_pid, i, true);
	}
	return err;
}

/* Adds the last line of a log to a message. */
static int failed(struct bench_quota *b, const char *what, const char *log)
{
	char path[160], line[200] = "", text[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.log", b->testbed.dir, log);
	f = fopen(path, "re");
	while (f && fgets(text, sizeof(text), f)) {
		if (text[0] != '\n') {
			memcpy(line, text, sizeof(line));
		}
	}
	if (f) {
		fclose(f);
	}
	line[strcspn(line, "\n")] = 0;
	return bench_testbed_fail(&b->testbed, "%s: %s%s%s", log, what, line[0] ? ": " : "", line);
}

static const char *log_of(const struct bench_quota *b, unsigned slot)
{
	static const char *const clients[] = { "probe", "limited", "plain", "movement" };
	static char load[16];

	(void)b;
	if (slot < QUOTA_LOADS) {
		return slot < QUOTA_WORKERS ? "group" : clients[slot - QUOTA_PROBE];
	}
	snprintf(load, sizeof(load), "load%u", slot - QUOTA_LOADS);
	return load;
}

int bench_quota_exited(struct bench_quota *b, unsigned slot)
{
	return failed(b, "exited", log_of(b, slot));
}

int bench_quota_check_clients(struct bench_quota *b, pid_t leader)
{
	for (unsigned i = 0; i < QUOTA_SLOTS; i++) {
		if (load_acquire(&b->page->slot[i].state) == QUOTA_FAILED) {
			return bench_testbed_fail(&b->testbed, "client %u: %.200s", i,
						  b->page->slot[i].error);
		}
	}
	if (bench_testbed_interrupted()) {
		return bench_testbed_fail(&b->testbed, "interrupted");
	}
	return bench_testbed_lives(&b->testbed, leader)
		       ? 0
		       : bench_testbed_fail(&b->testbed, "a client has exited");
}

int bench_quota_await_ready(struct bench_quota *b, pid_t leader, unsigned slot, bool is_worker)
{
	const struct bench_quota_slot *s = &b->page->slot[slot];
	uint64_t deadline = clock_now_ns() + QUOTA_READY_NS;

	while (load_acquire(&s->state) != QUOTA_READY ||
	       (is_worker && load_acquire(&s->quiet) != b->threads)) {
		if (bench_quota_check_clients(b, leader) < 0) {
			return bench_testbed_lives(&b->testbed, leader)
				       ? -1
				       : bench_quota_exited(b, slot);
		}
		if (clock_now_ns() > deadline) {
			return failed(b, "not ready in time", log_of(b, slot));
		}
		clock_sleep_ns(QUOTA_POLL_NS);
	}
	return 0;
}

int bench_quota_restart(struct bench_quota *b, pid_t leader, unsigned slot)
{
	want(b, slot);
	return bench_quota_await_ready(b, leader, slot, true);
}

void bench_quota_send(struct bench_quota *b, unsigned slot)
{
	struct bench_quota_slot *s = &b->page->slot[slot];

	store_release(&s->command, s->command + 1);
	futex_wake_shared(&s->command, 1 << 30);
}

bool bench_quota_wait_done(struct bench_quota *b, unsigned slot)
{
	const struct bench_quota_slot *s = &b->page->slot[slot];

	if (load_acquire(&s->done) != s->command) {
		futex_wait_shared(&s->done, s->command - 1, 20000000);
	}
	return load_acquire(&s->done) == s->command;
}

int bench_quota_await_done(struct bench_quota *b, pid_t pid, unsigned slot)
{
	uint64_t deadline = clock_now_ns() + COMMAND_NS;

	while (!bench_quota_wait_done(b, slot)) {
		if (bench_quota_check_clients(b, pid) < 0) {
			return bench_testbed_lives(&b->testbed, pid) ? -1
								     : bench_quota_exited(b, slot);
		}
		if (clock_now_ns() > deadline) {
			return bench_testbed_fail(&b->testbed, "%s: no answer in time",
						  log_of(b, slot));
		}
	}
	return 0;
}

int bench_quota_command(struct bench_quota *b, pid_t pid, unsigned slot)
{
	bench_quota_send(b, slot);
	return bench_quota_await_done(b, pid, slot);
}

void bench_quota_begin(struct bench_quota *b, enum bench_quota_activity what)
{
	for (unsigned i = 0; i < b->processes; i++) {
		store_release(&b->page->slot[i].quiet, 0u);
	}
	store_release(&b->page->phase, ++b->phases * QUOTA_ACTIVITIES + (uint32_t)what);
	futex_wake_shared(&b->page->phase, 1 << 30);
}

int bench_quota_await_quiet(struct bench_quota *b, pid_t leader, unsigned but)
{
	uint64_t deadline = clock_now_ns() + clock_patience(QUOTA_QUIET_NS);

	for (unsigned i = 0; i < b->processes; i++) {
		while (i != but && load_acquire(&b->page->slot[i].quiet) != b->threads) {
			if (bench_quota_check_clients(b, leader) < 0) {
				return -1;
			}
			if (clock_now_ns() > deadline) {
				return bench_testbed_fail(&b->testbed,
							  "worker %u: no answer in time", i);
			}
			clock_sleep_ns(QUOTA_POLL_NS);
		}
	}
	return 0;
}

int bench_quota_free_bytes(struct bench_quota *b, uint64_t *ret)
{
	const struct bench_quota_slot *s = &b->page->slot[QUOTA_PROBE];
	uint64_t from = load_acquire(&s->readings),
		 deadline = clock_now_ns() + clock_patience(QUOTA_QUIET_NS);

	/* The reading in progress may have asked the driver before this call. */
	while (load_acquire(&s->readings) < from + 2) {
		if (bench_quota_check_clients(b, b->probe) < 0) {
			return -1;
		}
		if (clock_now_ns() > deadline) {
			return bench_testbed_fail(&b->testbed, "probe: no answer in time");
		}
		clock_sleep_ns(QUOTA_POLL_NS);
	}
	*ret = load_relaxed(&s->free_bytes);
	return 0;
}

static uint64_t number(const json_t *tenant, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(tenant, name));
}

bool bench_quota_read_ledger(const struct bench_quota *b, pid_t pid, struct bench_quota_ledger *ret)
{
	json_t *tenants = bench_testbed_tenants(b->daemon), *t;
	size_t i;

	*ret = (struct bench_quota_ledger){ 0 };
	json_array_foreach(tenants, i, t)
	{
		if (!number(t, "mem_limit")) {
			continue;
		}
		ret->limit = number(t, "mem_limit");
		ret->whole = number(t, "mem_vgpu_used");
		ret->overhead += number(t, "mem_overhead");
		ret->of_all += number(t, "mem_used") - number(t, "mem_overhead");
		ret->tenants++;
		ret->has_pid |= pid && number(t, "pid") == (uint64_t)pid;
	}
	json_decref(tenants);
	ret->used = ret->whole > ret->overhead ? ret->whole - ret->overhead : 0;
	return tenants != NULL;
}

uint64_t bench_quota_vgpu(const struct bench_testbed_daemon *d, const char *vgpu,
			  const char *figure)
{
	json_t *tenants = bench_testbed_tenants(d), *t;
	uint64_t sum = 0;
	size_t i;

	json_array_foreach(tenants, i, t)
	{
		const char *name = json_string_value(json_object_get(t, "vgpu"));

		if (name && strcmp(name, vgpu) == 0) {
			sum += number(t, figure) + number(json_object_get(t, "stats"), figure);
		}
	}
	json_decref(tenants);
	return sum;
}

int bench_quota_start_load(struct bench_quota *b, const struct bench_testbed_daemon *d,
			   const char *vgpu, unsigned i, pid_t *ret_pid)
{
	const struct bench_testbed_place place = { .lane = LANE_GBPF,
						   .daemon = unqual(d),
						   .class_name = "normal",
						   .mps_priority = -1,
						   .vgpu = vgpu };
	char name[16];

	snprintf(name, sizeof(name), "load%u", i);
	store_release(&b->page->slot[QUOTA_LOADS + i].state, (uint32_t)QUOTA_STARTING);
	return bench_quota_start_client(b, &place, "load", name, QUOTA_LOADS + i, ret_pid);
}

int bench_quota_limit(struct bench_quota *b, const struct bench_testbed_daemon *d, const char *vgpu,
		      uint64_t bytes, uint64_t swap, unsigned prio)
{
	return bench_quota_vgpu(d, vgpu, "pid")
		       ? bench_testbed_vgpu(&b->testbed, d, vgpu,
					    bench_quota_vgpu(d, vgpu, "mem_used") + bytes, swap, 0,
					    prio)
		       : bench_testbed_fail(&b->testbed, "gbpfd lists no program in %s", vgpu);
}

struct bench_quota_moved bench_quota_moved(const struct bench_testbed_daemon *d, const char *vgpu,
					   const struct bench_quota_moved *before)
{
	static const struct bench_quota_moved nothing;

	before = before ? before : &nothing;
	return (struct bench_quota_moved){
		.out_bytes = bench_quota_vgpu(d, vgpu, "mem_out_bytes") - before->out_bytes,
		.back_bytes = bench_quota_vgpu(d, vgpu, "mem_back_bytes") - before->back_bytes,
		.in_place = bench_quota_vgpu(d, vgpu, "mem_in_place") - before->in_place,
	};
}

uint64_t bench_quota_held(const struct bench_quota *b)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < b->processes; i++) {
		sum += (uint64_t)load_acquire(&b->page->slot[i].held);
	}
	return sum;
}
