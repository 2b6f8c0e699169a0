/* A policy that uses every type of map (its object is the argument), in a tenant and in gbpfd,
 * compiled and interpreted: each side reads the values that the other has written, and epochs are
 * published as a whole. */
#include "map_env.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/buf.h"
#include "base/compiler.h"
#include "base/shm.h"
#include "bpf/load/policy.h"
#include "bpf/run/map/ring.h"

#define GBPF_CTX_BEGIN(hook) struct gbpf_##hook##_ctx {
#define GBPF_CTX(hook, type, name, access, doc) type name;
#define GBPF_CTX_END(hook)                                                                         \
	}                                                                                          \
	;
typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;
#include "gbpf/hooks.def"

enum { HOOK_SUBMIT = 3, HOOK_TICK = 6 };

struct credits { /* struct gbpf_tenant_credits */
	uint64_t tokens_ns, burst_ns;
	uint32_t weight, vslice;
};

static const char *object;

static struct testbed {
	struct ebpf_built built;
	int fds[EBPF_REGIONS];
	uint8_t *tenant; /* mapped in gbpfd */
	struct ebpf_policy local, daemon;
} w;

static void *region(void *ctx, uint32_t tenant)
{
	return tenant == 1 ? w.tenant : NULL;
}

static const struct ebpf_tenant_ops tenant_ops = { .region = region };

/* Seeds the tables of a region, as gbpfd does before it passes the memory on. */
static void seed(enum ebpf_region region, void *base)
{
	struct ebpf_env *env = &w.daemon.env;

	if (base) {
		assert_int_equal(ebpf_maps_seed(env->maps, env->n_maps, region, base), 0);
	}
	if (region != EBPF_REGION_TENANT) {
		ebpf_maps_bind(env->maps, env->n_maps, region, base);
	}
}

static void open_testbed(unsigned flags)
{
	int fds[EBPF_REGIONS];
	struct report r;
	struct buf elf;

	memset(&w, 0, sizeof(w));
	buf_init(&elf);
	report_init(&r);
	assert_int_equal(buf_read_file(&elf, object, 16u << 20), 0);
	assert_int_equal(ebpf_policy_build(&w.built, elf.data, elf.len, "all", 5, 0, &r), 0);
	report_finish(&r);
	buf_finish(&elf);
	for (int i = 0; i < EBPF_REGION_DAEMON; i++) {
		w.fds[i] = shm_create("region", w.built.region_bytes[i], SHM_NOEXEC);
		assert_true(w.fds[i] >= 0);
	}
	w.tenant = shm_map(w.fds[EBPF_REGION_TENANT], w.built.region_bytes[EBPF_REGION_TENANT], 1);
	ebpf_built_init_region(&w.built, EBPF_REGION_TENANT, w.tenant);
	memcpy(fds, w.fds, sizeof(fds));
	fds[EBPF_REGION_DAEMON] = fds[EBPF_REGION_TENANT] = fds[EBPF_REGION_ALL_GPUS] = -1;
	assert_int_equal(
		ebpf_policy_open(&w.daemon, w.built.image_fd, fds, flags | EBPF_OPEN_DAEMON), 0);
	w.daemon.env.tenants = &tenant_ops;
	seed(EBPF_REGION_GLOBAL, w.daemon.region[EBPF_REGION_GLOBAL]);
	seed(EBPF_REGION_DAEMON, w.daemon.region[EBPF_REGION_DAEMON]);
	seed(EBPF_REGION_TENANT, w.tenant);
	fds[EBPF_REGION_TENANT] = w.fds[EBPF_REGION_TENANT];
	assert_int_equal(ebpf_policy_open(&w.local, w.built.image_fd, fds, flags), 0);
}

static void close_testbed(void)
{
	shm_unmap(w.tenant, w.built.region_bytes[EBPF_REGION_TENANT]);
	ebpf_policy_close(&w.local);
	ebpf_policy_close(&w.daemon);
	close(w.fds[0]);
	close(w.fds[1]);
	ebpf_built_finish(&w.built);
}

