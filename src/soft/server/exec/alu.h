/* How a handler over 32 lanes is written. Each loop runs over all lanes so that the compiler makes
 * vectors of it; lanes that do not take part keep their value. When every living lane takes part
 * nothing is blended. Sources and destination may be the same register, never overlap otherwise:
 * hence ivdep. */
#ifndef GBPF_SOFT_SERVER_EXEC_ALU_H
#define GBPF_SOFT_SERVER_EXEC_ALU_H

#include "soft/server/exec/handlers.h"

static const uint32_t lane_bit[EXEC_LANES] = {
	1u << 0,  1u << 1,  1u << 2,  1u << 3,	1u << 4,  1u << 5,  1u << 6,  1u << 7,
	1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
	1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
	1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
};

#if defined(__clang__) /* compiles this for analysis and fuzzing only */
#define LANES_PRAGMA
#else
#define LANES_PRAGMA _Pragma("GCC ivdep")
#endif
#define LANES_LOOP LANES_PRAGMA for (unsigned i = 0; i < EXEC_LANES; i++)

#define STORE_LANES(D, expr)                                                                       \
	do {                                                                                       \
		if (likely((m | w->idle) == ~0u)) {                                                \
			LANES_LOOP                                                                 \
			{                                                                          \
				d[i] = (D)(expr);                                                  \
			}                                                                          \
		} else {                                                                           \
			LANES_LOOP                                                                 \
			{                                                                          \
				D v_ = (D)(expr);                                                  \
				d[i] = m & lane_bit[i] ? v_ : d[i];                                \
			}                                                                          \
		}                                                                                  \
	} while (0)

#define HANDLER(name) static int name(struct warp *w, const struct op *o, uint32_t m)

/* D: how the destination is stored; S: how sources are; T: as what they are read. expr speaks of x,
 * y, z, type, utype. */
#define X ((T_)a[i])
#define Y ((T_)b[i])
#define Z ((T_)c[i])

#define DEF1(name, D, S, T, expr)                                                                  \
	HANDLER(name)                                                                              \
	{                                                                                          \
		typedef T T_;                                                                      \
		const S *a = REF(const S, w, o->a);                                                \
		D *d = REF(D, w, o->d);                                                            \
		STORE_LANES(D, expr);                                                              \
		return STEP_NEXT;                                                                  \
	}
#define DEF2(name, D, S, T, expr)                                                                  \
	HANDLER(name)                                                                              \
	{                                                                                          \
		typedef T T_;                                                                      \
		const S *a = REF(const S, w, o->a);                                                \
		const S *b = REF(const S, w, o->b);                                                \
		D *d = REF(D, w, o->d);                                                            \
		STORE_LANES(D, expr);                                                              \
		return STEP_NEXT;                                                                  \
	}
#define DEF3(name, D, S, T, expr)                                                                  \
	HANDLER(name)                                                                              \
	{                                                                                          \
		typedef T T_;                                                                      \
		const S *a = REF(const S, w, o->a);                                                \
		const S *b = REF(const S, w, o->b);                                                \
		const S *c = REF(const S, w, o->c);                                                \
		D *d = REF(D, w, o->d);                                                            \
		STORE_LANES(D, expr);                                                              \
		return STEP_NEXT;                                                                  \
	}
/* b is always a 32-bit register: shift counts. */
#define DEFSHIFT(name, S, T, expr)                                                                 \
	HANDLER(name)                                                                              \
	{                                                                                          \
		typedef T T_;                                                                      \
		const S *a = REF(const S, w, o->a);                                                \
		const uint32_t *b = REF(const uint32_t, w, o->b);                                  \
		S *d = REF(S, w, o->d);                                                            \
		STORE_LANES(S, expr);                                                              \
		return STEP_NEXT;                                                                  \
	}

#endif
