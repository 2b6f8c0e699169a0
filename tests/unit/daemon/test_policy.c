/* Policies in a running gbpfd: the two phases of a swap, refusals that leave the old version
 * active, and the hooks that run in gbpfd. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "bpf/run/policy_image.h"

enum { LATENCY, NORMAL, BATCH };

/* A call to gbpfd that is pending while the test acts as the processes. */
struct pending {
	pthread_t thread;
	struct gbpf *g;
	const char *policy; /* NULL: roll back to version */
	uint64_t version;
	unsigned flags;
	char *json;
	int err;
};

static void *run_call(void *arg)
{
	struct pending *p = arg;

	p->err = p->policy ? gbpf_policy_load(p->g, gd_object(p->policy), NULL, p->flags, &p->json)
			   : gbpf_policy_rollback(p->g, p->version, &p->json);
	return NULL;
}

static void begin_load(struct pending *p, struct gd *d, const char *policy)
{
	memset(p, 0, sizeof(*p));
	p->g = gd_open(d);
	p->policy = policy;
	p->flags = GBPF_LOAD_SWAP;
	assert_int_equal(pthread_create(&p->thread, NULL, run_call, p), 0);
}

static void begin_rollback(struct pending *p, struct gd *d, uint64_t version)
{
	memset(p, 0, sizeof(*p));
	p->g = gd_open(d);
	p->version = version;
	assert_int_equal(pthread_create(&p->thread, NULL, run_call, p), 0);
}

static json_t *end_call(struct pending *p)
{
	json_t *j;

	pthread_join(p->thread, NULL);
	if (p->err) {
		fail_msg("%s", gbpf_last_error(p->g)->message);
	}
	j = json_loads(p->json, 0, NULL);
	free(p->json);
	gbpf_close(p->g);
	return j;
}

static json_int_t member(const json_t *j, const char *name)
{
	return json_integer_value(json_object_get(j, name));
}

static void load_now(struct gd *d, const char *policy)
{
	struct pending p;

	begin_load(&p, d, policy);
	json_decref(end_call(&p));
}

static uint64_t word(const struct fake *f)
{
	return load_seqcst(&f->dir->version[0]);
}

/* For conditions that hold if all processes answer in time, which they may not on a busy machine: f
 * returns whether they did, and is repeated with another gbpfd if not. */
static void in_time(struct gd *d, bool (*f)(struct gd *d))
{
	for (int i = 0; !f(d); i++) {
		assert_true(i < 20);
		gd_renew(d);
	}
}

static bool active_when_both_have_prepared(struct gd *d)
{
	struct pending p;
	struct fake a, b;
	uint64_t before;
	bool good;
	json_t *r;

	fake_enter(&a, d, BATCH, "a");
	fake_enter(&b, d, BATCH, "b");
	gd_await_event(d, 0, "start", "b (pid");
	begin_load(&p, d, "plain");
	assert_int_equal(fake_prepare(&a, 0), 1);
	before = word(&a); /* b has not answered */
	assert_int_equal(fake_prepare(&b, 0), 1);
	r = end_call(&p);
	assert_int_equal(word(&a), 1);
	assert_int_equal(member(r, "version"), 1);
	assert_int_equal(member(r, "acked") + member(r, "late"), 2);
	good = member(r, "late") == 0 && member(r, "flip_ns") < 1000000;
	assert_true(before == 0 || !good);
	assert_string_equal(json_string_value(json_object_get(r, "name")), "plain");
	assert_int_equal(json_array_size(json_object_get(r, "hooks")), 1);
	json_decref(r);
	fake_leave(&a);
	fake_leave(&b);
	return good;
}

static void nothing_is_active_before_every_process_has_prepared(void **state)
{
	in_time(*state, active_when_both_have_prepared);
}

static void the_old_version_is_dropped_after_the_flip(void **state)
{
	struct gd *d = *state;
	union proto_message m;
	struct pending p;
	struct fake f;

	load_now(d, "plain");
	fake_enter(&f, d, BATCH, "f");
	assert_int_equal(fake_prepare(&f, 0), 1); /* it connects after the load */
	begin_load(&p, d, "counting");
	assert_int_equal(fake_prepare(&f, 0), 2);
	json_decref(end_call(&p));
	fake_expect(&f, &m, PROTO_DROP);
	assert_int_equal(m.version.version, 1);
	assert_int_equal(word(&f), 2);
	fake_leave(&f);
}

