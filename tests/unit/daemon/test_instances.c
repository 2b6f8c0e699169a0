/* A version has an instance on each GPU: maps, init, admit and tick of its own. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/shm.h"

#define BATCH 2
#define UUID 0x40

/* The devices of a process have the UUIDs of `first` and the following ones. */
static void say_hello(struct fake *f, const struct gd *d, unsigned first, unsigned gpus)
{
	union proto_message m = { .hello = { .class_id = BATCH, .weight = 100, .gpus = gpus } };

	fake_connect(f, d);
	for (unsigned i = 0; i < gpus; i++) {
		memset(m.hello.uuid[i], (int)(UUID + first + i), 16);
	}
	snprintf(m.hello.name, sizeof(m.hello.name), "on%u", first);
	fake_send(f, &m, PROTO_HELLO);
}

static void enter(struct fake *f, const struct gd *d, unsigned first, unsigned gpus)
{
	say_hello(f, d, first, gpus);
	fake_welcomed(f);
	gd_await_event((struct gd *)(uintptr_t)d, 0, "start", "(pid");
}

/* Takes a PREPARE, and the orders to drop instances before it, answers it, and returns the GPU.
 * fds: of the tenant's regions, by GPU; NULL: closed. */
static uint32_t prepared(struct fake *f, uint64_t version, int *fds)
{
	union proto_message m;
	int got[8];
	unsigned n;
	uint32_t gpu;

	do {
		assert_int_equal(fake_receive(f, &m, got, &n), 1);
	} while (m.head.type == PROTO_DROP);
	assert_int_equal(m.head.type, PROTO_PREPARE);
	assert_int_equal(m.version.version, version);
	assert_int_equal(m.version.regions, PROTO_REGION_GLOBAL | PROTO_REGION_TENANT);
	gpu = m.version.gpu;
	if (fds) {
		fds[gpu] = got[--n];
	}
	while (n) {
		close(got[--n]);
	}
	m.version.status = 0;
	m.version.regions = 0;
	fake_send(f, &m, PROTO_PREPARED);
	return gpu;
}

