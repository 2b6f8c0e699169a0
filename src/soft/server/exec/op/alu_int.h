/* Integer handlers; included by lane_alu.c only. Where PTX leaves a result undefined it is what
 * NVIDIA's hardware returns: division by zero gives all ones. */
#ifndef GBPF_SOFT_SERVER_EXEC_OP_ALU_INT_H
#define GBPF_SOFT_SERVER_EXEC_OP_ALU_INT_H

#include "base/compiler.h"
#include "soft/server/exec/op/lane_alu.h"

#define INT_TYPES2(name, expr)                                                                     \
	DEF2(name##_u16, uint32_t, uint32_t, uint16_t, expr)                                       \
	DEF2(name##_s16, uint32_t, uint32_t, int16_t, expr)                                        \
	DEF2(name##_u32, uint32_t, uint32_t, uint32_t, expr)                                       \
	DEF2(name##_s32, uint32_t, uint32_t, int32_t, expr)                                        \
	DEF2(name##_u64, uint64_t, uint64_t, uint64_t, expr)                                       \
	DEF2(name##_s64, uint64_t, uint64_t, int64_t, expr)

/* Wraps around: computed unsigned for every type. */
#define UX ((uint64_t)X)
#define UY ((uint64_t)Y)
#define UZ ((uint64_t)Z)

#define WRAP2(name, op)                                                                            \
	DEF2(name##_u32, uint32_t, uint32_t, uint32_t, X op Y)                                     \
	DEF2(name##_u64, uint64_t, uint64_t, uint64_t, X op Y)

WRAP2(add, +)
WRAP2(sub, -)
WRAP2(mul, *)
WRAP2(and, &)
WRAP2(or, |)
WRAP2(xor, ^)
#define add_u16 add_u32
#define add_s16 add_u32
#define add_s32 add_u32
#define add_s64 add_u64
#define sub_u16 sub_u32
#define sub_s16 sub_u32
#define sub_s32 sub_u32
#define sub_s64 sub_u64
#define mul_u16 mul_u32
#define mul_s16 mul_u32
#define mul_s32 mul_u32
#define mul_s64 mul_u64

DEF3(mad_u32, uint32_t, uint32_t, uint32_t, X *Y + Z)
DEF3(mad_u64, uint64_t, uint64_t, uint64_t, X *Y + Z)
#define mad_u16 mad_u32
#define mad_s16 mad_u32
#define mad_s32 mad_u32
#define mad_s64 mad_u64

DEF2(mul_hi_u16, uint32_t, uint32_t, uint16_t, ((uint32_t)X * Y) >> 16)
DEF2(mul_hi_s16, uint32_t, uint32_t, int16_t, ((int32_t)X * Y) >> 16)
DEF2(mul_hi_u32, uint32_t, uint32_t, uint32_t, ((uint64_t)X * Y) >> 32)
DEF2(mul_hi_s32, uint32_t, uint32_t, int32_t, ((int64_t)X * Y) >> 32)
DEF2(mul_hi_u64, uint64_t, uint64_t, uint64_t, ((u128)X * Y) >> 64)
DEF2(mul_hi_s64, uint64_t, uint64_t, int64_t, ((i128)X * Y) >> 64)

DEF3(mad_hi_u16, uint32_t, uint32_t, uint16_t, (((uint32_t)X * Y) >> 16) + Z)
DEF3(mad_hi_s16, uint32_t, uint32_t, int16_t, (((int32_t)X * Y) >> 16) + Z)
DEF3(mad_hi_u32, uint32_t, uint32_t, uint32_t, (((uint64_t)X * Y) >> 32) + Z)
DEF3(mad_hi_s32, uint32_t, uint32_t, int32_t, (uint32_t)(((int64_t)X * Y) >> 32) + (uint32_t)Z)
DEF3(mad_hi_u64, uint64_t, uint64_t, uint64_t, (((u128)X * Y) >> 64) + Z)
DEF3(mad_hi_s64, uint64_t, uint64_t, int64_t, (uint64_t)(((i128)X * Y) >> 64) + UZ)

DEF2(mul_wide_u16, uint32_t, uint32_t, uint16_t, (uint32_t)X *Y)
DEF2(mul_wide_s16, uint32_t, uint32_t, int16_t, (int32_t)X *Y)
DEF2(mul_wide_u32, uint64_t, uint32_t, uint32_t, (uint64_t)X *Y)
DEF2(mul_wide_s32, uint64_t, uint32_t, int32_t, (int64_t)X *Y)

#define DEF_MAD_WIDE(name, D, T, W)                                                                \
	DEF_LANES(name, D, typedef T T_; SOURCE(uint32_t, a); SOURCE(uint32_t, b); SOURCE(D, c);   \
		  D *d = REF(D, w, o->d), (D)((W)X * (W)Y) + c[i])
DEF_MAD_WIDE(mad_wide_u16, uint32_t, uint16_t, uint32_t)
DEF_MAD_WIDE(mad_wide_s16, uint32_t, int16_t, int32_t)
DEF_MAD_WIDE(mad_wide_u32, uint64_t, uint32_t, uint64_t)
DEF_MAD_WIDE(mad_wide_s32, uint64_t, int32_t, int64_t)

#define DEF_DIV(suffix, S, T)                                                                      \
	DEF2(div_##suffix, S, S, T,                                                                \
	     Y == 0			     ? (T_)-1                                              \
	     : Y == (T_)-1 && (T_)-1 < (T_)1 ? (T_)(0 - UX)                                        \
					     : (T_)(X / Y))                                        \
	DEF2(rem_##suffix, S, S, T,                                                                \
	     Y == 0			     ? (T_)-1                                              \
	     : Y == (T_)-1 && (T_)-1 < (T_)1 ? (T_)0                                               \
					     : (T_)(X % Y))
DEF_DIV(u16, uint32_t, uint16_t)
DEF_DIV(s16, uint32_t, int16_t)
DEF_DIV(u32, uint32_t, uint32_t)
DEF_DIV(s32, uint32_t, int32_t)
DEF_DIV(u64, uint64_t, uint64_t)
DEF_DIV(s64, uint64_t, int64_t)

INT_TYPES2(min, X < Y ? X : Y)
INT_TYPES2(max, X > Y ? X : Y)

DEF1(abs_s16, uint32_t, uint32_t, int16_t, X < 0 ? 0 - (uint32_t)X : (uint32_t)X)
DEF1(abs_s32, uint32_t, uint32_t, int32_t, X < 0 ? 0 - (uint32_t)X : (uint32_t)X)
DEF1(abs_s64, uint64_t, uint64_t, int64_t, X < 0 ? 0 - UX : UX)
DEF1(neg_s32, uint32_t, uint32_t, uint32_t, 0 - X)
DEF1(neg_s64, uint64_t, uint64_t, uint64_t, 0 - X)
#define neg_s16 neg_s32
DEF1(not_u32, uint32_t, uint32_t, uint32_t, ~X)
DEF1(not_u64, uint64_t, uint64_t, uint64_t, ~X)
DEF1(cnot_u16, uint32_t, uint32_t, uint16_t, X == 0)
DEF1(cnot_u32, uint32_t, uint32_t, uint32_t, X == 0)
DEF1(cnot_u64, uint64_t, uint64_t, uint64_t, X == 0)
DEF1(mov_u32, uint32_t, uint32_t, uint32_t, X)
DEF1(mov_u64, uint64_t, uint64_t, uint64_t, X)

/* Shift counts beyond the width give 0, or the sign. */
DEFSHIFT(shl_u16, uint32_t, uint16_t, b[i] > 15 ? 0 : (uint32_t)X << b[i])
DEFSHIFT(shl_u32, uint32_t, uint32_t, b[i] > 31 ? 0 : X << (b[i] & 31))
DEFSHIFT(shl_u64, uint64_t, uint64_t, b[i] > 63 ? 0 : X << (b[i] & 63))
DEFSHIFT(shr_u16, uint32_t, uint16_t, b[i] > 15 ? 0 : X >> b[i])
DEFSHIFT(shr_u32, uint32_t, uint32_t, b[i] > 31 ? 0 : X >> (b[i] & 31))
DEFSHIFT(shr_u64, uint64_t, uint64_t, b[i] > 63 ? 0 : X >> (b[i] & 63))
DEFSHIFT(shr_s16, uint32_t, int16_t, X >> (b[i] > 15 ? 15 : b[i]))
DEFSHIFT(shr_s32, uint32_t, int32_t, X >> (b[i] > 31 ? 31 : b[i]))
DEFSHIFT(shr_s64, uint64_t, int64_t, X >> (b[i] > 63 ? 63 : b[i]))

#define DEF_SAD(suffix, S, T)                                                                      \
	DEF3(sad_##suffix, S, S, T, (S)Z + (X > Y ? (S)X - (S)Y : (S)Y - (S)X))
DEF_SAD(u16, uint32_t, uint16_t)
DEF_SAD(s16, uint32_t, int16_t)
DEF_SAD(u32, uint32_t, uint32_t)
DEF_SAD(s32, uint32_t, int32_t)
DEF_SAD(u64, uint64_t, uint64_t)
DEF_SAD(s64, uint64_t, int64_t)

#define LOW24U(x) ((uint64_t)((x)&0xffffff))
#define LOW24S(x) ((int64_t)((int32_t)((uint32_t)(x) << 8) >> 8))
DEF2(mul24_u32, uint32_t, uint32_t, uint32_t, LOW24U(X) * LOW24U(Y))
DEF2(mul24_s32, uint32_t, uint32_t, uint32_t, LOW24S(X) * LOW24S(Y))
DEF2(mul24_hi_u32, uint32_t, uint32_t, uint32_t, LOW24U(X) * LOW24U(Y) >> 16)
DEF2(mul24_hi_s32, uint32_t, uint32_t, uint32_t, LOW24S(X) * LOW24S(Y) >> 16)
DEF3(mad24_u32, uint32_t, uint32_t, uint32_t, LOW24U(X) * LOW24U(Y) + Z)
DEF3(mad24_s32, uint32_t, uint32_t, uint32_t, LOW24S(X) * LOW24S(Y) + Z)
DEF3(mad24_hi_u32, uint32_t, uint32_t, uint32_t, (LOW24U(X) * LOW24U(Y) >> 16) + Z)
DEF3(mad24_hi_s32, uint32_t, uint32_t, uint32_t, (LOW24S(X) * LOW24S(Y) >> 16) + Z)

static ALWAYS_INLINE uint32_t popc32(uint32_t x)
{
	x -= x >> 1 & 0x55555555;
	x = (x & 0x33333333) + (x >> 2 & 0x33333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f;
	return x * 0x01010101 >> 24;
}

static ALWAYS_INLINE uint32_t exec_brev32(uint32_t x)
{
	x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
	x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
	x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
	return __builtin_bswap32(x);
}

DEF1(popc_u32, uint32_t, uint32_t, uint32_t, popc32(X))
DEF1(popc_u64, uint32_t, uint64_t, uint64_t, popc32((uint32_t)X) + popc32((uint32_t)(X >> 32)))
DEF1(clz_u32, uint32_t, uint32_t, uint32_t, X ? __builtin_clz(X) : 32)
DEF1(clz_u64, uint32_t, uint64_t, uint64_t, X ? __builtin_clzll(X) : 64)
DEF1(brev_u32, uint32_t, uint32_t, uint32_t, exec_brev32(X))
DEF1(brev_u64, uint64_t, uint64_t, uint64_t,
     (uint64_t)exec_brev32((uint32_t)X) << 32 | exec_brev32((uint32_t)(X >> 32)))

/* Returns the highest bit that differs from the sign; all ones if there is none. */
static ALWAYS_INLINE uint32_t bfind64(uint64_t x)
{
	return x ? 63 - (uint32_t)__builtin_clzll(x) : ~0u;
}
static ALWAYS_INLINE uint32_t exec_from_top(uint32_t pos, uint32_t top)
{
	return pos == ~0u ? pos : top - pos;
}
#define UNSIGN(x) ((x) < 0 ? ~(x) : (x))
DEF1(bfind_u32, uint32_t, uint32_t, uint32_t, bfind64(X))
DEF1(bfind_s32, uint32_t, uint32_t, int32_t, bfind64((uint32_t)UNSIGN(X)))
DEF1(bfind_u64, uint32_t, uint64_t, uint64_t, bfind64(X))
DEF1(bfind_s64, uint32_t, uint64_t, int64_t, bfind64((uint64_t)UNSIGN(X)))
DEF1(bfind_shift_u32, uint32_t, uint32_t, uint32_t, exec_from_top(bfind64(X), 31))
DEF1(bfind_shift_s32, uint32_t, uint32_t, int32_t, exec_from_top(bfind64((uint32_t)UNSIGN(X)), 31))
DEF1(bfind_shift_u64, uint32_t, uint64_t, uint64_t, exec_from_top(bfind64(X), 63))
DEF1(bfind_shift_s64, uint32_t, uint64_t, int64_t, exec_from_top(bfind64((uint64_t)UNSIGN(X)), 63))

/* Positions and lengths use their low eight bits; the 64-bit forms of the hardware do not truncate
 * larger values. */
static ALWAYS_INLINE uint32_t field_number(uint32_t x, unsigned top)
{
	return top == 31 ? x & 0xff : x > 0xff ? 0xff : x;
}

/* As PTX defines it: bits beyond the top are copies of the sign, the field's top bit (or the
 * value's). */
static ALWAYS_INLINE uint64_t exec_bit_field(uint64_t a, uint32_t pos, uint32_t len, unsigned top,
					     bool is_signed)
{
	uint64_t field, sign = 0;

	pos = field_number(pos, top);
	len = field_number(len, top);
	if (len == 0) {
		return 0;
	}
	if (is_signed) {
		sign = a >> (pos + len - 1 < top ? pos + len - 1 : top) & 1;
	}
	field = pos > top ? 0 : a >> pos;
	if (pos + len <= top) {
		field &= len < 64 ? (UINT64_C(1) << len) - 1 : ~UINT64_C(0);
		return sign && len < 64 ? field | ~UINT64_C(0) << len : field;
	}
	/* the field reaches beyond the top */
	if (sign) {
		field |= pos > top ? ~UINT64_C(0) : pos ? ~UINT64_C(0) << (top + 1 - pos) % 64 : 0;
	}
	return sign && len < 64 ? field | ~UINT64_C(0) << len : field;
}

static ALWAYS_INLINE uint64_t exec_bit_insert(uint64_t a, uint64_t b, uint32_t pos, uint32_t len,
					      unsigned top)
{
	uint64_t mask;

	pos = field_number(pos, top);
	len = field_number(len, top);
	if (len == 0 || pos > top) {
		return b;
	}
	mask = (len < 64 ? (UINT64_C(1) << len) - 1 : ~UINT64_C(0)) << pos;
	return (b & ~mask) | (a << pos & mask);
}

#define DEF_BFE(suffix, S, top, is_signed)                                                         \
	HANDLER(bfe_##suffix)                                                                      \
	{                                                                                          \
		const S *a = REF(const S, w, o->a);                                                \
		const uint32_t *b = REF(const uint32_t, w, o->b),                                  \
			       *c = REF(const uint32_t, w, o->c);                                  \
		S *d = REF(S, w, o->d);                                                            \
		STORE_LANES(S, exec_bit_field(a[i], b[i], c[i], top, is_signed));                  \
		GO_ON;                                                                             \
	}
DEF_BFE(u32, uint32_t, 31, false)
DEF_BFE(s32, uint32_t, 31, true)
DEF_BFE(u64, uint64_t, 63, false)
DEF_BFE(s64, uint64_t, 63, true)

/* bfi d, a, b, position (c), length (e) */
#define DEF_BFI(suffix, S, top)                                                                    \
	HANDLER(bfi_##suffix)                                                                      \
	{                                                                                          \
		const S *a = REF(const S, w, o->a), *b = REF(const S, w, o->b);                    \
		const uint32_t *c = REF(const uint32_t, w, o->c),                                  \
			       *e = REF(const uint32_t, w, o->e);                                  \
		S *d = REF(S, w, o->d);                                                            \
		STORE_LANES(S, exec_bit_insert(a[i], b[i], c[i], e[i], top));                      \
		GO_ON;                                                                             \
	}
DEF_BFI(u32, uint32_t, 31)
DEF_BFI(u64, uint64_t, 63)

/* sub: mode of prmt: 0 selectors, else f4e, b4e, rc8, ecl, ecr, rc16. */
static inline uint32_t exec_permute(uint32_t a, uint32_t b, uint32_t sel, unsigned mode)
{
	uint64_t bytes = (uint64_t)b << 32 | a;
	uint32_t r = 0, s = sel & 3;

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t pick, byte;

		switch (mode) {
		case 1:
			pick = s + i;
			break;
		case 2:
			pick = (s - i) & 7;
			break;
		case 3:
			pick = s;
			break;
		case 4:
			pick = i > s ? i : s;
			break;
		case 5:
			pick = i < s ? i : s;
			break;
		case 6:
			pick = (s & 1) * 2 + (i & 1);
			break;
		default:
			pick = sel >> 4 * i & 15;
			break;
		}
		byte = (uint32_t)(bytes >> 8 * (pick & 7)) & 0xff;
		if (mode == 0 && pick & 8) {
			byte = byte & 0x80 ? 0xff : 0;
		}
		r |= byte << 8 * i;
	}
	return r;
}
DEF3(prmt_u32, uint32_t, uint32_t, uint32_t, exec_permute(X, Y, Z, o->sub))

static ALWAYS_INLINE uint32_t exec_lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
	uint32_t r = 0;

	for (uint32_t k = 0; k < 8; k++) {
		uint32_t row = (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);

		r |= table >> k & 1 ? row : 0;
	}
	return r;
}
DEF3(lop3_u32, uint32_t, uint32_t, uint32_t, exec_lop3(X, Y, Z, (uint32_t)o->imm))

#define FUNNEL ((uint64_t)Y << 32 | X)
DEF3(shf_l_wrap, uint32_t, uint32_t, uint32_t, FUNNEL << (Z & 31) >> 32)
DEF3(shf_l_clamp, uint32_t, uint32_t, uint32_t, Z > 31 ? X : (uint32_t)(FUNNEL << (Z & 31) >> 32))
DEF3(shf_r_wrap, uint32_t, uint32_t, uint32_t, FUNNEL >> (Z & 31))
DEF3(shf_r_clamp, uint32_t, uint32_t, uint32_t, FUNNEL >> (Z > 32 ? 32 : Z))

static ALWAYS_INLINE int32_t exec_saturate(int64_t x)
{
	return (int32_t)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}
DEF2(add_sat_s32, uint32_t, uint32_t, int32_t, exec_saturate((int64_t)X + Y))
DEF2(sub_sat_s32, uint32_t, uint32_t, int32_t, exec_saturate((int64_t)X - Y))

#endif