static void a_process_that_does_not_answer_is_not_waited_for(void **state)
{
	struct gd *d = *state;
	uint64_t begin = clock_now_ns();
	struct pending p;
	struct fake f;
	json_t *r;

	fake_enter(&f, d, BATCH, "sleepy");
	gd_await_event(d, 0, "start", "sleepy");
	begin_load(&p, d, "plain");
	r = end_call(&p);
	assert_true(clock_now_ns() - begin >= 50000000u);
	assert_true(member(r, "waited_ns") >= 50000000);
	assert_int_equal(member(r, "late"), 1);
	assert_int_equal(word(&f), 1);
	gd_await_event(d, 0, "late", "sleepy");
	json_decref(r);
	assert_int_equal(fake_prepare(&f, 0), 1); /* late, which is allowed */
	load_now(d, "counting");
	fake_leave(&f);
}

/* gbpfd sends PREPARE to some of them in each turn of its loop. */
static void each_of_many_processes_gets_one_prepare(void **state)
{
	enum { MANY = 200 };
	struct gd *d = *state;
	struct fake *f = calloc(MANY, sizeof(*f));
	struct pending p;
	json_t *r;

	for (int i = 0; i < MANY; i++) {
		fake_enter(&f[i], d, BATCH, i == MANY - 1 ? "the last" : "many");
	}
	gd_await_event(d, 0, "start", "the last");
	begin_load(&p, d, "counting");
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(fake_prepare(&f[i], 0), 1);
	}
	r = end_call(&p);
	assert_int_equal(member(r, "acked") + member(r, "late"), MANY);
	json_decref(r);
	load_now(d, "plain");
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(fake_prepare(&f[i], 0), 2); /* no second PREPARE */
		fake_leave(&f[i]);
	}
	free(f);
}

static bool dies_meanwhile(struct gd *d)
{
	union proto_message m;
	struct pending p;
	struct fake a, b;
	bool good;
	json_t *r;

	fake_enter(&a, d, BATCH, "a");
	fake_enter(&b, d, BATCH, "b");
	gd_await_event(d, 0, "start", "b (pid");
	begin_load(&p, d, "plain");
	assert_int_equal(fake_prepare(&a, 0), 1);
	close(fake_expect(&b, &m, PROTO_PREPARE));
	fake_leave(&b);
	r = end_call(&p);
	good = member(r, "acked") == 1 && member(r, "late") == 0;
	json_decref(r);
	fake_leave(&a);
	return good;
}

static void a_process_that_dies_meanwhile_is_not_waited_for(void **state)
{
	in_time(*state, dies_meanwhile);
}

static bool cannot_run_it(struct gd *d)
{
	struct pending p;
	struct fake f;
	bool good;
	json_t *r;

	fake_enter(&f, d, BATCH, "unable");
	gd_await_event(d, 0, "start", "unable");
	begin_load(&p, d, "plain");
	fake_prepare(&f, -ENOMEM);
	r = end_call(&p);
	good = member(r, "failed") == 1;
	assert_int_equal(member(r, "acked"), 0);
	gd_await_event(d, 0, "prepare", "unable cannot run");
	json_decref(r);
	fake_leave(&f);
	return good;
}

static void a_process_that_cannot_run_it_is_counted(void **state)
{
	in_time(*state, cannot_run_it);
}

