/* Matrix moves between memory and the registers of a warp. */
#include <string.h>

#include "soft/server/exec/handlers.h"
#include "soft/server/exec/op/mma.h"

#define ROW_BYTES 16u /* of an 8x8 matrix of 16-bit elements */

static uint64_t address_of(struct exec_warp *w, const struct exec_op *o, unsigned lane)
{
	return exec_lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm;
}

/* Positions of the two halves of a lane's register: neighbours in a row or, transposed, in a
 * column. */
static void halves_of(unsigned lane, bool trans, unsigned i, unsigned *row, unsigned *col)
{
	unsigned group = lane >> 2, pair = (lane & 3) * 2 + i;

	*row = trans ? pair : group;
	*col = trans ? group : pair;
}

int exec_op_matrix(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	bool store = o->flags & MATRIX_STORE, trans = o->flags & MATRIX_TRANS;
	char *rows[EXEC_LANES];

	if (!exec_sync_ready(w, w->exists)) {
		return STEP_SWITCH;
	}
	for (unsigned lane = 0; lane < 8u * o->n; lane++) {
		rows[lane] = exec_lane_pointer(w, o, (enum exec_space_kind)o->space, lane,
					       address_of(w, o, lane), ROW_BYTES, store);
		if (!rows[lane]) {
			return STEP_FAULT;
		}
	}
	for (unsigned k = 0; k < o->n; k++) {
		exec_each_lane (m, lane) {
			uint32_t *reg = &REF(uint32_t, w, o->d + k * EXEC_SLOT32)[lane];

			for (unsigned i = 0; i < 2; i++) {
				char *half = (char *)reg + 2 * i, *at;
				unsigned row, col;

				halves_of(lane, trans, i, &row, &col);
				at = rows[8 * k + row] + 2 * (size_t)col;
				memcpy(store ? at : half, store ? half : at, 2);
			}
		}
	}
	return STEP_NEXT;
}

int exec_op_movmatrix(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const uint32_t *a = REF(const uint32_t, w, o->a);
	uint16_t all[8][8];

	if (!exec_sync_ready(w, w->exists)) {
		return STEP_SWITCH;
	}
	for (unsigned lane = 0; lane < EXEC_LANES; lane++) {
		for (unsigned i = 0; i < 2; i++) {
			unsigned row, col;

			halves_of(lane, false, i, &row, &col);
			all[row][col] = (uint16_t)(a[lane] >> 16 * i);
		}
	}
	exec_each_lane (m, lane) {
		unsigned row = lane >> 2, col = (lane & 3) * 2;

		exec_lane_set(w, o->d, false, lane,
			      all[col][row] | (uint32_t)all[col + 1][row] << 16);
	}
	return STEP_NEXT;
}

/* Reads an element smaller than a byte at its bit offset. */
static uint64_t get_bits(const uint8_t *p, unsigned bits, unsigned at)
{
	uint64_t v = 0;

	memcpy(&v, p, bits < 8 ? 1 : bits / 8);
	return bits < 8 ? v >> at & ((1u << bits) - 1) : v;
}

static void put_bits(uint8_t *p, unsigned bits, uint64_t v)
{
	memcpy(p, &v, bits / 8); /* results are at least a byte */
}

struct exec_wmma_move {
	const struct exec_op *o;
	const struct exec_mma_shape *s;
	enum exec_mma_type t;
	unsigned bits, n, e;
};

static struct exec_mma_place place_of(const struct exec_wmma_move *v, unsigned lane, unsigned r,
				      unsigned i)
{
	return exec_mma_place(MMA_WMMA, v->s, (enum exec_mma_matrix)v->o->sub, v->t, 0, lane, r, i);
}

/* Returns the byte of the element at p; *at: the bit offset in it. */
static uint8_t *element(struct exec_warp *w, const struct exec_wmma_move *v, unsigned lane,
			struct exec_mma_place p, unsigned *at)
{
	const struct exec_op *o = v->o;
	uint64_t stride = (uint32_t)exec_lane_get(w, o->b, false, lane);
	uint64_t index = o->flags & WMMA_COL ? p.col * stride + p.row : p.row * stride + p.col;
	uint64_t bit = index * v->bits;
	unsigned bytes = v->bits < 8 ? 1 : v->bits / 8;

	*at = bit & 7;
	return exec_lane_pointer(w, o, (enum exec_space_kind)o->space, lane,
				 address_of(w, o, lane) + bit / 8, bytes, o->flags & WMMA_STORE);
}

static int move_lane(struct exec_warp *w, const struct exec_wmma_move *v, unsigned lane)
{
	bool wide = v->t == MMA_F64, store = v->o->flags & WMMA_STORE;

	for (unsigned r = 0; r < v->n; r++) {
		uint32_t ref = v->o->d + r * (wide ? EXEC_SLOT64 : EXEC_SLOT32);
		uint64_t raw = store ? exec_lane_get(w, ref, wide, lane) : 0;
		struct exec_mma_place place = place_of(v, lane, r, 0);

		for (unsigned i = 0; i < v->e; i++) {
			unsigned at;
			uint8_t *p = element(w, v, lane, place, &at);

			if (!p) {
				return STEP_FAULT;
			}
			if (v->t == MMA_B1) { /* else a register holds neighbours of a row */
				place = place_of(v, lane, r, i + 1);
			} else {
				place.col++;
			}
			if (store) {
				put_bits(p, v->bits, raw >> i * v->bits);
			} else {
				raw |= get_bits(p, v->bits, at) << i * v->bits;
			}
		}
		if (!store) {
			exec_lane_set(w, ref, wide, lane, raw);
		}
	}
	return STEP_NEXT;
}

int exec_op_wmma_move(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	struct exec_wmma_move v = { .o = o,
				    .s = &exec_mma_shapes[o->e],
				    .t = (enum exec_mma_type)o->type };

	if (!exec_sync_ready(w, w->exists)) {
		return STEP_SWITCH;
	}
	v.bits = exec_mma_type_bits(v.t);
	v.e = v.t == MMA_F64 ? 1 : 32 / v.bits;
	v.n = exec_mma_registers(MMA_WMMA, v.s, (enum exec_mma_matrix)o->sub, v.t);
	exec_each_lane (m, lane) {
		if (move_lane(w, &v, lane) != STEP_NEXT) {
			return STEP_FAULT;
		}
	}
	return STEP_NEXT;
}
