/* Maps, helpers, images and the calling convention of compiled code: behaviour that text cases
 * cannot show. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "asm.h"
#include "base/compiler.h"
#include "base/shm.h"
#include "bpf/load/jit/jit.h"
#include "bpf/run/exec_mem.h"
#include "bpf/run/policy_image.h"
#include "engines.h"

#define TENANT 0x10000u
#define DAEMON 0x20000u
#define RDONLY 0x40000u

static struct asm_unit unit;

static void assemble(const char *text)
{
	char *copy = strdup(text), *rest = copy;

	asm_begin(&unit);
	for (char *line = strsep(&rest, "\n;"); line; line = strsep(&rest, "\n;")) {
		assert_int_equal(asm_line(&unit, line), 0);
	}
	assert_int_equal(asm_end(&unit), 0);
	free(copy);
}

static struct ebpf_map_def def(const char *name, uint32_t value_bytes, uint32_t entries,
			       uint32_t flags)
{
	struct ebpf_map_def d = { .type = 2,
				  .key_bytes = 4,
				  .value_bytes = value_bytes,
				  .max_entries = entries,
				  .flags = flags };

	snprintf(d.name, sizeof(d.name), "%s", name);
	return d;
}

/* ---- maps ---- */

static void definitions_are_checked(void **state)
{
	struct ebpf_map_def d = def("m", 8, 4, 0);

	assert_int_equal(ebpf_map_check(&d), 0);
	d = def("", 8, 4, 0);
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = def("a b", 8, 4, 0);
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = def("m", 8, 4, 0);
	memset(d.name, 'x', sizeof(d.name));
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = def("m", 0, 4, 0);
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = def("m", 8, 0, 0);
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = def("m", 65536, 1, 0);
	assert_int_equal(ebpf_map_check(&d), 0);
	d = def("m", 65537, 1, 0);
	assert_int_equal(ebpf_map_check(&d), -E2BIG);
	d = def("m", 1, 1000001, 0);
	assert_int_equal(ebpf_map_check(&d), -E2BIG);
	d = def("m", 1, 1, TENANT | DAEMON);
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = def("m", 1, 1, TENANT | RDONLY);
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = def("m", 1, 1, 1);
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = def("m", 1, 2, 0);
	d.is_data = 1;
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = def("m", 1, 1, 0);
	d.type = 4; /* no such type */
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
	d = def("m", 1, 1, 0);
	d.key_bytes = 8;
	assert_int_equal(ebpf_map_check(&d), -EINVAL);
}

static void maps_lie_apart_in_their_regions(void **state)
{
	struct ebpf_map_def d[] = { def("a", 3, 3, 0), def("b", 8, 1, TENANT), def("c", 8, 1, 0),
				    def("d", 4096, 2, DAEMON) };
	struct ebpf_map maps[4];
	size_t bytes[EBPF_REGIONS];

	assert_int_equal(ebpf_maps_layout(d, 4, maps, bytes), 0);
	assert_int_equal(maps[0].stride, 8);
	assert_int_equal(maps[0].region_offset, 0);
	assert_int_equal(maps[2].region_offset, 64);
	assert_int_equal(maps[1].region, EBPF_REGION_TENANT);
	assert_int_equal(maps[1].region_offset, 0);
	assert_int_equal(bytes[EBPF_REGION_GLOBAL], 4096);
	assert_int_equal(bytes[EBPF_REGION_TENANT], 4096);
	assert_int_equal(bytes[EBPF_REGION_DAEMON], 8192);
	assert_int_equal(ebpf_maps_layout(d, 0, maps, bytes), 0);
	assert_int_equal(bytes[EBPF_REGION_GLOBAL], 0);
}

static void regions_have_a_limit(void **state)
{
	struct ebpf_map_def d[] = { def("a", 65536, 4095, 0), def("b", 65536, 1, 0),
				    def("c", 1, 1, 0) };
	struct ebpf_map maps[3];
	size_t bytes[EBPF_REGIONS];

	assert_int_equal(ebpf_maps_layout(d, 2, maps, bytes), 0);
	assert_int_equal(ebpf_maps_layout(d, 3, maps, bytes), -E2BIG);
	assert_int_equal(ebpf_maps_layout(d, 65, maps, bytes), -E2BIG);
	d[0] = def("a", 65536, 1000000, 0);
	assert_int_equal(ebpf_maps_layout(d, 1, maps, bytes), -E2BIG);
}

