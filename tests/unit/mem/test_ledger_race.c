/* The ledger between processes with threads: the limit holds at every moment, of the last bytes
 * each is granted once, and after kills the account has what the survivors hold. No order can be
 * forced here; test_ledger_orders.c has all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../eventually.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/shm.h"
#include "mem/account_figures.h"
#include "mem/account_shares.h"
#include "mem/ledger.h"

#define PROCESSES 4u
#define THREADS 2u
#define ROW 1u

/* Shared by the test's processes, next to the account. */
struct shared {
	uint32_t failed; /* line of the first failed check; 0: none */
	uint32_t stop;
	/* Added after a charge and taken off before its release: never more than is charged. */
	uint64_t held;
	uint64_t operations[PROCESSES];
	uint64_t left[PROCESSES]; /* charged when the process stopped */
	uint32_t arrived, meetings;
	uint32_t grants; /* of this round */
};

static struct shared *sh;
static struct proto_account *page;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		uint32_t check_none = 0;                                                           \
		if (!(condition)) {                                                                \
			(void)cas_acqrel(&sh->failed, &check_none, (uint32_t)__LINE__);            \
		}                                                                                  \
	} while (0)

static uint64_t random_next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* A thousand times slower: no wait ends by time, since a process may stand for long on a busy
 * machine. */
static uint64_t slow_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static int set_up(void **state)
{
	memset(page, 0, PROTO_ACCOUNT_BYTES);
	memset(sh, 0, sizeof(*sh));
	page->magic = PROTO_ACCOUNT_MAGIC;
	page->abi = PROTO_ABI;
	page->lines = PROCESSES;
	return 0;
}

/* Runs the function in a process of its own, which exits with 0 if no check failed. */
static pid_t start(void (*run)(uint32_t line), uint32_t line)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(300); /* a process that hangs ends the test */
		run(line);
		_exit(load_acquire(&sh->failed) != 0);
	}
	return pid;
}

