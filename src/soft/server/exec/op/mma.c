/* Matrix products of fragments held by a warp's lanes. Rounding of sums: products are exact, they
 * and the accumulator are added in double precision in the order of k, and the sum is rounded once,
 * to nearest, to the result's type. The hardware adds groups of products in fixed point and
 * truncates lower bits, so sums that are not exactly representable may differ in their last bits;
 * integers and exact sums are equal. f64 is a chain of fused multiplications in the order of k. */
#include "soft/server/exec/op/mma.h"

#include <assert.h>

#include "soft/server/exec/handlers.h"
#include "soft/server/exec/op/number.h"

const struct exec_mma_shape exec_mma_shapes[] = {
	{ ".m8n8k4", 8, 8, 4 },	      { ".m16n8k4", 16, 8, 4 },	    { ".m16n8k8", 16, 8, 8 },
	{ ".m16n8k16", 16, 8, 16 },   { ".m16n8k32", 16, 8, 32 },   { ".m16n8k64", 16, 8, 64 },
	{ ".m8n8k16", 8, 8, 16 },     { ".m8n8k32", 8, 8, 32 },	    { ".m8n8k128", 8, 8, 128 },
	{ ".m16n8k128", 16, 8, 128 }, { ".m16n8k256", 16, 8, 256 }, { ".m16n16k16", 16, 16, 16 },
	{ ".m8n32k16", 8, 32, 16 },   { ".m32n8k16", 32, 8, 16 },   { ".m16n16k8", 16, 16, 8 },
};
const unsigned exec_mma_n_shapes = ARRAY_SIZE(exec_mma_shapes);

unsigned exec_mma_type_bits(enum exec_mma_type t)
{
	static const uint8_t bits[MMA_TYPES] = {
		[MMA_F16] = 16, [MMA_BF16] = 16, [MMA_TF32] = 32, [MMA_F32] = 32, [MMA_F64] = 64,
		[MMA_E4M3] = 8, [MMA_E5M2] = 8,	 [MMA_S32] = 32,  [MMA_S8] = 8,	  [MMA_U8] = 8,
		[MMA_S4] = 4,	[MMA_U4] = 4,	 [MMA_B1] = 1,
	};

	return bits[t];
}

static unsigned elements_of(enum exec_mma_type t)
{
	return t == MMA_F64 ? 1 : 32 / exec_mma_type_bits(t);
}

static unsigned rows_of(const struct exec_mma_shape *s, enum exec_mma_matrix x)
{
	return x == MMA_B ? s->k : s->m;
}

static unsigned cols_of(const struct exec_mma_shape *s, enum exec_mma_matrix x)
{
	return x == MMA_A ? s->k : s->n;
}

unsigned exec_mma_registers(enum exec_mma_kind kind, const struct exec_mma_shape *s,
			    enum exec_mma_matrix x, enum exec_mma_type t)
{
	unsigned elements = rows_of(s, x) * cols_of(s, x), n = elements / 32 / elements_of(t);

	if (kind == MMA_QUAD) {
		return x < MMA_C ? 2 : t == MMA_F16 ? 4 : 8;
	}
	/* f16 fragments of wmma have eight registers for every shape. */
	return kind == MMA_WMMA && t == MMA_F16 && x < MMA_C ? 8 : n ? n : 1;
}

/* Lanes 0-3 with 16-19, 4-7 with 20-23 and so on hold one product each. */
static struct exec_mma_place quad_place(enum exec_mma_matrix x, enum exec_mma_type t,
					unsigned flags, unsigned lane, unsigned r, unsigned i)
{
	unsigned high = lane & 16 ? 4 : 0, mine = (lane & 3) + high;
	unsigned at = t == MMA_F32 ? r : 2 * r + i;
	struct exec_mma_place p = { (uint16_t)mine, (uint16_t)at };

	if (x == MMA_A && flags & MMA_COL_A) {
		p = (struct exec_mma_place){ (uint16_t)(at + high), (uint16_t)(lane & 3) };
	} else if (x == MMA_B && flags & MMA_COL_B) {
		p = (struct exec_mma_place){ (uint16_t)at, (uint16_t)mine };
	} else if (x == MMA_B) {
		p = (struct exec_mma_place){ (uint16_t)(lane & 3), (uint16_t)(at + high) };
	} else if (x >= MMA_C && t == MMA_F32) {
		p.row = (uint16_t)((lane & 1) + (at & 2) + high);
		p.col = (uint16_t)((at & 4) + (lane & 2) + (at & 1));
	}
	return p;
}