/* ---- helpers ---- */

static uint8_t tenant_memory[4096];

static void *region_of(void *ctx, uint32_t tenant)
{
	return tenant == 7 ? tenant_memory : NULL;
}

static int class_of(void *ctx, uint32_t tenant)
{
	return tenant == 7 ? 2 : -ENOENT;
}

static const struct ebpf_tenant_ops tenant_ops = { .region = region_of,
						   .class_id = class_of,
						   .weight = class_of };

static uint64_t helper(struct test_env *t, enum ebpf_helper_slot slot, uint64_t a1, uint64_t a2,
		       uint64_t a3)
{
	return t->env.helpers[slot](a1, a2, a3, 0, 0, &t->env);
}

static void tenants_are_reached_by_number(void **state)
{
	static struct test_env t;
	uint32_t key = 1, beyond = 2;
	uint64_t map, key_at = (uintptr_t)&key;

	test_env_init(&t);
	test_env_add(&t, "pad", 100, 1, TENANT, 0);
	test_env_add(&t, "m", 16, 2, TENANT, 0);
	test_env_add(&t, "g", 16, 2, 0, 0);
	assert_int_equal(test_env_bind(&t), 0);
	map = (uintptr_t)&t.env.maps[1];
	assert_int_equal(helper(&t, EBPF_SLOT_gbpf_tenant_lookup, map, 7, key_at), 0);
	t.env.tenants = &tenant_ops;
	assert_ptr_equal(helper(&t, EBPF_SLOT_gbpf_tenant_lookup, map, 7, key_at),
			 tenant_memory + 128 + 16);
	assert_int_equal(helper(&t, EBPF_SLOT_gbpf_tenant_lookup, map, 8, key_at), 0);
	assert_int_equal(
		helper(&t, EBPF_SLOT_gbpf_tenant_lookup, map, 7 + (UINT64_C(1) << 32), key_at), 0);
	assert_int_equal(helper(&t, EBPF_SLOT_gbpf_tenant_lookup, map, 7, (uintptr_t)&beyond), 0);
	assert_int_equal(
		helper(&t, EBPF_SLOT_gbpf_tenant_lookup, (uintptr_t)&t.env.maps[2], 7, key_at), 0);
	assert_int_equal(helper(&t, EBPF_SLOT_gbpf_tenant_class, 7, 0, 0), 2);
	assert_int_equal((int64_t)helper(&t, EBPF_SLOT_gbpf_tenant_class, 8, 0, 0), -ENOENT);
	test_env_finish(&t);
}

static void failed_helpers_are_counted(void **state)
{
	static struct test_env t;
	uint32_t key = 9;
	uint64_t value = 1;

	test_env_init(&t);
	test_env_add(&t, "m", 8, 2, 0, 0);
	assert_int_equal(test_env_bind(&t), 0);
	helper(&t, EBPF_SLOT_bpf_map_update_elem, (uintptr_t)&t.env.maps[0], (uintptr_t)&key,
	       (uintptr_t)&value);
	helper(&t, EBPF_SLOT_gbpf_note, EBPF_NOTES, 1, 0);
	assert_int_equal(t.env.helper_errors, 2);
	helper(&t, EBPF_SLOT_gbpf_note, 2, 5, 0);
	helper(&t, EBPF_SLOT_gbpf_note, 2, 6, 0);
	assert_int_equal(t.env.notes[2], 11);
	assert_int_equal(t.env.helper_errors, 2);
	test_env_finish(&t);
}

