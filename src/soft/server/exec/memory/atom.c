/* Atomic operations. In global memory they are host atomics, because other blocks run on other host
 * threads; shared memory belongs to one block, which one host thread runs. */
#include "soft/server/exec/memory/atom.h"

#include <math.h>
#include <string.h>

#include "base/atomic.h"
#include "soft/server/exec/handlers.h"
#include "soft/server/exec/op/number.h"

/* The hardware's f32 units for global memory flush subnormals; in shared memory the SM adds. */
static uint32_t add_f32(uint32_t x, uint32_t y, bool flush)
{
	float r;
	uint32_t u;

	if (flush) {
		x = x & 0x7f800000 ? x : x & 0x80000000;
		y = y & 0x7f800000 ? y : y & 0x80000000;
	}
	r = exec_num_float(x) + exec_num_float(y);
	u = r == r ? exec_num_float_bits(r) : 0x7fffffff;
	return !flush || u & 0x7f800000 ? u : u & 0x80000000;
}

static uint16_t half_value(const struct exec_op *o, uint16_t old, uint16_t a)
{
	enum exec_num_format f = o->type2 == ATOM_F16 ? NUM_F16 : NUM_BF16;
	double x = exec_num_read(f, old), y = exec_num_read(f, a);

	if (o->sub == ATOM_ADD) {
		return (uint16_t)exec_num_round(f, exec_num_add_odd(x, y), ROUND_RN, false);
	}
	if (x != x || y != y) {
		return x == x ? old : y == y ? a : (uint16_t)exec_num_shapes[f].nan;
	}
	if (x == y) { /* zeros of different sign */
		return o->sub == ATOM_MIN ? old | a : old & a;
	}
	return (x < y) == (o->sub == ATOM_MIN) ? old : a;
}

static uint32_t half_values(const struct exec_op *o, uint32_t old, uint32_t a)
{
	uint32_t low = half_value(o, (uint16_t)old, (uint16_t)a);

	return o->size == 2
		       ? low
		       : low | (uint32_t)half_value(o, (uint16_t)(old >> 16), (uint16_t)(a >> 16))
					 << 16;
}

static uint64_t add(const struct exec_op *o, uint64_t old, uint64_t a, bool global)
{
	if (o->type == TY_F32) {
		return add_f32((uint32_t)old, (uint32_t)a, global);
	}
	return o->type == TY_F64 ? exec_num_bits(exec_num_double(old) + exec_num_double(a))
				 : old + a;
}

static bool is_less(enum exec_type type, uint64_t x, uint64_t y)
{
	switch (type) {
	case TY_S32:
		return (int32_t)x < (int32_t)y;
	case TY_S64:
		return (int64_t)x < (int64_t)y;
	case TY_U32:
		return (uint32_t)x < (uint32_t)y;
	default:
		return x < y;
	}
}

/* Returns the value that memory holds afterwards. */
static uint64_t new_value(const struct exec_op *o, uint64_t old, uint64_t a, uint64_t b,
			  bool global)
{
	if (o->type2 != ATOM_PLAIN) {
		return half_values(o, (uint32_t)old, (uint32_t)a);
	}
	switch (o->sub) {
	case ATOM_ADD:
		return add(o, old, a, global);
	case ATOM_MIN:
		return is_less(o->type, a, old) ? a : old;
	case ATOM_MAX:
		return is_less(o->type, old, a) ? a : old;
	case ATOM_EXCH:
		return a;
	case ATOM_CAS:
		return old == a ? b : old;
	case ATOM_AND:
		return old & a;
	case ATOM_OR:
		return old | a;
	case ATOM_XOR:
		return old ^ a;
	case ATOM_INC:
		return old >= a ? 0 : old + 1;
	default: /* ATOM_DEC */
		return old == 0 || old > a ? a : old - 1;
	}
}

#define DEF_ATOMIC(T)                                                                              \
	static uint64_t atomic_##T(const struct exec_op *o, T *p, T a, T b)                        \
	{                                                                                          \
		T old, next;                                                                       \
                                                                                                   \
		if (o->sub == ATOM_ADD && o->type2 == ATOM_PLAIN && o->type != TY_F32 &&           \
		    o->type != TY_F64) {                                                           \
			return add_seqcst(p, a);                                                   \
		}                                                                                  \
		if (o->sub == ATOM_EXCH) {                                                         \
			return xchg_seqcst(p, a);                                                  \
		}                                                                                  \
		old = load_relaxed(p);                                                             \
		do {                                                                               \
			next = (T)new_value(o, old, a, b, true);                                   \
		} while (!cas_seqcst(p, &old, next));                                              \
		return old;                                                                        \
	}
