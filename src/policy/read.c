/* Reader slots of threads, and waiting for them. membarrier(2) with PRIVATE_EXPEDITED executes a
 * full barrier on every running thread of this process, which makes the plain stores of
 * policy_read_enter visible before they are read here.
 *
 * A section left by longjmp leaves its slot odd. The thread's next entry detects that by the stack
 * pointer: the frames of a handler lie below those that it interrupts, those of a next call do not.
 * Until then a waiting thread asks /proc for the stack pointer of the reader, which is available
 * while that thread sleeps. */
#include "policy/read.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "bpf/run/headroom.h"

static struct policy_reader slots[POLICY_READERS];
static uint32_t slots_used; /* high-water mark of slots[] */
static uint32_t shared_inside;
static uint32_t shared_working;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_made;

TLS_FAST struct policy_reader *policy_reader_self;
uint32_t policy_read_fenced;
uint32_t policy_work_closed;

#define WORK_LOOK_NS 10000000u
#define PATIENCE 160u /* in 16 rounds of 0.2 ms: half a second for all slots together */

/* The slot of a nested section: its stores are never read. */
static struct policy_reader nested;

static int membarrier_call(int cmd)
{
	return (int)syscall(SYS_membarrier, cmd, 0, 0);
}

static void thread_gone(void *slot)
{
	struct policy_reader *p = slot;

	policy_reader_self = NULL;
	store_release(&p->gate, (const void *)NULL);
	store_release(&p->working, 0u);
	store_release(&p->seq, (load_relaxed(&p->seq) + 1) &
				       ~(uint64_t)1); /* even, even after a cancellation */
	store_release(&p->used, 0u);
}

static void setup(void)
{
	int saved = errno;

	if (membarrier_call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) < 0) {
		store_relaxed(&policy_read_fenced, 1u);
	}
	key_made = pthread_key_create(&key, thread_gone) == 0;
	errno = saved;
}

void policy_read_setup(void)
{
	pthread_once(&once, setup);
}

static struct policy_reader *take_slot(void)
{
	for (uint32_t i = 0; i < POLICY_READERS; i++) {
		uint32_t expected = 0, high = load_relaxed(&slots_used);

		if (load_relaxed(&slots[i].used) || !cas_acqrel(&slots[i].used, &expected, 1u)) {
			continue;
		}
		while (high < i + 1 && !cas_acqrel(&slots_used, &high, i + 1)) {
		}
		return &slots[i];
	}
	return NULL;
}

/* Updates the recorded alternate stack, and returns whether sp is on it. The record outlives
 * SS_AUTODISARM, with which the kernel hides the stack while a handler runs on it. */
static bool on_alternate_stack(struct policy_reader *p, uintptr_t sp)
{
	stack_t alt;

	if (sigaltstack(NULL, &alt) == 0 && !(alt.ss_flags & SS_DISABLE)) {
		store_relaxed(&p->alt, (uintptr_t)alt.ss_sp);
		store_relaxed(&p->alt_end, (uintptr_t)alt.ss_sp + alt.ss_size);
	}
	return sp >= load_relaxed(&p->alt) && sp < load_relaxed(&p->alt_end);
}

/* sp is that of the caller: the thread's frames stay below it while it is inside. */
struct policy_reader *policy_read_enter_slow(uintptr_t sp)
{
	struct policy_reader *p = key_made ? take_slot() : NULL;

	if (p && pthread_setspecific(key, p) != 0) {
		store_release(&p->used, 0u);
		p = NULL;
	}
	if (!p) {
		(void)add_acqrel(&shared_inside, 1u);
		fence_seqcst();
		return NULL;
	}
	store_relaxed(&p->tid, (uint32_t)syscall(SYS_gettid));
	store_relaxed(&p->alt_end, (uintptr_t)0);
	(void)on_alternate_stack(p, 0);
	store_relaxed(&p->sp, sp);
	policy_reader_self = p;
	compiler_barrier(); /* a handler that sees seq odd must see sp, too */
	store_relaxed(&p->seq, load_relaxed(&p->seq) + 1);
	fence_seqcst(); /* Orders the slot before the reads of the section. Pairs with the fence in
			   barrier_all. */
	return p;
}

