/* Maps of every type through the control socket: the values that a tenant wrote are shown, kept and
 * drained, also if they are nonsense. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/shm.h"
#include "bpf/run/policy_image.h"
#include "bpf/run/map/ring.h"

enum { LATENCY, NORMAL, BATCH };

struct name {
	uint32_t group;
	char text[12];
};

struct event {
	uint64_t at;
	uint32_t what;
	char who[8];
	uint32_t pad;
};

/* A process that has mapped the policy. */
struct tenant {
	struct fake f;
	struct ebpf_policy *policy;
};

static void load(struct gd *d, unsigned flags)
{
	struct gbpf *g = gd_open(d);

	if (gbpf_policy_load(g, gd_object("kinds"), NULL, flags | GBPF_LOAD_SWAP, NULL) < 0) {
		fail_msg("%s %s", gbpf_last_error(g)->message, gbpf_last_error(g)->detail);
	}
	gbpf_close(g);
}

static void take_policy(struct tenant *t)
{
	int fds[8], regions[EBPF_REGIONS] = EBPF_NO_REGIONS;
	union proto_message m;
	unsigned n, at = 1;

	do {
		assert_int_equal(fake_receive(&t->f, &m, fds, &n), 1);
	} while (m.head.type != PROTO_PREPARE);
	if (m.version.regions & PROTO_REGION_GLOBAL) {
		regions[EBPF_REGION_GLOBAL] = fds[at++];
	}
	regions[EBPF_REGION_TENANT] = fds[at++];
	if (t->policy) {
		ebpf_policy_close(t->policy);
	} else {
		t->policy = calloc(1, sizeof(*t->policy));
	}
	assert_int_equal(ebpf_policy_open(t->policy, fds[0], regions, 0), 0);
	m.version.status = 0;
	fake_send(&t->f, &m, PROTO_PREPARED);
	while (n) {
		close(fds[--n]);
	}
}

static void enter(struct tenant *t, struct gd *d)
{
	memset(t, 0, sizeof(*t));
	fake_enter(&t->f, d, BATCH, "t");
	take_policy(t);
}

static void leave(struct tenant *t)
{
	ebpf_policy_close(t->policy);
	free(t->policy);
	fake_leave(&t->f);
}

static struct ebpf_map *map_of(const struct tenant *t, const char *name)
{
	for (unsigned i = 0; i < t->policy->env.n_maps; i++) {
		if (strcmp(t->policy->defs[i].name, name) == 0) {
			return &t->policy->env.maps[i];
		}
	}
	fail_msg("no map %s", name);
	return NULL;
}

static struct gbpf_map arg(const char *name)
{
	return (struct gbpf_map){ .size = sizeof(struct gbpf_map),
				  .name = name,
				  .tenant = GBPF_ALL_TENANTS };
}

static json_t *entries_of(char *text)
{
	json_t *j = json_loads(text, 0, NULL), *e;

	free(text);
	assert_non_null(j);
	e = json_incref(json_object_get(j, "entries"));
	json_decref(j);
	return e;
}

/* Dumps all pages. */
static json_t *dump(struct gd *d, const char *map)
{
	struct gbpf_map m = arg(map);
	struct gbpf *g = gd_open(d);
	json_t *all = json_array();
	char *after = NULL;

	do {
		char *out = NULL;
		const char *next;
		json_t *j;

		if (gbpf_map_dump(g, &m, after, 0, 0, &out) < 0) {
			fail_msg("%s: %s", map, gbpf_last_error(g)->message);
		}
		j = json_loads(out, 0, NULL);
		assert_non_null(j);
		json_array_extend(all, json_object_get(j, "entries"));
		next = json_string_value(json_object_get(j, "next"));
		free(after);
		after = next ? strdup(next) : NULL;
		free(out);
		json_decref(j);
	} while (after);
	gbpf_close(g);
	return all;
}

static json_int_t number(const json_t *j, const char *name)
{
	return json_integer_value(json_object_get(j, name));
}

static const char *text(const json_t *j, const char *name)
{
	const char *s = json_string_value(json_object_get(j, name));

	return s ? s : "";
}

