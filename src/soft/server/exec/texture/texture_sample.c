/* Sampling: from coordinates to texels and weights. Follows the appendix "Texture Fetching" of the
 * CUDA C++ Programming Guide; rounding of weights and the treatment of special values were measured
 * on an H100. */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "soft/server/exec/op/number.h"
#include "soft/server/exec/texture/sampler.h"

#define ONE 256		      /* weights have 8 bits of fraction */
#define NORMALIZED_ONE 0x1p21 /* normalized coordinates have 21 */
#define TERMS_MAX 16	      /* of an interpolation: 8 texels on each of two levels */
#define FAR_TEXELS 1e9
#define FACES 6u

/* The texels of one axis: two neighbours, and the weight of the second. */
struct axis {
	int64_t at[2]; /* -1: the border */
	int32_t weight;
};

/* Texels and their weights, whose sum is ONE. */
struct terms {
	struct exec_texel texels[TERMS_MAX];
	int32_t weights[TERMS_MAX];
	unsigned n;
};

/* A position on one level, before filtering. */
struct place {
	double x[3]; /* as the instruction gives them */
	int32_t offset[3];
	uint32_t layer; /* slice of a layered texture */
	unsigned axes;
};

static uint64_t texel_address(const struct exec_texture_lane *l,
			      const struct exec_texture_level *level, int64_t x, int64_t y,
			      int64_t z)
{
	return level->address + (uint64_t)x * l->texel_bytes + (uint64_t)y * level->pitch +
	       (uint64_t)z * level->slice;
}

/* Reads a texel; a negative coordinate names the border. */
static bool read_at(const struct exec_texture_lane *l, const struct exec_texture_level *level,
		    int64_t x, int64_t y, int64_t z, struct exec_texel *ret)
{
	if (x < 0 || y < 0 || z < 0) {
		exec_texel_border(l->t, ret);
		return true;
	}
	return exec_texel_read(l, texel_address(l, level, x, y, z), ret);
}

static bool clamps(const struct soft_texture *t, unsigned axis)
{
	return t->address_mode[axis] == SOFT_CLAMP ||
	       (t->address_mode[axis] != SOFT_BORDER && !(t->flags & SOFT_TEXTURE_NORMALIZED));
}

/* Applies the address mode to the number of a texel. */
static int64_t addressed(const struct soft_texture *t, unsigned axis, int64_t i, int64_t n)
{
	uint32_t mode = t->address_mode[axis];
	int64_t m;

	if (i >= 0 && i < n) {
		return i;
	}
	if (clamps(t, axis)) {
		return i < 0 ? 0 : n - 1;
	}
	if (mode == SOFT_BORDER) {
		return -1;
	}
	m = mode == SOFT_WRAP ? n : 2 * n;
	i %= m;
	i += i < 0 ? m : 0;
	return i < n ? i : m - 1 - i;
}

/* Returns the coordinate in texels. NaN becomes 0; far values are brought near without change of
 * the texel that they select. */
static double in_texels(const struct soft_texture *t, unsigned axis, double x, int64_t n)
{
	bool repeats = t->flags & SOFT_TEXTURE_NORMALIZED &&
		       (t->address_mode[axis] == SOFT_WRAP || t->address_mode[axis] == SOFT_MIRROR);

	if (x != x || (repeats && isinf(x))) {
		return 0;
	}
	if (repeats && fabs(x) > FAR_TEXELS) {
		x = fmod(x, 2.0);
	}
	if (t->flags & SOFT_TEXTURE_NORMALIZED) {
		x = fabs(x) < FAR_TEXELS ? floor(x * NORMALIZED_ONE) / NORMALIZED_ONE : x;
		x *= (double)n;
	}
	return fmin(fmax(x, -FAR_TEXELS * FAR_TEXELS), FAR_TEXELS * FAR_TEXELS);
}

static void find_axis(const struct soft_texture *t, unsigned axis, const struct place *p, int64_t n,
		      bool linear, struct axis *ret)
{
	double x = in_texels(t, axis, p->x[axis], n);
	int64_t i, fixed;

	*ret = (struct axis){ 0 };
	if (axis >= p->axes) {
		return;
	}
	if (!linear) {
		i = (int64_t)floor(x) + p->offset[axis];
		ret->at[0] = ret->at[1] = addressed(t, axis, i, n);
		return;
	}
	/* Beyond 2^48 texels a coordinate has no fraction. */
	fixed = fabs(x) < 0x1p48 ? (int64_t)floor((x - 0.5) * ONE + 0.5)
				 : (x < 0 ? -1 : 1) * INT64_MAX;
	ret->weight = (int32_t)(fixed & (ONE - 1));
	i = (fixed >> 8) + p->offset[axis];
	ret->at[0] = addressed(t, axis, i, n);
	ret->at[1] = addressed(t, axis, i + 1, n);
	if (clamps(t, axis) && ret->at[0] == ret->at[1]) {
		ret->weight = 0; /* the coordinate itself is clamped */
	}
}