struct policy_reader *policy_read_reenter(struct policy_reader *p, uintptr_t sp)
{
	int saved = errno;
	bool alternate = on_alternate_stack(p, sp);

	errno = saved;
	/* On an alternate stack the addresses cannot be compared: assume that the outer section is
	 * still there. Its slot stays odd and protects both. */
	if (alternate || sp < load_relaxed(&p->sp)) {
		return &nested;
	}
	/* The section was left by longjmp: reuse it. Waiting threads see another value of seq. */
	store_relaxed(&p->sp, sp);
	compiler_barrier();
	store_release(&p->seq, load_relaxed(&p->seq) + 2);
	fence_seqcst();
	return p;
}

void policy_read_leave_shared(void)
{
	(void)sub_acqrel(&shared_inside, 1u);
}

static void pause_for(unsigned round)
{
	if (round < 64) {
		cpu_relax();
	} else {
		clock_sleep_ns(round < 256 ? 10000 : 200000);
	}
}

/* Returns the stack pointer of a sleeping thread from /proc/self/task/TID/syscall, 0 if it runs or
 * is not known. The line is "running", "number arguments... sp pc" in a system call, or "-1 sp pc"
 * if it sleeps otherwise. */
static uintptr_t sleeping_at(uint32_t tid)
{
	char path[64], line[256], *at = line;
	uintptr_t fields[9];
	ssize_t n = -1;
	int fd, k = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%u/syscall", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, line, sizeof(line) - 1);
		close(fd);
	}
	if (n <= 0) {
		return 0;
	}
	line[n] = 0;
	for (char *end; k < 9; k++, at = end) {
		fields[k] = (uintptr_t)strtoll(at, &end, 0);
		if (k >= 7) {
			fields[k] = (uintptr_t)strtoull(at, &end, 0);
		}
		if (end == at) {
			break;
		}
	}
	return k == 9 ? fields[7] : k == 3 ? (uintptr_t)strtoull(strchr(line, ' '), NULL, 0) : 0;
}

/* Returns whether the thread has certainly left its section although its slot is odd: it has
 * exited, or it sleeps above the frame in which it entered, on the same stack. It cannot reach what
 * the caller unpublished before. */
static bool torn_away(const struct policy_reader *p)
{
	uintptr_t entered = load_relaxed(&p->sp);
	uint32_t tid = load_relaxed(&p->tid);
	uintptr_t at;

	if (syscall(SYS_tgkill, getpid(), tid, 0) < 0 && errno == ESRCH) {
		return true; /* /proc may not be mounted */
	}
	at = sleeping_at(tid);
	if (at >= load_relaxed(&p->alt) && at < load_relaxed(&p->alt_end)) {
		return false; /* a handler sleeps there and may return to the section */
	}
	return at > entered && ebpf_readable(entered, at);
}

/* Returns false if nothing changed there before the patience ran out. Then the slot is not waited
 * for again until it changes. */
static bool wait_slot(struct policy_reader *p, unsigned *patience)
{
	uint64_t seen = load_acquire(&p->seq);

	for (unsigned round = 0; (seen & 1) && load_acquire(&p->seq) == seen; round++) {
		pause_for(round);
		if (round < 256 || round % 16 != 0) {
			continue; /* after about 2 ms, then every 3 ms */
		}
		if (torn_away(p)) {
			return true;
		}
		if (load_relaxed(&p->stuck) == seen || !*patience) {
			store_relaxed(&p->stuck, seen);
			return load_acquire(&p->seq) != seen;
		}
		--*patience;
	}
	return true;
}

/* Executes a full barrier on every running thread of the process. */
static void barrier_all(void)
{
	fence_seqcst();
	if (!load_relaxed(&policy_read_fenced) &&
	    membarrier_call(MEMBARRIER_CMD_PRIVATE_EXPEDITED) < 0) {
		/* A seccomp filter has forbidden it since: use fences from now on, and wait until
		 * the entries made without a fence are visible. */
		store_seqcst(&policy_read_fenced, 1u);
		clock_sleep_ns(20000000);
	}
}