static int set(struct gd *d, const char *map, const char *key, const char *value)
{
	struct gbpf_map m = arg(map);
	struct gbpf *g = gd_open(d);
	int err = gbpf_map_set(g, &m, key, value, NULL);

	gbpf_close(g);
	return err;
}

static json_int_t value_at(const json_t *entries, size_t i)
{
	return number(json_array_get(entries, i), "value");
}

static void hashes_of_tenants_are_read_and_written(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	struct name key = { 7, "seven" };
	struct event v = { 5, 6, "me", 0 };
	struct gbpf_map m = arg("names");
	char *out = NULL;
	struct tenant t;
	json_t *e, *one;

	load(d, 0);
	enter(&t, d);
	assert_int_equal(ebpf_map_update(map_of(&t, "names"), &key, &v, 0), 0);
	e = dump(d, "names");
	assert_int_equal(json_array_size(e), 1);
	one = json_array_get(e, 0);
	assert_string_equal(text(json_object_get(one, "key"), "text"), "seven");
	assert_int_equal(number(json_object_get(one, "value"), "what"), 6);
	assert_int_equal(number(one, "tenant"), t.f.tenant);
	json_decref(e);
	m.tenant = t.f.tenant;
	assert_int_equal(gbpf_map_set(g, &m, "{group=7, text=\"seven\"}", "{what=9}", &out), 0);
	e = entries_of(out);
	one = json_object_get(json_array_get(e, 0), "value");
	assert_int_equal(number(one, "what"), 9);
	assert_int_equal(number(one, "at"), 5); /* kept */
	json_decref(e);
	assert_int_equal(gbpf_map_delete(g, &m, "{group=7, text=\"seven\"}", NULL), 0);
	assert_null(ebpf_map_lookup(map_of(&t, "names"), &key));
	assert_int_equal(gbpf_map_delete(g, &m, "{group=7, text=\"seven\"}", NULL), -ENOENT);
	assert_int_equal(gbpf_map_get(g, &m, "{group=1}", NULL), -ENOENT);
	gbpf_close(g);
	leave(&t);
}

static void queues_and_stacks_are_pushed_popped_and_shown_in_order(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	struct gbpf_map m = arg("stack");
	char *out = NULL;
	json_t *e;

	load(d, 0);
	for (int i = 1; i <= 4; i++) {
		char number_text[8];

		snprintf(number_text, sizeof(number_text), "%d", i * 10);
		assert_int_equal(set(d, "queue", NULL, number_text), 0);
		assert_int_equal(set(d, "stack", NULL, number_text), 0);
	}
	assert_int_equal(set(d, "queue", NULL, "50"), -E2BIG);
	e = dump(d, "queue");
	assert_int_equal(json_array_size(e), 4);
	assert_int_equal(value_at(e, 0), 10);
	assert_int_equal(value_at(e, 3), 40);
	json_decref(e);
	e = dump(d, "stack");
	assert_int_equal(value_at(e, 0), 40);
	json_decref(e);
	assert_int_equal(gbpf_map_delete(g, &m, NULL, &out), 0);
	e = entries_of(out);
	assert_int_equal(value_at(e, 0), 40);
	json_decref(e);
	assert_int_equal(gbpf_map_get(g, &m, "0", NULL), -EINVAL);
	gbpf_close(g);
}

static void histograms_show_their_buckets(void **state)
{
	struct gd *d = *state;
	struct tenant t;
	json_t *e, *b;

	load(d, 0);
	enter(&t, d);
	assert_int_equal(ebpf_map_hist_add(map_of(&t, "sizes"), 1, 0), 0);
	assert_int_equal(ebpf_map_hist_add(map_of(&t, "sizes"), 1, 5), 0);
	assert_int_equal(ebpf_map_hist_add(map_of(&t, "sizes"), 1, UINT64_MAX), 0);
	e = dump(d, "sizes");
	assert_int_equal(number(json_array_get(e, 1), "count"), 3);
	assert_int_equal(number(json_array_get(e, 1), "key"), 1); /* no type describes it */
	b = json_object_get(json_array_get(e, 1), "buckets");
	assert_int_equal(json_array_size(b), 3);
	assert_int_equal(number(json_array_get(b, 0), "high"), 0);
	assert_int_equal(number(json_array_get(b, 1), "low"), 4);
	assert_int_equal(number(json_array_get(b, 1), "high"), 7);
	assert_string_equal(text(json_array_get(b, 2), "high"), "18446744073709551615");
	json_decref(e);
	assert_int_equal(set(d, "sizes", "0", "hex:00"), -EINVAL);
	leave(&t);
}