static void lookups_of_absent_regions_give_null(void **state)
{
	static struct test_env t;
	struct code_pool pool;
	int entry;

	test_env_init(&t);
	test_env_add(&t, "t", 8, 2, TENANT, 0);
	test_env_add(&t, "d", 24, 2, DAEMON, 0);
	assert_int_equal(test_env_bind(&t), 0);
	assemble("stw [r10-4], 1; mov r2, r10; add r2, -4; ldmap r1, 0; call 1; jne r0, 0, bad;"
		 "mov r2, r10; add r2, -4; ldmap r1, 1; call 1; jne r0, 0, bad; exit; bad:; mov "
		 "r0, 1; exit");
	pool_init(&pool, 4096);
	entry = pool_add(&pool, unit.insns, unit.n, &t.env);
	assert_int_equal(pool_map(&pool), 0);
	assert_int_equal(pool_run(&pool, entry, NULL, &t.env), 1);
	ebpf_maps_bind(t.env.maps, t.env.n_maps, EBPF_REGION_TENANT, NULL);
	ebpf_maps_bind(t.env.maps, t.env.n_maps, EBPF_REGION_DAEMON, NULL);
	assert_int_equal(pool_run(&pool, entry, NULL, &t.env), 0);
	assert_int_equal(ebpf_interp_verified(unit.insns, unit.n, NULL, &t.env), 0);
	pool_finish(&pool);
	test_env_finish(&t);
}

/* ---- calling convention of compiled code ---- */

static unsigned misaligned, helper_runs;

static NOINLINE uint64_t checks_stack(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
				      uint64_t a5, struct ebpf_env *env)
{
	misaligned += (uintptr_t)__builtin_frame_address(0) % 16 != 0;
	helper_runs++;
	return 0;
}

/* Every number of saved registers, with and without a frame, called from the entry and from a
 * function. */
static void stack_is_aligned_at_calls(void **state)
{
	static struct test_env t;
	struct code_pool pool;
	char text[800], regs[200];

	test_env_init(&t);
	t.env.helpers[EBPF_SLOT_bpf_ktime_get_ns] = checks_stack;
	pool_init(&pool, 65536);
	for (int saved = 0; saved <= 4; saved++) {
		for (int frames = 0; frames < 4; frames++) {
			int entry;

			regs[0] = 0;
			for (int r = 6; r < 6 + saved; r++) {
				snprintf(regs + strlen(regs), sizeof(regs) - strlen(regs),
					 "mov r%d, 1;", r);
			}
			snprintf(text, sizeof(text),
				 "%s %s call 5; callf f; exit; f:; %s %s call 5; exit",
				 saved & 1 ? regs : "", frames & 1 ? "stb [r10-1], 1;" : "", regs,
				 frames & 2 ? "stb [r10-1], 1;" : "");
			assemble(text);
			entry = pool_add(&pool, unit.insns, unit.n, &t.env);
			assert_true(entry >= 0);
			assert_int_equal(pool_map(&pool), 0);
			helper_runs = 0;
			pool_run(&pool, entry, NULL, &t.env);
			assert_int_equal(helper_runs, 2);
			pool_clear(&pool);
		}
	}
	assert_int_equal(misaligned, 0);
	pool_finish(&pool);
}

#if defined(__x86_64__)
struct kept_regs {
	uint64_t rbx, rbp, r12, r13, r14, r15, rsp_moved;
};

