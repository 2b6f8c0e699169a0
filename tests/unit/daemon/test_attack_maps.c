/* Processes with hostile maps, or that disturb a swap: gbpfd's loop spends little time on one
 * request, counted as its own processor time, whatever they wrote. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/shm.h"

#define AT_MOST_NS 9000000u /* processor time for one request */
#define TENANTS 24
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

/* Returns the processor time of the thread that runs gbpfd's loop. */
static uint64_t loop_ns(const struct gd *d)
{
	char path[64];
	struct buf b;
	uint64_t ns;

	buf_init(&b);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)d->pid, (int)d->pid);
	assert_int_equal(buf_read_file(&b, path, 256), 0);
	ns = strtoull(buf_text(&b), NULL, 10);
	buf_finish(&b);
	return ns;
}

static void took_little(const char *what, uint64_t ns)
{
	print_message("%s: %.2f ms\n", what, (double)ns / 1e6);
#if !defined(__SANITIZE_ADDRESS__)
	assert_true(ns < AT_MOST_NS);
#endif
}

/* Returns the cost of this request alone. */
static uint64_t cost_of(struct gd *d, const char *method, const char *params)
{
	uint64_t begin;
	char *text = NULL;

	json_decref(gd_call(d, "status", NULL));
	begin = loop_ns(d);
	gbpf_call(d->g, method, params, -1, &text); /* may be refused */
	free(text);
	return loop_ns(d) - begin;
}

static void fill(struct fake *f, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->region_fd, 0);

	assert_true(p != MAP_FAILED);
	memset(p, 0xa5, bytes);
	munmap(p, bytes);
}

static void values_of_threads_are_reported_quickly(void **state)
{
	struct gd *d = *state;
	struct fake f[TENANTS];

	load(d, "heavy");
	for (int i = 0; i < TENANTS; i++) {
		fake_enter(&f[i], d, BATCH, "liar");
		fake_prepare(&f[i], 0);
		fill(&f[i], 2 << 20);
	}
	took_little("get", cost_of(d, "map.get", "{\"map\":\"threads\",\"key\":\"0\"}"));
	took_little("get one",
		    cost_of(d, "map.get", "{\"map\":\"threads\",\"key\":\"0\",\"tenant\":0}"));
	took_little("dump", cost_of(d, "map.dump", "{\"map\":\"threads\"}"));
	took_little("get bytes", cost_of(d, "map.get", "{\"map\":\"memory\",\"key\":\"0\"}"));
	for (int i = 0; i < TENANTS; i++) {
		fake_leave(&f[i]);
	}
}

static void a_long_key_is_parsed_or_refused_quickly(void **state)
{
	static const char begin[] = "{\"map\":\"names\",\"key\":\"", one[] = "group=1,";
	struct gd *d = *state;
	struct buf b;

	load(d, "kinds");
	for (unsigned n = 25000; n <= 100000; n += 75000) { /* 200 000 bytes, 800 000 */
		buf_init(&b);
		buf_puts(&b, begin);
		for (unsigned i = 0; i < n; i++) {
			buf_puts(&b, one);
		}
		buf_puts(&b, "\"}");
		took_little("long key", cost_of(d, "map.get", buf_text(&b)));
		buf_finish(&b);
	}
}

static void freeing_filled_maps_does_not_block_the_loop(void **state)
{
	struct gd *d = *state;
	struct fake f[6];
	uint64_t begin;

	load(d, "heavy");
	for (int i = 0; i < 6; i++) {
		fake_enter(&f[i], d, BATCH, "big");
		fake_prepare(&f[i], 0);
		fill(&f[i], BIG_BYTES);
	}
	json_decref(gd_call(d, "status", NULL));
	kill(d->pid, SIGSTOP);
	begin = loop_ns(d);
	for (int i = 0; i < 6; i++) {
		fake_leave(&f[i]);
	}
	kill(d->pid, SIGCONT);
	while (gd_number(d, "status", "tenants") != 0) {
	}
	took_little("deaths", loop_ns(d) - begin);
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