static struct ebpf_map *map_named(struct ebpf_policy *p, const char *name)
{
	for (uint32_t i = 0; i < p->env.n_maps; i++) {
		if (strcmp(p->defs[i].name, name) == 0) {
			return &p->env.maps[i];
		}
	}
	fail_msg("no map %s", name);
	return NULL;
}

static uint64_t word(struct ebpf_policy *p, const char *map, uint32_t key)
{
	uint64_t value[64] = { 0 };

	assert_int_equal(ebpf_map_read(map_named(p, map), &key, value), 0);
	return value[0];
}

/* Each key in a tenant's table has the same bucket in gbpfd: both have the table's seed. */
static void gbpfd_finds_all(const char *name)
{
	struct ebpf_map at;
	uint64_t key, value[64];
	uint32_t n = 0;

	ebpf_map_at(&at, map_named(&w.daemon, name), w.tenant);
	for (uint32_t i = 0; i < ebpf_map_slots(&at); i++) {
		if (ebpf_map_slot(&at, i, &key, NULL) == 1) {
			assert_int_equal(ebpf_map_read(&at, &key, value), 0);
			n++;
		}
	}
	assert_int_equal(n, ebpf_map_count(map_named(&w.local, name)));
	assert_true(n > 0);
}

static void submit(uint64_t number)
{
	struct gbpf_submit_ctx ctx = { .kernel = number, .tenant = 1, .held_ns = 1000 };
	uint64_t errors = w.local.env.helper_errors;

	assert_int_equal(ebpf_policy_run(&w.local, HOOK_SUBMIT, &ctx), 0);
	assert_int_equal(word(&w.local, "result", 0), 0); /* else the number of the check */
	assert_int_equal(w.local.env.helper_errors, errors);
}

static void tick(uint64_t epoch)
{
	struct gbpf_tick_ctx ctx = { .epoch = epoch };

	assert_int_equal(ebpf_policy_run(&w.daemon, HOOK_TICK, &ctx), 0);
	assert_int_equal(w.daemon.env.helper_errors, 0);
	(void)ebpf_maps_publish(w.daemon.env.maps, w.daemon.env.n_maps);
}

static void read_events(struct ebpf_policy *p, const char *name, int times, int twice)
{
	struct ebpf_ring_reader reader;
	uint64_t e[2];

	ebpf_ring_open(&reader, map_named(p, name));
	for (int i = 0; i < times * (twice ? 2 : 1); i++) {
		assert_int_equal(ebpf_ring_read(map_named(p, name), &reader, e, sizeof(e), 1, 0),
				 16);
		assert_int_equal(e[0], (twice ? 40 : 0) + (twice ? i / 2 : i));
	}
	assert_int_equal(ebpf_ring_read(map_named(p, name), &reader, e, sizeof(e), 1, 0), 0);
}

static void every_type(unsigned flags)
{
	struct credits *c;
	uint64_t row[64];

	open_testbed(flags);
	for (uint64_t i = 0; i < 10; i++) {
		submit(40 + i);
		assert_int_equal(word(&w.local, "result", 1), i ? 1000 * (i - 1) + 1 : 0);
		tick(i);
	}
	assert_int_equal(word(&w.local, "counts", 0), 10);
	assert_int_equal(ebpf_map_count(map_named(&w.local, "table")), 10);
	gbpfd_finds_all("table");
	gbpfd_finds_all("recent");
	gbpfd_finds_all("routes");
	assert_int_equal(ebpf_map_count(map_named(&w.local, "recent")), 8);
	assert_int_equal(ebpf_map_count(map_named(&w.local, "line")), 4);
	assert_int_equal(ebpf_map_read(map_named(&w.local, "waits"), &(uint32_t){ 1 }, row), 0);
	assert_int_equal(row[10], 10);
	c = ebpf_map_lookup(map_named(&w.local, "TENANT_CREDITS"), &(uint32_t){ 1 });
	assert_non_null(c);
	assert_int_equal(c->tokens_ns, 9001);
	assert_int_equal(c->weight, 10); /* summed up by gbpfd */
	assert_int_equal(word(&w.local, "IO_BUDGETS", 17), 25);
	assert_int_equal((uint32_t)(word(&w.daemon, "guarded", 0) >> 32), 10);
	assert_int_equal((uint32_t)word(&w.daemon, "guarded", 0), 0); /* the lock */
	read_events(&w.local, "events", 10, 1);
	read_events(&w.daemon, "news", 10, 0);
	close_testbed();
}

