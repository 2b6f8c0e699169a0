/* A thousand programs at once: all are served, the one too many is told why, and idle ones are
 * woken by their doorbells. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "raw.h"

enum { PROGRAMS = 8 };

static int *go; /* [atomic] in shared memory: the programs compute until it is 0 */

static int setup(void **state)
{
	go = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return go == MAP_FAILED ? -1 : rig_begin_small(state);
}

/* Adds numbers, again and again, and checks each result. */
static void adder_program(void *arg)
{
	enum { N = 64 };
	uint32_t a[N], b[N], c[N];
	CUdeviceptr da, db, dc;
	int n = N, rounds = 0;
	void *params[] = { &da, &db, &dc, &n };
	CUfunction add;

	rig_context();
	add = rig_function("add");
	CU(cuMemAlloc_v2(&da, sizeof(a)));
	CU(cuMemAlloc_v2(&db, sizeof(b)));
	CU(cuMemAlloc_v2(&dc, sizeof(c)));
	while (load_acquire(go) || rounds < 3) {
		for (int i = 0; i < N; i++) {
			a[i] = (uint32_t)i;
			b[i] = (uint32_t)(rounds + *(int *)arg);
		}
		CU(cuMemcpyHtoD_v2(da, a, sizeof(a)));
		CU(cuMemcpyHtoD_v2(db, b, sizeof(b)));
		rig_launch(add, 1, N, NULL, params);
		CU(cuMemcpyDtoH_v2(c, dc, sizeof(c)));
		for (int i = 0; i < N; i++) {
			CHECK(c[i] == a[i] + b[i]);
		}
		rounds++;
	}
}

static void one_too_many_program(void *arg)
{
	CHECK(dup2(*(int *)arg, STDERR_FILENO) == STDERR_FILENO);
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuInit(0));
}

/* Returns what the program that finds no place writes to standard error. */
static void refused_text(char *ret, size_t room)
{
	int ends[2];
	ssize_t n;

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(rig_run(one_too_many_program, &ends[1]), 0);
	close(ends[1]);
	n = read(ends[0], ret, room - 1);
	ret[n > 0 ? n : 0] = 0;
	close(ends[0]);
}

/* Puts a record as the client library does: rings only if asked to. */
static void put(struct raw *c, uint64_t address)
{
	struct soft_record_set r = { .r = { .op = SOFT_OP_SET, .stream = 1 },
				     .dst = address,
				     .width = 16,
				     .height = 1,
				     .value = 7,
				     .unit = 4 };
	uint64_t one = 1;

	r.r.bytes = sizeof(r);
	memcpy(c->shared->ring + c->head % SOFT_RING_BYTES, &r, sizeof(r));
	c->head += (uint32_t)sizeof(r);
	store_seqcst(&c->shared->head, c->head);
	fence_seqcst();
	if (load_relaxed(&c->shared->asleep) && xchg_acqrel(&c->shared->asleep, 0u)) {
		assert_int_equal(write(c->bell, &one, sizeof(one)), sizeof(one));
	}
}

static void open_with_stream(struct raw *c, uint64_t *ret_address)
{
	raw_open(c, 1);
	*ret_address = raw_must(c, (struct soft_request){ .op = SOFT_REQ_ALLOC, .value = 4096 });
	raw_make_stream(c, 0, 1);
}

static void free_place_program(void *unused)
{
	(void)unused;
	rig_context();
}

static void a_thousand_programs_are_served(void **state)
{
	const unsigned n = SOFT_MAX_CLIENTS - PROGRAMS;
	struct raw *c = calloc(n, sizeof(*c));
	uint64_t *address = calloc(n, sizeof(*address));
	struct soft_stats before = rig_stats_idle();
	int numbers[PROGRAMS];
	pid_t pids[PROGRAMS];
	char text[512], limit[64];

	(void)state;
	assert_true(c && address && SOFT_MAX_CLIENTS >= 1024);
	store_release(go, 1);
	for (int i = 0; i < PROGRAMS; i++) {
		numbers[i] = i;
		pids[i] = rig_spawn(adder_program, &numbers[i]);
	}
	eventually(rig_stats().contexts == PROGRAMS);
	for (unsigned i = 0; i < n; i++) {
		open_with_stream(&c[i], &address[i]);
	}
	refused_text(text, sizeof(text));
	snprintf(limit, sizeof(limit), "serves %u programs already", SOFT_MAX_CLIENTS);
	if (!strstr(text, limit) || !strstr(text, "GBPF_SOFTGPU_SOCKET")) {
		fail_msg("message of the program that is refused: '%s'", text);
	}
	for (uint32_t round = 0; round < 3; round++) {
		for (unsigned i = 0; i < n; i++) {
			put(&c[i], address[i]);
		}
		for (unsigned i = 0; i < n; i++) {
			raw_await_word(&c[i].shared->streams[1].done, round + 2);
		}
	}
	raw_close(&c[n - 1]);
	eventually(rig_stats().contexts == SOFT_MAX_CLIENTS - 1);
	assert_int_equal(rig_run(free_place_program, NULL), 0);
	store_release(go, 0);
	for (int i = 0; i < PROGRAMS; i++) {
		assert_int_equal(rig_wait(pids[i]), 0);
	}
	for (unsigned i = 0; i < n - 1; i++) {
		assert_int_equal(c[i].shared->context_error[0], 0);
		raw_close(&c[i]);
	}
	assert_int_equal(rig_stats_idle().memory_used, before.memory_used);
	rig_check_descriptors(&before);
	free(c);
	free(address);
}

/* While a program keeps the server awake, clients that are quiet are asked to ring; each is heard.
 */
static void quiet_clients_are_heard(void **state)
{
	enum { N = 64 };
	struct raw *c = calloc(N, sizeof(*c));
	uint64_t address[N];
	int number = 5;
	pid_t busy;

	(void)state;
	assert_non_null(c);
	store_release(go, 1);
	busy = rig_spawn(adder_program, &number);
	for (unsigned i = 0; i < N; i++) {
		open_with_stream(&c[i], &address[i]);
	}
	for (uint32_t round = 0; round < 20; round++) {
		for (unsigned i = 0; i < N; i++) {
			raw_await_word(&c[i].shared->streams[1].done, round + 1);
		}
		eventually(load_acquire(&c[round % N].shared->asleep) == 1);
		for (unsigned i = 0; i < N; i++) {
			put(&c[(i + round) % N], address[(i + round) % N]);
		}
	}
	store_release(go, 0);
	assert_int_equal(rig_wait(busy), 0);
	for (unsigned i = 0; i < N; i++) {
		raw_await_word(&c[i].shared->streams[1].done, 21);
		raw_close(&c[i]);
	}
	free(c);
	rig_stats_idle();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thousand_programs_are_served),
		cmocka_unit_test(quiet_clients_are_heard),
	};

	return cmocka_run_group_tests_name("soft many", tests, setup, rig_end);
}