static void thread_arrays_are_summed_and_shown_apart(void **state)
{
	struct gd *d = *state;
	struct ebpf_map *m;
	uint64_t *words;
	struct tenant t;
	json_t *e, *threads;

	load(d, 0);
	enter(&t, d);
	m = map_of(&t, "counts");
	words = (uint64_t *)(void *)m->data;
	words[1] = 3;
	words[m->copy_bytes / 8 + 1] = 4;
	e = dump(d, "counts");
	assert_int_equal(value_at(e, 1), 7);
	threads = json_object_get(json_array_get(e, 1), "threads");
	assert_int_equal(json_array_size(threads), 2);
	assert_int_equal(number(json_array_get(threads, 1), "slot"), 1);
	assert_int_equal(number(json_array_get(threads, 1), "value"), 4);
	json_decref(e);
	leave(&t);
}

static void prefixes_programs_and_maps_are_named(void **state)
{
	struct gd *d = *state;
	json_t *e;

	load(d, 0);
	assert_int_equal(set(d, "routes", "{bits=24, address=[10,0,0,0]}", "9"), 0);
	e = dump(d, "routes");
	assert_int_equal(json_array_size(e), 1);
	assert_int_equal(number(json_array_get(e, 0), "prefix_bits"), 24);
	assert_int_equal(value_at(e, 0), 9);
	json_decref(e);
	e = dump(d, "both");
	assert_int_equal(json_array_size(e), 3);
	assert_string_equal(text(json_array_get(e, 0), "map"), "first");
	assert_true(json_is_null(json_object_get(json_array_get(e, 1), "map")));
	assert_string_equal(text(json_array_get(e, 2), "map"), "second");
	json_decref(e);
	e = dump(d, "programs");
	assert_int_equal(json_array_size(e), 2);
	assert_true(json_is_null(json_object_get(json_array_get(e, 0), "program")));
	assert_string_equal(text(json_array_get(e, 1), "program"), "chosen");
	json_decref(e);
	assert_int_equal(set(d, "both", "0", "1"), -EINVAL);
	assert_int_equal(set(d, "programs", "0", "1"), -EINVAL);
}

static void epoch_maps_are_published_after_init_and_after_a_set(void **state)
{
	struct gd *d = *state;
	uint32_t key = 3;
	uint64_t v = 0;
	struct tenant t;
	json_t *e;

	load(d, 0);
	enter(&t, d);
	assert_int_equal(ebpf_map_read(map_of(&t, "credits"), &key, &v), 0);
	assert_int_equal(v, 77);
	assert_int_equal(set(d, "credits", "3", "78"), 0);
	assert_int_equal(ebpf_map_read(map_of(&t, "credits"), &key, &v), 0);
	assert_int_equal(v, 78);
	e = dump(d, "credits");
	assert_int_equal(value_at(e, 3), 78);
	json_decref(e);
	leave(&t);
}