/* Calls code with known values in the registers that it must keep, and reads them back. */
static void call_with_known_registers(const void *code, struct ebpf_env *env, struct kept_regs *k)
{
	/* below the red zone, which the compiler may be using */
	__asm__ volatile("lea -128(%%rsp), %%rsp; push %%rbx; push %%rbp; push %%r12; push %%r13; "
			 "push %%r14; push %%r15\n\t"
			 "push %[k]; sub $8, %%rsp; mov %%rsp, %%r10; push %%r10; push %%r10\n\t"
			 "mov $0x1111, %%ebx; mov $0x2222, %%ebp; mov $0x3333, %%r12d\n\t"
			 "mov $0x4444, %%r13d; mov $0x5555, %%r14d; mov $0x6666, %%r15d\n\t"
			 "call *%[code]\n\t"
			 "pop %%r10; pop %%r11; mov %%rsp, %%r11; add $8, %%rsp; pop %%rax\n\t"
			 "mov %%rbx, 0(%%rax); mov %%rbp, 8(%%rax); mov %%r12, 16(%%rax); mov "
			 "%%r13, 24(%%rax)\n\t"
			 "mov %%r14, 32(%%rax); mov %%r15, 40(%%rax); sub %%r10, %%r11; mov %%r11, "
			 "48(%%rax)\n\t"
			 "pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx; lea "
			 "128(%%rsp), %%rsp"
			 : "+S"(env), [code] "+a"(code), [k] "+d"(k)
			 :
			 : "rcx", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

static void callee_saved_registers_are_kept(void **state)
{
	static const char *const programs[] = {
		"mov r6, 1; mov r7, 2; mov r8, 3; mov r9, 4; stdw [r10-8], 5; mov r0, 0; exit",
		"mov r6, 1; call 7; mov r9, r0; call 7; exit",
		"mov r0, 0; exit",
		"mov r7, 9; callf f; exit; f:; mov r8, 1; stdw [r10-8], 1; call 7; exit",
		"mov r0, 1; div r0, r0; mov r3, 7; mod r3, r0; exit",
	};
	static struct test_env t;
	struct code_pool pool;

	test_env_init(&t);
	pool_init(&pool, 65536);
	for (unsigned i = 0; i < ARRAY_SIZE(programs); i++) {
		struct kept_regs k = { 0 };
		int entry;

		assemble(programs[i]);
		entry = pool_add(&pool, unit.insns, unit.n, &t.env);
		assert_true(entry >= 0);
		assert_int_equal(pool_map(&pool), 0);
		call_with_known_registers((char *)pool.exec + entry, &t.env, &k);
		assert_int_equal(k.rbx, 0x1111);
		assert_int_equal(k.rbp, 0x2222);
		assert_int_equal(k.r12, 0x3333);
		assert_int_equal(k.r13, 0x4444);
		assert_int_equal(k.r14, 0x5555);
		assert_int_equal(k.r15, 0x6666);
		assert_int_equal(k.rsp_moved, 0);
		pool_clear(&pool);
	}
	pool_finish(&pool);
}
#endif

static void compiler_refuses_what_leaves_a_function(void **state)
{
	static const char *const programs[] = {
		/* jump into another function, fall into one */
		"callf f; exit; f:; ja out; exit; g:; out:; mov r0, 0; exit; callf g; exit",
		"callf f; mov r0, 0; f:; mov r0, 0; exit",
		/* the entry is no local function */
		"f:; callf f; exit",
		/* fall off the end */
		"mov r0, 0",
		/* jump to -1, the same by 32 bits, call of -1, jump to the end */
		"hex 0500feff00000000",
		"hex 06000000feffffff",
		"hex 85100000feffffff; exit",
		"hex 0500010000000000; exit",
	};
	static struct test_env t;
	struct code_pool pool;

	test_env_init(&t);
	pool_init(&pool, 65536);
	for (unsigned i = 0; i < ARRAY_SIZE(programs); i++) {
		assemble(programs[i]);
		assert_true(pool_add(&pool, unit.insns, unit.n, &t.env) < 0);
		assert_int_equal(pool.len, 0);
	}
	pool_finish(&pool);
}

static void compiler_says_when_it_does_not_fit(void **state)
{
	static struct test_env t;
	uint8_t out[256];
	size_t len = 3;

	test_env_init(&t);
	assemble("lddw r0, 0x1234567812345678; exit");
	for (size_t cap = 0; cap < 16 + 15; cap++) {
		memset(out, 0xee, sizeof(out));
		assert_int_equal(ebpf_jit_x86(unit.insns, unit.n, t.env.maps, 0, out, cap, &len),
				 -ENOSPC);
		assert_int_equal(len, 3);
		for (size_t i = 0; i < sizeof(out); i++) {
			assert_int_equal(out[i], 0xee);
		}
	}
	assert_int_equal(ebpf_jit_x86(unit.insns, unit.n, t.env.maps, 0, out, 16 + 15, &len), 16);
	assert_int_equal(len, 16 + 15);
	assert_int_equal(ebpf_jit_x86(unit.insns, unit.n, t.env.maps, 0, NULL, 0, &len), -ENOSPC);
}

static void put(struct ebpf_insn *insns, uint32_t *n, struct ebpf_insn insn)
{
	insns[(*n)++] = insn;
}

/* The largest program, with jumps of the greatest distances: it counts the steps between them. */
static void the_largest_program_compiles(void **state)
{
	static struct ebpf_insn insns[EBPF_MAX_INSNS];
	static struct test_env t;
	struct code_pool pool;
	uint32_t n = 0;
	int entry;

	put(insns, &n, (struct ebpf_insn){ EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 0 });
	put(insns, &n, (struct ebpf_insn){ EBPF_JMP | EBPF_JEQ, 0, 0, 32767, 0 });
	while (n < EBPF_MAX_INSNS - 2) {
		if (n % 100 == 0 && n + 40000 < EBPF_MAX_INSNS) {
			put(insns, &n, (struct ebpf_insn){ EBPF_JMP32 | EBPF_JA, 0, 0, 0, 1 });
		} else {
			put(insns, &n,
			    (struct ebpf_insn){ EBPF_ALU64 | EBPF_ADD, 0, 0, 0, 1 + n % 200 });
		}
	}
	/* back to the instruction after the first jump, once */
	put(insns, &n, (struct ebpf_insn){ EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0 });
	put(insns, &n,
	    (struct ebpf_insn){ EBPF_JMP32 | EBPF_JA, 0, 0, 0, -(int32_t)EBPF_MAX_INSNS + 2 });
	insns[EBPF_MAX_INSNS - 3] = (struct ebpf_insn){ EBPF_JMP | EBPF_JLT, 0, 0, 1, 4000000 };
	test_env_init(&t);
	pool_init(&pool, 1u << 20);
	entry = pool_add(&pool, insns, n, &t.env);
	assert_true(entry >= 0);
	assert_int_equal(pool_map(&pool), 0);
	assert_int_equal(pool_run(&pool, entry, NULL, &t.env),
			 ebpf_interp_verified(insns, n, NULL, &t.env));
	pool_finish(&pool);
}

struct atomic_run {
	const struct code_pool *pool;
	struct test_env *t;
	int entry;
	uint64_t bit;
};

static void *run_atomics(void *arg)
{
	struct atomic_run *a = arg;

	for (int i = 0; i < 100000; i++) {
		pool_run(a->pool, a->entry, &a->bit, &a->t->env);
	}
	return NULL;
}

/* Two threads toggle each their own bit, which they must find as they left it, and count. */
static void atomics_of_two_threads_lose_nothing(void **state)
{
	static struct test_env t;
	struct code_pool pool;
	pthread_t threads[2];
	struct atomic_run runs[2];
	uint64_t *counts;

	test_env_init(&t);
	test_env_add(&t, "m", 32, 1, 0, 1);
	assert_int_equal(test_env_bind(&t), 0);
	counts = (uint64_t *)t.env.maps[0].data;
	assemble("ldxdw r6, [r1]; ldval r7, 0, 0; mov r2, 1; aadd64 [r7], r2; mov r2, 1; afadd32 "
		 "[r7+8], r2;"
		 "mov r3, r6; afor64 [r7+16], r3; and r3, r6; jne r3, 0, bad;"
		 "mov r3, r6; afxor64 [r7+16], r3; and r3, r6; jeq r3, 0, bad; mov r0, 0; exit;"
		 "bad:; mov r2, 1; aadd64 [r7+24], r2; mov r0, 0; exit");
	pool_init(&pool, 4096);
	runs[0] = (struct atomic_run){ &pool, &t, pool_add(&pool, unit.insns, unit.n, &t.env), 1 };
	runs[1] = (struct atomic_run){ &pool, &t, runs[0].entry, UINT64_C(1) << 63 };
	assert_int_equal(pool_map(&pool), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, run_atomics, &runs[i]), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
	}
	assert_int_equal(counts[0], 200000);
	assert_int_equal(counts[1], 200000);
	assert_int_equal(counts[2], 0);
	assert_int_equal(counts[3], 0);
	pool_finish(&pool);
	test_env_finish(&t);
}

/* ---- images ---- */

struct image {
	struct ebpf_image_header h;
	struct ebpf_map_def defs[4];
	uint8_t code[4096];
	size_t code_bytes;
	struct ebpf_map maps[4];
	size_t bytes[EBPF_REGIONS];
	int fds[EBPF_REGIONS];
	int fd;
};

enum { HOOK_SUBMIT = 3, HOOK_TICK = 6 };

/* submit and tick run the same program: ++ element 1 of the tenant's map, plus what the global one
 * holds. */
static void make_image(struct image *m)
{
	int entry;

	memset(m, 0, sizeof(*m));
	m->defs[0] = def("g", 8, 2, 0);
	m->defs[1] = def("t", 8, 2, TENANT);
	m->defs[2] = def("d", 8, 2, DAEMON);
	assert_int_equal(ebpf_maps_layout(m->defs, 3, m->maps, m->bytes), 0);
	assemble("stw [r10-4], 1; mov r2, r10; add r2, -4; ldmap r1, 1; call 1; jeq r0, 0, out; "
		 "ldxdw r6, [r0];"
		 "add r6, 1; stxdw [r0], r6; mov r2, r10; add r2, -4; ldmap r1, 0; call 1; jeq r0, "
		 "0, out;"
		 "ldxdw r0, [r0]; add r0, r6; exit; out:; mov r0, -1; exit");
	entry = ebpf_jit_x86(unit.insns, unit.n, m->maps, 3, m->code, sizeof(m->code),
			     &m->code_bytes);
	assert_int_equal(entry, 0);
	m->h.version = 42;
	snprintf(m->h.name, sizeof(m->h.name), "policy");
	m->h.n_maps = 3;
	m->h.n_insns = unit.n;
	m->h.progs[HOOK_SUBMIT] = (struct ebpf_image_prog){ 0, unit.n, 0, 20 };
	m->h.progs[HOOK_TICK] = (struct ebpf_image_prog){ 0, unit.n, UINT32_MAX, 20 };
	for (int r = 0; r < EBPF_REGIONS; r++) {
		m->fds[r] = r == EBPF_REGION_DAEMON ? -1
						    : shm_create("region", m->bytes[r], SHM_NOEXEC);
	}
	m->fd = ebpf_image_build(&m->h, m->defs, unit.insns, m->code, m->code_bytes);
	assert_true(m->fd >= 0);
}

static void finish_image(struct image *m)
{
	close(m->fd);
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (m->fds[r] >= 0) {
			close(m->fds[r]);
		}
	}
}

