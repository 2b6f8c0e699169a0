/* Frequent operations and conversions of halves, eight lanes at a time, for processors with AVX2
 * and F16C; half.c and cvt.c define the results. All arithmetic is single precision: rounding sums
 * and products of halves twice is exact, since 24 bits are at least 2 * 11 + 2; the sum of a fused
 * multiplication is rounded to odd first. */
#include "soft/server/exec/op/half.h"

#include "soft/server/exec/handlers.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>

#define CHUNKS 4u
#define CHUNK 8u

static ALWAYS_INLINE __m256i chunk(struct exec_warp *w, uint32_t ref, unsigned k)
{
	return _mm256_loadu_si256((const __m256i *)(REF(const uint32_t, w, ref) + CHUNK * k));
}

/* Writes the lanes of m. */
static ALWAYS_INLINE void put(struct exec_warp *w, uint32_t ref, uint32_t m,
			      const __m256i r[static CHUNKS])
{
	const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);

	for (unsigned k = 0; k < CHUNKS; k++) {
		__m256i lanes = _mm256_set1_epi32((int)(m >> CHUNK * k & 0xff));

		lanes = _mm256_cmpeq_epi32(_mm256_and_si256(lanes, bits), bits);
		_mm256_maskstore_epi32((int *)(REF(uint32_t, w, ref) + CHUNK * k), lanes, r[k]);
	}
}

/* Converts the low halves of eight lanes to floats. */
static ALWAYS_INLINE __m256 widen(enum exec_num_format f, __m256i h)
{
	if (f == NUM_BF16) {
		return _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
	}
	h = _mm256_and_si256(h, _mm256_set1_epi32(0xffff));
	return _mm256_cvtph_ps(
		_mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)));
}

static ALWAYS_INLINE __m256i choose(__m256i no, __m256i yes, __m256 which)
{
	return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(which));
}

/* Rounds to nearest; NaN becomes canonical. */
static ALWAYS_INLINE __m256i narrow(enum exec_num_format f, __m256 r)
{
	__m256i u = _mm256_castps_si256(r);

	if (f == NUM_F16) {
		u = _mm256_cvtepu16_epi32(_mm256_cvtps_ph(r, _MM_FROUND_TO_NEAREST_INT));
	} else {
		__m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));

		u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
		u = _mm256_srli_epi32(u, 16);
	}
	return choose(u, _mm256_set1_epi32(0x7fff), _mm256_cmp_ps(r, r, _CMP_UNORD_Q));
}

static ALWAYS_INLINE __m256i exec_flush(__m256i h)
{
	__m256i exponent = _mm256_and_si256(h, _mm256_set1_epi32(0x7c00));
	__m256i tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());

	return _mm256_andnot_si256(_mm256_and_si256(tiny, _mm256_set1_epi32(0x7fff)), h);
}

/* Returns p + z rounded to odd: the last bit is set if the rounded sum is inexact. */
static ALWAYS_INLINE __m256 add_odd(__m256 p, __m256 z)
{
	__m256 zero = _mm256_setzero_ps(), s = _mm256_add_ps(p, z), t = _mm256_sub_ps(s, p);
	__m256 left = _mm256_add_ps(_mm256_sub_ps(p, _mm256_sub_ps(s, t)), _mm256_sub_ps(z, t));
	__m256 more = _mm256_cmp_ps(left, zero, _CMP_GT_OQ);
	__m256 less = _mm256_cmp_ps(left, zero, _CMP_LT_OQ);
	__m256 above = _mm256_cmp_ps(s, zero, _CMP_GT_OQ);
	__m256i u = _mm256_castps_si256(s), even, step;

	even = _mm256_cmpeq_epi32(_mm256_and_si256(u, _mm256_set1_epi32(1)),
				  _mm256_setzero_si256());
	/* One ulp up in magnitude if the remainder has the sum's sign, else one down. */
	step = choose(_mm256_set1_epi32(-1), _mm256_set1_epi32(1),
		      _mm256_or_ps(_mm256_and_ps(more, above), _mm256_andnot_ps(above, less)));
	step = _mm256_and_si256(step, _mm256_castps_si256(_mm256_or_ps(more, less)));
	return _mm256_castsi256_ps(_mm256_add_epi32(u, _mm256_and_si256(step, even)));
}