static void kept_maps_of_all_types_have_the_old_values(void **state)
{
	struct gd *d = *state;
	struct name key = { 1, "one" };
	struct event v = { 5, 6, "me", 0 };
	uint32_t index = 0;
	uint64_t sum = 0;
	struct tenant t;
	json_t *e;

	load(d, 0);
	enter(&t, d);
	assert_int_equal(ebpf_map_update(map_of(&t, "names"), &key, &v, 0), 0);
	assert_int_equal(ebpf_map_hist_add(map_of(&t, "sizes"), 0, 9), 0);
	*(uint64_t *)(void *)map_of(&t, "counts")->data = 11;
	assert_int_equal(ebpf_ring_output(map_of(&t, "events"), &v, sizeof(v)), 0);
	assert_int_equal(set(d, "queue", NULL, "10"), 0);
	assert_int_equal(set(d, "queue", NULL, "20"), 0);
	assert_int_equal(set(d, "stack", NULL, "10"), 0);
	assert_int_equal(set(d, "stack", NULL, "20"), 0);
	assert_int_equal(set(d, "routes", "{bits=8, address=[10,0,0,0]}", "3"), 0);
	assert_int_equal(set(d, "big", "123", "456"), 0);
	assert_int_equal(set(d, "lru", "4", "44"), 0);
	assert_int_equal(set(d, "credits", "1", "5"), 0);
	load(d, GBPF_LOAD_KEEP_MAPS);
	take_policy(&t);
	assert_non_null(ebpf_map_lookup(map_of(&t, "names"), &key));
	assert_int_equal(ebpf_map_read(map_of(&t, "counts"), &index, &sum), 0);
	assert_int_equal(sum, 11);
	e = dump(d, "queue");
	assert_int_equal(value_at(e, 0), 10);
	json_decref(e);
	e = dump(d, "stack");
	assert_int_equal(value_at(e, 0), 20);
	json_decref(e);
	e = dump(d, "sizes");
	assert_int_equal(number(json_array_get(e, 0), "count"), 1);
	json_decref(e);
	e = dump(d, "routes");
	assert_int_equal(value_at(e, 0), 3);
	json_decref(e);
	e = dump(d, "big");
	assert_int_equal(value_at(e, 0), 456);
	json_decref(e);
	e = dump(d, "lru");
	assert_int_equal(value_at(e, 0), 44);
	json_decref(e);
	e = dump(d, "credits");
	assert_int_equal(value_at(e, 1), 5);
	assert_int_equal(value_at(e, 3), 77);
	json_decref(e);
	leave(&t);
}

/* ---- records ---- */

struct reading {
	struct gd *d;
	struct tenant *t;
	unsigned n, lost, wanted;
	uint64_t last;
	char who[16];
	json_int_t bytes;
	sem_t first; /* posted by the first record */
};

static int on_record(void *arg_, const char *line)
{
	struct reading *r = arg_;
	json_t *j = json_loads(line, 0, NULL), *record = json_object_get(j, "record");

	if (record) {
		sem_post(&r->first);
		r->n++;
		r->last = (uint64_t)number(record, "at");
		snprintf(r->who, sizeof(r->who), "%s", text(record, "who"));
		r->bytes = number(j, "bytes");
	}
	r->lost += (unsigned)number(j, "lost");
	json_decref(j);
	return r->n >= r->wanted && r->lost ? 1 : r->n >= r->wanted && !r->t ? 2 : 0;
}

static void watchers_receive_records_and_losses(void **state)
{
	struct gd *d = *state;
	struct event v = { .what = 1, .who = "x" };
	struct gbpf_map m = arg("events");
	struct gbpf *g = gd_open(d), *second = gd_open(d);
	struct reading r = { .d = d };
	struct tenant t;

	load(d, 0);
	enter(&t, d);
	for (v.at = 1; ebpf_ring_output(map_of(&t, "events"), &v, sizeof(v)) == 0; v.at++) {
	}
	r.wanted = (unsigned)v.at - 1;
	assert_true(r.wanted > 20);
	r.t = &t;
	assert_int_equal(gbpf_map_watch(g, &m, 10, PATIENCE_MS, on_record, &r), 1);
	assert_int_equal(r.n, r.wanted);
	assert_int_equal(r.last, r.wanted);
	assert_string_equal(r.who, "x");
	assert_int_equal(r.bytes, sizeof(v));
	assert_int_equal(r.lost, 1); /* the one that the full ring refused */
	assert_int_equal(gbpf_call(g, "map.watch", "{\"map\":\"events\"}", -1, NULL), 0);
	assert_int_equal(gbpf_call(second, "map.watch", "{\"map\":\"events\"}", -1, NULL), -EBUSY);
	gbpf_close(g);
	gbpf_close(second);
	leave(&t);
}

static void *leave_soon(void *arg_)
{
	struct reading *r = arg_;

	sem_wait(&r->first);
	fake_leave(&r->t->f);
	return NULL;
}