static void one_image_serves_two_processes_views(void **state)
{
	static struct ebpf_policy daemon, shim;
	struct image m;
	int fds[EBPF_REGIONS];
	uint64_t *global;

	make_image(&m);
	memcpy(fds, m.fds, sizeof(fds));
	fds[EBPF_REGION_TENANT] = -1;
	assert_int_equal(ebpf_policy_open(&daemon, m.fd, fds, EBPF_OPEN_DAEMON), 0);
	assert_int_equal(shm_seal_future_write(m.fds[EBPF_REGION_GLOBAL]), 0);
	assert_int_equal(ebpf_policy_open(&shim, m.fd, m.fds, 0), 0);
	assert_int_equal(shim.version, 42);
	assert_string_equal(shim.name, "policy");
	global = (uint64_t *)daemon.env.maps[0].data;
	global[1] = 1000;
	assert_non_null(shim.entry[HOOK_SUBMIT]);
	assert_int_equal(ebpf_policy_run(&shim, HOOK_SUBMIT, NULL), 1001);
	assert_int_equal(ebpf_policy_run(&shim, HOOK_SUBMIT, NULL), 1002);
	/* each side has its own programs only, and none whose memory is absent */
	assert_null(shim.insns[HOOK_TICK]);
	assert_null(daemon.insns[HOOK_SUBMIT]);
	assert_non_null(daemon.insns[HOOK_TICK]);
	assert_null(daemon.entry[HOOK_TICK]);
	assert_int_equal(ebpf_policy_run(&daemon, HOOK_TICK, NULL),
			 -1); /* there is no tenant's element */
	assert_non_null(daemon.env.maps[2].data);
	assert_null(shim.env.maps[2].data);
	ebpf_policy_close(&shim);
	ebpf_policy_close(&daemon);
	finish_image(&m);
}

