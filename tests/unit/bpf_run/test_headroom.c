/* Measures the maximum stack that programs use, and tests that no program runs on a stack that is
 * too small for it. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "asm.h"
#include "base/compiler.h"
#include "bpf/run/policy_image.h"
#include "engines.h"

#define PAINT 0xa5
#define STACK_BYTES (256u << 10)

static struct asm_unit unit;
static struct test_env t;
static struct code_pool pool;

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

static uint64_t loop(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5,
		     struct ebpf_env *env)
{
	for (uint64_t i = 0; i < a1; i++) {
		ebpf_call_back(a2, i, a3, 0, 0, env);
	}
	return a1;
}

/* ---- how much is used ---- */

struct job {
	uint64_t (*body)(struct job *);
	int entry;
	uint64_t r0;
};

static uint64_t run_compiled(struct job *j)
{
	return pool_run(&pool, j->entry, NULL, &t.env);
}

static uint64_t run_interpreted(struct job *j)
{
	return ebpf_interp_verified(unit.insns, unit.n, NULL, &t.env);
}

static void *thread(void *arg)
{
	struct job *j = arg;

	j->r0 = j->body(j);
	return NULL;
}

static size_t used_by(uint64_t (*body)(struct job *), int entry, uint64_t *ret_r0)
{
	uint8_t *stack =
		mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct job j = { body, entry, 0 };
	pthread_attr_t attr;
	pthread_t id;
	size_t untouched = 0;

	assert_ptr_not_equal(stack, MAP_FAILED);
	memset(stack, PAINT, STACK_BYTES);
	pthread_attr_init(&attr);
	assert_int_equal(pthread_attr_setstack(&attr, stack, STACK_BYTES), 0);
	assert_int_equal(pthread_create(&id, &attr, thread, &j), 0);
	pthread_join(id, NULL);
	while (untouched < STACK_BYTES && stack[untouched] == PAINT) {
		untouched++;
	}
	munmap(stack, STACK_BYTES);
	*ret_r0 = j.r0;
	return STACK_BYTES - untouched;
}

static uint64_t nothing(struct job *j)
{
	return 0;
}

/* Eight frames with all registers saved and the whole stack used, every second one entered through
 * a helper, and a helper at the bottom. */
static void deepest(char *text, size_t cap)
{
	size_t n = 0;

	for (int f = 0; f < 8; f++) {
		n += (size_t)snprintf(text + n, cap - n,
				      "f%d:; mov r6, 1; mov r7, 1; mov r8, 1; mov r9, 1;"
				      "stdw [r10-512], 1; stdw [r10-8], 1;",
				      f);
		if (f == 7) {
			n += (size_t)snprintf(text + n, cap - n, "call 5; mov r0, 3; exit;");
		} else if (f % 2) {
			n += (size_t)snprintf(text + n, cap - n, "callf f%d; exit;", f + 1);
		} else {
			n += (size_t)snprintf(text + n, cap - n,
					      "mov r1, 1; ldfn r2, f%d; mov r3, 0; mov r4, 0; call "
					      "181; mov r0, 3; exit;",
					      f + 1);
		}
	}
}

static void the_deepest_program_needs_less_than_is_asked_for(void **state)
{
	char text[4000];
	size_t idle, compiled, interpreted;
	uint64_t r0;
	int entry;

	deepest(text, sizeof(text));
	assemble(text);
	entry = pool_add(&pool, unit.insns, unit.n, &t.env);
	assert_true(entry >= 0);
	assert_int_equal(pool_map(&pool), 0);
	idle = used_by(nothing, 0, &r0);
	compiled = used_by(run_compiled, entry, &r0) - idle;
	assert_int_equal(r0, 3);
	interpreted = used_by(run_interpreted, 0, &r0) - idle;
	assert_int_equal(r0, 3);
	pool_clear(&pool);
	print_message("deepest: %zu bytes compiled, %zu interpreted\n", compiled, interpreted);
#if !defined(__SANITIZE_ADDRESS__) /* sanitized C code uses more stack, also outside of this one   \
				    */
	assert_true(compiled > 8 * 512 && compiled < EBPF_STACK_NEED);
	assert_true(interpreted > 8 * 512 && interpreted < EBPF_STACK_NEED);
#endif
}

/* ---- where it does not reach ---- */

static struct ebpf_policy policy;

/* A policy whose submit program returns 7. */
static void make_policy(void)
{
	assemble("stdw [r10-8], 7; ldxdw r0, [r10-8]; exit");
	memset(&policy, 0, sizeof(policy));
	ebpf_env_init(&policy.env);
	policy.insns[3] = unit.insns;
	policy.n_insns[3] = unit.n;
}

static uint64_t run_policy(struct job *j)
{
	return ebpf_policy_run(&policy, 3, NULL);
}

