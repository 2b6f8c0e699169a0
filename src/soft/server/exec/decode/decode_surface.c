/* Decoding of suld, sust and sured. */
#include "soft/server/exec/decode/decode_kernel.h"
#include "soft/server/exec/memory/atom.h"
#include "soft/server/exec/texture/sampler.h"

#include <errno.h>
#include <string.h>

/* Takes the geometry and how accesses outside the surface are treated. Returns the number of
 * coordinates, or a negative error. */
static int take_shape(struct exec_decoder *d, struct exec_op *op)
{
	static const char *const shapes[] = { ".1d", ".2d", ".3d", ".a1d", ".a2d" };
	static const char *const modes[] = { ".trap", ".clamp", ".zero" };
	static const char *const caches[] = { ".ca", ".cg", ".cs", ".cv", ".wb", ".wt" };
	int shape = exec_dec_pick(d, shapes, ARRAY_SIZE(shapes), -1);
	int mode = exec_dec_pick(d, modes, ARRAY_SIZE(modes), SURFACE_TRAP);

	exec_dec_pick(d, caches, ARRAY_SIZE(caches), 0);
	if (shape < 0) {
		return exec_dec_fail(d, "this geometry is not supported");
	}
	if (shape > SHAPE_3D) {
		op->flags |= TEX_LAYERED;
		shape -= SHAPE_3D + 1;
	}
	op->q = (uint16_t)shape;
	op->r = (uint16_t)mode;
	return shape + 1;
}

/* The operand [a, b]: handle and coordinates. */
static int access(struct exec_decoder *d, const struct ptx_operand *o, unsigned coordinates,
		  struct exec_op *op)
{
	const struct ptx_operand *args;
	uint32_t n, first;
	int err = exec_dec_texture_inputs(d, &first);

	if (err < 0) {
		return err;
	}
	if (o->kind != PTX_ADDRESS || o->n_args != 1) {
		return exec_dec_fail(d, "[surface, coordinates] is expected");
	}
	op->imm = first;
	args = o->args[0].kind == PTX_VECTOR ? o->args[0].args : o->args;
	n = o->args[0].kind == PTX_VECTOR ? o->args[0].n_args : 1;
	err = exec_dec_texture_handle(d, o, &op->a);
	if (err == 0 && op->flags & TEX_LAYERED && n > 1) {
		err = exec_dec_texture_input(d, args, TY_U32, TEX_LAYER);
		args++;
		n--;
	}
	if (err == 0 && (n < coordinates || n > MAX(coordinates, 3u) + 1)) {
		return exec_dec_fail(d, "%u coordinates are expected", coordinates);
	}
	for (unsigned i = 0; err == 0 && i < coordinates; i++) {
		err = exec_dec_texture_input(d, &args[i], TY_S32, TEX_X + i);
	}
	return err;
}

static int values(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t, bool load,
		  struct exec_op *op)
{
	uint32_t *refs[4] = { &op->d, &op->b, &op->c, &op->e };
	const struct ptx_operand *args = o->kind == PTX_VECTOR ? o->args : o;
	int err = 0;

	if ((o->kind == PTX_VECTOR ? o->n_args : 1) != op->n) {
		return exec_dec_fail(d, "%u values are expected", op->n);
	}
	for (unsigned k = 0; err == 0 && k < op->n; k++) {
		bool wide = false;

		err = load ? exec_dec_dest_any(d, &args[k], t, refs[k], &wide)
			   : exec_dec_source_any(d, &args[k], t, refs[k], &wide);
		op->wide |= wide ? 1u << k : 0;
	}
	return err;
}

int exec_dec_surface(struct exec_decoder *d, int is_store, int b)
{
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, is_store ? exec_op_surface_store : exec_op_surface_load);
	bool formatted = is_store && exec_dec_has(d, ".p");
	enum exec_type t;
	int n, err;

	if (!formatted && !exec_dec_has(d, ".b")) {
		return exec_dec_fail(d, is_store ? ".b or .p is expected" : ".b is expected");
	}
	n = take_shape(d, &op);
	if (n < 0) {
		return n;
	}
	op.flags |= formatted ? SURFACE_FORMATTED : 0;
	op.n = exec_dec_has(d, ".v2") ? 2 : exec_dec_has(d, ".v4") ? 4 : 1;
	op.wide = 0;
	t = exec_dec_take_type(d);
	op.size = (uint8_t)exec_dec_type_bytes(t);
	if (op.size == 0 || (formatted && op.size != 4) || op.size * op.n > 16) {
		return exec_dec_fail(d, "this type is not supported");
	}
	err = exec_dec_operands(d, 2);
	if (err == 0) {
		err = access(d, &in[is_store ? 0 : 1], (unsigned)n, &op);
	}
	if (err == 0) {
		err = values(d, &in[is_store ? 1 : 0], t, !is_store, &op);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_surface_reduce(struct exec_decoder *d, int a, int b)
{
	static const char *const words[] = { ".add", ".min", ".max", ".and", ".or" };
	static const uint8_t operations[] = { ATOM_ADD, ATOM_MIN, ATOM_MAX, ATOM_AND, ATOM_OR };
	const struct ptx_operand *in = d->insn->operands;
	struct exec_op op = exec_dec_op(d, exec_op_surface_reduce);
	bool texels = exec_dec_has(d, ".p");
	int what = exec_dec_pick(d, words, ARRAY_SIZE(words), -1), n, err;
	enum exec_type t;

	if (what < 0 || (!texels && !exec_dec_has(d, ".b"))) {
		return exec_dec_fail(d, "this operation is not supported");
	}
	n = take_shape(d, &op);
	if (n < 0) {
		return n;
	}
	op.flags |= texels ? SURFACE_FORMATTED : 0;
	op.sub = operations[what];
	op.type2 = ATOM_PLAIN;
	t = exec_dec_take_type(d);
	op.type = (uint8_t)t;
	op.size = (uint8_t)exec_dec_type_bytes(t);
	if ((op.size != 4 && op.size != 8) || exec_dec_is_float(t)) {
		return exec_dec_fail(d, "this type is not supported");
	}
	err = exec_dec_operands(d, 2);
	if (err == 0) {
		err = access(d, &in[0], (unsigned)n, &op);
	}
	if (err == 0) {
		err = exec_dec_source(d, &in[1], t, &op.b);
	}
	return err < 0 ? err : exec_dec_emit(d, &op);
}
