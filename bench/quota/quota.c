/* bench-quota: starts the parts of `gbpf bench memory`. Workers in one vGPU race for its memory,
 * and a probe outside it reads what the driver says; workers are killed; workers without gBPF that
 * check before they allocate are the control; calls are timed; and so is memory that leaves the
 * device and comes back. Tasks compute in more memory than their vGPU has, and two tenants in more
 * than they share. */
#include "bench/quota/quota.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/shm.h"
#include "bench/common/program.h"

static int make_page(struct bench_quota *b)
{
	b->fd = shm_create("bench-quota", sizeof(struct bench_quota_page), SHM_NOEXEC);
	b->page = b->fd < 0 ? NULL : shm_map(b->fd, sizeof(struct bench_quota_page), 1);
	if (!b->page) {
		return bench_testbed_fail(&b->testbed, "out of memory for the page");
	}
	b->page->magic = QUOTA_MAGIC;
	return 0;
}

/* Starts the probe, and decides on the limit. */
static int start_probe(struct bench_quota *b)
{
	const struct bench_testbed_place own = { .lane = LANE_OWN, .mps_priority = -1 };
	const struct bench_quota_slot *s = &b->page->slot[QUOTA_PROBE];

	if (bench_quota_start_client(b, &own, "probe", "probe", QUOTA_PROBE, &b->probe) < 0 ||
	    bench_quota_await_ready(b, b->probe, QUOTA_PROBE, false) < 0) {
		return -1;
	}
	b->device_bytes = load_relaxed(&s->total_bytes);
	b->page->limit = b->mem ? strtoull(b->mem, NULL, 10) : b->device_bytes / 4;
	b->page->limit -= b->page->limit % QUOTA_UNIT;
	return b->page->limit <= b->device_bytes
		       ? 0
		       : bench_testbed_fail(&b->testbed,
					    "the limit of %llu MiB exceeds the GPU's %llu MiB",
					    (unsigned long long)(b->page->limit >> 20),
					    (unsigned long long)(b->device_bytes >> 20));
}

static int record_set_up(struct bench_quota *b)
{
	return bench_testbed_record(
		&b->testbed, "set_up",
		json_pack("{s:s, s:b, s:s, s:I, s:I, s:i, s:i, s:f, s:i, s:s}", "device",
			  b->page->slot[QUOTA_PROBE].device, "soft", b->testbed.soft, "policy",
			  b->testbed.policy_name, "device_bytes", (json_int_t)b->device_bytes,
			  "limit_bytes", (json_int_t)b->page->limit, "processes", (int)b->processes,
			  "threads", (int)b->threads, "seconds", b->seconds, "seed", (int)b->seed,
			  "paths", b->paths ? b->paths : "alloc,pitch,managed,create,array,async"));
}

static int run(struct bench_quota *b)
{
	int err = bench_testbed_init(&b->testbed);

	err = err ? err : make_page(b);
	if (!err) {
		b->daemon = bench_testbed_gbpfd(&b->testbed, b->testbed.policy);
		err = b->daemon ? 0 : -1;
	}
	err = err ? err : start_probe(b);
	err = err ? err : record_set_up(b);
	err = err ? err : bench_quota_race(b);
	err = err ? err : bench_quota_control(b);
	bench_testbed_end(&b->testbed, b->probe, 0);
	err = err ? err : bench_quota_latency(b);
	err = err ? err : bench_quota_movement(b);
	err = err ? err : bench_quota_tasks(b);
	err = err ? err : bench_quota_cycle(b);
	return err ? err : bench_quota_pair(b);
}

static bool in_range(const struct bench_quota *b)
{
	return b->processes >= 1 && b->processes <= QUOTA_WORKERS && b->threads >= 1 &&
	       b->threads <= QUOTA_THREADS && b->seconds > 0 && b->pairs >= 1 &&
	       b->pairs <= QUOTA_PAIRS && b->rounds >= 1 && b->tasks >= 1 &&
	       b->tasks <= QUOTA_TASKS_MAX && b->testbed.policy && b->testbed.libcuda &&
	       b->testbed.gbpf && b->testbed.client && b->keep;
}

int main(int argc, char **argv)
{
	static struct bench_quota b = { .processes = 2,
					.threads = 16,
					.kills = 10,
					.gbpfd_kills = 3,
					.rounds = 5,
					.pairs = 200,
					.tasks = QUOTA_TASKS_MAX,
					.seed = 1,
					.seconds = 5 };
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),
		{ "--parts", .text = &b.parts },
		{ "--paths", .text = &b.paths },
		{ "--keep", .text = &b.keep },
		{ "--mem", .text = &b.mem },
		{ "--processes", .number = &b.processes },
		{ "--threads", .number = &b.threads },
		{ "--seconds", .real = &b.seconds },
		{ "--kills", .number = &b.kills },
		{ "--gbpfd-kills", .number = &b.gbpfd_kills },
		{ "--repeats", .number = &b.rounds },
		{ "--calls", .number = &b.pairs },
		{ "--tasks", .number = &b.tasks },
		{ "--seed", .number = &b.seed },
		{ NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || !in_range(&b)) {
		return bench_program_usage();
	}
	err = run(&b);
	return bench_testbed_exit(&b.testbed, err, false);
}
