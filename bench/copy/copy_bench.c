/* bench-copy: `gbpf bench dev copy`. One client for each number of threads, which copies
 * alternately by gBPF and by the driver; commands to the clients are interleaved. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "bench/common/program.h"
#include "bench/common/testbed.h"
#include "bench/copy/copy_bench.h"

#define READY_NS 60000000000ull
#define COMMAND_NS 120000000000ull
#define SAMPLE_BYTES ((uint64_t)256 << 20) /* of a command, by each library */
#define CALLS_MAX 100u
#define SCALED_MIN ((uint64_t)4 << 20) /* smallest size that is measured with all thread counts */
#define FRESH_MIN ((uint64_t)1 << 20)  /* smallest size that is measured with fresh memory */

static const char *const way_names[COPY_WAYS] = { "up", "down", "both" };

/* ---- clients ---- */

int bench_copy_start(struct bench_copy *b, struct bench_copy_client *c,
		     const struct bench_testbed_place *place)
{
	int fd = shm_create("bench-copy", sizeof(*c->page), SHM_NOEXEC);
	struct bench_testbed_command k;
	char log[160];

	c->page = fd < 0 ? NULL : shm_map(fd, sizeof(*c->page), 1);
	if (!c->page) {
		fd_close(fd);
		return bench_testbed_fail(&b->testbed, "out of memory for a page");
	}
	c->page->magic = COPY_MAGIC;
	snprintf(log, sizeof(log), "%s/%s.log", b->testbed.dir, c->name);
	bench_command_init(&k);
	bench_command_env(&k, "GBPF_COPY");
	if (c->threads) {
		bench_command_env(&k, "GBPF_COPY_THREADS=%u", c->threads);
	} else {
		bench_command_env(&k, "GBPF_COPY_THREADS");
	}
	bench_testbed_put_in_place(&b->testbed, &k, place, c->name);
	bench_command_add(&k, "%s", b->testbed.client);
	bench_command_option(&k, "--page", "%d", fd);
	bench_command_option(&k, "--libcuda", "%s", b->testbed.libcuda);
	c->pid = bench_testbed_spawn(&b->testbed, &k, log, fd, NULL);
	bench_command_finish(&k);
	fd_close(fd);
	return c->pid > 0 ? 0 : -1;
}

int bench_copy_check(struct bench_copy *b, const struct bench_copy_client *c, uint64_t deadline)
{
	if (load_acquire(&c->page->state) == COPY_FAILED) {
		return bench_testbed_fail(&b->testbed, "%s: %.200s", c->name, c->page->error);
	}
	if (bench_testbed_interrupted()) {
		return bench_testbed_fail(&b->testbed, "interrupted");
	}
	if (!bench_testbed_lives(&b->testbed, c->pid)) {
		return bench_testbed_fail(&b->testbed, "%s: the client has exited", c->name);
	}
	return clock_now_ns() < deadline
		       ? 0
		       : bench_testbed_fail(&b->testbed, "%s: no answer in time", c->name);
}

int bench_copy_await_ready(struct bench_copy *b, const struct bench_copy_client *c)
{
	uint64_t deadline = clock_now_ns() + READY_NS;

	while (load_acquire(&c->page->state) != COPY_READY) {
		if (bench_copy_check(b, c, deadline) < 0) {
			return -1;
		}
		clock_sleep_ns(1000000);
	}
	return 0;
}

void bench_copy_order(struct bench_copy_client *c)
{
	store_release(&c->page->command, c->page->command + 1);
	futex_wake_shared(&c->page->command, 1 << 30);
}

int bench_copy_await_done(struct bench_copy *b, const struct bench_copy_client *c)
{
	uint64_t deadline = clock_now_ns() + COMMAND_NS;

	while (load_acquire(&c->page->done) != c->page->command) {
		if (bench_copy_check(b, c, deadline) < 0) {
			return -1;
		}
		futex_wait_shared(&c->page->done, c->page->command - 1, 20000000);
	}
	return 0;
}

void bench_copy_end(struct bench_copy *b, struct bench_copy_client *c)
{
	if (c->pid > 0) {
		bench_testbed_end(&b->testbed, c->pid, 0);
	}
	if (c->page) {
		(void)munmap(c->page, sizeof(*c->page));
	}
	*c = (struct bench_copy_client){ 0 };
}

/* ---- measurements ---- */

static json_t *times(const struct bench_copy_page *p, unsigned by)
{
	json_t *ns = json_array();

	for (unsigned i = 0; i < p->calls; i++) {
		json_array_append_new(ns, json_integer((json_int_t)p->ns[by][i]));
	}
	return ns;
}

static int measure(struct bench_copy *b, struct bench_copy_client *c, uint64_t bytes, unsigned way,
		   bool fresh)
{
	uint64_t calls = SAMPLE_BYTES / bytes;

	c->page->bytes = bytes;
	c->page->way = way;
	c->page->fresh = fresh;
	c->page->calls = (uint32_t)MAX(MIN(calls, CALLS_MAX), 1u);
	bench_copy_order(c);
	if (bench_copy_await_done(b, c) < 0) {
		return -1;
	}
	return bench_testbed_record(
		&b->testbed, "copy",
		json_pack("{s:I, s:s, s:b, s:i, s:o, s:o}", "bytes", (json_int_t)bytes, "way",
			  way_names[way], "fresh", (int)fresh, "threads", (int)c->threads, "driver",
			  times(c->page, COPY_BY_DRIVER), "gbpf", times(c->page, COPY_BY_SHIM)));
}