static void a_dead_owners_ring_is_drained_once(void **state)
{
	struct gd *d = *state;
	struct gbpf_map m = arg("events");
	struct gbpf *g = gd_open(d);
	struct reading r = { .d = d, .wanted = 2 };
	struct event v = { .at = 77, .who = "last" };
	struct tenant t;
	pthread_t thread;

	load(d, 0);
	enter(&t, d);
	r.t = &t;
	/* The second record is reserved and never submitted: its owner exits. */
	ebpf_ring_output(map_of(&t, "events"), &v, sizeof(v));
	ebpf_ring_reserve(map_of(&t, "events"), 64);
	v.at = 78;
	ebpf_ring_output(map_of(&t, "events"), &v, sizeof(v));
	assert_int_equal(pthread_create(&thread, NULL, leave_soon, &r), 0);
	/* The interval is an hour: after the first scan only the exit makes gbpfd scan again. */
	assert_int_equal(gbpf_map_watch(g, &m, 3600000, PATIENCE_MS, on_record, &r), 1);
	pthread_join(thread, NULL);
	assert_int_equal(r.last, 78);
	assert_int_equal(r.lost, 1);
	ebpf_policy_close(t.policy);
	free(t.policy);
	gbpf_close(g);
}

static int on_init_and_exit(void *arg_, const char *line)
{
	struct reading *r = arg_;

	if (strstr(line, "\"end\"")) {
		return 7;
	}
	(void)on_record(arg_, line);
	if (r->n == 1) { /* init's record: now end the version */
		assert_string_equal(r->who, "init");
		json_decref(gd_call(r->d, "policy.unload", NULL));
	}
	return 0;
}

static void watchers_receive_records_of_init_and_exit(void **state)
{
	struct gd *d = *state;
	struct gbpf_map m = arg("told");
	struct gbpf *g = gd_open(d);
	struct reading r = { .d = d };

	load(d, 0);
	assert_int_equal(gbpf_map_watch(g, &m, 10, PATIENCE_MS, on_init_and_exit, &r), 7);
	assert_int_equal(r.n, 2);
	assert_string_equal(r.who, "exit"); /* before the end of the watch */
	assert_int_equal(r.last, 1);
	gbpf_close(g);
}

static void records_may_be_shown_as_another_type(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);

	load(d, 0);
	assert_int_equal(gbpf_call(g, "map.watch", "{\"map\":\"events\",\"type\":\"struct name\"}",
				   -1, NULL),
			 0);
	gbpf_close(g);
	g = gd_open(d);
	assert_int_equal(
		gbpf_call(g, "map.watch", "{\"map\":\"events\",\"type\":\"nosuch\"}", -1, NULL),
		-ENOENT);
	assert_int_equal(gbpf_call(g, "map.watch", "{\"map\":\"queue\"}", -1, NULL), -EINVAL);
	assert_int_equal(gbpf_call(g, "map.watch", "{\"map\":\"big\"}", -1, NULL), -E2BIG);
	gbpf_close(g);
}

/* ---- attacks ---- */

struct vandal {
	struct tenant *t;
	int stop;
};

/* A tenant that overwrites all of its memory with random words, without end. */
static void *vandalize(void *arg_)
{
	struct vandal *v = arg_;
	struct ebpf_map *m = map_of(v->t, "names");
	size_t words = v->t->policy->region_bytes[EBPF_REGION_TENANT] / 8;
	uint64_t x = 88172645463325252u;

	while (!load_relaxed(&v->stop)) {
		for (int i = 0; i < 1000; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			store_relaxed((uint64_t *)v->t->policy->region[EBPF_REGION_TENANT] +
					      x % words,
				      x >> 20);
		}
		memset(m->data, (int)x, m->bytes);
	}
	return NULL;
}

static void look_at_everything(struct gd *d)
{
	static const char *const maps[] = { "names", "counts", "sizes", "events" };
	struct gbpf *g = gd_open(d);

	for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
		struct gbpf_map m = arg(maps[i]);
		char *out = NULL;

		assert_int_equal(gbpf_map_dump(g, &m, NULL, 0, 0, &out), 0);
		free(out);
		gbpf_map_get(g, &m, "0", NULL);
		m.tenant = 0;
		gbpf_map_set(g, &m, i ? "0" : "{group=3}", i ? "1" : "{at=1}", NULL);
		gbpf_map_delete(g, &m, "{group=3}", NULL);
	}
	gbpf_close(g);
}

