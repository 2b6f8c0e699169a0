/* Handlers of tex, tld4, txq, suq and istypep. */
#include <string.h>

#include "base/compiler.h"
#include "soft/server/exec/op/number.h"
#include "soft/server/exec/texture/sampler.h"

/* The numbers of OpenCL, which PTX uses for channel types and orders. */
#define CHANNEL_SNORM_INT8 0x10d0u
#define CHANNEL_ORDER_R 0x10b0u

static void read_inputs(struct exec_warp *w, const struct exec_op *o, unsigned lane, uint32_t *ret)
{
	for (unsigned i = 0; i < TEX_INPUTS; i++) {
		ret[i] = REF(const uint32_t, w, (uint32_t)o->imm + i * EXEC_SLOT32)[lane];
	}
}

static uint32_t halves(uint32_t low, uint32_t high)
{
	uint32_t a = exec_num_round(NUM_F16, (double)exec_num_float(low), ROUND_RN, false);
	uint32_t b = exec_num_round(NUM_F16, (double)exec_num_float(high), ROUND_RN, false);

	return (a & 0xffff) | b << 16;
}

static bool one_lane(const struct exec_texture_lane *l, const uint32_t *x, struct exec_texel *ret)
{
	enum exec_texture_shape shape = (enum exec_texture_shape)l->o->sub;

	if (l->o->size) {
		return exec_texture_gather(l, shape, x, ret);
	}
	if (l->o->flags & TEX_INTEGER) {
		return exec_texture_fetch(l, shape, x, ret);
	}
	return exec_texture_sample(l, shape, x, ret);
}

static void store(struct exec_warp *w, const struct exec_op *o, unsigned lane,
		  const struct exec_texel *r)
{
	const uint32_t refs[4] = { o->d, o->b, o->c, o->e };

	if (o->flags & TEX_HALVES) {
		REF(uint32_t, w, refs[0])[lane] = halves(r->v[0], r->v[1]);
		REF(uint32_t, w, refs[1])[lane] = halves(r->v[2], r->v[3]);
		return;
	}
	for (unsigned k = 0; k < 4; k++) {
		REF(uint32_t, w, refs[k])[lane] = r->v[k];
	}
}

/* Lanes usually have one handle: its object is copied once. Results are stored when every lane has
 * read its inputs, which may be the same registers. */
int exec_op_tex(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	struct exec_texel results[EXEC_LANES];
	struct exec_texture_lane l;
	struct soft_texture t;
	uint32_t x[TEX_INPUTS];
	uint64_t last = 0;

	exec_each_lane (m, lane) {
		uint64_t handle = exec_lane_get(w, o->a, true, lane);

		if (handle != last || last == 0) {
			if (exec_texture_find(w, o, lane, handle, SOFT_TEXTURE_SAMPLED, &t)) {
				return STEP_FAULT;
			}
			last = handle;
		}
		exec_texture_lane(&l, w, o, lane, &t);
		read_inputs(w, o, lane, x);
		if (!one_lane(&l, x, &results[lane])) {
			return STEP_FAULT;
		}
	}
	exec_each_lane (m, i) {
		store(w, o, i, &results[i]);
	}
	if (o->p != EXEC_NO_PRED) {
		exec_pred_set(w, o->p, m, ~0u); /* every texel is resident */
	}
	return STEP_NEXT;
}

static uint32_t channel_type(const struct soft_texture *t)
{
	static const uint8_t offsets[SOFT_TEXEL_FORMATS][2] = {
		/* as whole numbers, as fractions of 1: from CHANNEL_SNORM_INT8 */
		[SOFT_TEXEL_U8] = { 10, 2 },   [SOFT_TEXEL_S8] = { 7, 0 },
		[SOFT_TEXEL_U16] = { 11, 3 },  [SOFT_TEXEL_S16] = { 8, 1 },
		[SOFT_TEXEL_U32] = { 12, 12 }, [SOFT_TEXEL_S32] = { 9, 9 },
		[SOFT_TEXEL_F16] = { 13, 13 }, [SOFT_TEXEL_F32] = { 14, 14 },
	};

	return CHANNEL_SNORM_INT8 + offsets[t->format][t->flags & SOFT_TEXTURE_AS_FLOAT &&
						       t->kind == SOFT_TEXTURE_SAMPLED];
}

static uint32_t channel_order(const struct soft_texture *t)
{
	return CHANNEL_ORDER_R + (t->channels == 1 ? 0 : t->channels == 2 ? 2 : 5);
}

static uint32_t answer(const struct soft_texture *t, unsigned query, uint32_t level)
{
	bool layered = t->flags & SOFT_TEXTURE_LAYERED;

	level = MIN(level, t->last_level - t->first_level) + t->first_level;
	switch (query) {
	case QUERY_WIDTH:
		return MAX(t->width >> level, 1u);
	case QUERY_HEIGHT:
		return MAX(t->height >> level, 1u);
	case QUERY_DEPTH:
		return layered || !t->depth ? 0 : MAX(t->depth >> level, 1u);
	case QUERY_TYPE:
		return channel_type(t);
	case QUERY_ORDER:
		return channel_order(t);
	case QUERY_NORMALIZED:
		return t->flags & SOFT_TEXTURE_NORMALIZED ? 1 : 0;
	case QUERY_UNNORMALIZED:
		return t->flags & SOFT_TEXTURE_NORMALIZED ? 0 : 1;
	case QUERY_LAYERS:
		return layered ? t->layers / (t->flags & SOFT_TEXTURE_CUBE ? 6 : 1) : 0;
	case QUERY_LEVELS:
		return t->last_level - t->first_level + 1;
	case QUERY_SAMPLES:
		return 1;
	case QUERY_FILTER:
		return t->flags & SOFT_TEXTURE_LINEAR ? 1 : 0;
	case QUERY_MODE_0:
	case QUERY_MODE_1:
	case QUERY_MODE_2:
		return t->address_mode[query - QUERY_MODE_0];
	default: /* the layout of surfaces: not blocks */
		return 0;
	}
}

int exec_op_texture_query(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	struct soft_texture t;

	exec_each_lane (m, lane) {
		uint32_t level = o->flags ? REF(const uint32_t, w, o->b)[lane] : 0;

		if (exec_texture_find(w, o, lane, exec_lane_get(w, o->a, true, lane),
				      o->n ? SOFT_TEXTURE_SURFACE : SOFT_TEXTURE_SAMPLED, &t)) {
			return STEP_FAULT;
		}
		REF(uint32_t, w, o->d)[lane] = answer(&t, o->sub, level);
	}
	return STEP_NEXT;
}