static void load(struct gd *d, const char *name)
{
	struct gbpf *g = gd_open(d);

	if (gbpf_policy_load(g, gd_object(name), NULL, GBPF_LOAD_SWAP, NULL) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	gbpf_close(g);
}

/* A process on GPUs 0 and 1, and version 1, which it has prepared for both. */
static void enter_and_load(struct fake *f, struct gd *d)
{
	enter(f, d, 0, 2);
	load(d, "instances");
	(void)prepared(f, 1, NULL);
	(void)prepared(f, 1, NULL);
}

/* Returns a global variable of the instance on a GPU; -1: of the one that is shown without one. */
static json_int_t variable(struct gd *d, int gpu, const char *name)
{
	char params[96], on[16] = "";
	json_int_t value;
	json_t *j;

	if (gpu >= 0) {
		snprintf(on, sizeof(on), ",\"gpu\":%d", gpu);
	}
	snprintf(params, sizeof(params), "{\"map\":\".bss\",\"key\":\"0\"%s}", on);
	j = gd_call(d, "map.get", params);
	value = json_integer_value(json_object_get(
		json_object_get(json_array_get(json_object_get(j, "entries"), 0), "value"), name));
	assert_int_equal(json_integer_value(json_object_get(j, "gpu")), gpu < 0 ? 0 : gpu);
	json_decref(j);
	return value;
}

static json_int_t entry(struct gd *d, const char *map, const char *more)
{
	char params[128];
	json_int_t value;
	json_t *j;

	snprintf(params, sizeof(params), "{\"map\":\"%s\"%s}", map, more);
	j = gd_call(d, "map.get", params);
	value = json_integer_value(
		json_object_get(json_array_get(json_object_get(j, "entries"), 0), "value"));
	json_decref(j);
	return value;
}

static void expect_error(struct gd *d, const char *method, const char *params, int exit_code,
			 const char *message)
{
	struct gbpf *g = gd_open(d);
	char *text = NULL;

	assert_true(gbpf_call(g, method, params, -1, &text) < 0);
	assert_int_equal(gbpf_last_error(g)->exit, exit_code);
	assert_non_null(strstr(gbpf_last_error(g)->message, message));
	free(text);
	gbpf_close(g);
}

static void a_gpu_that_becomes_known_gets_an_instance(void **state)
{
	struct gd *d = *state;
	struct fake a, b;
	json_t *j;

	load(d, "instances");
	assert_int_equal(variable(d, 0, "begun"), 100); /* before any device is known */
	expect_error(d, "map.get", "{\"map\":\".bss\",\"key\":\"0\",\"gpu\":1}", 5,
		     "no policy is active on GPU 1");
	enter(&a, d, 0, 1);
	assert_int_equal(prepared(&a, 1, NULL), 0);
	enter(&b, d, 1, 1);
	assert_int_equal(prepared(&b, 1, NULL), 1);
	assert_int_equal(variable(d, -1, "begun"), 100);
	assert_int_equal(variable(d, 1, "begun"), 101);
	assert_int_equal(variable(d, 0, "admitted"), 1);
	assert_int_equal(variable(d, 1, "admitted"), 1);
	j = gd_call(d, "map.list", "{\"gpu\":1}");
	assert_int_equal(json_integer_value(json_object_get(j, "gpu")), 1);
	assert_int_equal(json_array_size(json_object_get(j, "gpus")), 2);
	json_decref(j);
	expect_error(d, "map.list", "{\"gpu\":2}", 5, "no policy is active on GPU 2");
	expect_error(d, "map.list", "{\"gpu\":1,\"version\":7}", 5,
		     "version 7 is not active on GPU 1");
	expect_error(d, "map.list", "{\"gpu\":16}", 2, "invalid GPU");
	expect_error(d, "map.list", "{\"gpu\":\"x\"}", 2, "invalid GPU");
	fake_leave(&a);
	fake_leave(&b);
}

static void a_process_on_two_gpus_has_memory_on_each(void **state)
{
	int fds[2] = { -1, -1 };
	struct gd *d = *state;
	struct fake f, one;
	char text[64];
	uint64_t *own;

	enter(&one, d, 1, 1); /* GPU 0 for gbpfd */
	enter(&f, d, 0, 2);   /* GPUs 1 and 0 */
	load(d, "instances");
	assert_int_equal(prepared(&one, 1, NULL), 0);
	assert_int_equal(prepared(&f, 1, fds) + prepared(&f, 1, fds), 1);
	for (unsigned gpu = 0; gpu < 2; gpu++) {
		own = shm_map(fds[gpu], 4096, 0);
		assert_non_null(own);
		assert_int_equal(own[0], 10 + gpu);
		shm_unmap(own, 4096);
		close(fds[gpu]);
		snprintf(text, sizeof(text), ",\"key\":\"0\",\"tenant\":%u,\"gpu\":%u", f.tenant,
			 gpu);
		assert_int_equal(entry(d, "own", text), 10 + gpu);
	}
	snprintf(text, sizeof(text), "{\"map\":\"own\",\"key\":\"0\",\"tenant\":%u,\"gpu\":1}",
		 one.tenant);
	expect_error(d, "map.get", text, 5, "no tenant");
	assert_int_equal(variable(d, 0, "admitted"), 2);
	assert_int_equal(variable(d, 1, "admitted"), 1);
	fake_leave(&f);
	fake_leave(&one);
}

static void a_change_is_one_of_each_gpu_unless_it_names_one(void **state)
{
	struct gd *d = *state;
	struct fake f;

	enter_and_load(&f, d);
	json_decref(gd_call(d, "map.set", "{\"map\":\"table\",\"key\":\"7\",\"value\":\"5\"}"));
	assert_int_equal(entry(d, "table", ",\"key\":\"7\",\"gpu\":0"), 5);
	assert_int_equal(entry(d, "table", ",\"key\":\"7\",\"gpu\":1"), 5);
	json_decref(gd_call(d, "map.set",
			    "{\"map\":\"table\",\"key\":\"7\",\"value\":\"6\",\"gpu\":1}"));
	assert_int_equal(entry(d, "table", ",\"key\":\"7\",\"gpu\":0"), 5);
	assert_int_equal(entry(d, "table", ",\"key\":\"7\",\"gpu\":1"), 6);
	/* An entry of one GPU alone. */
	json_decref(gd_call(d, "map.delete", "{\"map\":\"table\",\"key\":\"1\"}"));
	expect_error(d, "map.get", "{\"map\":\"table\",\"key\":\"1\",\"gpu\":1}", 5, "no entry");
	expect_error(d, "map.delete", "{\"map\":\"table\",\"key\":\"1\"}", 5, "no entry");
	json_decref(gd_call(d, "map.delete", "{\"map\":\"table\",\"key\":\"7\"}"));
	expect_error(d, "map.get", "{\"map\":\"table\",\"key\":\"7\",\"gpu\":0}", 5, "no entry");
	expect_error(d, "map.get", "{\"map\":\"table\",\"key\":\"7\",\"gpu\":1}", 5, "no entry");
	fake_leave(&f);
}

/* ps shows these launches on these GPUs of the tenant with this name. second -1: on one GPU only.
 */
static void expect_counters(struct gd *d, const char *name, int first, json_int_t launches,
			    int second, json_int_t launches2)
{
	json_t *ps = gd_call(d, "ps", NULL), *tenant, *gpus = NULL;
	size_t i;

	json_array_foreach(json_object_get(ps, "tenants"), i, tenant)
	{
		if (strcmp(json_string_value(json_object_get(tenant, "name")), name) == 0) {
			gpus = json_object_get(json_object_get(tenant, "stats"), "gpus");
		}
	}
	assert_int_equal(json_array_size(gpus), second < 0 ? 1 : 2);
	json_array_foreach(gpus, i, tenant)
	{
		assert_int_equal(json_integer_value(json_object_get(tenant, "gpu")),
				 i ? second : first);
		assert_int_equal(json_integer_value(json_object_get(tenant, "launches")),
				 i ? launches2 : launches);
	}
	json_decref(ps);
}

static void each_instance_sees_the_tenants_of_its_gpu(void **state)
{
	struct gd *d = *state;
	struct fake both, one;

	enter(&both, d, 0, 2);
	enter(&one, d, 1, 1);
	load(d, "instances");
	(void)prepared(&both, 1, NULL);
	(void)prepared(&both, 1, NULL);
	(void)prepared(&one, 1, NULL);
	store_relaxed(&both.stats->gpu[0].launches, UINT64_C(5));
	store_relaxed(&both.stats->gpu[1].launches, UINT64_C(70));
	store_relaxed(&one.stats->gpu[0].launches, UINT64_C(200));
	store_relaxed(&both.stats->gpu[0].inflight, UINT64_C(1)); /* ticks go on */
	store_relaxed(&one.stats->gpu[0].inflight, UINT64_C(1));
	eventually(variable(d, 0, "launches") == 5);
	eventually(variable(d, 1, "launches") == 270);
	expect_counters(d, "on0", 0, 5, 1, 70);
	expect_counters(d, "on1", 1, 200, -1, 0);
	assert_int_equal(variable(d, 0, "active"), 1);
	assert_int_equal(variable(d, 0, "tenants_found"), 1);
	assert_int_equal(variable(d, 1, "active"), 2);
	assert_int_equal(variable(d, 1, "tenants_found"), 2);
	fake_leave(&both);
	eventually(variable(d, 1, "launches") == 200);
	fake_leave(&one);
}

static void an_init_that_refuses_a_gpu(void **state)
{
	struct gd *d = *state;
	struct fake a, b;
	struct gbpf *g;

	load(d, "instances2");
	enter(&a, d, 0, 1);
	assert_int_equal(prepared(&a, 1, NULL), 0);
	say_hello(&b, d, 1, 1);
	fake_welcomed(&b);
	gd_await_event(d, 0, "policy", "GPU 1 has no policy: version 1 cannot run there");
	assert_int_equal(load_relaxed(&b.dir->version[0]), 1);
	assert_int_equal(load_relaxed(&b.dir->version[1]), 0);
	expect_error(d, "map.list", "{\"gpu\":1}", 5, "no policy is active on GPU 1");

	/* With the GPU known, the whole version is refused. */
	g = gd_open(d);
	assert_true(gbpf_policy_load(g, gd_object("instances2"), NULL, GBPF_LOAD_SWAP, NULL) < 0);
	assert_non_null(strstr(gbpf_last_error(g)->message, "init of policy"));
	gbpf_close(g);
	assert_int_equal(load_relaxed(&b.dir->version[0]), 1);
	(void)prepared(&a, 2, NULL);
	load(d, "instances");
	(void)prepared(&b, 2, NULL);
	fake_leave(&a);
	fake_leave(&b);
}

/* policy.list and policy.show say that a version is active on these GPUs, of both. */
static void expect_gpus(struct gd *d, json_int_t version, const char *gpus)
{
	json_t *list = gd_call(d, "policy.list", NULL), *v, *shown;
	char params[32], *text;
	size_t i;

	snprintf(params, sizeof(params), "{\"version\":%lld}", (long long)version);
	shown = gd_call(d, "policy.show", params);
	json_array_foreach(json_object_get(list, "versions"), i, v)
	{
		if (json_integer_value(json_object_get(v, "version")) == version) {
			text = json_dumps(json_object_get(v, "gpus"), JSON_COMPACT);
			assert_string_equal(text, gpus);
			free(text);
			assert_true(json_equal(json_object_get(v, "gpus"),
					       json_object_get(shown, "gpus")));
			assert_string_equal(json_string_value(json_object_get(v, "state")),
					    strcmp(gpus, "[]") == 0 ? "kept" : "active");
		}
	}
	assert_int_equal(json_array_size(json_object_get(list, "known_gpus")), 2);
	assert_int_equal(json_array_size(json_object_get(shown, "known_gpus")), 2);
	json_decref(list);
	json_decref(shown);
}

static void each_gpu_may_have_a_version_of_its_own(void **state)
{
	struct gd *d = *state;
	struct gbpf *g;
	struct fake f;

	enter_and_load(&f, d);
	expect_gpus(d, 1, "[0,1]");

	g = gd_open(d);
	gbpf_on_gpu(g, 1);
	assert_int_equal(gbpf_policy_load(g, gd_object("instances"), NULL, GBPF_LOAD_SWAP, NULL),
			 0);
	assert_int_equal(prepared(&f, 2, NULL), 1);
	expect_gpus(d, 1, "[0]");
	expect_gpus(d, 2, "[1]");
	expect_error(d, "policy.rollback", "{\"gpu\":0}", 5, "no previous version");
	expect_error(d, "policy.rollback", "{}", 1, "GPU 0 and GPU 1 had different policies");

	/* Each returns to its own. */
	assert_int_equal(gbpf_policy_rollback(g, 0, NULL), 0);
	assert_int_equal(prepared(&f, 1, NULL), 1);
	expect_gpus(d, 1, "[0,1]");
	expect_gpus(d, 2, "[]");
	assert_int_equal(gbpf_policy_rollback(g, 0, NULL), 0);
	assert_int_equal(prepared(&f, 2, NULL), 1);
	gbpf_on_gpu(g, 0);
	assert_int_equal(gbpf_policy_rollback(g, 2, NULL), 0);
	assert_int_equal(prepared(&f, 2, NULL), 0);
	expect_gpus(d, 2, "[0,1]");
	gbpf_on_gpu(g, -1);
	assert_int_equal(gbpf_policy_rollback(g, 0, NULL), 0); /* both had version 1 */
	/* Also where it was kept on GPU 0 for GPUs that become known: with maps of its own. */
	assert_int_equal(prepared(&f, 1, NULL) + prepared(&f, 1, NULL), 1);
	assert_int_equal(variable(d, 0, "begun"), 100);
	assert_int_equal(variable(d, 1, "begun"), 101);
	expect_gpus(d, 1, "[0,1]");
	gbpf_on_gpu(g, 1);
	assert_int_equal(gbpf_policy_unload(g, NULL), 0);
	expect_gpus(d, 1, "[0]");
	expect_error(d, "policy.unload", "{\"gpu\":1}", 5, "no policy is active there");
	gbpf_close(g);
	fake_leave(&f);
}

/* A word names the version, but no instance would be left. */
static void a_version_is_there_for_gpus_that_become_known(void **state)
{
	struct gd *d = *state;
	struct fake a, b;
	struct gbpf *g;

	load(d, "instances");
	enter(&a, d, 0, 1);
	(void)prepared(&a, 1, NULL);
	g = gd_open(d);
	assert_int_equal(gbpf_call(g, "policy.unload", "{\"gpu\":0}", -1, NULL), 0);
	gbpf_close(g);
	assert_int_equal(load_relaxed(&a.dir->version[0]), 0);
	enter(&b, d, 1, 1);
	assert_int_equal(prepared(&b, 1, NULL), 1);
	assert_int_equal(variable(d, 1, "begun"), 101);
	assert_int_equal(variable(d, 1, "admitted"), 1);
	fake_leave(&a);
	fake_leave(&b);
}

/* The instance on GPU 0 is kept for GPUs that become known, with maps of an earlier time. */
static void a_kept_instance_is_not_used_again(void **state)
{
	struct gd *d = *state;
	struct gbpf *g;
	struct fake f;

	enter_and_load(&f, d);
	json_decref(gd_call(d, "map.set", "{\"map\":\"table\",\"key\":\"7\",\"value\":\"1\"}"));
	g = gd_open(d);
	gbpf_on_gpu(g, 1);
	assert_int_equal(gbpf_policy_unload(g, NULL), 0);
	gbpf_on_gpu(g, 0);
	assert_int_equal(gbpf_policy_unload(g, NULL), 0);
	assert_int_equal(load_relaxed(&f.dir->version[0]), 0);
	assert_int_equal(gbpf_policy_activate(g, 1, 0, NULL), 0);
	assert_int_equal(prepared(&f, 1, NULL), 0);
	assert_int_equal(variable(d, 0, "begun"), 100);
	assert_int_equal(variable(d, 0, "admitted"), 1);
	expect_error(d, "map.get", "{\"map\":\"table\",\"key\":\"7\",\"gpu\":0}", 5, "no entry");
	assert_int_equal(variable(d, 0, "kept"), 0);

	/* With the maps of the version that it replaces. */
	assert_int_equal(gbpf_policy_load(g, gd_object("instances"), NULL, GBPF_LOAD_SWAP, NULL),
			 0);
	assert_int_equal(prepared(&f, 2, NULL), 0);
	json_decref(gd_call(d, "map.set",
			    "{\"map\":\"table\",\"key\":\"7\",\"value\":\"2\",\"gpu\":0}"));
	assert_int_equal(gbpf_policy_activate(g, 1, GBPF_LOAD_KEEP_MAPS, NULL), 0);
	assert_int_equal(prepared(&f, 1, NULL), 0);
	assert_int_equal(entry(d, "table", ",\"key\":\"7\",\"gpu\":0"), 2);
	assert_int_equal(variable(d, 0, "kept"), 3);
	gbpf_close(g);
	fake_leave(&f);
}

static void *load_thread(void *arg)
{
	load(arg, "instances");
	return NULL;
}

/* A process holds up a swap to version 2, and another one comes with GPU 1, which is not known yet.
 */
static void swap_while_a_gpu_becomes_known(struct gd *d, struct fake *a, struct fake *b)
{
	union proto_message m;
	pthread_t thread;
	unsigned n;
	int fds[8];

	enter(a, d, 0, 1);
	(void)prepared(a, 1, NULL);
	assert_int_equal(pthread_create(&thread, NULL, load_thread, d), 0);
	assert_int_equal(fake_receive(a, &m, fds, &n), 1);
	assert_int_equal(m.head.type, PROTO_PREPARE);
	assert_int_equal(m.version.version, 2); /* not answered yet */
	while (n) {
		close(fds[--n]);
	}
	say_hello(b, d, 1, 1);
	fake_welcomed(b);
	m.version.status = 0;
	m.version.regions = 0;
	fake_send(a, &m, PROTO_PREPARED);
	pthread_join(thread, NULL);
}

static void a_gpu_that_becomes_known_during_a_swap(void **state)
{
	struct gd *d = *state;
	struct fake a, b;

	load(d, "instances");
	swap_while_a_gpu_becomes_known(d, &a, &b);
	assert_int_equal(load_relaxed(&b.dir->version[1]), 2);
	assert_int_equal(variable(d, 1, "begun"), 101);
	assert_int_equal(variable(d, 1, "admitted"), 1);
	fake_leave(&a);
	fake_leave(&b);
}

/* The instance of version 1 is to be made after the swap, which replaces that version. */
static void a_late_instance_does_not_undo_a_swap(void **state)
{
	struct gd *d = *state;
	struct fake a, b;
	struct gbpf *g;

	load(d, "instances_large");
	swap_while_a_gpu_becomes_known(d, &a, &b);
	assert_int_equal(load_relaxed(&b.dir->version[1]), 2);
	/* Operations are done in order. */
	g = gd_open(d);
	gbpf_on_gpu(g, 0);
	assert_int_equal(gbpf_policy_unload(g, NULL), 0);
	gbpf_close(g);
	assert_int_equal(load_relaxed(&b.dir->version[0]), 0);
	assert_int_equal(load_relaxed(&b.dir->version[1]), 2);
	assert_int_equal(variable(d, 1, "begun"), 101);
	fake_leave(&a);
	fake_leave(&b);
}

/* Its answers to the two PREPAREs are one error and one success. */
static void a_process_that_cannot_run_one_instance_is_counted(void **state)
{
	union proto_message m;
	struct gd *d = *state;
	pthread_t thread;
	struct fake f;
	unsigned n;
	int fds[8];

	enter(&f, d, 0, 2);
	assert_int_equal(pthread_create(&thread, NULL, load_thread, d), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fake_receive(&f, &m, fds, &n), 1);
		assert_int_equal(m.head.type, PROTO_PREPARE);
		while (n) {
			close(fds[--n]);
		}
		m.version.status = i == 0 ? -ENOMEM : 0;
		m.version.regions = 0;
		fake_send(&f, &m, PROTO_PREPARED);
	}
	pthread_join(thread, NULL);
	gd_await_event(d, 0, "policy", "(0 of 1 process was ready");
	fake_leave(&f);
}

