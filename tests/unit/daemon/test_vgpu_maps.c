/* vGPUs as policies see them: the contexts of admit, the place in WELCOME and for
 * gbpf_tenant_vgpu, and the standard maps that gbpfd fills. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "proto/account.h"

#define MIB (UINT64_C(1) << 20)

struct member {
	struct fake f;
	uint32_t place;
	struct proto_account *account;
	uint32_t line;
};

static struct proto_vgpu_config config_of(uint32_t compute)
{
	struct proto_vgpu_config c = { .compute = compute, .copy = 20, .prio = 7 };

	c.flags = PROTO_VGPU_BURST;
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		c.mem[i] = 64 * MIB;
	}
	c.reserve = 32 * MIB;
	return c;
}

/* Joins a vGPU (number 0: none) and confirms the pages, so that it is a tenant that ticks run for.
 */
static void join(struct member *p, struct gd *d, uint64_t number, const struct proto_vgpu_config *c)
{
	union proto_message m = { .hello = { .class_id = 2, .weight = 100, .gpus = 1 } };
	int fds[8];
	unsigned n;

	memset(p, 0, sizeof(*p));
	fake_connect(&p->f, d);
	snprintf(m.hello.name, sizeof(m.hello.name), "member");
	memset(m.hello.uuid[0], 7, sizeof(m.hello.uuid[0]));
	m.hello.mem_bytes[0] = 1024 * MIB;
	if (number) {
		m.hello.vgpu.number = number;
		m.hello.vgpu.made_ns = clock_now_ns();
		m.hello.vgpu.config = *c;
	}
	fake_send(&p->f, &m, PROTO_HELLO);
	assert_int_equal(fake_receive(&p->f, &m, fds, &n), 1);
	assert_int_equal(m.head.type, PROTO_WELCOME);
	p->place = m.welcome.vgpu_place;
	p->f.tenant = m.welcome.tenant;
	p->line = m.welcome.account_line;
	if (m.welcome.accounts) {
		p->account = shm_map(fds[n - 1], PROTO_ACCOUNT_BYTES, 1);
		assert_non_null(p->account);
	}
	p->f.board_fd = fds[1];
	p->f.stats_fd = fds[2];
	p->f.stats = shm_map(fds[2], PROTO_STATS_BYTES, 1);
	for (unsigned i = 0; i < n; i++) {
		if (i != 1 && i != 2) {
			close(fds[i]);
		}
	}
}

static void part(struct member *p)
{
	fd_close(p->f.sock);
	fd_close(p->f.board_fd);
	fd_close(p->f.stats_fd);
	shm_unmap(p->f.stats, PROTO_STATS_BYTES);
	shm_unmap(p->account, PROTO_ACCOUNT_BYTES);
}

