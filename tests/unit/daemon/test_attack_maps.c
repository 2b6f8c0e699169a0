/* Processes with hostile maps, or that disturb a swap: gbpfd's loop spends little time on one
 * request, whatever they wrote. Its processor time is compared with that of this thread for a job
 * of the same size, measured next to it; the minimum of several tries excludes disturbances. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/shm.h"
#include "daemon/maps/policy_maps.h"

#define TENANTS 24
#define TRIES 15
#define BIG_BYTES (60u << 20)

enum { LATENCY, NORMAL, BATCH };

static void load(struct gd *d, const char *name)
{
	struct gbpf *g = gd_open(d);

	if (gbpf_policy_load(g, gd_object(name), NULL, GBPF_LOAD_SWAP, NULL) < 0) {
		fail_msg("%s %s", gbpf_last_error(g)->message, gbpf_last_error(g)->detail);
	}
	gbpf_close(g);
}

static void took_at_most(const char *what, uint64_t ns, uint64_t max_ns)
{
	print_message("%s: %.2f ms, limit %.2f ms\n", what, (double)ns / 1e6, (double)max_ns / 1e6);
#if !defined(__SANITIZE_ADDRESS__)
	assert_true(ns <= max_ns);
#endif
}

/* Processor time for one request. */
struct cost {
	uint64_t loop_ns;  /* of gbpfd's loop */
	uint64_t parse_ns; /* of this thread, to parse the request and its answer */
};

static uint64_t parse_ns(const char *text)
{
	uint64_t begin = clock_cpu_ns();

	json_decref(json_loads(text, 0, NULL));
	return clock_cpu_ns() - begin;
}

static struct cost cost_of(struct gd *d, const char *method, const char *params)
{
	struct cost least = { UINT64_MAX, UINT64_MAX };

	for (int i = 0; i < TRIES; i++) {
		struct gbpf *g = gd_open(d); /* a refusal may close the connection */
		uint64_t begin = gd_loop_ns(d);
		char *text = NULL;

		gbpf_call(g, method, params, -1, &text); /* may be refused */
		least.loop_ns = MIN(least.loop_ns, gd_loop_ns(d) - begin);
		least.parse_ns = MIN(least.parse_ns, parse_ns(params) + parse_ns(text ? text : ""));
		free(text);
		gbpf_close(g);
	}
	return least;
}

static void fill(struct fake *f, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->region_fd, 0);

	assert_true(p != MAP_FAILED);
	memset(p, 0xa5, bytes);
	munmap(p, bytes);
}

/* An entry costs the loop about as much as its reader, and all tenants' together a fixed time, in
 * which the last one begins. */
static void values_of_threads_are_reported_quickly(void **state)
{
	struct gd *d = *state;
	struct fake f[TENANTS];
	struct cost one, all;

	load(d, "heavy");
	for (int i = 0; i < TENANTS; i++) {
		fake_enter(&f[i], d, BATCH, "liar");
		fake_prepare(&f[i], 0);
		fill(&f[i], 2 << 20);
	}
	one = cost_of(d, "map.get", "{\"map\":\"threads\",\"key\":\"0\",\"tenant\":0}");
	took_at_most("get one", one.loop_ns, 4 * one.parse_ns);
	all = cost_of(d, "map.get", "{\"map\":\"threads\",\"key\":\"0\"}");
	took_at_most("get", all.loop_ns, DAEMON_MAPS_GET_NS + 4 * one.loop_ns);
	all = cost_of(d, "map.dump", "{\"map\":\"threads\"}");
	took_at_most("dump", all.loop_ns, 4 * all.parse_ns);
	took_at_most("dump, one page", all.loop_ns, DAEMON_MAPS_GET_NS + 4 * one.loop_ns);
	one = cost_of(d, "map.get", "{\"map\":\"memory\",\"key\":\"0\",\"tenant\":0}");
	took_at_most("get one's bytes", one.loop_ns, 4 * one.parse_ns);
	all = cost_of(d, "map.get", "{\"map\":\"memory\",\"key\":\"0\"}");
	took_at_most("get bytes", all.loop_ns, DAEMON_MAPS_GET_NS + 4 * one.loop_ns);
	for (int i = 0; i < TENANTS; i++) {
		fake_leave(&f[i]);
	}
}