/* The image and regions that a process receives are complete enough to run. */
static void a_received_version_can_run(void **state)
{
	struct gd *d = *state;
	int fds[8], regions[EBPF_REGIONS] = EBPF_NO_REGIONS;
	struct ebpf_policy *policy = calloc(1, sizeof(*policy));
	union proto_message m;
	struct pending p;
	struct fake f;
	unsigned n;
	void *again;

	fake_enter(&f, d, BATCH, "f");
	gd_await_event(d, 0, "start", "f (pid");
	begin_load(&p, d, "counting");
	assert_int_equal(fake_receive(&f, &m, fds, &n), 1);
	assert_int_equal(m.head.type, PROTO_PREPARE);
	assert_int_equal(m.version.regions, PROTO_REGION_GLOBAL | PROTO_REGION_TENANT);
	assert_int_equal(n, 3);
	regions[EBPF_REGION_GLOBAL] = fds[1];
	regions[EBPF_REGION_TENANT] = fds[2];
	assert_int_equal(ebpf_policy_open(policy, fds[0], regions, 0), 0);
	assert_int_equal(policy->version, 1);
	again = shm_map(fds[1], policy->region_bytes[EBPF_REGION_GLOBAL], 1);
	assert_null(again); /* only gbpfd may write global memory */
	assert_non_null(memmem(policy->region[EBPF_REGION_GLOBAL],
			       policy->region_bytes[EBPF_REGION_GLOBAL],
			       &(uint64_t){ 0x1122334455667788 }, 8));
	m.version.status = 0;
	fake_send(&f, &m, PROTO_PREPARED);
	json_decref(end_call(&p));
	ebpf_policy_close(policy);
	free(policy);
	while (n) {
		close(fds[--n]);
	}
	fake_leave(&f);
}

static void expect_refusal(struct gd *d, const char *path, int err, int exit_code, const char *code)
{
	struct gbpf *g = gd_open(d);
	const struct gbpf_error *e = gbpf_last_error(g);

	assert_int_equal(gbpf_policy_load(g, path, "test", GBPF_LOAD_SWAP, NULL), err);
	assert_int_equal(e->exit, exit_code);
	assert_string_equal(e->code, code);
	assert_true(strlen(e->message) > 10);
	gbpf_close(g);
}

static void a_refused_policy_leaves_the_old_one_running(void **state)
{
	struct gd *d = *state;
	const struct gbpf_error *e;
	struct gbpf *g;

	load_now(d, "plain");
	expect_refusal(d, gd_object("unsafe"), -EACCES, 4, "verify");
	g = gd_open(d);
	e = gbpf_last_error(g);
	assert_int_equal(gbpf_policy_load(g, gd_object("unsafe"), NULL, GBPF_LOAD_SWAP, NULL),
			 -EACCES);
	assert_non_null(strstr(e->message, "submit"));
	assert_non_null(strstr(e->message, "unsafe.bpf.c")); /* the source line */
	gbpf_close(g);
	assert_int_equal(gd_number(d, "policy.list", "active"), 1);
	gd_await_event(d, 0, "policy", "swap of 'unsafe' failed");
	load_now(d, "counting"); /* numbers of refused versions are reused */
	assert_int_equal(gd_number(d, "policy.list", "active"), 2);
}

static void broken_objects_are_refused_with_a_reason(void **state)
{
	struct gd *d = *state;
	char path[128];
	struct buf object;
	struct gbpf *g = gd_open(d);

	snprintf(path, sizeof(path), "%s/broken.bpf.o", d->dir);
	buf_init(&object);
	assert_int_equal(buf_read_file(&object, gd_object("counting"), 1 << 20), 0);
	load_now(d, "plain");
	for (size_t len = 1; len < object.len; len += object.len / 40 + 1) {
		const struct gbpf_error *e = gbpf_last_error(g);

		if (gbpf_policy_load_bytes(g, object.data, len, "cut", GBPF_LOAD_SWAP, NULL) == 0) {
			continue; /* truncated after all relevant parts */
		}
		assert_true(e->exit == 1 || e->exit == 4);
		assert_true(strlen(e->message) > 10);
	}
	srandom(5);
	for (int i = 0; i < 60; i++) {
		char saved[8];
		size_t at = (size_t)random() % (object.len - 8);

		memcpy(saved, object.data + at, 8);
		for (int k = 0; k < 8; k++) {
			object.data[at + (size_t)k] = (char)random();
		}
		gbpf_policy_load_bytes(g, object.data, object.len, "hurt", GBPF_LOAD_SWAP,
				       NULL); /* either result is correct; no crash */
		memcpy(object.data + at, saved, 8);
	}
	assert_true(gd_number(d, "policy.list", "active") >= 1);
	assert_int_equal(gbpf_policy_load_bytes(g, "", 0, "empty", 0, NULL), -EINVAL);
	assert_int_equal(gbpf_policy_load(g, "/nonexistent/x.bpf.o", NULL, 0, NULL), -ENOENT);
	assert_int_equal(gbpf_last_error(g)->exit, 5);
	gbpf_close(g);
	buf_finish(&object);
}