static void enough_on_an_ordinary_thread(void **state)
{
	uint64_t r0;

	make_policy();
	assert_int_equal(ebpf_policy_run(&policy, 3, NULL), 7);
	used_by(run_policy, 0, &r0);
	assert_int_equal(r0, 7);
	assert_int_equal(policy.env.helper_errors, 0);
}

/* Recurses until fewer than `left` bytes remain above the guard page. */
static NOINLINE uint64_t descend(const uint8_t *bottom, size_t left)
{
	volatile uint8_t room[512];
	uint64_t r0;

	room[0] = 1;
	if ((size_t)((uintptr_t)room - (uintptr_t)bottom) < left) {
		return ebpf_policy_run(&policy, 3, NULL);
	}
	r0 = descend(bottom, left);
	room[1] = room[0];
	return r0;
}

static uint8_t *guarded;
static size_t left_over;

static uint64_t run_deep(struct job *j)
{
	return descend(guarded + 4096, left_over);
}

static uint64_t with_left(size_t left)
{
	struct job j = { run_deep, 0, 0 };
	pthread_attr_t attr;
	pthread_t id;

	guarded = mmap(NULL, STACK_BYTES + 4096, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(mprotect(guarded, 4096, PROT_NONE), 0);
	left_over = left;
	pthread_attr_init(&attr);
	assert_int_equal(pthread_attr_setstack(&attr, guarded + 4096, STACK_BYTES), 0);
	assert_int_equal(pthread_create(&id, &attr, thread, &j), 0);
	pthread_join(id, NULL);
	munmap(guarded, STACK_BYTES + 4096);
	return j.r0;
}

static void not_near_the_end_of_a_stack(void **state)
{
	make_policy();
	assert_int_equal(with_left(EBPF_STACK_NEED + 8192), 7);
	assert_int_equal(policy.env.helper_errors, 0);
	assert_int_equal(with_left(EBPF_STACK_NEED - 1024), 0);
	assert_int_equal(with_left(4096), 0);
	assert_int_equal(policy.env.helper_errors, 2);
}

static volatile uint64_t in_handler;

static void handler(int sig)
{
	int saved = errno;

	errno = 77;
	in_handler = ebpf_policy_run(&policy, 3, NULL);
	if (errno != 77) {
		in_handler = 99;
	}
	errno = saved;
}

static uint64_t on_alternate_stack(size_t bytes, void *at)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_ONSTACK }, old;
	stack_t alt = { .ss_sp = at, .ss_size = bytes }, none = { .ss_flags = SS_DISABLE };

	assert_int_equal(sigaltstack(&alt, NULL), 0);
	assert_int_equal(sigaction(SIGUSR1, &act, &old), 0);
	in_handler = 0;
	raise(SIGUSR1);
	sigaction(SIGUSR1, &old, NULL);
	sigaltstack(&none, NULL);
	return in_handler;
}

/* The memory below a small one is readable, but not its own. */
static void alternate_stacks_have_their_own_end(void **state)
{
	uint8_t *big = malloc(1u << 20), on_stack[65536];

	make_policy();
	assert_int_equal(ebpf_policy_run(&policy, 3, NULL), 7);
	assert_int_equal(on_alternate_stack(65536, big), 7);
	assert_int_equal(policy.env.helper_errors, 0);
	assert_int_equal(on_alternate_stack(16384, big + (512u << 10)), 0);
	assert_int_equal(policy.env.helper_errors, 1);
	on_stack[0] = 0;
	ebpf_stack = (struct ebpf_stack_range){ 0, 0 }; /* as in a thread that sets it up first */
	assert_int_equal(on_alternate_stack(16384, on_stack + 8192), 0);
	assert_int_equal(policy.env.helper_errors, 2);
	assert_int_equal(ebpf_policy_run(&policy, 3, NULL), 7);
	free(big);
}

static void what_is_known_is_not_asked_again(void **state)
{
	struct ebpf_stack_range before;

	make_policy();
	ebpf_policy_run(&policy, 3, NULL);
	before = ebpf_stack;
	assert_true(before.bytes > 0);
	ebpf_policy_run(&policy, 3, NULL);
	assert_memory_equal(&before, &ebpf_stack, sizeof(before));
}

static int setup(void **state)
{
	test_env_init(&t);
	t.env.helpers[EBPF_SLOT_bpf_loop] = loop;
	pool_init(&pool, 1u << 16);
	return 0;
}

static int teardown(void **state)
{
	pool_finish(&pool);
	test_env_finish(&t);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_deepest_program_needs_less_than_is_asked_for),
		cmocka_unit_test(enough_on_an_ordinary_thread),
		cmocka_unit_test(not_near_the_end_of_a_stack),
		cmocka_unit_test(alternate_stacks_have_their_own_end),
		cmocka_unit_test(what_is_known_is_not_asked_again),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