static void load(struct gd *d)
{
	struct gbpf *g = gd_open(d);

	if (gbpf_policy_load(g, gd_object("vgpus"), NULL, GBPF_LOAD_SWAP, NULL) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	gbpf_close(g);
}

/* Returns a member of a value, given as a path of names with dots. */
static json_int_t value(struct gd *d, const char *map, const char *key, const char *path)
{
	struct gbpf_map m = { .size = sizeof(m), .name = map };
	struct gbpf *g = gd_open(d);
	char *out = NULL, names[64], *save = NULL;
	json_int_t v;
	json_t *j, *at;

	if (gbpf_map_get(g, &m, key, &out) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	gbpf_close(g);
	j = json_loads(out, 0, NULL);
	at = json_object_get(json_array_get(json_object_get(j, "entries"), 0), "value");
	snprintf(names, sizeof(names), "%s", path);
	for (char *name = strtok_r(names, ".", &save); name; name = strtok_r(NULL, ".", &save)) {
		at = json_object_get(at, name);
	}
	if (!json_is_integer(at)) {
		fail_msg("no %s: %s", path, out);
	}
	v = json_integer_value(at);
	json_decref(j);
	free(out);
	return v;
}

static json_int_t variable(struct gd *d, const char *path)
{
	return value(d, ".bss", "0", path);
}

static void maps_are_filled_before_init_and_at_each_change(void **state)
{
	struct proto_vgpu_config c = config_of(30), more = config_of(60);
	struct gd *d = *state;
	struct member a, b, other;

	join(&a, d, 5, &c);
	assert_int_equal(a.place, 0);
	load(d);
	assert_int_equal(variable(d, "init_compute"), 30);
	assert_int_equal(value(d, "VSLICE_SET", "0", "slice_us"), 777);
	assert_int_equal(value(d, "VSLICE_SET", "0", "tenants"), 1);
	assert_int_equal(value(d, "VSLICE_SET", "0", "flags"), 3);
	assert_int_equal(value(d, "VSLICE_SET", "1", "flags"), 0);

	join(&b, d, 5, &more); /* what the first process brought counts */
	join(&other, d, 6, &more);
	assert_int_equal(b.place, 0);
	assert_int_equal(other.place, 1);
	assert_int_equal(value(d, "VSLICE_SET", "0", "tenants"), 2);
	assert_int_equal(value(d, "VSLICE_SET", "0", "compute_pct"), 30);
	assert_int_equal(value(d, "VSLICE_SET", "0", "slice_us"), 777);
	assert_int_equal(value(d, "VSLICE_SET", "1", "compute_pct"), 60);
	assert_int_equal(value(d, "VSLICE_SET", "1", "priority"), 7);
	assert_int_equal(value(d, "MEMPOOL", "1", "limit_bytes"), 64 * MIB);
	assert_int_equal(value(d, "MEMPOOL", "1", "reserve_bytes"), 32 * MIB);
	assert_int_equal(value(d, "IO_BUDGETS", "1", "copy_pct"), 20);
	assert_int_equal(value(d, "PLACEMENT", "0", "gpus"), 1);
	assert_int_equal(value(d, "PLACEMENT", "0", "lanes"), 1);
	part(&a);
	part(&b);
	part(&other);
}

static void a_place_without_a_vgpu_is_zero(void **state)
{
	struct proto_vgpu_config c = config_of(30);
	struct gd *d = *state;
	struct member a, next;

	join(&a, d, 5, &c);
	load(d);
	part(&a);
	/* The line goes with the process, which lives: its vGPU stays, without a tenant. */
	eventually(value(d, "VSLICE_SET", "0", "tenants") == 0);
	assert_int_equal(value(d, "VSLICE_SET", "0", "compute_pct"), 30);
	join(&next, d, 6, &c);
	assert_int_equal(next.place, 1);
	assert_int_equal(value(d, "VSLICE_SET", "1", "tenants"), 1);
	part(&next);
}

static void admit_sees_what_the_vgpu_is_given(void **state)
{
	struct proto_vgpu_config c = config_of(30);
	struct gd *d = *state;
	struct member a, none;

	load(d);
	join(&a, d, 5, &c);
	assert_int_equal(variable(d, "admitted.vgpu"), 0);
	assert_int_equal(variable(d, "admitted.mem_limit"), 64 * MIB);
	assert_int_equal(variable(d, "admitted.mem_reserve"), 32 * MIB);
	assert_int_equal(variable(d, "admitted.compute"), 30);
	assert_int_equal(variable(d, "admitted.copy"), 20);
	assert_int_equal(variable(d, "admitted.prio"), 7);
	assert_int_equal(variable(d, "admitted.burst"), 1);
	assert_int_equal(variable(d, "admitted.mem_size"), 1024 * MIB);
	assert_int_equal(variable(d, "admitted.mem_free"), 1024 * MIB);
	store_seqcst(&a.account->line[0][a.line].charged, 24 * MIB);
	assert_int_equal(variable(d, "admitted.map_compute"), 30);
	join(&none, d, 0, NULL);
	assert_int_equal(none.place, PROTO_VGPUS);
	assert_int_equal(variable(d, "admitted.vgpu"), PROTO_VGPUS);
	assert_int_equal(variable(d, "admitted.mem_limit"), 0);
	assert_int_equal(variable(d, "admitted.mem_free"), 1000 * MIB);
	assert_int_equal(variable(d, "admitted.compute"), 0);
	part(&a);
	part(&none);
}

/* Used bytes change without notice; ticks follow them, and know the places of tenants. */
static void ticks_see_places_and_used_bytes(void **state)
{
	struct proto_vgpu_config c = config_of(30);
	struct gd *d = *state;
	struct member a, none;
	union proto_message m = { 0 };

	load(d);
	join(&a, d, 5, &c);
	join(&none, d, 0, NULL);
	fake_send(&a.f, &m, PROTO_BOARD_MAPPED);
	gd_await_event(d, 0, "start", "member");
	fake_prepare(&a.f, 0);
	store_seqcst(&a.account->line[0][a.line].charged, 3 * MIB);
	store_seqcst(&a.account->line[0][a.line].overhead, MIB);
	store_relaxed(&a.f.stats->gpu[0].inflight, 1u); /* it is active, so ticks run */
	eventually(value(d, "MEMPOOL", "0", "used_bytes") == (json_int_t)(3 * MIB));
	assert_int_equal(value(d, "MEMPOOL", "0", "overhead_bytes"), MIB);
	eventually(variable(d, "place_of_1") == PROTO_VGPUS);
	assert_int_equal(variable(d, "place_of_0"), 0);
	part(&a);
	part(&none);
}

static void named_vgpus_are_there_without_processes(void **state)
{
	struct gd *d = *state;

	load(d);
	json_decref(gd_call(d, "vgpu.create", "{\"name\":\"lab\",\"compute\":40,\"prio\":3}"));
	assert_int_equal(value(d, "VSLICE_SET", "0", "compute_pct"), 40);
	assert_int_equal(value(d, "VSLICE_SET", "0", "tenants"), 0);
	json_decref(gd_call(d, "vgpu.set", "{\"name\":\"lab\",\"compute\":55}"));
	assert_int_equal(value(d, "VSLICE_SET", "0", "compute_pct"), 55);
	assert_int_equal(value(d, "VSLICE_SET", "0", "priority"), 3);
	json_decref(gd_call(d, "vgpu.rm", "{\"name\":\"lab\"}"));
	assert_int_equal(value(d, "VSLICE_SET", "0", "flags"), 0);
	assert_int_equal(value(d, "VSLICE_SET", "0", "compute_pct"), 0);
}

/* Returns the number of events of a kind after a sequence number. */
static unsigned events_of(struct gd *d, uint64_t since, const char *kind)
{
	json_t *j = gd_call(d, "events", "{}"), *e;
	unsigned n = 0;
	size_t i;

	json_array_foreach(json_object_get(j, "events"), i, e)
	{
		n += json_integer_value(json_object_get(e, "seq")) > (json_int_t)since &&
		     strcmp(json_string_value(json_object_get(e, "kind")), kind) == 0;
	}
	json_decref(j);
	return n;
}

static void a_share_that_no_policy_keeps_is_reported(void **state)
{
	struct proto_vgpu_config c = config_of(30);
	struct gd *d = *state;
	struct member a, b;
	uint64_t before;

	join(&a, d, 5, &c);
	fake_send(&a.f, &(union proto_message){ 0 }, PROTO_BOARD_MAPPED);
	gd_await_event(d, 0, "vgpu", "share of 30 % of GPU 0, which gBPF without a policy");
	part(&a);
	load(d); /* it declares VSLICE_SET */
	before = gd_last_event(d);
	join(&b, d, 6, &c);
	fake_send(&b.f, &(union proto_message){ 0 }, PROTO_BOARD_MAPPED);
	/* The event of the start precedes the one that must not be there. */
	(void)gd_await_event(d, before, "start", "member");
	fake_prepare(&b.f, 0);
	json_decref(gd_call(d, "ps", NULL));
	assert_int_equal(events_of(d, before, "vgpu"), 0);
	assert_true(events_of(d, before, "start") > 0);
	part(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		TEST(maps_are_filled_before_init_and_at_each_change),
		TEST(a_place_without_a_vgpu_is_zero),
		TEST(admit_sees_what_the_vgpu_is_given),
		TEST(ticks_see_places_and_used_bytes),
		TEST(named_vgpus_are_there_without_processes),
		TEST(a_share_that_no_policy_keeps_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