static void an_unsealed_descriptor_is_refused(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	int fd = open(gd_object("plain"), O_RDONLY);

	assert_true(gbpf_call(g, "policy.load", "{\"name\":\"x\"}", fd, NULL) < 0);
	assert_non_null(strstr(gbpf_last_error(g)->message, "memfd"));
	assert_true(gbpf_call(g, "policy.load", "{\"name\":\"x\"}", -1, NULL) < 0);
	assert_true(gbpf_call(g, "policy.load", "{\"name\":\"a/b\"}", fd, NULL) < 0);
	assert_int_equal(gbpf_last_error(g)->exit, 2);
	close(fd);
	gbpf_close(g);
}

static void loading_over_another_needs_swap(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);

	load_now(d, "plain");
	assert_int_equal(gbpf_policy_load(g, gd_object("counting"), NULL, 0, NULL), -EEXIST);
	assert_string_equal(gbpf_last_error(g)->code, "active");
	assert_int_equal(gbpf_policy_unload(g, NULL), 0);
	assert_int_equal(gd_number(d, "policy.list", "active"), 0);
	assert_int_equal(gbpf_policy_load(g, gd_object("counting"), NULL, 0, NULL), 0);
	gbpf_close(g);
}

static void rollback_goes_back_to_a_kept_version(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	union proto_message m;
	struct pending p;
	struct fake f;
	json_t *r;

	load_now(d, "plain");
	load_now(d, "counting");
	fake_enter(&f, d, BATCH, "f");
	assert_int_equal(fake_prepare(&f, 0), 2);
	begin_rollback(&p, d, 0);
	assert_int_equal(fake_prepare(&f, 0), 1);
	r = end_call(&p);
	assert_int_equal(member(r, "version"), 1);
	assert_string_equal(json_string_value(json_object_get(r, "name")), "plain");
	json_decref(r);
	assert_int_equal(word(&f), 1);
	fake_expect(&f, &m, PROTO_DROP);
	assert_int_equal(m.version.version, 2);
	begin_rollback(&p, d, 0); /* and forward again */
	assert_int_equal(fake_prepare(&f, 0), 2);
	json_decref(end_call(&p));
	assert_int_equal(gbpf_policy_rollback(g, 99, NULL), -ENOENT);
	assert_int_equal(gbpf_last_error(g)->exit, 5);
	gbpf_close(g);
	fake_leave(&f);
}

static void unload_ends_every_policy(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	union proto_message m;
	struct fake f;

	load_now(d, "plain");
	fake_enter(&f, d, BATCH, "f");
	fake_prepare(&f, 0);
	assert_int_equal(gbpf_policy_unload(g, NULL), 0);
	assert_int_equal(word(&f), 0);
	fake_expect(&f, &m, PROTO_DROP);
	assert_int_equal(gbpf_policy_unload(g, NULL), -ENOENT);
	gbpf_close(g);
	fake_leave(&f);
}

static void list_and_show_report_stored_versions(void **state)
{
	struct gd *d = *state;
	json_t *list, *show, *v;

	load_now(d, "plain");
	load_now(d, "counting");
	list = gd_call(d, "policy.list", NULL);
	assert_int_equal(member(list, "active"), 2);
	v = json_array_get(json_object_get(list, "versions"), 0);
	assert_string_equal(json_string_value(json_object_get(v, "name")), "plain");
	assert_string_equal(json_string_value(json_object_get(v, "state")), "kept");
	v = json_array_get(json_object_get(list, "versions"), 1);
	assert_string_equal(json_string_value(json_object_get(v, "state")), "active");
	assert_string_equal(json_string_value(json_object_get(v, "license")), "GPL");
	show = gd_call(d, "policy.show", "{\"version\":2}");
	assert_int_equal(json_array_size(json_object_get(show, "hooks")), 3);
	v = json_array_get(json_object_get(show, "hooks"), 0);
	assert_true(member(v, "cost") > 0 && member(v, "insns") > 0);
	assert_true(json_array_size(json_object_get(show, "maps")) >= 2);
	assert_int_equal(
		json_array_size(json_object_get(json_object_get(show, "counters"), "notes")), 16);
	json_decref(list);
	json_decref(show);
}

