/* From an object to a policy that runs: the shipped policies (their objects are the arguments) are
 * accepted, compiled whole, and decide the same compiled and interpreted, on thousands of random
 * contexts under a fixed seed. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/shm.h"
#include "bpf/load/policy.h"
#include "bpf/run/ctx_bound.h"

#define ROUNDS 3000u
#define TENANTS 4u
#define CTX_WORDS 64u

static char **objects;
static int n_objects;
static const char *dead_helper;
static uint64_t rng;

static uint64_t rnd(void)
{
	uint64_t z = rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void build(struct ebpf_built *b, const char *path, unsigned flags)
{
	struct report r;
	struct buf elf, text;
	int err;

	buf_init(&elf);
	buf_init(&text);
	report_init(&r);
	assert_int_equal(buf_read_file(&elf, path, 16u << 20), 0);
	err = ebpf_policy_build(b, elf.data, elf.len, path, 5, flags, &r);
	report_text(&r, &text);
	if (err) {
		fail_msg("%s: %d: %s", path, err, buf_text(&text));
	}
	report_finish(&r);
	buf_finish(&elf);
	buf_finish(&text);
}

/* The memory of a policy in a process that plays all parts. */
struct stage {
	struct ebpf_built built;
	int fds[EBPF_REGIONS];
	void *mem[EBPF_REGIONS];
	uint8_t *before[EBPF_REGIONS], *after[EBPF_REGIONS];
	uint8_t *tenants; /* TENANTS regions, for gbpfd's programs */
	struct ebpf_policy compiled, interpreted;
};

static void *tenant_region(void *ctx, uint32_t tenant)
{
	struct stage *s = ctx;

	return tenant < TENANTS ? s->tenants + tenant * s->built.region_bytes[EBPF_REGION_TENANT]
				: NULL;
}

static int tenant_class(void *ctx, uint32_t tenant)
{
	return tenant < TENANTS ? (int)tenant % 3 : -ENOENT;
}

static struct ebpf_tenant_ops tenant_ops = { .region = tenant_region,
					     .class_id = tenant_class,
					     .weight = tenant_class };

static void open_stage(struct stage *s, const char *path)
{
	memset(s, 0, sizeof(*s));
	build(&s->built, path, 0);
	for (int r = 0; r < EBPF_REGIONS; r++) {
		size_t bytes = s->built.region_bytes[r];

		s->fds[r] = bytes ? shm_create("region", bytes, SHM_NOEXEC) : -1;
		s->mem[r] = bytes ? shm_map(s->fds[r], bytes, 1) : NULL;
		s->before[r] = calloc(1, bytes + 1);
		s->after[r] = calloc(1, bytes + 1);
		if (bytes) {
			ebpf_built_init_region(&s->built, (enum ebpf_region)r, s->mem[r]);
		}
	}
	s->tenants = calloc(TENANTS, s->built.region_bytes[EBPF_REGION_TENANT] + 1);
	assert_int_equal(
		ebpf_policy_open(&s->compiled, s->built.image_fd, s->fds, EBPF_OPEN_DAEMON), 0);
	assert_int_equal(ebpf_policy_open(&s->interpreted, s->built.image_fd, s->fds,
					  EBPF_OPEN_DAEMON | EBPF_OPEN_NO_JIT),
			 0);
	tenant_ops.ctx = s;
	s->compiled.env.tenants = s->interpreted.env.tenants = &tenant_ops;
	s->compiled.env.random_state = s->interpreted.env.random_state = 1;
}

static void close_stage(struct stage *s)
{
	ebpf_policy_close(&s->compiled);
	ebpf_policy_close(&s->interpreted);
	for (int r = 0; r < EBPF_REGIONS; r++) {
		shm_unmap(s->mem[r], s->built.region_bytes[r]);
		free(s->before[r]);
		free(s->after[r]);
		if (s->fds[r] >= 0) {
			close(s->fds[r]);
		}
	}
	free(s->tenants);
	ebpf_built_finish(&s->built);
}

static void copy_memory(struct stage *s, uint8_t **to, uint8_t **from)
{
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (s->mem[r]) {
			memcpy(to ? to[r] : s->mem[r], from ? from[r] : s->mem[r],
			       s->built.region_bytes[r]);
		}
	}
}

/* Times and counts as they are, and values that hurt. */
static void random_context(uint64_t *ctx)
{
	for (unsigned i = 0; i < CTX_WORDS; i++) {
		switch (rnd() % 4) {
		case 0:
			ctx[i] = rnd();
			break;
		case 1:
			ctx[i] = rnd() % 5 | (rnd() % 5) << 32;
			break;
		case 2:
			ctx[i] = rnd() % 100000000;
			break;
		default:
			ctx[i] = rnd() % 2 ? 0 : UINT64_MAX;
		}
	}
}

