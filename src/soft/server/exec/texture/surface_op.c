/* Handlers of suld, sust and sured. */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "soft/server/exec/memory/atom.h"
#include "soft/server/exec/op/number.h"
#include "soft/server/exec/texture/sampler.h"

#define ACCESS_MAX 32u /* bytes */

enum placed { PLACED, OUTSIDE, FAULT };

static int64_t input(struct exec_warp *w, const struct exec_op *o, unsigned lane, unsigned i)
{
	return (int32_t)REF(const uint32_t, w, (uint32_t)o->imm + i * EXEC_SLOT32)[lane];
}

/* Brings *v into [0, n). Returns false if the access has no effect. */
static bool confine(int64_t *v, int64_t n, unsigned mode)
{
	if (*v >= 0 && *v < n) {
		return true;
	}
	*v = *v < 0 || n <= 0 ? 0 : n - 1;
	return mode == SURFACE_CLAMP && n > 0;
}

/* Finds the address of an access of this many bytes. */
static enum placed place(const struct exec_texture_lane *l, unsigned bytes, uint64_t *ret)
{
	const struct soft_texture *t = l->t;
	const struct exec_op *o = l->o;
	bool formatted = o->flags & SURFACE_FORMATTED, layered = o->flags & TEX_LAYERED, in = true;
	struct exec_texture_level level;
	int64_t x = input(l->w, o, l->lane, TEX_X), v[3] = { 0 }, row;

	exec_texture_level(t, t->first_level, &level);
	row = (int64_t)level.size[0] * l->texel_bytes;
	x *= formatted ? l->texel_bytes : 1;
	if (x < 0 || x > row - (int64_t)bytes) {
		in = o->r == SURFACE_CLAMP && row >= (int64_t)bytes;
		x = x < 0 ? 0 : row - (int64_t)bytes;
	}
	for (unsigned i = 1; i < 3 && i <= o->q; i++) {
		v[i] = input(l->w, o, l->lane, TEX_X + i);
		in = confine(&v[i], level.size[i], o->r) && in;
	}
	if (t->flags & SOFT_TEXTURE_LAYERED) {
		/* a layer below 0 is clamped to the last: its number has no sign */
		v[2] = layered ? (int64_t)(uint32_t)input(l->w, o, l->lane, TEX_LAYER) : 0;
		in = confine(&v[2], t->layers, o->r) && in;
		v[2] += t->first_layer;
	}
	if (!in && o->r == SURFACE_TRAP) {
		exec_fault_set(l->w, o, EXEC_FAULT_ADDRESS, l->lane, (uint64_t)x,
			       "access outside the surface");
		return FAULT;
	}
	*ret = level.address + (uint64_t)x + (uint64_t)v[1] * level.pitch +
	       (uint64_t)v[2] * level.slice;
	return in ? PLACED : OUTSIDE;
}

/* Finds the bytes of an access; *ret is NULL if there are none. */
static enum placed reach(const struct exec_texture_lane *l, unsigned bytes, bool write,
			 uint8_t **ret)
{
	uint64_t at = 0;
	enum placed found = place(l, bytes, &at);

	*ret = found == PLACED ? exec_lane_pointer(l->w, l->o, SP_GLOBAL, l->lane, at, bytes, write)
			       : NULL;
	return found == PLACED && !*ret ? FAULT : found;
}

/* Finds the surface of each lane in turn; last is the handle that t belongs to. */
static bool lane_surface(struct exec_texture_lane *l, struct exec_warp *w, const struct exec_op *o,
			 unsigned lane, struct soft_texture *t, uint64_t *last)
{
	uint64_t handle = exec_lane_get(w, o->a, true, lane);

	if (handle != *last || *last == 0) {
		if (exec_texture_find(w, o, lane, handle, SOFT_TEXTURE_SURFACE, t)) {
			return false;
		}
		*last = handle;
	}
	exec_texture_lane(l, w, o, lane, t);
	return true;
}