/* Returns true for products of bf16 that single precision cannot hold exactly. */
static ALWAYS_INLINE bool is_lost(unsigned what, __m256 x, __m256 y, __m256 p)
{
	const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
	const __m256 infinity = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
	__m256 zero = _mm256_setzero_ps(), a = _mm256_and_ps(p, magnitude);
	__m256 tiny = _mm256_cmp_ps(a, _mm256_set1_ps(0x1p-100f), _CMP_LT_OQ), large;

	tiny = _mm256_and_ps(tiny, _mm256_and_ps(_mm256_cmp_ps(x, zero, _CMP_NEQ_OQ),
						 _mm256_cmp_ps(y, zero, _CMP_NEQ_OQ)));
	large = _mm256_cmp_ps(a, infinity, _CMP_EQ_OQ);
	x = _mm256_and_ps(x, magnitude);
	y = _mm256_and_ps(y, magnitude);
	large = _mm256_and_ps(large, _mm256_and_ps(_mm256_cmp_ps(x, infinity, _CMP_LT_OQ),
						   _mm256_cmp_ps(y, infinity, _CMP_LT_OQ)));
	return _mm256_movemask_ps(what == ALU_FMA ? _mm256_or_ps(tiny, large) : tiny) != 0;
}

static ALWAYS_INLINE __m256i is_nan(enum exec_num_format f, __m256i h)
{
	h = _mm256_and_si256(h, _mm256_set1_epi32(0x7fff));
	return _mm256_cmpgt_epi32(h, _mm256_set1_epi32(f == NUM_F16 ? 0x7c00 : 0x7f80));
}

/* Maps bits to integers in the order of the values, -0 below +0. */
static ALWAYS_INLINE __m256i order(__m256i h)
{
	__m256i v = _mm256_srai_epi32(_mm256_slli_epi32(h, 16), 16);

	return _mm256_xor_si256(
		v, _mm256_and_si256(_mm256_srai_epi32(v, 31), _mm256_set1_epi32(0x7fff)));
}

/* min, max, neg and abs need no arithmetic. */
static ALWAYS_INLINE __m256i by_bits(enum exec_num_format f, unsigned what, unsigned flags,
				     __m256i a, __m256i b)
{
	__m256i nan = is_nan(f, a), other = is_nan(f, b), r, first;

	if (what == ALU_NEG) {
		r = _mm256_xor_si256(a, _mm256_set1_epi32(0x8000));
	} else if (what == ALU_ABS) {
		r = _mm256_and_si256(a, _mm256_set1_epi32(0x7fff));
	} else {
		first = what == ALU_MIN ? _mm256_cmpgt_epi32(order(b), order(a))
					: _mm256_cmpgt_epi32(order(a), order(b));
		first = _mm256_or_si256(_mm256_andnot_si256(nan, first), other);
		r = _mm256_blendv_epi8(b, a, first);
		nan = flags & FLAG_NAN ? _mm256_or_si256(nan, other) : _mm256_and_si256(nan, other);
	}
	return _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7fff), nan);
}