/* Splits the weight of a slice: first between columns, then between rows. */
static void split(int32_t total, int32_t a, int32_t b, int32_t *ret)
{
	int32_t right = (total * a + ONE / 2) / ONE, left = total - right;

	ret[3] = (right * b + ONE / 2) / ONE;
	ret[1] = right - ret[3];
	ret[0] = (left * (ONE - b) + ONE / 2) / ONE;
	ret[2] = left - ret[0];
}

/* Adds the texels of one level, which have this weight in all. */
static bool add_level(const struct exec_texture_lane *l, const struct place *p, uint32_t number,
		      int32_t weight, struct terms *terms)
{
	const struct soft_texture *t = l->t;
	bool linear = t->flags & SOFT_TEXTURE_LINEAR, layered = t->flags & SOFT_TEXTURE_LAYERED;
	int32_t *weights = terms->weights + terms->n;
	unsigned n = linear ? 4 : 1;
	struct exec_texture_level level;
	struct axis x[3];
	int32_t far;

	exec_texture_level(t, number, &level);
	for (unsigned i = 0; i < 3; i++) {
		find_axis(t, i, p, level.size[i], linear, &x[i]);
	}
	n *= linear && p->axes == 3 && !layered ? 2 : 1;
	for (unsigned i = 0; i < n; i++) {
		int64_t z = layered ? (int64_t)p->layer : x[2].at[i >> 2];

		if (!read_at(l, &level, x[0].at[i & 1], x[1].at[i >> 1 & 1], z,
			     &terms->texels[terms->n + i])) {
			return false;
		}
	}
	terms->n += n;
	if (!linear) {
		weights[0] = weight;
		return true;
	}
	far = n == 8 ? (weight * x[2].weight + ONE / 2) / ONE : 0;
	split(weight - far, x[0].weight, x[1].weight, weights);
	if (n == 8) {
		split(far, x[0].weight, x[1].weight, weights + 4);
	}
	return true;
}

/* Selects the face of a cube, and the coordinates on it from 0 to 1. */
static uint32_t cube_face(const double *v, double *ret_s, double *ret_t)
{
	double ax = fabs(v[0]), ay = fabs(v[1]), az = fabs(v[2]), s, t, major;
	uint32_t face;

	if (az >= ax && az >= ay) {
		face = signbit(v[2]) ? 5 : 4;
		s = face == 4 ? v[0] : -v[0];
		t = -v[1];
		major = az;
	} else if (ay >= ax) {
		face = signbit(v[1]) ? 3 : 2;
		s = v[0];
		t = face == 2 ? v[2] : -v[2];
		major = ay;
	} else {
		face = signbit(v[0]) ? 1 : 0;
		s = face == 0 ? -v[2] : v[2];
		t = -v[1];
		major = ax;
	}
	*ret_s = major > 0 ? (s / major + 1) / 2 : 0.5;
	*ret_t = major > 0 ? (t / major + 1) / 2 : 0.5;
	return face;
}

static uint32_t clamped_layer(const struct soft_texture *t, uint32_t layer, uint32_t per_element)
{
	uint32_t n = MAX(t->layers / per_element, 1u);

	return t->first_layer + MIN(layer, n - 1) * per_element;
}

static void find_place(const struct exec_texture_lane *l, enum exec_texture_shape shape,
		       const uint32_t *x, struct place *ret)
{
	const struct soft_texture *t = l->t;
	bool in_array = l->o->flags & TEX_LAYERED;
	uint32_t layer = in_array ? x[TEX_LAYER] : 0, face;
	double v[3];

	*ret = (struct place){ .axes = shape == SHAPE_CUBE ? 2 : (unsigned)shape + 1 };
	for (unsigned i = 0; i < 3; i++) {
		v[i] = (double)exec_num_float(x[TEX_X + i]);
		ret->x[i] = v[i];
		ret->offset[i] = l->o->flags & TEX_OFFSETS ? (int32_t)x[TEX_OFFSET + i] : 0;
		ret->offset[i] = (int32_t)((uint32_t)ret->offset[i] << 28) >> 28; /* 4 bits */
	}
	if (!(t->flags & SOFT_TEXTURE_LAYERED)) {
		return;
	}
	ret->layer = clamped_layer(t, layer, shape == SHAPE_CUBE ? FACES : 1);
	if (shape == SHAPE_CUBE) {
		face = cube_face(v, &ret->x[0], &ret->x[1]);
		ret->layer = MIN(ret->layer + face, t->first_layer + t->layers - 1);
	}
}