bool policy_gate_synchronize(const void *gate, uint64_t patience_ns)
{
	uint64_t until = clock_now_ns() + patience_ns;
	int saved = errno;
	uint32_t n;

	barrier_all();
	errno = saved;
	n = load_acquire(&slots_used);
	for (uint32_t i = 0; i < n; i++) {
		while (&slots[i] != policy_reader_self && load_acquire(&slots[i].gate) == gate) {
			if (clock_now_ns() >= until) {
				return false;
			}
			cpu_relax();
		}
	}
	return true;
}

/* Waits until the sections are open. */
static void wait_open(void)
{
	while (load_acquire(&policy_work_closed)) {
		(void)futex_wait_shared(&policy_work_closed, 1, WORK_LOOK_NS);
	}
}

struct policy_reader *policy_work_enter_slow(void)
{
	policy_read_leave(policy_read_enter()); /* takes a slot, if there is one */
	if (policy_reader_self) {
		return policy_work_enter();
	}
	(void)add_seqcst(&shared_working, 1u);
	while (load_seqcst(&policy_work_closed)) {
		(void)sub_seqcst(&shared_working, 1u);
		wait_open();
		(void)add_seqcst(&shared_working, 1u);
	}
	return NULL;
}

void policy_work_leave_shared(void)
{
	(void)sub_acqrel(&shared_working, 1u);
}

/* A handler that interrupts a section goes on: closing waits for the outer one. */
void policy_work_wait(struct policy_reader *p)
{
	int saved = errno;

	while (load_relaxed(&p->working) == 1 && load_seqcst(&policy_work_closed)) {
		store_seqcst(&p->working, 0u);
		wait_open();
		store_seqcst(&p->working, 1u);
	}
	errno = saved;
}

static bool is_working(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (load_acquire(&slots[i].working)) {
			return true;
		}
	}
	return load_acquire(&shared_working) != 0;
}

bool policy_work_close(uint64_t patience_ns)
{
	uint64_t until = clock_now_ns() + patience_ns;
	int saved = errno;
	bool closed = true;

	if (policy_reader_self && load_relaxed(&policy_reader_self->working)) {
		return false;
	}
	store_seqcst(&policy_work_closed, 1u);
	barrier_all();
	for (unsigned round = 0; closed && is_working(load_acquire(&slots_used)); round++) {
		closed = clock_now_ns() < until;
		pause_for(round);
	}
	if (!closed) {
		policy_work_open();
	}
	errno = saved;
	return closed;
}

void policy_work_open(void)
{
	store_seqcst(&policy_work_closed, 0u);
	(void)futex_wake_shared(&policy_work_closed, INT_MAX);
}

bool policy_synchronize(void)
{
	unsigned patience = PATIENCE;
	bool all = true;
	int saved = errno;
	uint32_t n;

	barrier_all();
	n = load_acquire(&slots_used);
	for (uint32_t i = 0; i < n; i++) {
		all &= wait_slot(&slots[i], &patience);
	}
	for (unsigned round = 0; load_acquire(&shared_inside); round++) {
		pause_for(round);
		if (round >= 256 && round % 16 == 0 && !patience--) {
			all = false;
			break;
		}
	}
	errno = saved;
	return all;
}

void policy_read_after_fork(void)
{
	for (uint32_t i = 0; i < slots_used; i++) {
		if (&slots[i] != policy_reader_self) {
			slots[i].seq &= ~(uint64_t)1;
			slots[i].gate = NULL;
			slots[i].working = 0;
			slots[i].used = 0;
		}
	}
	if (policy_reader_self) {
		policy_reader_self->tid = (uint32_t)syscall(SYS_gettid);
	}
	shared_inside = 0;
	shared_working = 0;
	policy_work_closed = 0;
}