struct exec_mma_place exec_mma_place(enum exec_mma_kind kind, const struct exec_mma_shape *s,
				     enum exec_mma_matrix x, enum exec_mma_type t, unsigned flags,
				     unsigned lane, unsigned r, unsigned i)
{
	unsigned e = elements_of(t), group = lane >> 2, member = lane & 3, at;
	struct exec_mma_place p;

	if (kind == MMA_QUAD) {
		return quad_place(x, t, flags, lane, r, i);
	}
	if (kind == MMA_WMMA) {
		/* consecutive, and repeated if there is more room than elements */
		at = (lane * exec_mma_registers(kind, s, x, t) + r) * e + i;
		at %= rows_of(s, x) * cols_of(s, x);
		p.row = (uint16_t)(at / cols_of(s, x));
		p.col = (uint16_t)(at % cols_of(s, x));
		return p;
	}
	if (x >= MMA_C) { /* two neighbours of a row, in one register or two */
		at = r * e + i;
		p.row = (uint16_t)(group + (at >> 1) * 8);
		p.col = (uint16_t)(member * 2 + (at & 1));
		return p;
	}
	if (x == MMA_B) {
		p.row = (uint16_t)(r * 4 * e + member * e + i);
		p.col = (uint16_t)group;
		return p;
	}
	if (s->m == 8) {
		p.row = (uint16_t)group;
		p.col = (uint16_t)(r * 4 * e + member * e + i);
	} else {
		p.row = (uint16_t)(group + (r & 1) * 8);
		p.col = (uint16_t)((r >> 1) * 4 * e + member * e + i);
	}
	return p;
}

/* A matrix: floats as doubles, integers as they are. */
union exec_mma_value {
	double f;
	int64_t i;
};

static bool is_float(enum exec_mma_type t)
{
	return t <= MMA_E5M2;
}

static enum exec_num_format format_of(enum exec_mma_type t)
{
	static const uint8_t formats[] = {
		[MMA_F16] = NUM_F16,  [MMA_BF16] = NUM_BF16, [MMA_TF32] = NUM_TF32,
		[MMA_F32] = NUM_F32,  [MMA_F64] = NUM_F32,   [MMA_E4M3] = NUM_E4M3,
		[MMA_E5M2] = NUM_E5M2
	};

	return (enum exec_num_format)formats[t];
}

static ALWAYS_INLINE union exec_mma_value exec_read_element(enum exec_mma_type t, uint64_t raw,
							    unsigned i)
{
	unsigned bits = exec_mma_type_bits(t);
	uint32_t part = (uint32_t)(raw >> (i * bits) % 64);
	union exec_mma_value v;

	switch (t) {
	case MMA_F64:
		v.f = exec_num_double(raw);
		break;
	case MMA_S32:
		v.i = (int32_t)part;
		break;
	case MMA_S8:
		v.i = (int8_t)part;
		break;
	case MMA_U8:
		v.i = (uint8_t)part;
		break;
	case MMA_S4:
		v.i = (int)((part & 15) ^ 8) - 8;
		break;
	case MMA_U4:
		v.i = part & 15;
		break;
	case MMA_B1:
		v.i = part & 1;
		break;
	default:
		v.f = exec_num_read(format_of(t), part);
		break;
	}
	return v;
}

#define REGISTERS_MAX 8u /* of a lane, of each kind */

/* Where the elements of a matrix are in exec_product, for each register of each lane. Kept from one
 * product to the next, which nearly always has the same shape and types. */
struct exec_mma_layout {
	uint32_t key; /* of what it was made for; 0: nothing */
	unsigned n, e;
	unsigned begin; /* the first lane whose elements no later lane repeats */
	unsigned apart; /* values between elements of a register */
	uint16_t first[EXEC_LANES][REGISTERS_MAX]; /* of a register's first element */
};

struct exec_product {
	const struct exec_op *o;
	const struct exec_mma_shape *s;
	enum exec_mma_kind kind;
	unsigned part; /* MMA_QUAD: which of the four products */
	struct exec_mma_layout layouts[MMA_D + 1];
	union exec_mma_value a[MMA_DIM_MAX][MMA_K_MAX], b[MMA_K_MAX][MMA_DIM_MAX];
	union exec_mma_value c[MMA_DIM_MAX][MMA_DIM_MAX];
	uint64_t d[MMA_DIM_MAX][MMA_DIM_MAX]; /* bits of the result's type */
};