static json_int_t note_shown(struct gd *d, unsigned i)
{
	json_t *show = gd_call(d, "policy.show", NULL);
	json_t *notes = json_object_get(json_object_get(show, "counters"), "notes");
	json_int_t n = json_integer_value(json_array_get(notes, i));

	json_decref(show);
	return n;
}

static void show_adds_up_the_tenants_notes_on_that_version(void **state)
{
	struct gd *d = *state;
	struct fake a, b;

	load_now(d, "plain");
	fake_enter(&a, d, BATCH, "a");
	fake_prepare(&a, 0);
	fake_enter(&b, d, BATCH, "b");
	fake_prepare(&b, 0);
	store_relaxed(&a.stats->notes[15], UINT64_C(7));
	assert_int_equal(note_shown(d, 15), 0); /* counted for no version */
	store_release(&a.stats->notes_version, UINT64_C(1));
	store_relaxed(&b.stats->notes[15], UINT64_C(100));
	store_release(&b.stats->notes_version, UINT64_C(1));
	assert_int_equal(note_shown(d, 15), 107);
	assert_int_equal(note_shown(d, 14), 0);
	store_release(&b.stats->notes_version, UINT64_C(9)); /* another version */
	assert_int_equal(note_shown(d, 15), 7);
	fake_leave(&a);
	fake_leave(&b);
}

static json_int_t counter_shown(struct gd *d, const char *name)
{
	json_t *show = gd_call(d, "policy.show", NULL);
	json_int_t n = json_integer_value(json_object_get(json_object_get(show, "counters"), name));

	json_decref(show);
	return n;
}

static void counters_of_a_process_stay_after_its_exit(void **state)
{
	struct gd *d = *state;
	struct fake a, b;

	load_now(d, "plain");
	fake_enter(&a, d, BATCH, "a");
	fake_prepare(&a, 0);
	fake_enter(&b, d, BATCH, "b");
	fake_prepare(&b, 0);
	store_relaxed(&a.stats->notes[1], UINT64_C(7));
	store_relaxed(&a.stats->failures[3][PROTO_FAILED_HELPER], UINT64_C(5));
	store_release(&a.stats->notes_version, UINT64_C(1));
	store_relaxed(&b.stats->notes[1], UINT64_C(1));
	store_release(&b.stats->notes_version, UINT64_C(1));
	fake_leave(&a);
	gd_await_event(d, 0, "detach", "a (pid");
	assert_int_equal(note_shown(d, 1), 8);
	assert_int_equal(counter_shown(d, "helper_errors"), 5);
	fake_leave(&b);
	gd_await_event(d, 0, "detach", "b (pid");
	assert_int_equal(note_shown(d, 1), 8);
}

static void failures_are_reported_by_version_and_hook(void **state)
{
	struct gd *d = *state;
	uint64_t seq;
	struct fake a;

	load_now(d, "plain");
	fake_enter(&a, d, BATCH, "a");
	fake_prepare(&a, 0);
	store_release(&a.stats->notes_version, UINT64_C(1));
	store_relaxed(&a.stats->failures[3][PROTO_FAILED_VERDICT], UINT64_C(3));
	store_relaxed(&a.stats->failures[15][PROTO_FAILED_HELPER], UINT64_MAX); /* no such hook */
	seq = gd_await_event(d, 0, "policy-error", "policy 'plain' version 1, submit: 3 verdicts");
	store_relaxed(&a.stats->failures[3][PROTO_FAILED_VERDICT], UINT64_C(9));
	assert_int_equal(counter_shown(d, "verdict_errors"), 9);
	assert_int_equal(gd_last_event(d), seq); /* not reported again within ten seconds */
	fake_leave(&a);
}

