/* Textures and surfaces in kernels: finding the object of a handle, reading and writing texels, and
 * the handlers of the instructions. */
#ifndef GBPF_SOFT_SERVER_EXEC_TEXTURE_SAMPLER_H
#define GBPF_SOFT_SERVER_EXEC_TEXTURE_SAMPLER_H

#include "soft/server/exec/handlers.h"
#include "soft/texture.h"

/* Geometry of an instruction. */
enum exec_texture_shape { SHAPE_1D, SHAPE_2D, SHAPE_3D, SHAPE_CUBE };

/* The inputs of an instruction, one 32-bit register each, adjacent from the first: */
enum {
	TEX_X,
	TEX_Y,
	TEX_Z,
	TEX_LAYER,
	TEX_LOD,
	TEX_DX,
	TEX_DY = TEX_DX + 3,
	TEX_OFFSET = TEX_DY + 3,
	TEX_DEPTH = TEX_OFFSET + 3, /* compared with the texel */
	TEX_INPUTS
};
/* Flags of the operation. */
enum {
	TEX_LAYERED = 1,
	TEX_INTEGER = 2, /* coordinates are numbers of texels */
	TEX_LEVEL = 4,
	TEX_GRAD = 8,
	TEX_OFFSETS = 16,
	TEX_COMPARE = 32,
	TEX_HALVES = 64, /* two registers of two halves */
	TEX_BASE = 128,
};

/* A level of a texture. */
struct exec_texture_level {
	uint64_t address, pitch, slice;
	int32_t size[3]; /* width, height, slices; at least 1 */
};

/* One lane's access. */
struct exec_texture_lane {
	struct exec_warp *w;
	const struct exec_op *o;
	unsigned lane;
	const struct soft_texture *t;
	unsigned channel_bytes, texel_bytes;
};

/* A texel or a result: bits of integers or of floats. */
struct exec_texel {
	uint32_t v[4];
};

/* texture_find.c */
/* Copies the object of the lane's handle. Returns 0, or STEP_FAULT after setting the fault. */
int exec_texture_find(struct exec_warp *w, const struct exec_op *o, unsigned lane, uint64_t handle,
		      enum soft_texture_kind kind, struct soft_texture *ret);
void exec_texture_lane(struct exec_texture_lane *l, struct exec_warp *w, const struct exec_op *o,
		       unsigned lane, const struct soft_texture *t);
/* Computes a level, counted from level 0 of the array. */
void exec_texture_level(const struct soft_texture *t, uint32_t level,
			struct exec_texture_level *ret);

/* texel.c */
/* Reads the channels of a texel as they lie in memory, sign or zero extended; f16 as f32. Missing
 * channels are 0. Returns false after setting the fault. */
bool exec_texel_read(const struct exec_texture_lane *l, uint64_t address, struct exec_texel *ret);
/* Converts a texel to the result of a fetch without interpolation. */
void exec_texel_result(const struct soft_texture *t, struct exec_texel *x);
/* The result of an interpolation of n texels with weights whose sum is 256. */
void exec_texel_blend(const struct soft_texture *t, const struct exec_texel *texels,
		      const int32_t *weights, unsigned n, struct exec_texel *ret);
void exec_texel_border(const struct soft_texture *t, struct exec_texel *ret);

/* texture_sample.c: x has TEX_INPUTS entries. Return false after setting the fault. */
bool exec_texture_sample(const struct exec_texture_lane *l, enum exec_texture_shape shape,
			 const uint32_t *x, struct exec_texel *ret);
bool exec_texture_gather(const struct exec_texture_lane *l, enum exec_texture_shape shape,
			 const uint32_t *x, struct exec_texel *ret);
bool exec_texture_fetch(const struct exec_texture_lane *l, enum exec_texture_shape shape,
			const uint32_t *x, struct exec_texel *ret);

/* Handlers. a: handle; d, b, c, e: results; imm: the first input; sub: shape; flags: TEX_*;
 * size: 1 + component of tld4; p: predicate that is set, or EXEC_NO_PRED. */
int exec_op_tex(struct exec_warp *w, const struct exec_op *o, uint32_t m);
/* d: result; a: handle; sub: query; b: level if flags. */
int exec_op_texture_query(struct exec_warp *w, const struct exec_op *o, uint32_t m);
enum {
	QUERY_WIDTH,
	QUERY_HEIGHT,
	QUERY_DEPTH,
	QUERY_TYPE,
	QUERY_ORDER,
	QUERY_NORMALIZED,
	QUERY_LAYERS,
	QUERY_LEVELS,
	QUERY_SAMPLES,
	QUERY_UNNORMALIZED,
	QUERY_FILTER,
	QUERY_MODE_0,
	QUERY_MODE_1,
	QUERY_MODE_2,
	QUERY_LAYOUT,
};

/* surface_op.c. a: handle; imm: the first input; q: shape; r: SURFACE_* outside the surface; size
 * and n: of the values; d, b, c, e: values, bit k of wide: the k-th is a 64-bit register; flags:
 * TEX_LAYERED, and SURFACE_FORMATTED if x counts texels and values are converted. */
int exec_op_surface_load(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_surface_store(struct exec_warp *w, const struct exec_op *o, uint32_t m);
/* As above, with the operation in sub, type and type2 as for exec_op_atom, and its value in b. */
int exec_op_surface_reduce(struct exec_warp *w, const struct exec_op *o, uint32_t m);
enum { SURFACE_TRAP, SURFACE_CLAMP, SURFACE_ZERO };
enum { SURFACE_FORMATTED = 2 };

#endif