static uint32_t reference(uint32_t first, bool wide, unsigned r)
{
	return first + r * (wide ? EXEC_SLOT64 : EXEC_SLOT32);
}

static bool takes_part(const struct exec_product *p, unsigned lane)
{
	return p->kind != MMA_QUAD || (lane >> 2 & 3) == p->part;
}

static unsigned width_of(enum exec_mma_matrix x)
{
	return x == MMA_A ? MMA_K_MAX : MMA_DIM_MAX;
}

static unsigned index_of(const struct exec_product *p, enum exec_mma_matrix x, enum exec_mma_type t,
			 unsigned lane, unsigned r, unsigned i)
{
	struct exec_mma_place at = exec_mma_place(p->kind, p->s, x, t, p->o->flags, lane, r, i);

	return at.row * width_of(x) + at.col;
}

/* Elements of a register are adjacent: in a column for B of mma, else in a row. */
static const struct exec_mma_layout *layout_of(struct exec_product *p, enum exec_mma_matrix x,
					       enum exec_mma_type t)
{
	uint32_t key = 1u << 31 | (uint32_t)p->kind << 24 | (uint32_t)t << 16 |
		       (uint32_t)(p->o->flags & (MMA_COL_A | MMA_COL_B)) << 8 | (uint32_t)p->o->e;
	struct exec_mma_layout *l = &p->layouts[x];

	if (l->key == key) {
		return l;
	}
	*l = (struct exec_mma_layout){ .key = key,
				       .n = exec_mma_registers(p->kind, p->s, x, t),
				       .e = elements_of(t) };
	assert(l->n <= REGISTERS_MAX);
	if (p->kind == MMA_WMMA) {
		unsigned lanes = rows_of(p->s, x) * cols_of(p->s, x) / (l->n * l->e);

		l->begin = EXEC_LANES - MIN(lanes, EXEC_LANES);
	}
	l->apart = p->kind == MMA_TILE && x == MMA_B ? width_of(x) : 1;
	for (unsigned lane = 0; lane < EXEC_LANES; lane++) {
		for (unsigned r = 0; r < l->n; r++) {
			l->first[lane][r] = (uint16_t)index_of(p, x, t, lane, r, 0);
		}
	}
	return l;
}

/* Fragments whose registers do not hold neighbours. */
static bool is_scattered(const struct exec_product *p, enum exec_mma_type t)
{
	return p->kind == MMA_QUAD || (p->kind == MMA_WMMA && t == MMA_B1);
}

static ALWAYS_INLINE void gather_as(const struct exec_warp *w, struct exec_product *p,
				    enum exec_mma_matrix x, enum exec_mma_type t, uint32_t from,
				    union exec_mma_value *to)
{
	const struct exec_mma_layout *l = layout_of(p, x, t);
	bool wide = t == MMA_F64, scattered = is_scattered(p, t);

	for (unsigned lane = l->begin; lane < EXEC_LANES; lane++) {
		for (unsigned r = 0; r < l->n && takes_part(p, lane); r++) {
			uint64_t raw = exec_lane_get(w, reference(from, wide, r), wide, lane);

			for (unsigned i = 0; i < l->e; i++) {
				unsigned at = scattered ? index_of(p, x, t, lane, r, i)
							: l->first[lane][r] + i * l->apart;

				to[at] = exec_read_element(t, raw, i);
			}
		}
	}
}

/* The frequent types are compiled each for itself. */
static void gather(const struct exec_warp *w, struct exec_product *p, enum exec_mma_matrix x,
		   enum exec_mma_type t, uint32_t from)
{
	union exec_mma_value *to = x == MMA_A ? p->a[0] : x == MMA_B ? p->b[0] : p->c[0];

	switch (t) {
	case MMA_F16:
		gather_as(w, p, x, MMA_F16, from, to);
		break;
	case MMA_BF16:
		gather_as(w, p, x, MMA_BF16, from, to);
		break;
	case MMA_TF32:
		gather_as(w, p, x, MMA_TF32, from, to);
		break;
	case MMA_F32:
		gather_as(w, p, x, MMA_F32, from, to);
		break;
	case MMA_F64:
		gather_as(w, p, x, MMA_F64, from, to);
		break;
	case MMA_S32:
		gather_as(w, p, x, MMA_S32, from, to);
		break;
	case MMA_S8:
		gather_as(w, p, x, MMA_S8, from, to);
		break;
	default:
		gather_as(w, p, x, t, from, to);
		break;
	}
}

