/* Asynchronous copies, and the mbarriers in shared memory that count them. A copy completes
 * immediately, which the memory model allows. */
#include <string.h>

#include "soft/server/exec/access_check.h"
#include "soft/server/exec/handlers.h"
#include "soft/server/exec/warp_run.h"

/* a: destination in shared memory, b: source in global memory; n: bytes; c: bytes to read with
 * ASYNC_SIZE, the rest is zero; r: predicate with ASYNC_IGNORE, if set nothing is read. */
int exec_op_copy_async(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	uint32_t ignored = o->flags & ASYNC_IGNORE ? w->preds[o->r] ^ (o->r_not ? ~0u : 0) : 0;

	exec_each_lane (m, lane) {
		uint64_t to = exec_lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm;
		uint64_t from = exec_lane_get(w, o->b, true, lane);
		uint32_t size = o->flags & ASYNC_SIZE ? REF(const uint32_t, w, o->c)[lane] : o->n;
		uint8_t *d = exec_lane_pointer(w, o, SP_SHARED, lane, to, o->n, true), bytes[16];
		const uint8_t *s;

		if (!d) {
			return STEP_FAULT;
		}
		size = exec_lane_in(ignored, lane) ? 0 : MIN(size, (uint32_t)o->n);
		memset(bytes, 0, sizeof(bytes));
		if (size) {
			s = exec_lane_pointer(w, o, SP_GLOBAL, lane, from, o->n, false);
			if (!s) {
				return STEP_FAULT;
			}
			memcpy(bytes, s, size);
		}
		memcpy(d, bytes, o->n);
	}
	return STEP_NEXT;
}

/* Layout of an mbarrier's 64 bits: pending arrivals, arrivals per phase, pending bytes (temporarily
 * negative), and the phase. Opaque to programs. */
#define MBAR_COUNT_MAX 0xfffffu
#define MBAR_EXPECTED_SHIFT 20
#define MBAR_BYTES_SHIFT 40
#define MBAR_BYTES_BITS 21
#define MBAR_PHASE_SHIFT 63

struct exec_mbarrier {
	uint32_t pending, expected;
	int32_t bytes;
	bool phase;
};

static struct exec_mbarrier unpack(uint64_t v)
{
	uint32_t bytes = (uint32_t)(v >> MBAR_BYTES_SHIFT) & ((1u << MBAR_BYTES_BITS) - 1);

	return (struct exec_mbarrier){
		.pending = (uint32_t)v & MBAR_COUNT_MAX,
		.expected = (uint32_t)(v >> MBAR_EXPECTED_SHIFT) & MBAR_COUNT_MAX,
		.bytes = (int32_t)(bytes << (32 - MBAR_BYTES_BITS)) >> (32 - MBAR_BYTES_BITS),
		.phase = v >> MBAR_PHASE_SHIFT,
	};
}

static uint64_t pack(const struct exec_mbarrier *b)
{
	uint64_t bytes = (uint32_t)b->bytes & ((1u << MBAR_BYTES_BITS) - 1);

	return (uint64_t)b->pending | (uint64_t)b->expected << MBAR_EXPECTED_SHIFT |
	       bytes << MBAR_BYTES_SHIFT | (uint64_t)b->phase << MBAR_PHASE_SHIFT;
}

/* The last arrival opens the barrier and begins the next phase. */
static void settle(struct exec_mbarrier *b)
{
	if (b->pending == 0 && b->bytes == 0) {
		b->phase = !b->phase;
		b->pending = b->expected;
	}
}

/* Returns false if more threads arrive than expected, or too many bytes are announced. */
static bool change(struct exec_mbarrier *b, unsigned what, uint32_t n)
{
	int32_t limit = (1 << (MBAR_BYTES_BITS - 1)) - 1;

	switch (what) {
	case MBAR_INIT:
		*b = (struct exec_mbarrier){ .pending = n, .expected = n };
		return n >= 1 && n <= MBAR_COUNT_MAX;
	case MBAR_INVAL:
		*b = (struct exec_mbarrier){ 0 };
		return true;
	case MBAR_EXPECT:
	case MBAR_COMPLETE:
		if (n > (uint32_t)limit) {
			return false;
		}
		b->bytes += what == MBAR_EXPECT ? (int32_t)n : -(int32_t)n;
		if (what == MBAR_COMPLETE) {
			settle(b);
		}
		return b->bytes <= limit && b->bytes >= -limit;
	case MBAR_ARRIVE_EXPECT:
	case MBAR_DROP_EXPECT:
		if (!change(b, MBAR_EXPECT, n)) {
			return false;
		}
		return change(b, what == MBAR_DROP_EXPECT ? MBAR_DROP : MBAR_ARRIVE, 1);
	case MBAR_DROP:
		if (n > b->expected) {
			return false;
		}
		b->expected -= n;
		FALLTHROUGH;
	default:
		if (n > b->pending) {
			return false;
		}
		b->pending -= n;
		settle(b);
		return true;
	}
}

/* sub: MBAR_*; a: address; b: count or bytes, else 1; d: the previous state, unless n is 0. */
int exec_op_mbarrier(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		uint64_t at = exec_lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm,
			 before;
		uint32_t n = o->wide & WIDE_B ? REF(const uint32_t, w, o->b)[lane] : 1;
		uint8_t *p = exec_lane_pointer(w, o, o->space, lane, at, 8, true);
		struct exec_mbarrier b;

		if (!p) {
			return STEP_FAULT;
		}
		memcpy(&before, p, sizeof(before));
		b = unpack(before);
		if (!change(&b, o->sub, n)) {
			return exec_fault_set(w, o, EXEC_FAULT_INSN, lane, at,
					      "more arrives at an mbarrier than it can count");
		}
		if (b.phase != unpack(before).phase) {
			exec_check_barrier(w->block);
		}
		if (o->n) {
			REF(uint64_t, w, o->d)[lane] = before;
		}
		before = pack(&b);
		memcpy(p, &before, sizeof(before));
	}
	return STEP_NEXT;
}

/* p: whether the phase of state b, or with MBAR_PARITY the phase of that parity, has completed. If
 * not, the other lanes of the warp get a turn. */
int exec_op_mbarrier_test(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	uint32_t ended = 0;

	exec_each_lane (m, lane) {
		uint64_t at = exec_lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm, v;
		const uint8_t *p = exec_lane_pointer(w, o, o->space, lane, at, 8, false);
		bool phase;

		if (!p) {
			return STEP_FAULT;
		}
		memcpy(&v, p, sizeof(v));
		phase = o->sub == MBAR_PARITY
				? REF(const uint32_t, w, o->b)[lane] & 1
				: REF(const uint64_t, w, o->b)[lane] >> MBAR_PHASE_SHIFT;
		ended |= (uint32_t)((v >> MBAR_PHASE_SHIFT) != phase) << lane;
	}
	if (o->p != EXEC_NO_PRED) {
		exec_pred_set(w, o->p, m, ended);
	}
	return ended == m ? STEP_NEXT : exec_yield(w);
}

/* d = arrivals that were pending in state a. */
int exec_op_mbarrier_pending(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		REF(uint32_t, w, o->d)
		[lane] = unpack(REF(const uint64_t, w, o->a)[lane]).pending;
	}
	return STEP_NEXT;
}
