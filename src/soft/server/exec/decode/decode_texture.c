/* Decoding of tex, tld4, txq and suq. Coordinates and other inputs are copied into adjacent
 * registers, which all such instructions of a function share. */
#include "soft/server/exec/decode/decode_kernel.h"
#include "soft/server/exec/texture/sampler.h"

#include <errno.h>
#include <string.h>

/* Geometries: name, shape, layered, elements of the vector of coordinates as written (in the order
 * layer, x, y, z) and the largest number that is accepted; further ones are ignored. */
static const struct geometry {
	const char *name;
	enum exec_texture_shape shape;
	bool layered;
	uint8_t coordinates, most;
} geometries[] = {
	{ ".1d", SHAPE_1D, false, 1, 1 },     { ".2d", SHAPE_2D, false, 2, 2 },
	{ ".3d", SHAPE_3D, false, 3, 4 },     { ".a1d", SHAPE_1D, true, 1, 2 },
	{ ".a2d", SHAPE_2D, true, 2, 4 },     { ".cube", SHAPE_CUBE, false, 3, 4 },
	{ ".acube", SHAPE_CUBE, true, 3, 4 },
};

static const struct geometry *take_geometry(struct exec_decoder *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(geometries); i++) {
		if (exec_dec_has(d, geometries[i].name)) {
			return &geometries[i];
		}
	}
	return NULL;
}

int exec_dec_texture_inputs(struct exec_decoder *d, uint32_t *ret)
{
	uint32_t next;

	if (d->texture_inputs && d->texture_shape == d->current) {
		*ret = d->texture_inputs - 1;
		return 0;
	}
	for (unsigned i = 0; i < TEX_INPUTS; i++) {
		int err = exec_dec_new_register(d, TY_U32, i ? &next : ret);

		if (err < 0) {
			return err;
		}
	}
	d->texture_inputs = *ret + 1;
	d->texture_shape = d->current;
	return 0;
}

int exec_dec_texture_input(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
			   unsigned i)
{
	struct exec_op mov = exec_dec_op(d, d->h->alu[ALU_MOV][TY_U32]);
	int err = exec_dec_source(d, o, t, &mov.a);

	if (err == 0) {
		err = exec_dec_texture_inputs(d, &mov.d);
	}
	mov.d += i * EXEC_SLOT32;
	return err < 0 ? err : exec_dec_emit(d, &mov);
}

/* Copies n elements of a vector, or one scalar, into adjacent inputs. */
static int put_vector(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
		      unsigned to, unsigned n, unsigned most)
{
	const struct ptx_operand *args = o->kind == PTX_VECTOR ? o->args : o;
	uint32_t given = o->kind == PTX_VECTOR ? o->n_args : 1;
	int err = 0;

	if (given < n || given > MAX(n, most)) {
		return exec_dec_fail(d, "%u values in { } are expected, found %u", n, given);
	}
	for (unsigned i = 0; err == 0 && i < n; i++) {
		err = exec_dec_texture_input(d, &args[i], t, to + i);
	}
	return err;
}

/* The operand [a, c] or [a, b, c]: handle and coordinates. A sampler of its own is refused. */
static int access(struct exec_decoder *d, const struct ptx_operand *o, const struct geometry *g,
		  enum exec_type t, struct exec_op *op)
{
	struct ptx_operand rest;
	const struct ptx_operand *c;
	int err;

	if (o->kind != PTX_ADDRESS || o->n_args == 0) {
		return exec_dec_fail(d, "[texture, coordinates] is expected");
	}
	if (o->n_args > 1) {
		return exec_dec_fail(d, "samplers apart from textures are not supported; use "
					".texmode_unified");
	}
	err = exec_dec_texture_handle(d, o, &op->a);
	c = &o->args[0];
	if (err == 0 && g->layered) {
		if (c->kind != PTX_VECTOR || c->n_args < 2) {
			return exec_dec_fail(d, "{layer, coordinates} is expected");
		}
		err = exec_dec_texture_input(d, &c->args[0], TY_U32, TEX_LAYER);
		rest = *c;
		rest.args++;
		rest.n_args--;
		c = &rest;
	}
	return err < 0 ? err : put_vector(d, c, t, TEX_X, g->coordinates, g->most);
}

