/* Texels: reading channels, conversion to results, and interpolation as the hardware does it
 * (measured on an H100 and an H200): 8-bit weights; formats of 8 and 16 bits are summed in 16 bits
 * and rounded to nearest, SNORM8 sums are rounded once, floats and halves are aligned, cut and
 * rounded away from 0, whole numbers of 32 bits are rounded down. */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "soft/server/exec/op/number.h"
#include "soft/server/exec/texture/sampler.h"

#define U16_ONE 65535
#define S16_ONE 32767
#define S8_ONE 127
#define U8_TO_U16 257 /* 65535 / 255 */
#define WEIGHT_ONE 256
#define HALF_WEIGHT 128
#define SPARE_BITS 4 /* of aligned floats */

/* Digits of the significand, and the exponent of the least normal number as frexp() gives it. */
struct float_format {
	int digits, least;
};

/* Upper halves of the floats that an H100 returns for the 8-bit values of sRGB. */
static const uint16_t srgb[256] = {
	0x0000, 0x39a0, 0x3a20, 0x3a70, 0x3aa0, 0x3ac8, 0x3af0, 0x3b0c, 0x3b20, 0x3b34, 0x3b48,
	0x3b5c, 0x3b70, 0x3b84, 0x3b90, 0x3b9c, 0x3baa, 0x3bb8, 0x3bc6, 0x3bd6, 0x3be6, 0x3bf6,
	0x3c03, 0x3c0c, 0x3c16, 0x3c1f, 0x3c29, 0x3c34, 0x3c3e, 0x3c49, 0x3c55, 0x3c60, 0x3c6c,
	0x3c7a, 0x3c83, 0x3c8a, 0x3c91, 0x3c98, 0x3c9f, 0x3ca6, 0x3cae, 0x3cb6, 0x3cbe, 0x3cc6,
	0x3cce, 0x3cd7, 0x3ce0, 0x3ce9, 0x3cf2, 0x3cfc, 0x3d03, 0x3d08, 0x3d0d, 0x3d12, 0x3d17,
	0x3d1c, 0x3d22, 0x3d28, 0x3d2d, 0x3d33, 0x3d39, 0x3d3f, 0x3d45, 0x3d4c, 0x3d52, 0x3d58,
	0x3d60, 0x3d66, 0x3d6c, 0x3d74, 0x3d7a, 0x3d81, 0x3d85, 0x3d88, 0x3d8c, 0x3d90, 0x3d94,
	0x3d98, 0x3d9c, 0x3da0, 0x3da4, 0x3da9, 0x3dad, 0x3db1, 0x3db6, 0x3dba, 0x3dbf, 0x3dc3,
	0x3dc8, 0x3dcd, 0x3dd1, 0x3dd6, 0x3ddb, 0x3de0, 0x3de5, 0x3dea, 0x3df0, 0x3df4, 0x3dfa,
	0x3e00, 0x3e02, 0x3e05, 0x3e08, 0x3e0b, 0x3e0e, 0x3e11, 0x3e14, 0x3e17, 0x3e1a, 0x3e1d,
	0x3e20, 0x3e23, 0x3e26, 0x3e29, 0x3e2c, 0x3e30, 0x3e33, 0x3e36, 0x3e3a, 0x3e3d, 0x3e40,
	0x3e44, 0x3e47, 0x3e4b, 0x3e4e, 0x3e52, 0x3e56, 0x3e59, 0x3e5d, 0x3e61, 0x3e65, 0x3e68,
	0x3e6c, 0x3e70, 0x3e74, 0x3e78, 0x3e7c, 0x3e80, 0x3e82, 0x3e84, 0x3e86, 0x3e88, 0x3e8a,
	0x3e8d, 0x3e8f, 0x3e91, 0x3e93, 0x3e95, 0x3e98, 0x3e9a, 0x3e9c, 0x3e9e, 0x3ea1, 0x3ea3,
	0x3ea5, 0x3ea8, 0x3eaa, 0x3ead, 0x3eaf, 0x3eb2, 0x3eb4, 0x3eb6, 0x3eb9, 0x3ebc, 0x3ebe,
	0x3ec1, 0x3ec3, 0x3ec6, 0x3ec8, 0x3ecb, 0x3ece, 0x3ed1, 0x3ed3, 0x3ed6, 0x3ed9, 0x3edb,
	0x3ede, 0x3ee1, 0x3ee4, 0x3ee7, 0x3eea, 0x3eed, 0x3ef0, 0x3ef2, 0x3ef6, 0x3ef8, 0x3efc,
	0x3efe, 0x3f01, 0x3f02, 0x3f04, 0x3f05, 0x3f07, 0x3f09, 0x3f0a, 0x3f0c, 0x3f0d, 0x3f0f,
	0x3f11, 0x3f12, 0x3f14, 0x3f16, 0x3f17, 0x3f19, 0x3f1b, 0x3f1c, 0x3f1e, 0x3f20, 0x3f21,
	0x3f23, 0x3f25, 0x3f27, 0x3f29, 0x3f2a, 0x3f2c, 0x3f2e, 0x3f30, 0x3f32, 0x3f33, 0x3f35,
	0x3f37, 0x3f39, 0x3f3b, 0x3f3d, 0x3f3f, 0x3f41, 0x3f43, 0x3f45, 0x3f47, 0x3f49, 0x3f4b,
	0x3f4d, 0x3f4f, 0x3f51, 0x3f53, 0x3f55, 0x3f57, 0x3f59, 0x3f5b, 0x3f5d, 0x3f5f, 0x3f61,
	0x3f63, 0x3f65, 0x3f68, 0x3f6a, 0x3f6c, 0x3f6e, 0x3f70, 0x3f72, 0x3f74, 0x3f76, 0x3f7a,
	0x3f7c, 0x3f7e, 0x3f80,
};