static void at_most_64_versions_are_kept(void **state)
{
	struct gd *d = *state;
	json_t *list;

	for (int i = 0; i < 66; i++) {
		load_now(d, "plain");
	}
	list = gd_call(d, "policy.list", NULL);
	assert_int_equal(json_array_size(json_object_get(list, "versions")), 64);
	assert_int_equal(member(list, "active"), 66);
	assert_int_equal(member(json_array_get(json_object_get(list, "versions"), 0), "version"),
			 3);
	json_decref(list);
}

/* ---- hooks in gbpfd ---- */

static void tick_runs_while_a_tenant_is_active_and_writes_tenant_memory(void **state)
{
	struct gd *d = *state;
	uint64_t *mine;
	json_int_t ticks;
	struct fake f;

	load_now(d, "counting");
	fake_enter(&f, d, BATCH, "f");
	assert_int_equal(fake_prepare(&f, 0), 1);
	mine = shm_map(f.region_fd, 4096, 1);
	assert_non_null(mine);
	/* Element 0 of the tenant's map: counted up by gbpfd. */
	eventually((add_relaxed(&f.stats->gpu[0].launches, 1u), load_seqcst(&mine[0]) >= 20));
	assert_true(gd_number(d, "status", "counters.ticks") >= 20);
	do { /* no more launches, so ticks end: only a time without one shows that */
		ticks = gd_number(d, "status", "counters.ticks");
		clock_sleep_ns(90000000);
	} while (gd_number(d, "status", "counters.ticks") != ticks);
	store_seqcst(&f.board->gpu[0].open, 1u); /* an open request is activity */
	eventually(gd_number(d, "status", "counters.ticks") != ticks);
	shm_unmap(mine, 4096);
	fake_leave(&f);
}

static void enter_gpu(struct fake *f, struct gd *d, const char *name)
{
	union proto_message m = { .hello = { .class_id = BATCH, .weight = 100, .gpus = 1 } };

	fake_connect(f, d);
	snprintf(m.hello.name, sizeof(m.hello.name), "%s", name);
	memset(m.hello.uuid[0], 7, sizeof(m.hello.uuid[0]));
	fake_send(f, &m, PROTO_HELLO);
	fake_welcomed(f);
}

/* Returns whether gbpfd says that several processes have work on the GPU, after one more launch. */
static bool is_shared_while_working(struct fake *f)
{
	add_relaxed(&f->stats->gpu[0].launches, 1u);
	return load_seqcst(&f->dir->shared_until_ns[f->welcome.gpu_index[0]]) > clock_now_ns();
}

/* Durations contain turns of other processes under any policy, so processes must know of them. */
static void gpu_counts_as_shared_without_ticks_too(void **state)
{
	struct gd *d = *state;
	struct fake a, b, c;

	load_now(d, "plain"); /* submit alone */
	enter_gpu(&a, d, "a");
	enter_gpu(&b, d, "b");
	eventually((is_shared_while_working(&a), is_shared_while_working(&b)));
	assert_int_equal(gd_number(d, "status", "counters.ticks"), 0);
	eventually(!is_shared_while_working(&a)); /* b is idle */
	eventually((is_shared_while_working(&a), is_shared_while_working(&b)));
	fake_leave(&b);
	eventually(!is_shared_while_working(&a));
	enter_gpu(&c, d, "c"); /* after checks have ended with b */
	eventually((is_shared_while_working(&a), is_shared_while_working(&c)));
	fake_leave(&a);
	fake_leave(&c);
}

static void admit_may_reject_and_change_the_class(void **state)
{
	struct gd *d = *state;
	union proto_message m;
	struct fake a, b;

	load_now(d, "counting");
	fake_connect(&a, d);
	fake_say_hello(&a, BATCH, 13, "unlucky");
	fake_expect(&a, &m, PROTO_REFUSED);
	assert_int_equal(m.refused.error, EPERM);
	gd_await_event(d, 0, "refused", "does not admit");
	fake_connect(&b, d);
	fake_say_hello(&b, LATENCY, 15, "demoted");
	fake_welcomed(&b);
	assert_int_equal(b.welcome.class_id, BATCH);
	assert_int_equal(b.welcome.weight, 3);
	fake_leave(&a);
	fake_leave(&b);
}