/* The time left is known from the first round on, and falls from round to round. */
static void tell_size(struct bench_copy *b, uint64_t bytes, unsigned round)
{
	char left[48] = "";

	if (b->left_s > 0) {
		snprintf(left, sizeof(left), ", about %.0f s left", b->left_s);
	}
	bench_testbed_progress(&b->testbed, "copy: round %u of %u%s: %llu bytes", round + 1,
			       b->rounds, left, (unsigned long long)bytes);
}

static int measure_size(struct bench_copy *b, uint64_t bytes, unsigned round)
{
	tell_size(b, bytes, round);
	for (unsigned kind = 0; kind < 2 * COPY_WAYS; kind++) {
		unsigned way = kind / 2;
		bool fresh = kind % 2;

		if (!bench_program_lists(b->ways, way_names[way]) ||
		    (fresh && (way != COPY_DOWN || bytes < FRESH_MIN))) {
			continue;
		}
		for (unsigned i = 0; i < (bytes < SCALED_MIN ? 1 : b->n); i++) {
			if (measure(b, &b->client[i], bytes, way, fresh) < 0) {
				return -1;
			}
		}
	}
	return 0;
}

static int run(struct bench_copy *b)
{
	struct bench_testbed_place place = { .lane = LANE_GBPF,
					     .class_name = "normal",
					     .mps_priority = -1 };
	int err = bench_testbed_init(&b->testbed);
	uint64_t begin;

	if (!err) {
		place.daemon = b->daemon = bench_testbed_gbpfd(&b->testbed, b->testbed.policy);
		err = b->daemon ? 0 : -1;
	}
	for (unsigned i = 0; i < b->n && !err; i++) {
		snprintf(b->client[i].name, sizeof(b->client[i].name), "copy-%u",
			 b->client[i].threads);
		err = bench_copy_start(b, &b->client[i], &place);
		err = err ? err : bench_copy_await_ready(b, &b->client[i]);
	}
	err = err ? err
		  : bench_testbed_record(&b->testbed, "set_up",
					 json_pack("{s:s, s:b, s:s, s:i, s:I, s:i}", "device",
						   b->client[0].page->device, "soft",
						   b->testbed.soft, "policy",
						   b->testbed.policy_name, "cores",
						   (int)b->client[0].page->cores, "max",
						   (json_int_t)b->max, "repeats", (int)b->rounds));
	begin = clock_now_ns();
	for (unsigned round = 0; round < b->rounds && !err; round++) {
		b->left_s =
			round ? (double)(clock_now_ns() - begin) / 1e9 / round * (b->rounds - round)
			      : 0;
		for (uint64_t bytes = 1; bytes <= b->max && !err; bytes *= 4) {
			err = measure_size(b, bytes, round);
		}
	}
	for (unsigned i = 0; i < b->n; i++) {
		bench_copy_end(b, &b->client[i]);
	}
	return err;
}

/* The default first, then those of the list. Returns false if that is malformed. */
static bool list_clients(struct bench_copy *b)
{
	unsigned threads[COPY_CLIENTS_MAX - 1], n = 0;

	if (b->threads) {
		n = bench_program_numbers(b->threads, 1, 16, threads, COPY_CLIENTS_MAX - 1);
	}
	for (unsigned i = 0; i < n; i++) {
		b->client[i + 1].threads = threads[i];
	}
	b->n = n + 1;
	return n || !b->threads;
}

/* Returns the size of the largest copies if the user names none. The soft GPU has 1 GiB of memory,
 * of which a client takes twice the size. */
static uint64_t default_max(const struct bench_copy *b)
{
	bool soft = b->testbed.soft;
	unsigned mib = b->overlap ? (soft ? 4 : 64) : b->shares ? (soft ? 64 : 256) : 1024;

	return (uint64_t)mib << 20;
}

static int run_part(struct bench_copy *b)
{
	return b->overlap ? bench_copy_overlap(b) : b->shares ? bench_copy_shares(b) : run(b);
}

int main(int argc, char **argv)
{
	static struct bench_copy b = { .rounds = 5, .seconds = 5, .ways = "up,down,both" };
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),
		{ "--threads", .text = &b.threads },
		{ "--ways", .text = &b.ways },
		{ "--max", .text = &b.max_text },
		{ "--repeats", .number = &b.rounds },
		{ "--shares", .text = &b.shares },
		{ "--policies", .text = &b.policies },
		{ "--overlap", .flag = &b.overlap },
		{ "--link-bandwidth", .text = &b.testbed.link_bandwidth },
		{ "--seconds", .number = &b.seconds },
		{ "--policy-dir", .text = &b.policy_dir },
		{ NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || !list_clients(&b) || !b.testbed.policy ||
	    !b.testbed.libcuda || !b.testbed.gbpf || !b.testbed.client || !b.policy_dir ||
	    !b.rounds) {
		return bench_program_usage();
	}
	b.max = b.max_text ? strtoull(b.max_text, NULL, 10) : default_max(&b);
	if (!b.max || b.max > COPY_BYTES_MAX) {
		return bench_program_usage();
	}
	err = run_part(&b);
	return bench_testbed_exit(&b.testbed, err, false);
}