static uint32_t float_bits(float f)
{
	return f == f ? exec_num_float_bits(f) : 0x7fffffff;
}

static uint32_t half_as_float(uint16_t half)
{
	return float_bits((float)exec_num_read(NUM_F16, half));
}

bool exec_texel_read(const struct exec_texture_lane *l, uint64_t address, struct exec_texel *ret)
{
	const uint8_t *p =
		exec_lane_pointer(l->w, l->o, SP_GLOBAL, l->lane, address, l->texel_bytes, false);

	*ret = (struct exec_texel){ { 0 } };
	for (unsigned k = 0; p && k < l->t->channels; k++, p += l->channel_bytes) {
		uint16_t v16;

		switch (l->t->format) {
		case SOFT_TEXEL_U8:
			ret->v[k] = *p;
			break;
		case SOFT_TEXEL_S8:
			ret->v[k] = (uint32_t)(int8_t)*p;
			break;
		case SOFT_TEXEL_U16:
		case SOFT_TEXEL_S16:
		case SOFT_TEXEL_F16:
			memcpy(&v16, p, sizeof(v16));
			ret->v[k] = l->t->format == SOFT_TEXEL_U16   ? v16
				    : l->t->format == SOFT_TEXEL_S16 ? (uint32_t)(int16_t)v16
								     : half_as_float(v16);
			break;
		default:
			memcpy(&ret->v[k], p, sizeof(ret->v[k]));
			break;
		}
	}
	return p != NULL;
}

/* Returns whether this channel of the texture is coded as in sRGB: alpha never is. */
static bool is_srgb(const struct soft_texture *t, unsigned channel)
{
	return t->flags & SOFT_TEXTURE_SRGB && t->flags & SOFT_TEXTURE_AS_FLOAT &&
	       t->format == SOFT_TEXEL_U8 && channel < 3;
}

static bool is_small(const struct soft_texture *t)
{
	return t->format <= SOFT_TEXEL_S16;
}

static int32_t rounded(int64_t numerator, int64_t divisor)
{
	int64_t twice = 2 * numerator + divisor, q = twice / (2 * divisor);

	return (int32_t)(q - (twice % (2 * divisor) < 0));
}

/* Widens a whole number of 8 or 16 bits to the 16 bits that the hardware interpolates. */
static int32_t widened(const struct soft_texture *t, uint32_t v)
{
	switch (t->format) {
	case SOFT_TEXEL_U8:
		return (int32_t)v * U8_TO_U16;
	case SOFT_TEXEL_S8:
		return rounded((int64_t)(int32_t)v * S16_ONE, S8_ONE);
	default:
		return (int32_t)v;
	}
}

/* Returns the result for a widened number. */
static uint32_t narrowed(const struct soft_texture *t, int32_t v)
{
	bool is_signed = t->format == SOFT_TEXEL_S8 || t->format == SOFT_TEXEL_S16;

	if (t->flags & SOFT_TEXTURE_AS_FLOAT) {
		return is_signed ? float_bits((float)MAX(v, -S16_ONE) / (float)S16_ONE)
				 : float_bits((float)v / (float)U16_ONE);
	}
	switch (t->format) {
	case SOFT_TEXEL_U8:
		return (uint32_t)rounded(v, U8_TO_U16);
	case SOFT_TEXEL_S8:
		return (uint32_t)rounded((int64_t)v * S8_ONE, S16_ONE);
	default:
		return (uint32_t)v;
	}
}

void exec_texel_result(const struct soft_texture *t, struct exec_texel *x)
{
	if (!is_small(t) || !(t->flags & SOFT_TEXTURE_AS_FLOAT)) {
		return;
	}
	for (unsigned k = 0; k < t->channels; k++) {
		if (is_srgb(t, k)) {
			x->v[k] = (uint32_t)srgb[x->v[k] & 0xff] << 16;
		} else if (t->format == SOFT_TEXEL_S8) { /* without the 16 bits of interpolation */
			x->v[k] = float_bits((float)MAX((int32_t)x->v[k], -S8_ONE) / (float)S8_ONE);
		} else {
			x->v[k] = narrowed(t, widened(t, x->v[k]));
		}
	}
}

/* The exponent of a number as frexp() gives it, not below that of the format's least normal one. */
static int exponent(double v, const struct float_format *f)
{
	int e;

	frexp(v, &e);
	return v == 0 ? f->least : MAX(e, f->least);
}

