/* Matrix fragments: which lane's register holds which element, and the products of fragments. */
#ifndef GBPF_SOFT_SERVER_EXEC_OP_MMA_H
#define GBPF_SOFT_SERVER_EXEC_OP_MMA_H

#include "soft/server/exec/op.h"

enum exec_mma_type {
	MMA_F16,
	MMA_BF16,
	MMA_TF32,
	MMA_F32,
	MMA_F64,
	MMA_E4M3,
	MMA_E5M2,
	MMA_S32,
	MMA_S8,
	MMA_U8,
	MMA_S4,
	MMA_U4,
	MMA_B1,
	MMA_TYPES
};

enum exec_mma_kind {
	MMA_TILE, /* mma: m16n8 and m8n8, as laid out in the PTX manual */
	MMA_QUAD, /* mma.m8n8k4 of f16: four products per warp */
	MMA_WMMA, /* wmma: a private layout, opaque to programs */
};

struct exec_mma_shape {
	const char *word;
	uint8_t m, n;
	uint16_t k;
};
#define MMA_DIM_MAX 32u
#define MMA_K_MAX 256u
extern const struct exec_mma_shape exec_mma_shapes[];
extern const unsigned exec_mma_n_shapes;

enum exec_mma_matrix { MMA_A, MMA_B, MMA_C, MMA_D };
enum { MMA_COL_A = 1, MMA_COL_B = 2, MMA_SATFINITE = 4, MMA_XOR = 8 };

unsigned exec_mma_type_bits(enum exec_mma_type t);
/* Returns the 32-bit registers (64-bit for f64) that hold a lane's part. */
unsigned exec_mma_registers(enum exec_mma_kind kind, const struct exec_mma_shape *s,
			    enum exec_mma_matrix x, enum exec_mma_type t);

/* Row and column in the matrix of element i of register r of a lane. */
struct exec_mma_place {
	uint16_t row, col;
};
struct exec_mma_place exec_mma_place(enum exec_mma_kind kind, const struct exec_mma_shape *s,
				     enum exec_mma_matrix x, enum exec_mma_type t, unsigned flags,
				     unsigned lane, unsigned r, unsigned i);

/* d, a, b, c: the first of consecutive registers; e: shape; type, type2, n, size: of a, b, c, d;
 * sub: kind; flags: MMA_*. */
int exec_op_mma(struct exec_warp *w, const struct exec_op *o, uint32_t m);

/* matrix.c. ldmatrix and stmatrix of n 8x8 matrices: registers from d, row addresses in a; flags:
 * MATRIX_*. */
enum { MATRIX_TRANS = 1, MATRIX_STORE = 2 };
int exec_op_matrix(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_movmatrix(struct exec_warp *w, const struct exec_op *o, uint32_t m);
/* wmma.load and wmma.store: registers from d, address in a, stride in b; e: shape; type: element
 * type; sub: which matrix; flags: WMMA_COL and WMMA_STORE. */
enum { WMMA_COL = 1, WMMA_STORE = 2 };
int exec_op_wmma_move(struct exec_warp *w, const struct exec_op *o, uint32_t m);

#endif