static void without_compiled_code_the_policy_is_interpreted(void **state)
{
	static struct ebpf_policy p;
	struct image m;

	make_image(&m);
	assert_int_equal(ebpf_policy_open(&p, m.fd, m.fds, EBPF_OPEN_NO_JIT), 0);
	assert_null(p.entry[HOOK_SUBMIT]);
	assert_null(p.code);
	assert_int_equal(ebpf_policy_run(&p, HOOK_SUBMIT, NULL), 1);
	ebpf_policy_close(&p);
	finish_image(&m);
}

/* In a child, since the filter cannot be taken off again. */
static void where_executable_mappings_are_refused_it_is_interpreted(void **state)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { ARRAY_SIZE(rules), rules };
	static struct ebpf_policy p;
	struct image m;
	int status;
	pid_t pid;

	make_image(&m);
	pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
			_exit(77);
		}
		_exit(ebpf_policy_open(&p, m.fd, m.fds, 0) ? 1
		      : p.code || p.entry[HOOK_SUBMIT]
			      ? 2
			      : (int)ebpf_policy_run(&p, HOOK_SUBMIT, NULL) + 10);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	finish_image(&m);
	if (WEXITSTATUS(status) == 77) {
		skip(); /* no filters here */
	}
	assert_int_equal(WEXITSTATUS(status), 11);
}

