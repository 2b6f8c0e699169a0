/* Atomics. In global memory they are real ones, since other blocks run on other threads of the
 * host; shared memory belongs to one block, which one host thread runs. */
#include <math.h>
#include <string.h>

#include "soft/server/exec/handlers.h"

static float as_float(uint32_t x)
{
	float f;

	memcpy(&f, &x, sizeof(f));
	return f;
}

static double as_double(uint64_t x)
{
	double f;

	memcpy(&f, &x, sizeof(f));
	return f;
}

static uint64_t add_floats(enum exec_type type, uint64_t old, uint64_t a)
{
	if (type == TY_F64) {
		double r = as_double(old) + as_double(a);

		memcpy(&a, &r, sizeof(a));
		return a;
	} else {
		float r = as_float((uint32_t)old) + as_float((uint32_t)a);
		uint32_t bits;

		memcpy(&bits, &r, sizeof(bits));
		return r == r ? bits : 0x7fffffff;
	}
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

/* What memory holds afterwards. */
static uint64_t new_value(const struct op *o, uint64_t old, uint64_t a, uint64_t b)
{
	switch (o->sub) {
	case ATOM_ADD:
		return o->type == TY_F32 || o->type == TY_F64 ? add_floats(o->type, old, a)
							      : old + a;
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
	static uint64_t atomic_##T(const struct op *o, T *p, T a, T b)                             \
	{                                                                                          \
		T old, next;                                                                       \
                                                                                                   \
		if (o->sub == ATOM_ADD && o->type != TY_F32 && o->type != TY_F64) {                \
			return __atomic_fetch_add(p, a, __ATOMIC_SEQ_CST);                         \
		}                                                                                  \
		if (o->sub == ATOM_EXCH) {                                                         \
			return __atomic_exchange_n(p, a, __ATOMIC_SEQ_CST);                        \
		}                                                                                  \
		old = __atomic_load_n(p, __ATOMIC_RELAXED);                                        \
		do {                                                                               \
			next = (T)new_value(o, old, a, b);                                         \
		} while (!__atomic_compare_exchange_n(p, &old, next, false, __ATOMIC_SEQ_CST,      \
						      __ATOMIC_RELAXED));                          \
		return old;                                                                        \
	}
DEF_ATOMIC(uint16_t)
DEF_ATOMIC(uint32_t)
DEF_ATOMIC(uint64_t)

static uint64_t plain(const struct op *o, void *p, uint64_t a, uint64_t b)
{
	uint64_t old = 0, next;

	memcpy(&old, p, o->size);
	if (o->size == 4) {
		a = (uint32_t)a;
	} else if (o->size == 2) {
		a = (uint16_t)a;
	}
	next = new_value(o, old, a, b);
	memcpy(p, &next, o->size);
	return old;
}

static uint64_t atomic(const struct op *o, void *p, uint64_t a, uint64_t b)
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

int op_atom(struct warp *w, const struct op *o, uint32_t m)
{
	bool wide = o->size == 8;

	each_lane (m, lane) {
		uint64_t at = lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm;
		void *p = exec_lane_pointer(w, o, o->space, lane, at, o->size, true);
		uint64_t a, b, old;

		if (!p) {
			return STEP_FAULT;
		}
		a = lane_get(w, o->b, wide, lane);
		b = o->sub == ATOM_CAS ? lane_get(w, o->c, wide, lane) : 0;
		old = o->space == SP_SHARED ? plain(o, p, a, b) : atomic(o, p, a, b);
		if (o->n) {
			lane_set(w, o->d, wide, lane, old);
		}
	}
	return STEP_NEXT;
}
