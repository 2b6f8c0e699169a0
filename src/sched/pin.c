/* Slots of threads, and waiting for them. See membarrier(2): PRIVATE_EXPEDITED puts a full barrier
 * into every running thread of this process, which makes the plain stores of pin_enter visible
 * before we look at them. */
#include "sched/pin.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

static struct pin_slot slots[PIN_SLOTS];
static uint32_t slots_used; /* high-water mark */
static uint32_t shared_inside;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_made;

TLS_FAST struct pin_slot *pin_mine;
uint32_t pin_fenced;

static int membarrier_call(int cmd)
{
	return (int)syscall(SYS_membarrier, cmd, 0, 0);
}

static void thread_gone(void *slot)
{
	struct pin_slot *p = slot;

	pin_mine = NULL;
	store_release(&p->seq, (load_relaxed(&p->seq) + 1) &
				       ~(uint64_t)1); /* even, even after a cancellation */
	store_release(&p->used, 0u);
}

static void setup(void)
{
	int saved = errno;

	if (membarrier_call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) < 0) {
		store_relaxed(&pin_fenced, 1u);
	}
	key_made = pthread_key_create(&key, thread_gone) == 0;
	errno = saved;
}

void pin_setup(void)
{
	pthread_once(&once, setup);
}

static struct pin_slot *take_slot(void)
{
	for (uint32_t i = 0; i < PIN_SLOTS; i++) {
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

struct pin_slot *pin_enter_slow(void)
{
	struct pin_slot *p = key_made ? take_slot() : NULL;

	if (p && pthread_setspecific(key, p) != 0) {
		store_release(&p->used, 0u);
		p = NULL;
	}
	if (!p) {
		(void)add_acqrel(&shared_inside, 1u);
		fence_seqcst();
		return NULL;
	}
	pin_mine = p;
	fence_seqcst(); /* the slot is known before anything published is read */
	return pin_enter();
}

void pin_leave_shared(void)
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

void pin_wait_all(void)
{
	int saved = errno;
	uint32_t n;

	fence_seqcst();
	if (!load_relaxed(&pin_fenced) && membarrier_call(MEMBARRIER_CMD_PRIVATE_EXPEDITED) < 0) {
		/* Taken away after set-up (a seccomp filter): from now on fences, and until then
		 * time. */
		store_seqcst(&pin_fenced, 1u);
		clock_sleep_ns(20000000);
	}
	n = load_acquire(&slots_used);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t seen = load_acquire(&slots[i].seq);

		for (unsigned round = 0; (seen & 1) && load_acquire(&slots[i].seq) == seen;
		     round++) {
			pause_for(round);
		}
	}
	for (unsigned round = 0; load_acquire(&shared_inside); round++) {
		pause_for(round);
	}
	errno = saved;
}

void pin_after_fork_child(void)
{
	for (uint32_t i = 0; i < slots_used; i++) {
		if (&slots[i] != pin_mine) {
			slots[i].seq &= ~(uint64_t)1;
			slots[i].used = 0;
		}
	}
	shared_inside = 0;
}