static void read_only_maps_refuse_updates(void **state)
{
	static struct ebpf_policy p;
	struct image m;
	uint32_t key = 0;
	uint64_t value = 1;

	make_image(&m);
	assert_int_equal(ebpf_policy_open(&p, m.fd, m.fds, 0), 0);
	assert_int_equal(ebpf_map_update(&p.env.maps[0], &key, &value, 0), -EPERM);
	assert_int_equal(ebpf_map_update(&p.env.maps[1], &key, &value, 0), 0);
	ebpf_policy_close(&p);
	finish_image(&m);
}

static void regions_must_fit(void **state)
{
	static struct ebpf_policy p;
	struct image m;
	int fds[EBPF_REGIONS], small = shm_create("small", 2048, SHM_NOEXEC),
			       loose = memfd_create("loose", 0);

	assert_int_equal(ftruncate(loose, 4096), 0);
	make_image(&m);
	for (int bad = 0; bad < 3; bad++) {
		for (int r = 0; r < EBPF_REGION_DAEMON; r++) {
			memcpy(fds, m.fds, sizeof(fds));
			fds[r] = bad == 0 ? -1 : bad == 1 ? small : loose;
			assert_int_equal(ebpf_policy_open(&p, m.fd, fds, 0), -EINVAL);
		}
	}
	close(small);
	close(loose);
	finish_image(&m);
}

static void images_that_can_change_are_refused(void **state)
{
	static struct ebpf_policy p;
	struct image m;
	int fd = shm_create("image", 8192, SHM_EXEC);
	char bytes[8192] = { 0 };

	make_image(&m);
	assert_true(pread(m.fd, bytes, sizeof(bytes), 0) > 0);
	assert_int_equal(pwrite(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	assert_int_equal(ebpf_policy_open(&p, fd, m.fds, 0), -EINVAL);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL), 0);
	assert_int_equal(ebpf_policy_open(&p, fd, m.fds, 0), 0);
	ebpf_policy_close(&p);
	assert_int_equal(pwrite(m.fd, "x", 1, 0), -1);
	assert_int_equal(ftruncate(m.fd, 0), -1);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0), MAP_FAILED);
	close(fd);
	finish_image(&m);
}

/* Every 32-bit word of header, definitions and bytecode set to values that hurt: opening may
 * succeed or not, but it must come back, and what it gives must stay inside the image. */
