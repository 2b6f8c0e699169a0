/* Float handlers; included by lane_alu.c only. Rounding to nearest; single-precision NaN results
 * are PTX's canonical NaN. Approximate functions of the hardware are computed exactly or by libm,
 * so they are at least as accurate. */
#ifndef GBPF_SOFT_SERVER_EXEC_OP_ALU_FLOAT_H
#define GBPF_SOFT_SERVER_EXEC_OP_ALU_FLOAT_H

#include <math.h>

#include "soft/server/exec/op/lane_alu.h"

static ALWAYS_INLINE uint32_t exec_bits32(float x)
{
	union {
		float f;
		uint32_t u;
	} v = { .f = x };

	return v.u;
}

static ALWAYS_INLINE float exec_float32(uint32_t x)
{
	union {
		uint32_t u;
		float f;
	} v = { .u = x };

	return v.f;
}

static ALWAYS_INLINE uint64_t exec_bits64(double x)
{
	union {
		double f;
		uint64_t u;
	} v = { .f = x };

	return v.u;
}

static ALWAYS_INLINE double exec_float64(uint64_t x)
{
	union {
		uint64_t u;
		double f;
	} v = { .u = x };

	return v.f;
}

/* Flushes a subnormal to zero of its sign. */
static ALWAYS_INLINE float exec_flush(float x)
{
	uint32_t u = exec_bits32(x);

	return exec_float32(u & 0x7f800000 ? u : u & 0x80000000);
}

static ALWAYS_INLINE float exec_canonical(float x)
{
	return x == x ? x : exec_float32(0x7fffffff);
}

static ALWAYS_INLINE float exec_unit(float x)
{
	return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; /* NaN and -0 to +0 */
}

static ALWAYS_INLINE float exec_min32(float x, float y)
{
	float r = x < y ? x : y;

	r = x == y ? exec_float32(exec_bits32(x) | exec_bits32(y)) : r;
	r = y != y ? x : r; /* x < NaN is false, so a NaN in x has already selected y */
	return exec_canonical(r);
}

static ALWAYS_INLINE float exec_max32(float x, float y)
{
	float r = x > y ? x : y;

	r = x == y ? exec_float32(exec_bits32(x) & exec_bits32(y)) : r;
	r = y != y ? x : r;
	return exec_canonical(r);
}

static ALWAYS_INLINE double exec_min64(double x, double y)
{
	double r = x < y ? x : y;

	r = x == y ? exec_float64(exec_bits64(x) | exec_bits64(y)) : r;
	return y != y ? x : r;
}

static ALWAYS_INLINE double exec_max64(double x, double y)
{
	double r = x > y ? x : y;

	r = x == y ? exec_float64(exec_bits64(x) & exec_bits64(y)) : r;
	return y != y ? x : r;
}

static ALWAYS_INLINE float exec_either_nan(float x, float y, float r)
{
	return x == x && y == y ? r : exec_float32(0x7fffffff);
}

#define FX exec_flush(X)
#define FY exec_flush(Y)
#define FZ exec_flush(Z)