#define COLUMNS 8u /* divides n */

static void float_row(struct exec_product *p, unsigned row, unsigned from)
{
	enum exec_mma_type t = (enum exec_mma_type)p->o->size;
	double sum[COLUMNS];

	for (unsigned i = 0; i < COLUMNS; i++) {
		sum[i] = 0;
	}
	for (unsigned k = 0; k < p->s->k; k++) {
		const union exec_mma_value *b = &p->b[k][from];
		double x = p->a[row][k].f;

		for (unsigned i = 0; i < COLUMNS; i++) {
			sum[i] += x * b[i].f;
		}
	}
	for (unsigned i = 0; i < COLUMNS; i++) {
		double c = p->c[row][from + i].f;

		p->d[row][from + i] =
			exec_num_round(format_of(t), exec_num_add_odd(sum[i], c), ROUND_RN, false);
	}
}

static void double_row(struct exec_product *p, unsigned row, unsigned from)
{
	for (unsigned i = from; i < from + COLUMNS; i++) {
		double sum = p->c[row][i].f;

		for (unsigned k = 0; k < p->s->k; k++) {
			sum = fma(p->a[row][k].f, p->b[k][i].f, sum);
		}
		p->d[row][i] = exec_num_bits(sum);
	}
}

static void int_row(struct exec_product *p, unsigned row, unsigned from)
{
	int64_t sum[COLUMNS];

	for (unsigned i = 0; i < COLUMNS; i++) {
		sum[i] = p->c[row][from + i].i;
	}
	for (unsigned k = 0; k < p->s->k; k++) {
		const union exec_mma_value *b = &p->b[k][from];
		int64_t x = p->a[row][k].i;

		for (unsigned i = 0; i < COLUMNS; i++) {
			sum[i] += p->o->type != MMA_B1	  ? x * b[i].i
				  : p->o->flags & MMA_XOR ? x ^ b[i].i
							  : (x & b[i].i);
		}
	}
	for (unsigned i = 0; i < COLUMNS; i++) {
		if (p->o->flags & MMA_SATFINITE) {
			sum[i] = sum[i] > INT32_MAX   ? INT32_MAX
				 : sum[i] < INT32_MIN ? INT32_MIN
						      : sum[i];
		}
		p->d[row][from + i] = (uint32_t)sum[i];
	}
}

static void multiply(struct exec_product *p)
{
	for (unsigned row = 0; row < p->s->m; row++) {
		for (unsigned col = 0; col < p->s->n; col += COLUMNS) {
			if (p->o->size == MMA_F64) {
				double_row(p, row, col);
			} else if (is_float((enum exec_mma_type)p->o->size)) {
				float_row(p, row, col);
			} else {
				int_row(p, row, col);
			}
		}
	}
}

static void scatter(struct exec_warp *w, struct exec_product *p, uint32_t m)
{
	enum exec_mma_type t = (enum exec_mma_type)p->o->size;
	const struct exec_mma_layout *l = layout_of(p, MMA_D, t);
	bool wide = t == MMA_F64, scattered = is_scattered(p, t);

	exec_each_lane (m, lane) {
		for (unsigned r = 0; r < l->n && takes_part(p, lane); r++) {
			uint64_t raw = 0;

			for (unsigned i = 0; i < l->e; i++) {
				unsigned at = scattered ? index_of(p, MMA_D, t, lane, r, i)
							: l->first[lane][r] + i * l->apart;

				raw |= p->d[at / MMA_DIM_MAX][at % MMA_DIM_MAX]
				       << i * exec_mma_type_bits(t);
			}
			exec_lane_set(w, reference(p->o->d, wide, r), wide, lane, raw);
		}
	}
}

int exec_op_mma(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	static _Thread_local struct exec_product p;
	unsigned parts = o->sub == MMA_QUAD ? 4 : 1;

	if (!exec_sync_ready(w, w->exists)) {
		return STEP_SWITCH;
	}
	p.o = o;
	p.s = &exec_mma_shapes[o->e];
	p.kind = (enum exec_mma_kind)o->sub;
	for (p.part = 0; p.part < parts; p.part++) {
		gather(w, &p, MMA_A, (enum exec_mma_type)o->type, o->a);
		gather(w, &p, MMA_B, (enum exec_mma_type)o->type2, o->b);
		gather(w, &p, MMA_C, (enum exec_mma_type)o->n, o->c);
		multiply(&p);
		scatter(w, &p, m);
	}
	return STEP_NEXT;
}