static void admit_may_let_wait_until_another_has_left(void **state)
{
	struct gd *d = *state;
	union proto_message m;
	struct fake first, second;

	load_now(d, "counting");
	fake_enter(&first, d, BATCH, "first");
	fake_prepare(&first, 0);
	fake_connect(&second, d);
	fake_say_hello(&second, BATCH, 14, "second");
	fake_expect(&second, &m, PROTO_QUEUED);
	fake_leave(&first);
	fake_welcomed(&second);
	assert_int_equal(fake_prepare(&second, 0), 1);
	fake_leave(&second);
}

static void the_switch_reaches_the_processes(void **state)
{
	struct gd *d = *state;
	struct fake f;

	fake_enter(&f, d, BATCH, "f");
	json_decref(gd_call(d, "off", NULL));
	assert_int_equal(load_seqcst(&f.dir->off), 1);
	json_decref(gd_call(d, "on", NULL));
	assert_int_equal(load_seqcst(&f.dir->off), 0);
	fake_leave(&f);
}

static void many_swaps_leak_nothing(void **state)
{
	struct gd *d = *state;
	json_int_t before = 0;
	struct fake f;

	fake_enter(&f, d, BATCH, "f");
	gd_await_event(d, 0, "start", "f (pid");
	for (int i = 0; i < 40; i++) {
		union proto_message m;
		struct pending p;
		int fds[8];
		unsigned n;

		begin_load(&p, d, i % 2 ? "plain" : "counting");
		do {
			assert_int_equal(fake_receive(&f, &m, fds, &n), 1);
			while (n) {
				close(fds[--n]);
			}
		} while (m.head.type != PROTO_PREPARE);
		m.version.status = 0;
		fake_send(&f, &m, PROTO_PREPARED);
		json_decref(end_call(&p));
		if (i % 2 && i >= 9) {
			while (gd_number(d, "status", "connections") != 1) {
			}
			before = before ? before : gd_number(d, "status", "fds");
			assert_int_equal(gd_number(d, "status", "fds"), before);
		}
	}
	fake_leave(&f);
}

#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(nothing_is_active_before_every_process_has_prepared),
		WITH_GBPFD(the_old_version_is_dropped_after_the_flip),
		WITH_GBPFD(a_process_that_does_not_answer_is_not_waited_for),
		WITH_GBPFD(each_of_many_processes_gets_one_prepare),
		WITH_GBPFD(a_process_that_dies_meanwhile_is_not_waited_for),
		WITH_GBPFD(a_process_that_cannot_run_it_is_counted),
		WITH_GBPFD(a_received_version_can_run),
		WITH_GBPFD(a_refused_policy_leaves_the_old_one_running),
		WITH_GBPFD(broken_objects_are_refused_with_a_reason),
		WITH_GBPFD(an_unsealed_descriptor_is_refused),
		WITH_GBPFD(loading_over_another_needs_swap),
		WITH_GBPFD(rollback_goes_back_to_a_kept_version),
		WITH_GBPFD(unload_ends_every_policy),
		WITH_GBPFD(list_and_show_report_stored_versions),
		WITH_GBPFD(at_most_64_versions_are_kept),
		WITH_GBPFD(show_adds_up_the_tenants_notes_on_that_version),
		WITH_GBPFD(counters_of_a_process_stay_after_its_exit),
		WITH_GBPFD(failures_are_reported_by_version_and_hook),
		WITH_GBPFD(tick_runs_while_a_tenant_is_active_and_writes_tenant_memory),
		WITH_GBPFD(gpu_counts_as_shared_without_ticks_too),
		WITH_GBPFD(admit_may_reject_and_change_the_class),
		WITH_GBPFD(admit_may_let_wait_until_another_has_left),
		WITH_GBPFD(the_switch_reaches_the_processes),
		WITH_GBPFD(many_swaps_leak_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