static void expect_success(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(load_acquire(&sh->failed), 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void expect_no_charge_pending(void)
{
	for (unsigned i = 0; i < PROCESSES; i++) {
		assert_int_equal(page->line[ROW][i].wanted, 0);
	}
}

/* ---- random charges and releases ---- */

struct worker {
	struct mem_ledger *l;
	uint64_t seed, operations; /* operations 0: until sh->stop */
	uint64_t own;		   /* charged and not released */
	bool counts;		   /* in sh->held */
};

static void one_operation(struct worker *w, uint64_t limit)
{
	uint64_t bytes = 1 + random_next(&w->seed) % (limit / 4);
	struct shared *s = sh;

	if (random_next(&w->seed) % 3 && mem_ledger_charge(w->l, ROW, bytes) == 0) {
		w->own += bytes;
		if (w->counts) {
			CHECK(__atomic_add_fetch(&s->held, bytes, __ATOMIC_SEQ_CST) <= limit);
		}
		CHECK(mem_ledger_own(w->l, ROW) >= w->own);
	} else if (w->own) {
		bytes = 1 + random_next(&w->seed) % w->own;
		if (w->counts) {
			__atomic_sub_fetch(&s->held, bytes, __ATOMIC_SEQ_CST);
		}
		w->own -= bytes;
		mem_ledger_release(w->l, ROW, bytes);
	}
	add_relaxed(&s->operations[w->l->line], 1);
	sched_yield(); /* or lower lines leave no gap for higher ones */
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t limit = page->limit[ROW];

	for (uint64_t i = 0; !load_acquire(&sh->failed); i++) {
		if (w->operations ? i == w->operations : load_acquire(&sh->stop)) {
			break;
		}
		one_operation(w, limit);
	}
	return NULL;
}

static void work_in_threads(uint32_t line, uint64_t operations, bool counts)
{
	struct worker w[THREADS];
	pthread_t thread[THREADS];
	struct mem_ledger l;
	uint64_t own = 0;

	CHECK(mem_ledger_init(&l, page, line) == 0);
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){ .l = &l,
					.seed = 977 * (line + 1) + i,
					.operations = operations,
					.counts = counts };
		CHECK(pthread_create(&thread[i], NULL, work, &w[i]) == 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		own += w[i].own;
	}
	store_release(&sh->left[line], own);
	CHECK(own == mem_ledger_own(&l, ROW));
}

static void work_for_a_number(uint32_t line)
{
	work_in_threads(line, 15000, true);
}

static void work_until_stopped(uint32_t line)
{
	work_in_threads(line, 0, true);
}

static void work_until_killed(uint32_t line)
{
	work_in_threads(line, 0, false);
}

static void the_limit_holds_at_every_moment(void **state)
{
	pid_t pid[PROCESSES];
	uint64_t left = 0;

	page->limit[ROW] = 1000;
	for (uint32_t i = 0; i < PROCESSES; i++) {
		pid[i] = start(work_for_a_number, i);
	}
	for (bool busy = true; busy && !load_acquire(&sh->failed);) { /* the observer */
		CHECK(__atomic_load_n(&sh->held, __ATOMIC_SEQ_CST) <= 1000);
		busy = false;
		for (unsigned i = 0; i < PROCESSES; i++) {
			busy = busy || load_relaxed(&sh->operations[i]) < 15000 * THREADS;
		}
		sched_yield();
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		expect_success(pid[i]);
		assert_int_equal(mem_line_used(&page->line[ROW][i]), sh->left[i]);
		left += sh->left[i];
	}
	assert_int_equal(mem_account_used(page, ROW), left);
	assert_int_equal(sh->held, left);
	expect_no_charge_pending();
}

/* ---- the last bytes ---- */

#define RACERS 4u
#define ROUNDS 10000u

/* Waits until all racers are here; the last one to arrive calls the function before they go on.
 * Bounded by the alarm. */
static void meet(void (*last)(uint32_t units), uint32_t units)
{
	uint32_t meeting = load_acquire(&sh->meetings);

	if (__atomic_add_fetch(&sh->arrived, 1, __ATOMIC_SEQ_CST) == RACERS) {
		last(units);
		store_release(&sh->arrived, 0u);
		store_release(&sh->meetings, meeting + 1);
	}
	while (load_acquire(&sh->meetings) == meeting && !load_acquire(&sh->failed)) {
		sched_yield();
	}
}

static void begin_round(uint32_t units)
{
	CHECK(mem_account_used(page, ROW) == 0);
	page->limit[ROW] = units * 100 + 99;
	sh->grants = 0;
}

static void end_round(uint32_t units)
{
	CHECK(load_acquire(&sh->grants) == units);
	CHECK(mem_account_used(page, ROW) == units * 100);
}

static void ignore(uint32_t units)
{
}

/* In turn there are 1, 2 and 3 units for 4 processes. */
static void race(uint32_t line)
{
	struct mem_ledger l;

	CHECK(mem_ledger_init(&l, page, line) == 0);
	for (uint32_t round = 0; round < ROUNDS && !load_acquire(&sh->failed); round++) {
		uint32_t units = 1 + round % 3;
		int err;

		meet(begin_round, units);
		err = mem_ledger_charge(&l, ROW, 100);
		CHECK(err == 0 || err == -ENOMEM);
		if (!err) {
			__atomic_add_fetch(&sh->grants, 1, __ATOMIC_SEQ_CST);
		}
		meet(end_round, units);
		if (!err) {
			mem_ledger_release(&l, ROW, 100);
		}
		meet(ignore, 0);
	}
}

static void the_last_bytes_are_granted_exactly_once(void **state)
{
	pid_t pid[RACERS];

	for (uint32_t i = 0; i < RACERS; i++) {
		pid[i] = start(race, i);
	}
	for (uint32_t i = 0; i < RACERS; i++) {
		expect_success(pid[i]);
	}
	assert_int_equal(sh->meetings, 3 * ROUNDS);
	assert_int_equal(mem_account_used(page, ROW), 0);
	expect_no_charge_pending();
}

/* ---- kills ---- */

/* What gbpfd does once a process has exited (daemon/vgpu/vgpu.c, clear_line). */
static void clear_line(uint32_t line)
{
	struct proto_account_line *dead = &page->line[ROW][line];

	store_seqcst(&dead->released, load_seqcst(&dead->charged));
	store_seqcst(&dead->wanted, (uint64_t)0);
	store_seqcst(&dead->turn, 0u);
}

static void kills_leave_what_survivors_hold(void **state)
{
	uint64_t seed = 0x5eed, left = 0;
	pid_t pid[PROCESSES];
	unsigned pending = 0;

	page->limit[ROW] = 1000;
	for (uint32_t i = 0; i < PROCESSES; i++) {
		pid[i] = start(i < 2 ? work_until_stopped : work_until_killed, i);
	}
	for (unsigned kills = 0; kills < 100; kills++) {
		uint32_t line = 2 + kills % (PROCESSES - 2);
		uint64_t at = load_relaxed(&sh->operations[line]) + random_next(&seed) % 20;
		int status;

		eventually(load_relaxed(&sh->operations[line]) >= at || load_acquire(&sh->failed));
		assert_int_equal(kill(pid[line], SIGKILL), 0);
		assert_int_equal(waitpid(pid[line], &status, 0), pid[line]);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		pending += page->line[ROW][line].wanted != 0;
		clear_line(line);
		pid[line] = start(work_until_killed, line);
	}
	for (unsigned i = 2; i < PROCESSES; i++) {
		assert_int_equal(kill(pid[i], SIGKILL), 0);
		assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
		clear_line(i);
	}
	store_release(&sh->stop, 1u);
	for (unsigned i = 0; i < 2; i++) {
		expect_success(pid[i]);
		assert_int_equal(mem_line_used(&page->line[ROW][i]), sh->left[i]);
		left += sh->left[i];
	}
	print_message("%u of 100 processes died within a charge\n", pending);
	assert_int_equal(mem_account_used(page, ROW), left);
	assert_int_equal(sh->held, left);
	expect_no_charge_pending();
}

/* A process that changes the number of lines all the time, on a page with nothing behind it. */
static void *change_lines(void *arg)
{
	struct proto_account *a = arg;

	while (!load_acquire(&sh->stop)) {
		store_relaxed(&a->lines, 1u);
		store_relaxed(&a->lines, UINT32_MAX);
		store_relaxed(&a->shares, UINT32_MAX);
		store_relaxed(&a->shares, 0u);
	}
	return NULL;
}

static void counts_that_change_are_read_once(void **state)
{
	size_t bytes = ROUND_UP(sizeof(struct proto_account), (size_t)sysconf(_SC_PAGESIZE));
	struct proto_account *a =
		mmap(NULL, bytes + (1u << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int32_t pid;
	pthread_t t;

	(void)state;
	assert_true(a != MAP_FAILED && mprotect(a, bytes, PROT_READ | PROT_WRITE) == 0);
	store_release(&sh->stop, 0u);
	assert_int_equal(pthread_create(&t, NULL, change_lines, a), 0);
	while (!load_acquire(&a->shares)) { /* it has begun */
	}
	for (unsigned i = 0; i < 100000; i++) {
		assert_int_equal(mem_account_claimed(a, 0), 0);
		assert_true(mem_shares_of(a) <= PROTO_ACCOUNT_SHARES);
		(void)mem_account_line(a, 0, PROTO_ACCOUNT_LINES, &pid);
		assert_int_equal(pid, 0);
	}
	store_release(&sh->stop, 1u);
	pthread_join(t, NULL);
	munmap(a, bytes + (1u << 20));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_limit_holds_at_every_moment, set_up),
		cmocka_unit_test_setup(the_last_bytes_are_granted_exactly_once, set_up),
		cmocka_unit_test_setup(kills_leave_what_survivors_hold, set_up),
		cmocka_unit_test_setup(counts_that_change_are_read_once, set_up),
	};
	int fd = shm_create("account", PROTO_ACCOUNT_BYTES, SHM_NOEXEC);

	page = shm_map(fd, PROTO_ACCOUNT_BYTES, 1);
	fd = shm_create("shared", sizeof(*sh), SHM_NOEXEC);
	sh = shm_map(fd, sizeof(*sh), 1);
	clock_set_source(slow_clock);
	return page && sh ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