static ALWAYS_INLINE __m256i one(enum exec_num_format f, unsigned what, unsigned flags, __m256i a,
				 __m256i b, __m256i c, bool *lost)
{
	__m256 x, y, r;

	if (flags & FLAG_FTZ) {
		a = exec_flush(a);
		b = exec_flush(b);
		c = exec_flush(c);
	}
	if (what == ALU_MIN || what == ALU_MAX || what == ALU_NEG || what == ALU_ABS) {
		return by_bits(f, what, flags, a, b);
	}
	x = widen(f, a);
	y = widen(f, b);
	if (what == ALU_ADD) {
		r = _mm256_add_ps(x, y);
	} else if (what == ALU_SUB) {
		r = _mm256_sub_ps(x, y);
	} else {
		r = _mm256_mul_ps(x, y);
		*lost = *lost || (f == NUM_BF16 && is_lost(what, x, y, r));
		r = what == ALU_FMA ? add_odd(r, widen(f, c)) : r;
	}
	if (flags & FLAG_SAT) { /* for NaN the second operand is returned */
		r = _mm256_min_ps(_mm256_max_ps(r, _mm256_setzero_ps()), _mm256_set1_ps(1));
	}
	if (flags & FLAG_RELU) {
		__m256 nan = _mm256_cmp_ps(r, r, _CMP_UNORD_Q);

		r = _mm256_blendv_ps(_mm256_max_ps(r, _mm256_setzero_ps()), r, nan);
	}
	a = narrow(f, r);
	return flags & FLAG_FTZ ? exec_flush(a) : a;
}

static ALWAYS_INLINE int half(struct exec_warp *w, const struct exec_op *o, uint32_t m,
			      enum exec_num_format f, unsigned what)
{
	__m256i r[CHUNKS], low = _mm256_set1_epi32(0xffff);
	bool lost = false;

	for (unsigned k = 0; k < CHUNKS; k++) {
		__m256i a = chunk(w, o->a, k);
		__m256i b = what == ALU_NEG || what == ALU_ABS ? a : chunk(w, o->b, k);
		__m256i c = what == ALU_FMA ? chunk(w, o->c, k) : a;

		r[k] = one(f, what, o->flags, _mm256_and_si256(a, low), _mm256_and_si256(b, low),
			   _mm256_and_si256(c, low), &lost);
		if (o->n == 2) {
			__m256i high =
				one(f, what, o->flags, _mm256_srli_epi32(a, 16),
				    _mm256_srli_epi32(b, 16), _mm256_srli_epi32(c, 16), &lost);

			r[k] = _mm256_or_si256(r[k], _mm256_slli_epi32(high, 16));
		}
	}
	if (lost) {
		return exec_op_half(w, o, m);
	}
	put(w, o->d, m, r);
	return STEP_NEXT;
}

#define DEF_HALF(name, format, what)                                                               \
	static int name(struct exec_warp *w, const struct exec_op *o, uint32_t m)                  \
	{                                                                                          \
		return half(w, o, m, format, what);                                                \
	}
DEF_HALF(add_f16, NUM_F16, ALU_ADD)
DEF_HALF(sub_f16, NUM_F16, ALU_SUB)
DEF_HALF(mul_f16, NUM_F16, ALU_MUL)
DEF_HALF(fma_f16, NUM_F16, ALU_FMA)
DEF_HALF(add_bf16, NUM_BF16, ALU_ADD)
DEF_HALF(sub_bf16, NUM_BF16, ALU_SUB)
DEF_HALF(mul_bf16, NUM_BF16, ALU_MUL)
DEF_HALF(fma_bf16, NUM_BF16, ALU_FMA)
DEF_HALF(min_f16, NUM_F16, ALU_MIN)
DEF_HALF(max_f16, NUM_F16, ALU_MAX)
DEF_HALF(neg_f16, NUM_F16, ALU_NEG)
DEF_HALF(abs_f16, NUM_F16, ALU_ABS)
DEF_HALF(min_bf16, NUM_BF16, ALU_MIN)
DEF_HALF(max_bf16, NUM_BF16, ALU_MAX)
DEF_HALF(neg_bf16, NUM_BF16, ALU_NEG)
DEF_HALF(abs_bf16, NUM_BF16, ALU_ABS)

static exec_op_fn half_of(const struct exec_op *o)
{
	bool brain = o->type2 == NUM_BF16;

	if (o->flags & FLAG_XORSIGN) {
		return NULL;
	}
	switch (o->sub) {
	case ALU_MIN:
		return brain ? min_bf16 : min_f16;
	case ALU_MAX:
		return brain ? max_bf16 : max_f16;
	case ALU_NEG:
		return brain ? neg_bf16 : neg_f16;
	case ALU_ABS:
		return brain ? abs_bf16 : abs_f16;
	case ALU_ADD:
		return brain ? add_bf16 : add_f16;
	case ALU_SUB:
		return brain ? sub_bf16 : sub_f16;
	case ALU_MUL:
		return brain ? mul_bf16 : mul_f16;
	case ALU_FMA:
		return brain ? fma_bf16 : fma_f16;
	default:
		return NULL;
	}
}