static void kept_maps_stay_on_their_gpu(void **state)
{
	struct gd *d = *state;
	struct gbpf *g;
	struct fake f;

	enter_and_load(&f, d);
	json_decref(gd_call(d, "map.set",
			    "{\"map\":\"table\",\"key\":\"9\",\"value\":\"90\",\"gpu\":0}"));
	json_decref(gd_call(d, "map.set",
			    "{\"map\":\"table\",\"key\":\"9\",\"value\":\"91\",\"gpu\":1}"));
	g = gd_open(d);
	assert_int_equal(gbpf_policy_load(g, gd_object("instances"), NULL,
					  GBPF_LOAD_SWAP | GBPF_LOAD_KEEP_MAPS, NULL),
			 0);
	gbpf_close(g);
	assert_int_equal(entry(d, "table", ",\"key\":\"9\",\"gpu\":0"), 90);
	assert_int_equal(entry(d, "table", ",\"key\":\"9\",\"gpu\":1"), 91);
	assert_int_equal(variable(d, 0, "begun"), 100);
	assert_int_equal(variable(d, 1, "begun"), 101);
	fake_leave(&f);
}

/* Answers the PREPAREs of the version, one for each of so many GPUs. */
static void prepare_all(struct fake *f, uint64_t version, unsigned gpus)
{
	union proto_message m;
	unsigned n;
	int fds[8];

	for (unsigned i = 0; i < gpus; i++) {
		do {
			assert_int_equal(fake_receive(f, &m, fds, &n), 1);
		} while (m.head.type == PROTO_DROP);
		assert_int_equal(m.head.type, PROTO_PREPARE);
		assert_int_equal(m.version.version, version);
		assert_int_equal(m.version.regions, 0); /* nothing of it is a process's */
		while (n) {
			close(fds[--n]);
		}
		m.version.status = 0;
		fake_send(f, &m, PROTO_PREPARED);
	}
}