static void damaged_images_do_no_harm(void **state)
{
	static const uint32_t values[] = {
		0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff8, 4096, 65536, 64,
	};
	static struct ebpf_policy p;
	struct image m;
	char bytes[8192] = { 0 };
	ssize_t size;
	unsigned opened = 0;

	make_image(&m);
	size = pread(m.fd, bytes, sizeof(bytes), 0);
	assert_int_equal(size, 8192);
	for (size_t at = 0;
	     at < sizeof(struct ebpf_image_header) + 3 * sizeof(struct ebpf_map_def) + 200;
	     at += 4) {
		for (unsigned k = 0; k < ARRAY_SIZE(values); k++) {
			struct ebpf_exec_part part = { bytes, 0, (size_t)size };
			char saved[4];
			int fd;

			memcpy(saved, bytes + at, 4);
			memcpy(bytes + at, &values[k], 4);
			fd = ebpf_exec_create("bad", (size_t)size, &part, 1);
			memcpy(bytes + at, saved, 4);
			if (ebpf_policy_open(&p, fd, m.fds, k & 1 ? EBPF_OPEN_DAEMON : 0) == 0) {
				opened++;
				for (unsigned h = 0; h < EBPF_MAX_HOOKS; h++) {
					const char *first = (const char *)p.insns[h];

					assert_true(!first || (first >= (char *)p.image &&
							       first + p.n_insns[h] * 8u <=
								       (char *)p.image + size));
					assert_true(!p.entry[h] ||
						    (uintptr_t)p.entry[h] - (uintptr_t)p.code <
							    p.code_bytes);
				}
				ebpf_policy_close(&p);
			}
			close(fd);
		}
	}
	assert_true(opened > 0);
	finish_image(&m);
}

static void truncated_images_are_refused(void **state)
{
	static struct ebpf_policy p;
	struct image m;
	char bytes[8192];

	make_image(&m);
	assert_int_equal(pread(m.fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	for (size_t size = 1; size < 4096 + 8; size += 7) {
		struct ebpf_exec_part part = { bytes, 0, size };
		int fd = ebpf_exec_create("short", size, &part, 1);

		assert_int_equal(ebpf_policy_open(&p, fd, m.fds, 0), -EINVAL);
		close(fd);
	}
	assert_int_equal(ebpf_policy_open(&p, -1, m.fds, 0), -EINVAL);
	assert_int_equal(ebpf_policy_open(&p, STDIN_FILENO, m.fds, 0), -EINVAL);
	finish_image(&m);
}

static void code_is_never_writable_and_executable(void **state)
{
	static struct ebpf_policy p;
	struct image m;
	char line[256];
	unsigned executable = 0;
	FILE *f;

	make_image(&m);
	assert_int_equal(ebpf_policy_open(&p, m.fd, m.fds, 0), 0);
	f = fopen("/proc/self/maps", "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (strstr(line, "gbpf-image")) {
			assert_null(strstr(line, " rwx"));
			assert_null(strstr(line, " -wx"));
			assert_null(strstr(line, " rw-"));
			executable += strstr(line, " r-x") != NULL;
		}
	}
	fclose(f);
	assert_int_equal(executable, 1);
	ebpf_policy_close(&p);
	finish_image(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(definitions_are_checked),
		cmocka_unit_test(maps_lie_apart_in_their_regions),
		cmocka_unit_test(regions_have_a_limit),
		cmocka_unit_test(tenants_are_reached_by_number),
		cmocka_unit_test(failed_helpers_are_counted),
		cmocka_unit_test(lookups_of_absent_regions_give_null),
		cmocka_unit_test(stack_is_aligned_at_calls),
#if defined(__x86_64__)
		cmocka_unit_test(callee_saved_registers_are_kept),
#endif
		cmocka_unit_test(compiler_refuses_what_leaves_a_function),
		cmocka_unit_test(compiler_says_when_it_does_not_fit),
		cmocka_unit_test(the_largest_program_compiles),
		cmocka_unit_test(atomics_of_two_threads_lose_nothing),
		cmocka_unit_test(one_image_serves_two_processes_views),
		cmocka_unit_test(without_compiled_code_the_policy_is_interpreted),
		cmocka_unit_test(where_executable_mappings_are_refused_it_is_interpreted),
		cmocka_unit_test(read_only_maps_refuse_updates),
		cmocka_unit_test(regions_must_fit),
		cmocka_unit_test(images_that_can_change_are_refused),
		cmocka_unit_test(damaged_images_do_no_harm),
		cmocka_unit_test(truncated_images_are_refused),
		cmocka_unit_test(code_is_never_writable_and_executable),
	};

	return cmocka_run_group_tests_name("bpf run", tests, NULL, NULL);
}