#define FLOAT2(name, expr32, exprz, expr64)                                                        \
	DEF2(name##_f32, float, float, float, exec_canonical(expr32))                              \
	DEF2(name##_f32z, float, float, float, exec_flush(exec_canonical(exprz)))                  \
	DEF2(name##_f64, double, double, double, expr64)
FLOAT2(add, X + Y, FX + FY, X + Y)
FLOAT2(sub, X - Y, FX - FY, X - Y)
FLOAT2(mul, X *Y, FX *FY, X *Y)
FLOAT2(div, X / Y, FX / FY, X / Y)
FLOAT2(min, exec_min32(X, Y), exec_min32(FX, FY), exec_min64(X, Y))
FLOAT2(max, exec_max32(X, Y), exec_max32(FX, FY), exec_max64(X, Y))

DEF2(min_nan_f32, float, float, float, exec_either_nan(X, Y, exec_min32(X, Y)))
DEF2(max_nan_f32, float, float, float, exec_either_nan(X, Y, exec_max32(X, Y)))
DEF2(min_nan_f32z, float, float, float, exec_either_nan(X, Y, exec_min32(FX, FY)))
DEF2(max_nan_f32z, float, float, float, exec_either_nan(X, Y, exec_max32(FX, FY)))

DEF2(add_sat_f32, float, float, float, exec_unit(X + Y))
DEF2(add_sat_f32z, float, float, float, exec_flush(exec_unit(FX + FY)))
DEF2(sub_sat_f32, float, float, float, exec_unit(X - Y))
DEF2(sub_sat_f32z, float, float, float, exec_flush(exec_unit(FX - FY)))
DEF2(mul_sat_f32, float, float, float, exec_unit(X *Y))
DEF2(mul_sat_f32z, float, float, float, exec_flush(exec_unit(FX *FY)))

DEF3(fma_f32, float, float, float, exec_canonical(__builtin_fmaf(X, Y, Z)))
DEF3(fma_f32z, float, float, float, exec_flush(exec_canonical(__builtin_fmaf(FX, FY, FZ))))
DEF3(fma_f64, double, double, double, __builtin_fma(X, Y, Z))
DEF3(fma_sat_f32, float, float, float, exec_unit(__builtin_fmaf(X, Y, Z)))
DEF3(fma_sat_f32z, float, float, float, exec_flush(exec_unit(__builtin_fmaf(FX, FY, FZ))))

#define FLOAT1(name, expr32, exprz)                                                                \
	DEF1(name##_f32, float, float, float, exec_canonical(expr32))                              \
	DEF1(name##_f32z, float, float, float, exec_flush(exec_canonical(exprz)))
FLOAT1(rcp, 1.0f / X, 1.0f / FX)
FLOAT1(sqrt, __builtin_sqrtf(X), __builtin_sqrtf(FX))
FLOAT1(rsqrt, (float)(1.0 / __builtin_sqrt((double)X)), (float)(1.0 / __builtin_sqrt((double)FX)))
FLOAT1(ex2, exp2f(X), exp2f(FX))
FLOAT1(lg2, log2f(X), log2f(FX))
FLOAT1(sin, sinf(X), sinf(FX))
FLOAT1(cos, cosf(X), cosf(FX))
DEF1(tanh_f32, float, float, float, exec_canonical(tanhf(X)))
DEF1(rcp_f64, double, double, double, 1.0 / X)
DEF1(sqrt_f64, double, double, double, __builtin_sqrt(X))
DEF1(rsqrt_f64, double, double, double, 1.0 / __builtin_sqrt(X))

/* Sign operations work on bits; a NaN becomes canonical, or in double precision stays as it is. */
DEF1(abs_f32, float, float, float, exec_canonical(exec_float32(exec_bits32(X) & 0x7fffffff)))
DEF1(abs_f32z, float, float, float, exec_canonical(exec_float32(exec_bits32(FX) & 0x7fffffff)))
DEF1(abs_f64, double, double, double, X == X ? exec_float64(exec_bits64(X) & INT64_MAX) : X)
DEF1(neg_f32, float, float, float, exec_canonical(exec_float32(exec_bits32(X) ^ 0x80000000)))
DEF1(neg_f32z, float, float, float, exec_canonical(exec_float32(exec_bits32(FX) ^ 0x80000000)))
DEF1(neg_f64, double, double, double,
     X == X ? exec_float64(exec_bits64(X) ^ (UINT64_C(1) << 63)) : X)
DEF2(copysign_f32, float, float, float,
     exec_float32((exec_bits32(Y) & 0x7fffffff) | (exec_bits32(X) & 0x80000000)))
DEF2(copysign_f64, double, double, double,
     exec_float64((exec_bits64(Y) & INT64_MAX) | (exec_bits64(X) & (UINT64_C(1) << 63))))

/* To integral values; the host rounds to nearest, ties to even. */
#define ROUND1(name, f32, f64)                                                                     \
	DEF1(name##_f32, float, float, float, exec_canonical(f32(X)))                              \
	DEF1(name##_f64, double, double, double, f64(X))
ROUND1(round_n, __builtin_rintf, __builtin_rint)
ROUND1(round_z, __builtin_truncf, __builtin_trunc)
ROUND1(round_m, __builtin_floorf, __builtin_floor)
ROUND1(round_p, __builtin_ceilf, __builtin_ceil)

/* Towards zero, saturating; NaN gives 0. */
static ALWAYS_INLINE int32_t to_s32(double x)
{
	return x >= 2147483647.0   ? INT32_MAX
	       : x > -2147483648.0 ? (int32_t)x
	       : x == x		   ? INT32_MIN
				   : 0;
}

static ALWAYS_INLINE uint32_t exec_to_u32(double x)
{
	return x >= 4294967295.0 ? UINT32_MAX : x > 0 ? (uint32_t)(int64_t)x : 0;
}

/* To 64 bits: NaN gives the highest bit. */
static ALWAYS_INLINE int64_t exec_to_s64(double x)
{
	return x >= 0x1p63 ? INT64_MAX : x >= -0x1p63 ? (int64_t)x : INT64_MIN;
}

static ALWAYS_INLINE uint64_t exec_to_u64(double x)
{
	return x >= 0x1p64 ? UINT64_MAX : x > 0 ? (uint64_t)x : x == x ? 0 : UINT64_C(1) << 63;
}

#endif