static void expect_begun(struct gd *d, json_int_t on_0, json_int_t on_1)
{
	assert_int_equal(entry(d, "begun", ",\"key\":\"0\",\"gpu\":0"), on_0);
	assert_int_equal(entry(d, "begun", ",\"key\":\"0\",\"gpu\":1"), on_1);
}

static void a_map_of_all_gpus_is_one(void **state)
{
	struct gd *d = *state;
	struct fake f;
	json_t *j;

	enter(&f, d, 0, 2);
	load(d, "across");
	prepare_all(&f, 1, 2);
	expect_begun(d, 2, 2);
	assert_int_equal(entry(d, "own", ",\"key\":\"0\",\"gpu\":1"), 1);
	assert_int_equal(entry(d, "seen", ",\"key\":\"1\",\"gpu\":0"), 21);
	assert_int_equal(entry(d, "seen", ",\"key\":\"0\",\"gpu\":1"), 20);
	/* A change is made once. */
	json_decref(gd_call(d, "map.set", "{\"map\":\"begun\",\"key\":\"0\",\"value\":\"7\"}"));
	expect_begun(d, 7, 7);
	json_decref(gd_call(d, "map.delete", "{\"map\":\"seen\",\"key\":\"1\"}"));
	expect_error(d, "map.get", "{\"map\":\"seen\",\"key\":\"1\",\"gpu\":1}", 5, "no entry");
	j = gd_call(d, "map.list", NULL);
	assert_string_equal(json_string_value(json_object_get(
				    json_array_get(json_object_get(j, "maps"), 0), "scope")),
			    "all-gpus");
	json_decref(j);
	fake_leave(&f);
}