/* The handle: a register of 64 bits, or a .texref or .surfref variable, whose address stands for
 * the handle in it. */
int exec_dec_texture_handle(struct exec_decoder *d, const struct ptx_operand *o, uint32_t *ret)
{
	struct ptx_operand name = { .kind = PTX_NAME, .name = o->name };

	if (!o->name || o->offset) {
		return exec_dec_fail(d, "a handle or the name of a texture is expected in [ ]");
	}
	return exec_dec_source(d, &name, TY_U64, ret);
}

/* d or d|p. */
static int results(struct exec_decoder *d, const struct ptx_operand *o, struct exec_op *op)
{
	uint32_t *refs[4] = { &op->d, &op->b, &op->c, &op->e };
	unsigned n = op->flags & TEX_HALVES ? 2 : 4;
	int err = 0;

	op->p = EXEC_NO_PRED;
	if (o->kind == PTX_PAIR) {
		err = exec_dec_pred(d, &o->args[1], &op->p, NULL);
		o = &o->args[0];
	}
	if (err == 0 && (o->kind != PTX_VECTOR || o->n_args != n)) {
		return exec_dec_fail(d, "%u registers in { } are expected", n);
	}
	for (unsigned i = 0; err == 0 && i < n; i++) {
		err = exec_dec_dest(d, &o->args[i], TY_U32, refs[i]);
	}
	return err;
}

/* .v4.dtype.ctype: the bits of the result depend on the texture alone. */
static int take_types(struct exec_decoder *d, struct exec_op *op, enum exec_type *ret)
{
	static const char *const results_of[] = { ".f32", ".u32", ".s32", ".f16x2" };
	static const char *const coordinates[] = { ".f32", ".s32" };
	const struct ptx_insn *insn = d->insn;
	bool found = false;
	unsigned n = insn->n_modifiers;

	op->flags |= exec_dec_has(d, ".f16x2") ? TEX_HALVES : 0;
	if (!exec_dec_has(d, op->flags & TEX_HALVES ? ".v2" : ".v4")) {
		return exec_dec_fail(d, ".v4 is expected (.v2 with .f16x2)");
	}
	if (n < 2) {
		return exec_dec_fail(d, "two types are expected");
	}
	for (size_t i = 0; i < ARRAY_SIZE(results_of); i++) {
		found = found || strcmp(insn->modifiers[n - 2], results_of[i]) == 0;
	}
	if (!found || (strcmp(insn->modifiers[n - 1], coordinates[0]) != 0 &&
		       strcmp(insn->modifiers[n - 1], coordinates[1]) != 0)) {
		return exec_dec_fail(d, "the types of result and coordinates are expected");
	}
	*ret = strcmp(insn->modifiers[n - 1], ".s32") == 0 ? TY_S32 : TY_F32;
	d->used_modifiers |= 3u << (n - 2);
	return 0;
}

/* Offsets and a value to compare with follow the other operands. */
static int optional(struct exec_decoder *d, const struct geometry *g, uint32_t first_operand,
		    struct exec_op *op)
{
	const struct ptx_insn *insn = d->insn;
	unsigned n = g->coordinates;
	int err = 0;

	if (insn->n_operands <= first_operand) {
		return 0;
	}
	if (insn->n_operands > first_operand + 1 || g->shape == SHAPE_CUBE ||
	    (insn->operands[first_operand].kind != PTX_VECTOR && n > 1)) {
		return exec_dec_fail(d, "comparison with a depth is not supported");
	}
	op->flags |= TEX_OFFSETS;
	err = put_vector(d, &insn->operands[first_operand], TY_S32, TEX_OFFSET, n, 4);
	return err;
}