static int f32_from_f16(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	__m256i r[CHUNKS];

	for (unsigned k = 0; k < CHUNKS; k++) {
		__m256 v = widen(NUM_F16, chunk(w, o->a, k));

		r[k] = choose(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff),
			      _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
	}
	put(w, o->d, m, r);
	return STEP_NEXT;
}

static int f32_from_bf16(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	__m256i r[CHUNKS];

	for (unsigned k = 0; k < CHUNKS; k++) {
		r[k] = _mm256_slli_epi32(chunk(w, o->a, k), 16);
	}
	put(w, o->d, m, r);
	return STEP_NEXT;
}

/* Converts one or two floats; two: a above b. */
static ALWAYS_INLINE int from_f32(struct exec_warp *w, const struct exec_op *o, uint32_t m,
				  enum exec_num_format f, bool pair)
{
	__m256i r[CHUNKS];

	for (unsigned k = 0; k < CHUNKS; k++) {
		r[k] = narrow(f, _mm256_castsi256_ps(chunk(w, o->a, k)));
		if (pair) {
			__m256i low = narrow(f, _mm256_castsi256_ps(chunk(w, o->b, k)));

			r[k] = _mm256_or_si256(_mm256_slli_epi32(r[k], 16), low);
		}
	}
	put(w, o->d, m, r);
	return STEP_NEXT;
}

#define DEF_FROM(name, format, pair)                                                               \
	static int name(struct exec_warp *w, const struct exec_op *o, uint32_t m)                  \
	{                                                                                          \
		return from_f32(w, o, m, format, pair);                                            \
	}
DEF_FROM(f16_from_f32, NUM_F16, false)
DEF_FROM(bf16_from_f32, NUM_BF16, false)
DEF_FROM(f16x2_from_f32, NUM_F16, true)
DEF_FROM(bf16x2_from_f32, NUM_BF16, true)

static exec_op_fn cvt_of(const struct exec_op *o, bool pair)
{
	if (o->flags || o->wide || o->n != ROUND_RN) {
		return NULL;
	}
	if (o->type == TY_F32 && !pair) {
		return o->type2 == TY_F16     ? f32_from_f16
		       : o->type2 == CVT_BF16 ? f32_from_bf16
					      : NULL;
	}
	if (o->type2 != TY_F32) {
		return NULL;
	}
	switch (o->type) {
	case TY_F16:
		return pair ? f16x2_from_f32 : f16_from_f32;
	case CVT_BF16:
		return pair ? bf16x2_from_f32 : bf16_from_f32;
	default:
		return NULL;
	}
}
#else
static exec_op_fn half_of(const struct exec_op *o)
{
	return NULL;
}

static exec_op_fn cvt_of(const struct exec_op *o, bool pair)
{
	return NULL;
}
#endif

/* The baseline handlers are paired with half.c, so that tests cover both. */
static bool can(const struct exec_handlers *h)
{
#if defined(__x86_64__)
	unsigned a, b, c = 0, d;

	__builtin_cpu_init();
	/* clang 14 does not know "f16c" here. */
	return h != &exec_handlers_base && __builtin_cpu_supports("avx2") &&
	       __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
#else
	return false;
#endif
}

exec_op_fn exec_half_quick(const struct exec_handlers *h, const struct exec_op *o)
{
	exec_op_fn fn = can(h) ? half_of(o) : NULL;

	return fn ? fn : exec_op_half;
}

exec_op_fn exec_half_quick_cvt(const struct exec_handlers *h, const struct exec_op *o, bool pair)
{
	exec_op_fn fn = can(h) ? cvt_of(o, pair) : NULL;

	return fn ? fn : o->fn;
}
