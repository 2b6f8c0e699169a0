/* Atomics, named by what they order, so that callers do not spell out memory_order. */
#ifndef GBPF_BASE_ATOMIC_H
#define GBPF_BASE_ATOMIC_H

#define load_relaxed(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define load_seqcst(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define store_relaxed(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define store_seqcst(p, v) __atomic_store_n(p, v, __ATOMIC_SEQ_CST)
/* These return the value from before. */
#define add_relaxed(p, v) __atomic_fetch_add(p, v, __ATOMIC_RELAXED)
#define add_acqrel(p, v) __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL)
#define add_seqcst(p, v) __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST)
#define sub_relaxed(p, v) __atomic_fetch_sub(p, v, __ATOMIC_RELAXED)
#define sub_acqrel(p, v) __atomic_fetch_sub(p, v, __ATOMIC_ACQ_REL)
#define sub_seqcst(p, v) __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST)
#define or_relaxed(p, v) __atomic_fetch_or(p, v, __ATOMIC_RELAXED)
#define or_acqrel(p, v) __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL)
#define or_seqcst(p, v) __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST)
#define and_acqrel(p, v) __atomic_fetch_and(p, v, __ATOMIC_ACQ_REL)
#define and_seqcst(p, v) __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST)
#define xor_seqcst(p, v) __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST)
#define xchg_acqrel(p, v) __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL)
#define xchg_seqcst(p, v) __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)
/* Store v if *p is *expected, and return whether; else *expected is what *p is. */
#define cas_relaxed(p, expected, v)                                                                \
	__atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#define cas_acqrel(p, expected, v)                                                                 \
	__atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
#define cas_seqcst(p, expected, v)                                                                 \
	__atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define fence_seqcst() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define fence_acquire() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define fence_release() __atomic_thread_fence(__ATOMIC_RELEASE)
#define compiler_barrier() __atomic_signal_fence(__ATOMIC_SEQ_CST)
/* Adds to a word of 64 bits that only this thread and its signal handlers write. Releases, as
 * store_release does. A locked addition would wait for all earlier stores of the thread; a load and
 * a store would lose what a handler in between adds. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define add_by_owner(p, v)                                                                         \
	__asm__ volatile("addq %1, %0" : "+m"(*(p)) : "re"((uint64_t)(v)) : "cc", "memory")
#else
#define add_by_owner(p, v) ((void)__atomic_fetch_add(p, v, __ATOMIC_RELEASE))
#endif
#if defined(__x86_64__)
#define cpu_relax() __builtin_ia32_pause()
#else
#define cpu_relax() compiler_barrier()
#endif

#endif