int exec_dec_tex(struct exec_decoder *d, int gather, int b)
{
	static const char *const components[] = { ".r", ".g", ".b", ".a" };
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_tex);
	const struct geometry *g;
	uint32_t first = 0, next = 2;
	enum exec_type t = TY_F32;
	int err, component = gather ? exec_dec_pick(d, components, 4, -1) : 0;

	op.flags |= exec_dec_has(d, ".level") ? TEX_LEVEL : 0;
	op.flags |= exec_dec_has(d, ".grad") ? TEX_GRAD : 0;
	op.flags |= exec_dec_has(d, ".base") ? TEX_BASE : 0;
	g = take_geometry(d);
	if (!g || component < 0 || (gather && g->shape != SHAPE_2D && g->shape != SHAPE_CUBE)) {
		return exec_dec_fail(d, "this geometry is not supported");
	}
	err = take_types(d, &op, &t);
	if (err == 0) {
		err = exec_dec_modifiers_done(d);
	}
	if (err < 0) {
		return err;
	}
	if (d->insn->n_operands < (op.flags & TEX_GRAD ? 4u : op.flags & TEX_LEVEL ? 3u : 2u)) {
		return exec_dec_fail(d, "operands are missing");
	}
	op.sub = (uint8_t)g->shape;
	op.size = gather ? (uint8_t)(component + 1) : 0;
	op.flags |= g->layered ? TEX_LAYERED : 0;
	op.flags |= t == TY_S32 ? TEX_INTEGER : 0;
	err = exec_dec_texture_inputs(d, &first);
	op.imm = first;
	if (err == 0) {
		err = results(d, &in[0], &op);
	}
	if (err == 0) {
		err = access(d, &in[1], g, t, &op);
	}
	if (err == 0 && op.flags & TEX_LEVEL) {
		err = exec_dec_texture_input(d, &in[next++], t, TEX_LOD);
	}
	for (unsigned i = 0; err == 0 && op.flags & TEX_GRAD && i < 2; i++) {
		err = put_vector(d, &in[next++], TY_F32, i ? TEX_DY : TEX_DX, g->coordinates, 4);
	}
	if (err == 0) {
		err = optional(d, g, next, &op);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_texture_query(struct exec_decoder *d, int surface, int b)
{
	static const char *const words[] = {
		[QUERY_WIDTH] = ".width",
		[QUERY_HEIGHT] = ".height",
		[QUERY_DEPTH] = ".depth",
		[QUERY_TYPE] = ".channel_data_type",
		[QUERY_ORDER] = ".channel_order",
		[QUERY_NORMALIZED] = ".normalized_coords",
		[QUERY_LAYERS] = ".array_size",
		[QUERY_LEVELS] = ".num_mipmap_levels",
		[QUERY_SAMPLES] = ".num_samples",
		[QUERY_UNNORMALIZED] = ".force_unnormalized_coords",
		[QUERY_FILTER] = ".filter_mode",
		[QUERY_MODE_0] = ".addr_mode_0",
		[QUERY_MODE_1] = ".addr_mode_1",
		[QUERY_MODE_2] = ".addr_mode_2",
		[QUERY_LAYOUT] = ".memory_layout",
	};
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_texture_query);
	int query = exec_dec_pick(d, words, ARRAY_SIZE(words), -1), err;

	op.flags = exec_dec_has(d, ".level");
	if (query < 0 || !exec_dec_has(d, ".b32")) {
		return exec_dec_fail(d, "this query is not supported");
	}
	op.sub = (uint8_t)query;
	op.n = (uint8_t)surface;
	err = exec_dec_operands(d, op.flags ? 3 : 2);
	if (err == 0) {
		err = exec_dec_dest(d, &in[0], TY_U32, &op.d);
	}
	if (err == 0) {
		err = in[1].kind == PTX_ADDRESS && !in[1].n_args
			      ? exec_dec_texture_handle(d, &in[1], &op.a)
			      : exec_dec_fail(d, "[texture] is expected");
	}
	if (err == 0 && op.flags) {
		err = exec_dec_source(d, &in[2], TY_U32, &op.b);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}
