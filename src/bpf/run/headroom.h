/* Checks that the current stack has room for a program. A program runs on its host's stack, which
 * may be a small thread's, a signal handler's or a coroutine's. Without enough room the hook's
 * built-in behaviour replaces the program. */
#ifndef GBPF_BPF_RUN_HEADROOM_H
#define GBPF_BPF_RUN_HEADROOM_H

#include <stdint.h>

#include "base/compiler.h"

/* Maximum stack use: eight frames of 512 bytes with saved registers, and the helpers; measured in
 * tests/unit/bpf_run/test_headroom.c. */
#define EBPF_STACK_NEED 16384u

/* The range of stack addresses from which this thread may run a program without a new measurement:
 * a part of a known stack, less the need. */
struct ebpf_stack_range {
	uintptr_t low, bytes;
};
extern TLS_FAST struct ebpf_stack_range ebpf_stack;

/* Measures the current stack of the thread. Takes no lock and allocates nothing; async-signal-safe.
 */
int ebpf_headroom_slow(uintptr_t sp);

/* Returns whether all pages from low to high are readable, like those of one stack. */
int ebpf_readable(uintptr_t low, uintptr_t high);

static ALWAYS_INLINE int ebpf_headroom(void)
{
	uintptr_t sp = (uintptr_t)__builtin_frame_address(0);

	return likely(sp - ebpf_stack.low < ebpf_stack.bytes) || ebpf_headroom_slow(sp);
}

#endif