static void compare(struct stage *s, unsigned hook)
{
	uint64_t ctx1[CTX_WORDS], ctx2[CTX_WORDS], v1, v2;

	random_context(ctx1);
	ebpf_ctx_bound(hook, ctx1);
	memcpy(ctx2, ctx1, sizeof(ctx1));
	copy_memory(s, s->before, NULL);
	v1 = ebpf_policy_run(&s->interpreted, hook, ctx1);
	copy_memory(s, s->after, NULL);
	copy_memory(s, NULL, s->before);
	v2 = ebpf_policy_run(&s->compiled, hook, ctx2);
	assert_int_equal(v1, v2);
	assert_memory_equal(ctx1, ctx2, sizeof(ctx1));
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (s->mem[r]) {
			assert_memory_equal(s->mem[r], s->after[r], s->built.region_bytes[r]);
		}
	}
	assert_memory_equal(s->compiled.env.notes, s->interpreted.env.notes,
			    sizeof(s->compiled.env.notes));
}

/* Memory is copied and compared in each. */
static unsigned rounds(const struct stage *s)
{
	size_t bytes = 0;

	for (int r = 0; r < EBPF_REGIONS; r++) {
		bytes += s->built.region_bytes[r];
	}
	return bytes > (128u << 10) ? ROUNDS / 20 : ROUNDS;
}

static void shipped_policies_decide_alike_on_both_engines(void **state)
{
	static struct stage s;

	rng = 20261120;
	for (int i = 0; i < n_objects; i++) {
		open_stage(&s, objects[i]);
		for (unsigned hook = 0; hook < EBPF_MAX_HOOKS; hook++) {
			if (!s.compiled.insns[hook]) {
				continue;
			}
			assert_non_null(s.compiled.entry[hook]);
			for (unsigned k = 0; k < rounds(&s); k++) {
				compare(&s, hook);
			}
		}
		close_stage(&s);
	}
}

static void images_carry_what_was_verified(void **state)
{
	static struct ebpf_built with, without;

	for (int i = 0; i < n_objects; i++) {
		unsigned filled = 0;

		build(&with, objects[i], 0);
		build(&without, objects[i], EBPF_BUILD_NO_JIT);
		assert_true(with.code_bytes > 0);
		assert_int_equal(without.code_bytes, 0);
		for (unsigned k = 0; k < EBPF_MAX_PROGS; k++) {
			assert_int_equal(with.stats[k].cost, without.stats[k].cost);
			filled += with.stats[k].cost != 0;
		}
		assert_int_equal(filled, with.object.n_progs);
		ebpf_built_finish(&with);
		ebpf_built_finish(&without);
	}
}

static int count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d)) {
		n++;
	}
	closedir(d);
	return n;
}

/* Objects cut off anywhere: refused (or whole enough), and nothing is left open. */
static void damaged_objects_leave_nothing(void **state)
{
	static struct ebpf_built b;
	int open_before = count_descriptors();
	struct report r;
	struct buf elf;

	buf_init(&elf);
	assert_int_equal(buf_read_file(&elf, objects[0], 16u << 20), 0);
	for (size_t len = 0; len < elf.len; len += 1 + elf.len / 97) {
		report_init(&r);
		if (ebpf_policy_build(&b, elf.data, len, "cut", 1, 0, &r) == 0) {
			ebpf_built_finish(&b);
		} else {
			assert_true(r.message.len > 0);
			assert_int_equal(b.image_fd, -1);
		}
		report_finish(&r);
	}
	buf_finish(&elf);
	assert_int_equal(count_descriptors(), open_before);
}

/* The verifier walks only what can run; an image may hold nothing else that its opener refuses. */
static void unknown_helpers_are_refused_even_where_nothing_leads(void **state)
{
	struct ebpf_built b;
	struct report r;
	struct buf elf;

	buf_init(&elf);
	report_init(&r);
	assert_int_equal(buf_read_file(&elf, dead_helper, 16u << 20), 0);
	assert_int_equal(ebpf_policy_build(&b, elf.data, elf.len, dead_helper, 5, 0, &r), -EACCES);
	assert_non_null(strstr(buf_text(&r.message), "helper 9999"));
	report_finish(&r);
	buf_finish(&elf);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shipped_policies_decide_alike_on_both_engines),
		cmocka_unit_test(images_carry_what_was_verified),
		cmocka_unit_test(damaged_objects_leave_nothing),
		cmocka_unit_test(unknown_helpers_are_refused_even_where_nothing_leads),
	};

	if (argc < 3) {
		return 2;
	}
	dead_helper = argv[1];
	objects = argv + 2;
	n_objects = argc - 2;
	return cmocka_run_group_tests_name("bpf policy", tests, NULL, NULL);
}
