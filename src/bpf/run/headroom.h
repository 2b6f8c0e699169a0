/* Is there stack enough for a program? It runs on whatever stack its host has at the moment: a
 * small thread's, a signal handler's, a coroutine's. Where there is not, the hook's built-in
 * behaviour takes the place of the program. */
#ifndef GBPF_BPF_RUN_HEADROOM_H
#define GBPF_BPF_RUN_HEADROOM_H

#include <stdint.h>

#include "base/compiler.h"

/* Deepest use: eight frames of 512 bytes with saved registers, helpers between them, the helpers'
 * own; measured in tests/unit/bpf_run/test_headroom.c. */
#define EBPF_STACK_NEED 16384u

/* Where this thread may call from without looking again: a piece of a stack that it has been on,
 * less the need. */
struct ebpf_stack_range {
	uintptr_t low, bytes;
};
extern TLS_FAST struct ebpf_stack_range ebpf_stack;

/* Looks at the stack that the thread is on now. No locks, no allocation; fit for signal handlers.
 */
int ebpf_headroom_slow(uintptr_t sp);

/* Whether all pages from low to high can be read, as those of one stack can. */
int ebpf_readable(uintptr_t low, uintptr_t high);

static ALWAYS_INLINE int ebpf_headroom(void)
{
	uintptr_t sp = (uintptr_t)__builtin_frame_address(0);

	return likely(sp - ebpf_stack.low < ebpf_stack.bytes) || ebpf_headroom_slow(sp);
}

#endif
