/* src/mem/ledger.c with its accesses to the account replaced (orders.h). LEDGER is its path, or
 * that of a copy with a planted fault. */
#include "orders.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "proto/account.h"

#undef load_seqcst
#undef load_acquire
#undef load_relaxed
#undef store_seqcst
#undef store_release
#undef store_relaxed
#undef add_acqrel
#undef sub_acqrel
#define load_seqcst(p) ((__typeof__(*(p)))orders_load(p, sizeof(*(p))))
#define load_acquire(p) load_seqcst(p)
#define load_relaxed(p) load_seqcst(p)
#define store_seqcst(p, v) orders_store(p, v, sizeof(*(p)), 1)
#define store_release(p, v) orders_store(p, v, sizeof(*(p)), 0)
#define store_relaxed(p, v) orders_store(p, v, sizeof(*(p)), 0)
#define add_acqrel(p, v) ((void)(p), (v)) /* what the driver has not answered is no part of it */
#define sub_acqrel(p, v) ((void)(p), (v))
#define __atomic_fetch_add(p, v, order) orders_add(p, v)
#define __atomic_fetch_sub(p, v, order) orders_add(p, -(v))
#define clock_now_ns() orders_now()
#undef PROTO_SHARE_UNIT
#define PROTO_SHARE_UNIT 1u /* words of states are bytes */
#define sched_yield() orders_yield()
#define lock_take(m) ((void)(m))
#define lock_release(m) ((void)(m))

#include LEDGER