static void a_gpu_that_becomes_known_shares_the_maps_of_all(void **state)
{
	struct gd *d = *state;
	struct fake a, b;

	load(d, "across");
	enter(&a, d, 0, 1);
	prepare_all(&a, 1, 1);
	assert_int_equal(entry(d, "begun", ",\"key\":\"0\""), 1);
	enter(&b, d, 1, 1);
	prepare_all(&b, 1, 1);
	expect_begun(d, 2, 2);
	fake_leave(&a);
	fake_leave(&b);
}

/* They are copied once, and not over those of a version that another GPU uses already. */
static void maps_of_all_gpus_are_kept(void **state)
{
	struct gd *d = *state;
	struct gbpf *g;
	struct fake f;

	enter(&f, d, 0, 2);
	load(d, "across");
	prepare_all(&f, 1, 2);
	g = gd_open(d);
	assert_int_equal(gbpf_policy_load(g, gd_object("across"), NULL,
					  GBPF_LOAD_SWAP | GBPF_LOAD_KEEP_MAPS, NULL),
			 0);
	prepare_all(&f, 2, 2);
	expect_begun(d, 4, 4);
	gbpf_on_gpu(g, 1);
	assert_int_equal(gbpf_policy_load(g, gd_object("across"), NULL,
					  GBPF_LOAD_SWAP | GBPF_LOAD_KEEP_MAPS, NULL),
			 0);
	prepare_all(&f, 3, 1);
	expect_begun(d, 4, 5);
	gbpf_on_gpu(g, 0);
	assert_int_equal(gbpf_policy_activate(g, 3, GBPF_LOAD_KEEP_MAPS, NULL), 0);
	prepare_all(&f, 3, 1);
	expect_begun(d, 6, 6);
	assert_int_equal(entry(d, "own", ",\"key\":\"0\",\"gpu\":0"), 3);
	gbpf_close(g);
	fake_leave(&f);
}

