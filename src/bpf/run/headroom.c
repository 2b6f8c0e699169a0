/* Measures the remaining stack without libc, whose function takes locks, allocates memory and does
 * not know coroutines: pages below the stack pointer belong to the stack if the kernel can read
 * them. For an alternate signal stack the kernel reports the end, because readable memory below it
 * may belong to another object. */
#include "bpf/run/headroom.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"

#define PAGE 4096u
#define STACK_MARGIN (64u << 10) /* margin for calls from deeper frames */
#define BELOW_MAX (64u << 20)	 /* maximum distance searched below the stack pointer */
#define ABOVE_MAX (256u << 10)	 /* maximum distance searched above it */

TLS_FAST struct ebpf_stack_range ebpf_stack;

/* Returns whether the kernel can read the page. The system call reads the signal set before it
 * rejects the invalid `how`. */
static int readable(uintptr_t page)
{
	return syscall(SYS_rt_sigprocmask, -1, page, NULL, 8) < 0 && errno == EINVAL;
}

/* Return the lowest page that is readable without a gap from sp down to limit, and the highest from
 * sp up to limit. */
static uintptr_t reach_down(uintptr_t sp, uintptr_t limit)
{
	uintptr_t page = sp & ~(uintptr_t)(PAGE - 1);

	while (page > limit && page > PAGE && readable(page - PAGE)) {
		page -= PAGE;
	}
	return page;
}

static uintptr_t reach_up(uintptr_t sp, uintptr_t limit)
{
	uintptr_t page = sp & ~(uintptr_t)(PAGE - 1);

	while (page < limit && readable(page + PAGE)) {
		page += PAGE;
	}
	return page + PAGE;
}

int ebpf_readable(uintptr_t low, uintptr_t high)
{
	int saved = errno, all = high - low <= BELOW_MAX;

	for (uintptr_t page = low & ~(uintptr_t)(PAGE - 1); all && page <= high; page += PAGE) {
		all = readable(page);
	}
	errno = saved;
	return all;
}

/* Excludes an alternate signal stack from the range. It may be an array within the thread's stack,
 * and a call from it must not count as one from the thread's range. */
static void leave_out(struct ebpf_stack_range *r, const stack_t *alt, uintptr_t sp)
{
	uintptr_t begin = (uintptr_t)alt->ss_sp, end = begin + alt->ss_size;

	if (alt->ss_flags & SS_DISABLE || end <= r->low || begin >= r->low + r->bytes) {
		return;
	}
	if (sp >= end) {
		r->bytes -= end - r->low;
		r->low = end;
	} else {
		r->bytes = begin > r->low ? begin - r->low : 0;
	}
}

int ebpf_headroom_slow(uintptr_t sp)
{
	struct ebpf_stack_range r = { 0, 0 };
	int saved = errno, enough;
	uintptr_t low;
	stack_t alt;

	if (sigaltstack(NULL, &alt) < 0) {
		alt = (stack_t){ .ss_flags = SS_DISABLE };
	}
	if (alt.ss_flags & SS_ONSTACK) {
		return sp - (uintptr_t)alt.ss_sp >= EBPF_STACK_NEED;
	}
	low = reach_down(sp, sp - EBPF_STACK_NEED - STACK_MARGIN);
	enough = sp - low >= EBPF_STACK_NEED;
	if (enough) {
		r.low = low + EBPF_STACK_NEED;
		r.bytes = reach_up(sp, sp + ABOVE_MAX) - r.low;
		leave_out(&r, &alt, sp);
		ebpf_stack.bytes = 0; /* a signal handler that runs now measures for itself */
		compiler_barrier();
		ebpf_stack.low = r.low;
		compiler_barrier();
		ebpf_stack.bytes = r.bytes;
	}
	errno = saved;
	return enough;
}