int exec_op_surface_load(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const uint32_t refs[4] = { o->d, o->b, o->c, o->e };
	uint64_t values[EXEC_LANES][4] = { { 0 } };
	unsigned bytes = o->size * (unsigned)o->n;
	struct exec_texture_lane l;
	struct soft_texture t;
	uint64_t last = 0;

	exec_each_lane (m, lane) {
		uint8_t *p;

		if (!lane_surface(&l, w, o, lane, &t, &last) ||
		    reach(&l, bytes, false, &p) == FAULT) {
			return STEP_FAULT;
		}
		for (unsigned k = 0; p && k < o->n; k++) {
			memcpy(&values[lane][k], p + (size_t)k * o->size, o->size);
		}
	}
	exec_each_lane (m, i) {
		for (unsigned k = 0; k < o->n; k++) {
			exec_lane_set(w, refs[k], o->wide >> k & 1, i, values[i][k]);
		}
	}
	return STEP_NEXT;
}

static uint32_t fraction(uint32_t bits, double min, double one)
{
	double v = (double)exec_num_float(bits);

	v = v == v ? fmin(fmax(v, min), 1.0) : 0.0;
	return (uint32_t)(int32_t)floor(v * one + 0.5);
}

static uint32_t clamped(uint32_t bits, int32_t min, int32_t max)
{
	return (uint32_t)MIN(MAX((int32_t)bits, min), max);
}

/* Converts a value of sust.p to the format of a channel. */
static uint32_t converted(const struct soft_texture *t, uint32_t v)
{
	bool of_float = t->flags & SOFT_TEXTURE_AS_FLOAT;

	switch (t->format) {
	case SOFT_TEXEL_U8:
		return of_float ? fraction(v, 0, UINT8_MAX) : MIN(v, (uint32_t)UINT8_MAX);
	case SOFT_TEXEL_S8:
		return of_float ? fraction(v, -1, INT8_MAX) : clamped(v, INT8_MIN, INT8_MAX);
	case SOFT_TEXEL_U16:
		return of_float ? fraction(v, 0, UINT16_MAX) : MIN(v, (uint32_t)UINT16_MAX);
	case SOFT_TEXEL_S16:
		return of_float ? fraction(v, -1, INT16_MAX) : clamped(v, INT16_MIN, INT16_MAX);
	case SOFT_TEXEL_F16:
		return exec_num_round(NUM_F16, (double)exec_num_float(v), ROUND_RN, false);
	default:
		return v;
	}
}

static void store(const struct exec_texture_lane *l, uint8_t *p)
{
	const struct exec_op *o = l->o;
	const uint32_t refs[4] = { o->d, o->b, o->c, o->e };
	bool formatted = o->flags & SURFACE_FORMATTED;
	unsigned n = formatted ? MIN((unsigned)o->n, l->t->channels) : o->n;
	unsigned size = formatted ? l->channel_bytes : o->size;

	for (unsigned k = 0; k < n; k++) {
		uint64_t v = exec_lane_get(l->w, refs[k], o->wide >> k & 1, l->lane);

		v = formatted ? converted(l->t, (uint32_t)v) : v;
		memcpy(p + (size_t)k * size, &v, size);
	}
}

int exec_op_surface_store(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	struct exec_texture_lane l;
	struct soft_texture t;
	uint64_t last = 0;

	exec_each_lane (m, lane) {
		unsigned bytes;
		uint8_t *p;

		if (!lane_surface(&l, w, o, lane, &t, &last)) {
			return STEP_FAULT;
		}
		bytes = o->flags & SURFACE_FORMATTED ? l.texel_bytes : o->size * (unsigned)o->n;
		if (reach(&l, bytes, true, &p) == FAULT) {
			return STEP_FAULT;
		}
		if (p) {
			store(&l, p);
		}
	}
	return STEP_NEXT;
}

int exec_op_surface_reduce(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	struct exec_texture_lane l;
	struct soft_texture t;
	uint64_t last = 0;

	exec_each_lane (m, lane) {
		uint8_t *p;

		if (!lane_surface(&l, w, o, lane, &t, &last) ||
		    reach(&l, o->size, true, &p) == FAULT) {
			return STEP_FAULT;
		}
		if (p) {
			exec_atom_device(o, p, exec_lane_get(w, o->b, o->size == 8, lane));
		}
	}
	return STEP_NEXT;
}