static void a_restart_gives_each_instance_its_tenant_memory(void **state)
{
	union proto_message m = { 0 };
	int regions[2] = { -1, -1 }, fds[4];
	struct gd *d = *state;
	struct fake f, again;
	uint64_t *own;
	char text[64];

	enter(&f, d, 0, 2);
	load(d, "instances");
	(void)prepared(&f, 1, regions);
	(void)prepared(&f, 1, regions);
	for (unsigned gpu = 0; gpu < 2; gpu++) {
		own = shm_map(regions[gpu], 4096, 1);
		assert_non_null(own);
		own[1] = 50 + gpu;
		shm_unmap(own, 4096);
	}
	gbpf_close(d->g);
	d->g = NULL;
	gd_kill(d);
	assert_int_equal(gd_start(d, NULL), 0);

	fake_connect(&again, d);
	m.hello = (struct proto_hello){ .class_id = BATCH,
					.weight = 100,
					.gpus = 2,
					.flags = PROTO_REATTACH,
					.tenant = f.tenant,
					.policy_version = 1,
					.regions = 3 };
	memset(m.hello.uuid[0], UUID, 16);
	memset(m.hello.uuid[1], UUID + 1, 16);
	fds[0] = f.board_fd;
	fds[1] = f.stats_fd;
	fds[2] = regions[0];
	fds[3] = regions[1];
	assert_int_equal(proto_send(again.sock, &m, PROTO_HELLO, fds, 4), 0);
	fake_welcomed(&again);
	for (unsigned gpu = 0; gpu < 2; gpu++) {
		snprintf(text, sizeof(text), ",\"key\":\"1\",\"tenant\":%u,\"gpu\":%u", f.tenant,
			 gpu);
		assert_int_equal(entry(d, "own", text), 50 + gpu);
		close(regions[gpu]);
	}
	fake_leave(&again);
	fake_leave(&f);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_gpu_that_becomes_known_gets_an_instance),
		TEST(a_process_on_two_gpus_has_memory_on_each),
		TEST(a_change_is_one_of_each_gpu_unless_it_names_one),
		TEST(each_instance_sees_the_tenants_of_its_gpu),
		TEST(an_init_that_refuses_a_gpu),
		TEST(each_gpu_may_have_a_version_of_its_own),
		TEST(a_version_is_there_for_gpus_that_become_known),
		TEST(a_kept_instance_is_not_used_again),
		TEST(a_gpu_that_becomes_known_during_a_swap),
		TEST(a_late_instance_does_not_undo_a_swap),
		TEST(a_process_that_cannot_run_one_instance_is_counted),
		TEST(kept_maps_stay_on_their_gpu),
		TEST(a_map_of_all_gpus_is_one),
		TEST(a_gpu_that_becomes_known_shares_the_maps_of_all),
		TEST(maps_of_all_gpus_are_kept),
		TEST(a_restart_gives_each_instance_its_tenant_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