/* Returns the level of detail for the derivatives of the coordinates. */
static double gradient_level(const struct exec_texture_lane *l, unsigned axes, const uint32_t *x)
{
	const uint32_t size[3] = { l->t->width, l->t->height, l->t->depth };
	double longest = 0;

	for (unsigned from = TEX_DX; from <= TEX_DY; from += TEX_DY - TEX_DX) {
		double sum = 0;

		for (unsigned i = 0; i < axes; i++) {
			double step = (double)exec_num_float(x[from + i]);

			step *= l->t->flags & SOFT_TEXTURE_NORMALIZED
					? (double)MAX(size[i] >> l->t->first_level, 1u)
					: 1.0;
			sum += step * step;
		}
		longest = fmax(longest, sqrt(sum));
	}
	return longest > 0 ? floor(log2(longest) * ONE + 0.5) / ONE : -INFINITY;
}

static bool blend(const struct soft_texture *t, const struct terms *terms, struct exec_texel *ret)
{
	if (terms->n == 1) {
		*ret = terms->texels[0];
		exec_texel_result(t, ret);
	} else {
		exec_texel_blend(t, terms->texels, terms->weights, terms->n, ret);
	}
	return true;
}

/* Chooses levels and samples them. */
bool exec_texture_sample(const struct exec_texture_lane *l, enum exec_texture_shape shape,
			 const uint32_t *x, struct exec_texel *ret)
{
	const struct soft_texture *t = l->t;
	uint32_t most = t->last_level - t->first_level, low;
	struct terms terms = { .n = 0 };
	struct place p;
	double lod = 0;
	int32_t fixed;

	find_place(l, shape, x, &p);
	if (most == 0 || l->o->flags & TEX_BASE) {
		return add_level(l, &p, t->first_level, ONE, &terms) && blend(t, &terms, ret);
	}
	if (l->o->flags & TEX_LEVEL) {
		lod = (double)exec_num_float(x[TEX_LOD]);
	} else if (l->o->flags & TEX_GRAD) {
		lod = gradient_level(l, p.axes, x);
	}
	/* Without a level of its own an instruction of a kernel ignores the bias. */
	lod += l->o->flags & (TEX_LEVEL | TEX_GRAD) ? (double)t->bias : 0.0;
	lod = fmax(lod, (double)t->min_level);
	lod = fmin(lod, (double)t->max_level);
	lod = fmin(fmax(lod, 0.0), (double)most);
	if (!(t->flags & SOFT_TEXTURE_MIP_LINEAR)) {
		lod = floor(lod + 0.5);
	}
	fixed = (int32_t)(lod * ONE);
	low = t->first_level + (uint32_t)fixed / ONE;
	fixed %= ONE;
	return add_level(l, &p, low, ONE - fixed, &terms) &&
	       (fixed == 0 || add_level(l, &p, low + 1, fixed, &terms)) && blend(t, &terms, ret);
}

/* One component of the four texels that an interpolation would use, in the order lower left, lower
 * right, upper right, upper left. */
bool exec_texture_gather(const struct exec_texture_lane *l, enum exec_texture_shape shape,
			 const uint32_t *x, struct exec_texel *ret)
{
	static const uint8_t order[4][2] = { { 0, 1 }, { 1, 1 }, { 1, 0 }, { 0, 0 } };
	const struct soft_texture *t = l->t;
	unsigned component = l->o->size - 1u;
	struct exec_texture_level level;
	struct exec_texel one;
	struct axis at[2];
	struct place p;

	find_place(l, shape, x, &p);
	exec_texture_level(t, t->first_level, &level);
	find_axis(t, 0, &p, level.size[0], true, &at[0]);
	find_axis(t, 1, &p, level.size[1], true, &at[1]);
	for (unsigned i = 0; i < 4; i++) {
		if (!read_at(l, &level, at[0].at[order[i][0]], at[1].at[order[i][1]], p.layer,
			     &one)) {
			return false;
		}
		exec_texel_result(t, &one);
		ret->v[i] = one.v[component];
	}
	return true;
}

/* A texel by its number: outside the texture everything is 0. */
bool exec_texture_fetch(const struct exec_texture_lane *l, enum exec_texture_shape shape,
			const uint32_t *x, struct exec_texel *ret)
{
	const struct soft_texture *t = l->t;
	uint32_t number = t->first_level + (l->o->flags & TEX_LEVEL ? x[TEX_LOD] : 0);
	struct exec_texture_level level;
	int64_t at[3] = { 0 };

	*ret = (struct exec_texel){ { 0 } };
	if (number > t->last_level || number < t->first_level) {
		return true;
	}
	exec_texture_level(t, number, &level);
	for (unsigned i = 0; i <= (unsigned)shape && i < 3; i++) {
		at[i] = (int64_t)(int32_t)x[TEX_X + i] +
			(l->o->flags & TEX_OFFSETS ? (int32_t)x[TEX_OFFSET + i] : 0);
		if (at[i] < 0 || at[i] >= level.size[i]) {
			return true;
		}
	}
	if (t->flags & SOFT_TEXTURE_LAYERED) {
		at[2] = clamped_layer(t, l->o->flags & TEX_LAYERED ? x[TEX_LAYER] : 0, 1);
	}
	if (!read_at(l, &level, at[0], at[1], at[2], ret)) {
		return false;
	}
	exec_texel_result(t, ret);
	return true;
}