static int nothing(void *arg_, const char *line)
{
	(void)line;
	return ++*(int *)arg_ > 50;
}

static void *watch_vandal(void *arg_)
{
	struct gd *d = arg_;
	struct gbpf_map m = arg("events");
	struct gbpf *g = gd_open(d);
	int n = 0;

	gbpf_map_watch(g, &m, 10, 500, nothing, &n);
	gbpf_close(g);
	return NULL;
}

static void hostile_tenant_memory_does_no_harm(void **state)
{
	struct gd *d = *state;
	struct vandal v = { 0 };
	pthread_t thread, watcher;
	struct tenant t, other;
	struct name key = { 2, "two" };
	struct event e = { .at = 4 };

	load(d, 0);
	enter(&t, d);
	enter(&other, d);
	assert_int_equal(ebpf_map_update(map_of(&other, "names"), &key, &e, 0), 0);
	v.t = &t;
	assert_int_equal(pthread_create(&thread, NULL, vandalize, &v), 0);
	assert_int_equal(pthread_create(&watcher, NULL, watch_vandal, d), 0);
	for (int i = 0; i < 1000; i++) {
		json_decref(gd_call(d, "status", NULL));
		look_at_everything(d);
	}
	load(d, GBPF_LOAD_KEEP_MAPS);
	store_relaxed(&v.stop, 1);
	pthread_join(thread, NULL);
	pthread_join(watcher, NULL);
	take_policy(&other);
	assert_non_null(ebpf_map_lookup(map_of(&other, "names"), &key));
	leave(&t);
	leave(&other);
}

static void keeping_a_big_map_does_not_hold_up_gbpfd(void **state)
{
	struct gd *d = *state;
	uint64_t least = UINT64_MAX, all = 0; /* processor time of a load: of the loop, of gbpfd */
	clockid_t cpu;
	struct gbpf *g = gd_open(d);
	char number_text[24];
	json_t *e;

	load(d, 0);
	for (int i = 0; i < 300; i++) {
		snprintf(number_text, sizeof(number_text), "%d", i);
		assert_int_equal(set(d, "big", number_text, "1"), 0);
	}
	assert_int_equal(clock_getcpuclockid(d->pid, &cpu), 0);
	for (int i = 0; i < 5; i++) {
		struct timespec from, to;
		uint64_t loop = gd_loop_ns(d);

		clock_gettime(cpu, &from);
		load(d, GBPF_LOAD_KEEP_MAPS);
		json_decref(gd_call(d, "status", NULL));
		loop = gd_loop_ns(d) - loop;
		clock_gettime(cpu, &to);
		if (loop < least) {
			least = loop;
			all = (uint64_t)((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec -
					 from.tv_nsec);
		}
	}
	print_message("the loop's %.2f of %.2f ms\n", (double)least / 1e6, (double)all / 1e6);
	e = dump(d, "big");
	assert_int_equal(json_array_size(e), 300);
	json_decref(e);
	assert_true(least < all / 4);
	gbpf_close(g);
}

#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(hashes_of_tenants_are_read_and_written),
		WITH_GBPFD(queues_and_stacks_are_pushed_popped_and_shown_in_order),
		WITH_GBPFD(histograms_show_their_buckets),
		WITH_GBPFD(thread_arrays_are_summed_and_shown_apart),
		WITH_GBPFD(prefixes_programs_and_maps_are_named),
		WITH_GBPFD(epoch_maps_are_published_after_init_and_after_a_set),
		WITH_GBPFD(kept_maps_of_all_types_have_the_old_values),
		WITH_GBPFD(watchers_receive_records_and_losses),
		WITH_GBPFD(a_dead_owners_ring_is_drained_once),
		WITH_GBPFD(watchers_receive_records_of_init_and_exit),
		WITH_GBPFD(records_may_be_shown_as_another_type),
		WITH_GBPFD(hostile_tenant_memory_does_no_harm),
		WITH_GBPFD(keeping_a_big_map_does_not_hold_up_gbpfd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
