/* Finding out how much of a stack is left without asking libc, whose answer takes locks and memory
 * and knows nothing of coroutines: the pages below the stack pointer are there if the kernel can
 * read them. On an alternate signal stack the kernel says where it ends, since what lies below it
 * may well be readable, but is somebody else's. */
#include "bpf/run/headroom.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"

#define PAGE 4096u
#define STACK_MARGIN                                                                               \
	(64u << 10) /* room for calls from deeper frames, so that each need not look again         \
		     */
#define BELOW_MAX (64u << 20)  /* of a stack that is walked */
#define ABOVE_MAX (256u << 10) /* likewise for those above */

TLS_FAST struct ebpf_stack_range ebpf_stack;

/* The kernel reads the set before it finds that there is no such `how`. */
static int readable(uintptr_t page)
{
	return syscall(SYS_rt_sigprocmask, -1, page, NULL, 8) < 0 && errno == EINVAL;
}

/* Lowest page of those that are readable without a gap from sp down to limit, and highest up to
 * limit. */
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

/* An alternate stack may lie inside the thread's own one (an array in a function); nobody may call
 * from there unseen. */
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
		ebpf_stack.bytes = 0; /* a handler that comes in between looks for itself */
		compiler_barrier();
		ebpf_stack.low = r.low;
		compiler_barrier();
		ebpf_stack.bytes = r.bytes;
	}
	errno = saved;
	return enough;
}