static struct cost cost_of_key(struct gd *d, unsigned bytes)
{
	static const char begin[] = "{\"map\":\"names\",\"key\":\"", one[] = "group=1,";
	struct cost c;
	struct buf b;

	buf_init(&b);
	buf_puts(&b, begin);
	for (unsigned i = 0; i < bytes / (sizeof(one) - 1); i++) {
		buf_puts(&b, one);
	}
	buf_puts(&b, "\"}");
	c = cost_of(d, "map.get", buf_text(&b));
	buf_finish(&b);
	return c;
}

static void a_long_key_is_parsed_or_refused_quickly(void **state)
{
	struct gd *d = *state;
	struct cost quarter, parsed, refused;

	load(d, "kinds");
	quarter = cost_of_key(d, 50000);
	parsed = cost_of_key(d, 200000);
	refused = cost_of_key(d, 800000);
	took_at_most("long key", parsed.loop_ns, 6 * parsed.parse_ns);
	took_at_most("long key, growth", parsed.loop_ns, 8 * quarter.loop_ns); /* quadratic: 16 */
	took_at_most("refused key", refused.loop_ns, refused.parse_ns);
}

/* Returns the processor time of this thread for freeing a region that a tenant has filled. */
static uint64_t freeing_ns(void)
{
	struct fake f = { .region_fd = memfd_create("region", MFD_CLOEXEC) };
	uint64_t begin;

	assert_int_equal(ftruncate(f.region_fd, BIG_BYTES), 0);
	fill(&f, BIG_BYTES);
	begin = clock_cpu_ns();
	close(f.region_fd);
	return clock_cpu_ns() - begin;
}

static void freeing_filled_maps_does_not_block_the_loop(void **state)
{
	struct gd *d = *state;
	struct fake f[6];
	uint64_t begin, freeing = UINT64_MAX, loop = UINT64_MAX;

	load(d, "heavy");
	for (int try = 0; try < 3; try++) {
		for (int i = 0; i < 6; i++) {
			fake_enter(&f[i], d, BATCH, "big");
			fake_prepare(&f[i], 0);
			fill(&f[i], BIG_BYTES);
		}
		begin = gd_loop_ns(d);
		kill(d->pid, SIGSTOP);
		for (int i = 0; i < 6; i++) {
			fake_leave(&f[i]);
		}
		kill(d->pid, SIGCONT);
		while (gd_number(d, "status", "tenants") != 0) {
		}
		loop = MIN(loop, gd_loop_ns(d) - begin);
		freeing = MIN(freeing, freeing_ns());
	}
	took_at_most("exits", loop, 6 * freeing / 4);
}

struct load {
	struct gd *d;
	char *answer;
};

static void *run_load(void *arg)
{
	struct load *l = arg;
	struct gbpf *g = gd_open(l->d);

	gbpf_policy_load(g, gd_object("heavy"), NULL, GBPF_LOAD_SWAP, &l->answer);
	gbpf_close(g);
	return NULL;
}

/* Two processes cannot run the version, and exit while the swap still waits for a third. */
static void a_failed_process_that_exits_is_not_counted(void **state)
{
	struct gd *d = *state;
	struct load l = { .d = d };
	struct fake slow, dead[2];
	pthread_t loading;
	json_t *j;

	fake_enter(&slow, d, BATCH, "slow");
	fake_enter(&dead[0], d, BATCH, "dead");
	fake_enter(&dead[1], d, BATCH, "dead too");
	gd_await_event(d, 0, "start", "dead too");
	pthread_create(&loading, NULL, run_load, &l);
	for (int i = 0; i < 2; i++) {
		fake_prepare(&dead[i], -ENOSYS);
		fake_leave(&dead[i]);
	}
	pthread_join(loading, NULL);
	j = json_loads(l.answer ? l.answer : "", 0, NULL);
	assert_non_null(j);
	assert_in_range(json_integer_value(json_object_get(j, "late")), 1, 3);
	assert_in_range(gd_number(d, "status", "counters.late"), 1, 3);
	json_decref(j);
	free(l.answer);
	fake_prepare(&slow, 0);
	fake_leave(&slow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		T(values_of_threads_are_reported_quickly),
		T(a_long_key_is_parsed_or_refused_quickly),
		T(freeing_filled_maps_does_not_block_the_loop),
		T(a_failed_process_that_exits_is_not_counted),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