static void every_type_works_compiled(void **state)
{
	every_type(0);
	open_testbed(0);
	assert_non_null(w.local.entry[HOOK_SUBMIT]);
	assert_non_null(w.daemon.entry[HOOK_TICK]);
	close_testbed();
}

static void every_type_works_interpreted(void **state)
{
	every_type(EBPF_OPEN_NO_JIT);
}

/* ---- epochs, while gbpfd publishes all the time ---- */

static uint32_t stop;

/* Where a program of the tenant's would be in the middle of its run. */
static uint64_t slow_call(void *ctx, struct ebpf_env *env)
{
	const struct ebpf_map *m = &env->maps[*(uint32_t *)ctx];
	uint64_t sum = 0;

	for (uint32_t i = 0; i < 4; i++) {
		struct credits *c = ebpf_map_lookup(m, &i);

		sum += load_relaxed(&c->tokens_ns) - i;
	}
	return sum; /* 4 * 1000 * epoch: all of one */
}

static void *keep_publishing(void *arg)
{
	for (uint64_t e = 0; !load_relaxed(&stop); e++) {
		tick(e % 1000000);
	}
	return arg;
}

static void a_call_sees_one_epoch_or_is_found_out(void **state)
{
	uint64_t outlived = 0, mixed = 0, first;
	uint32_t index;
	pthread_t t;

	open_testbed(0);
	w.local.entry[HOOK_SUBMIT] = slow_call;
	index = map_named(&w.local, "TENANT_CREDITS")->index;
	store_relaxed(&stop, 0u);
	tick(0);
	assert_int_equal(pthread_create(&t, NULL, keep_publishing, NULL), 0);
	for (int i = 0; i < 200000; i++) {
		uint64_t sum = ebpf_policy_run(&w.local, HOOK_SUBMIT, &index);

		outlived += ebpf_latch.outlived;
		mixed += sum % 4000 != 0;
		assert_true(sum % 4000 == 0 || ebpf_latch.outlived);
	}
	store_relaxed(&stop, 1u);
	pthread_join(t, NULL);
	print_message("%llu of 200000 outlived three epochs, %llu of them read a mix\n",
		      (unsigned long long)outlived, (unsigned long long)mixed);
	assert_int_equal(w.local.outlived, outlived);
	first = ebpf_latch.epoch;
	assert_int_equal(first, 0);
	close_testbed();
}

static uint64_t outliving(void *ctx, struct ebpf_env *env)
{
	for (uint64_t e = 1; e <= *(uint64_t *)ctx; e++) {
		struct ebpf_latch mine = ebpf_latch; /* gbpfd is another process */

		tick(e);
		ebpf_latch = mine;
	}
	return 7;
}

static void a_call_that_outlives_three_epochs_is_counted(void **state)
{
	for (uint64_t n = 0; n < 6; n++) {
		open_testbed(0);
		w.local.entry[HOOK_SUBMIT] = outliving;
		assert_int_equal(ebpf_policy_run(&w.local, HOOK_SUBMIT, &n), 7);
		assert_int_equal(ebpf_latch.outlived, n >= 3);
		assert_int_equal(w.local.outlived, n >= 3);
		close_testbed();
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_works_compiled),
		cmocka_unit_test(every_type_works_interpreted),
		cmocka_unit_test(a_call_sees_one_epoch_or_is_found_out),
		cmocka_unit_test(a_call_that_outlives_three_epochs_is_counted),
	};

	object = argc > 1 ? argv[1] : "all_maps.bpf.o";
	return cmocka_run_group_tests_name("maps in a policy", tests, NULL, NULL);
}