/* Adds the products of at most four texels. They are aligned to the largest texel that has a
 * weight, with SPARE_BITS more than the format has, and what lies below is cut off. */
static double sum_aligned(const double *v, const int32_t *weights, unsigned n,
			  const struct float_format *f)
{
	int unit = f->least;
	double sum = 0;

	for (unsigned i = 0; i < n; i++) {
		unit = weights[i] ? MAX(unit, exponent(v[i], f)) : unit;
	}
	unit -= f->digits + SPARE_BITS;
	for (unsigned i = 0; i < n; i++) {
		sum += weights[i] ? ldexp(trunc(ldexp(v[i], -unit)) * weights[i], unit) : 0.0;
	}
	return sum;
}

/* Rounds to the format's precision, a half away from 0. */
static double round_away(double v, const struct float_format *f)
{
	int unit = exponent(v, f) - f->digits;

	return ldexp(round(ldexp(v, -unit)), unit);
}

static uint32_t blend_float(const struct soft_texture *t, const struct exec_texel *texels,
			    const int32_t *weights, unsigned n, unsigned channel)
{
	static const struct float_format half = { 11, -13 }, single = { 24, -125 };
	const struct float_format *f = t->format == SOFT_TEXEL_F16 ? &half : &single;
	bool coded = is_srgb(t, channel);
	double sum = 0, v[4];

	for (unsigned i = 0; i < n; i += 4) {
		unsigned m = MIN(n - i, 4u);

		for (unsigned k = 0; k < m; k++) {
			uint32_t bits = texels[i + k].v[channel];

			v[k] = (double)exec_num_float(coded ? (uint32_t)srgb[bits & 0xff] << 16
							    : bits);
			if (!isfinite(v[k])) {
				sum += v[k] * weights[i + k];
				v[k] = 0;
			}
		}
		sum += sum_aligned(v, weights + i, m, f);
	}
	return float_bits((float)(isfinite(sum) ? round_away(sum / WEIGHT_ONE, f) : sum));
}

/* From a sum of signed bytes with weights to 16 bits: what makes 127 the greatest number leaves the
 * low 4 bits out. */
static int32_t widened_sum(int32_t sum)
{
	return sum + (((sum >> 4) * 257 + 1024) >> 11);
}

static uint32_t blend_whole(const struct soft_texture *t, const struct exec_texel *texels,
			    const int32_t *weights, unsigned n, unsigned channel)
{
	bool bytes = t->format == SOFT_TEXEL_S8 && t->flags & SOFT_TEXTURE_AS_FLOAT;
	int64_t sum = is_small(t) && !bytes ? HALF_WEIGHT : 0;

	for (unsigned i = 0; i < n; i++) {
		uint32_t v = texels[i].v[channel];
		int64_t whole = t->format == SOFT_TEXEL_U32 ? (int64_t)v : (int32_t)v;

		sum += (is_small(t) && !bytes ? widened(t, v) : whole) * weights[i];
	}
	if (bytes) {
		return narrowed(t, widened_sum((int32_t)sum));
	}
	sum >>= 8;
	return is_small(t) ? narrowed(t, (int32_t)sum) : (uint32_t)sum;
}

void exec_texel_blend(const struct soft_texture *t, const struct exec_texel *texels,
		      const int32_t *weights, unsigned n, struct exec_texel *ret)
{
	*ret = (struct exec_texel){ { 0 } };
	for (unsigned k = 0; k < t->channels; k++) {
		bool is_float = t->format >= SOFT_TEXEL_F16 || is_srgb(t, k);

		ret->v[k] = is_float ? blend_float(t, texels, weights, n, k)
				     : blend_whole(t, texels, weights, n, k);
	}
}

/* Returns the largest value of a channel of 8 or 16 bits; *ret_min: the smallest. */
static int32_t range(const struct soft_texture *t, int32_t *ret_min)
{
	switch (t->format) {
	case SOFT_TEXEL_U8:
		*ret_min = 0;
		return UINT8_MAX;
	case SOFT_TEXEL_S8:
		*ret_min = -S8_ONE;
		return S8_ONE;
	case SOFT_TEXEL_U16:
		*ret_min = 0;
		return U16_ONE;
	default:
		*ret_min = -S16_ONE;
		return S16_ONE;
	}
}

/* The colour, as if it had been read from memory. In textures that return whole numbers its bits
 * are whole numbers. */
void exec_texel_border(const struct soft_texture *t, struct exec_texel *ret)
{
	int32_t min, max = range(t, &min);

	*ret = (struct exec_texel){ { 0 } };
	for (unsigned k = 0; k < t->channels; k++) {
		uint32_t bits = exec_num_float_bits(t->border[k]);
		double v = (double)t->border[k];

		if (!is_small(t)) {
			ret->v[k] = bits;
		} else if (t->flags & SOFT_TEXTURE_AS_FLOAT) {
			v = v == v ? fmin(fmax(v, min < 0 ? -1.0 : 0.0), 1.0) : 0.0;
			ret->v[k] = (uint32_t)(int32_t)floor(v * max + 0.5);
		} else {
			ret->v[k] = (uint32_t)MIN(MAX((int32_t)bits, min), max);
		}
	}
}