DEF_ATOMIC(uint16_t)
DEF_ATOMIC(uint32_t)
DEF_ATOMIC(uint64_t)

static uint64_t plain(const struct exec_op *o, void *p, uint64_t a, uint64_t b)
{
	uint64_t old = 0, next;

	memcpy(&old, p, o->size);
	if (o->size == 4) {
		a = (uint32_t)a;
	} else if (o->size == 2) {
		a = (uint16_t)a;
	}
	next = new_value(o, old, a, b, false);
	memcpy(p, &next, o->size);
	return old;
}

static uint64_t atomic(const struct exec_op *o, void *p, uint64_t a, uint64_t b)
{
	switch (o->size) {
	case 2:
		return atomic_uint16_t(o, p, (uint16_t)a, (uint16_t)b);
	case 4:
		return atomic_uint32_t(o, p, (uint32_t)a, (uint32_t)b);
	default:
		return atomic_uint64_t(o, p, a, b);
	}
}

uint64_t exec_atom_device(const struct exec_op *o, void *p, uint64_t a)
{
	return atomic(o, p, a, 0);
}

static bool in_shared(const struct exec_op *o, uint64_t at)
{
	uint64_t off;

	return o->space == SP_SHARED ||
	       (o->space == SP_GENERIC && exec_window_of(at, &off) == SP_SHARED);
}

int exec_op_atom(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	bool wide = o->size == 8;

	exec_each_lane (m, lane) {
		uint64_t at = exec_lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm;
		void *p = exec_lane_pointer(w, o, o->space, lane, at, o->size, true);
		uint64_t a, b, old;

		if (!p) {
			return STEP_FAULT;
		}
		a = exec_lane_get(w, o->b, wide, lane);
		b = o->sub == ATOM_CAS ? exec_lane_get(w, o->c, wide, lane) : 0;
		old = in_shared(o, at) ? plain(o, p, a, b) : atomic(o, p, a, b);
		if (o->flags & ATOM_OLD) {
			exec_lane_set(w, o->d, wide, lane, old);
		}
	}
	return STEP_NEXT;
}

int exec_op_atom_vector(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		uint64_t at = exec_lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm;
		char *p =
			exec_lane_pointer(w, o, o->space, lane, at, (unsigned)o->size * o->n, true);

		if (!p) {
			return STEP_FAULT;
		}
		for (unsigned i = 0; i < o->n; i++) {
			uint64_t a = exec_lane_get(w, o->b + i * EXEC_SLOT32, false, lane);
			char *element = p + (size_t)i * o->size;
			uint64_t old = in_shared(o, at) ? plain(o, element, a, 0)
							: atomic(o, element, a, 0);

			if (o->flags & ATOM_OLD) {
				exec_lane_set(w, o->d + i * EXEC_SLOT32, false, lane, old);
			}
		}
	}
	return STEP_NEXT;
}

struct exec_pair {
	uint64_t low, high;
};

/* Compares and swaps 16 bytes. Returns true on success; *old: the previous content. */
static bool swap_pair(struct exec_pair *p, struct exec_pair *old, struct exec_pair next)
{
	bool done;

#if defined(__x86_64__)
	__asm__ volatile("lock cmpxchg16b %1"
			 : "=@ccz"(done), "+m"(*p), "+a"(old->low), "+d"(old->high)
			 : "b"(next.low), "c"(next.high)
			 : "memory");
#else
	static char lock;

	while (xchg_acqrel(&lock, 1)) {
	}
	done = swap_plain(p, old, next);
	store_release(&lock, 0);
#endif
	return done;
}

static struct exec_pair pair_get(const struct exec_warp *w, uint32_t ref, unsigned lane)
{
	return (struct exec_pair){ exec_lane_get(w, ref, true, lane),
				   exec_lane_get(w, ref + EXEC_SLOT64, true, lane) };
}

int exec_op_atom_pair(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		uint64_t at = exec_lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm;
		struct exec_pair *p = exec_lane_pointer(w, o, o->space, lane, at, sizeof(*p), true);
		struct exec_pair old = pair_get(w, o->b, lane), next = old;

		if (!p) {
			return STEP_FAULT;
		}
		if (o->sub == ATOM_CAS) {
			next = pair_get(w, o->c, lane);
			swap_pair(p, &old, next);
		} else {
			while (!swap_pair(p, &old, next)) {
			}
		}
		if (o->flags & ATOM_OLD) {
			exec_lane_set(w, o->d, true, lane, old.low);
			exec_lane_set(w, o->d + EXEC_SLOT64, true, lane, old.high);
		}
	}
	return STEP_NEXT;
}
