/* Arithmetic, logic, comparisons and common conversions over 32 lanes. Compiled once per
 * instruction set; EXEC_TABLE is the name of the handler table. Must never be compiled with
 * -ffast-math: no NaN or rounding shortcut is allowed. */
#include "soft/server/exec/op/lane_alu.h"

#include <math.h>
#include <string.h>

#include "soft/server/exec/op/alu_cross.h"
#include "soft/server/exec/op/alu_float.h"
#include "soft/server/exec/op/alu_int.h"
#include "soft/server/exec/memory/mem.h"
#include "soft/server/exec/memory/mem_atom.h"
#include "soft/server/exec/memory/mem_word.h"

/* Sets p and q from the comparison and, if present, predicate r. */
static ALWAYS_INLINE void setp_finish(struct exec_warp *w, const struct exec_op *o, uint32_t m,
				      uint32_t bits)
{
	uint32_t p = bits, q = ~bits;

	if (o->sub != BOOL_NONE) {
		uint32_t r = w->preds[o->r] ^ (o->r_not ? ~0u : 0);

		p = o->sub == BOOL_AND ? p & r : o->sub == BOOL_OR ? p | r : p ^ r;
		q = o->sub == BOOL_AND ? q & r : o->sub == BOOL_OR ? q | r : q ^ r;
	}
	if (o->p != EXEC_NO_PRED) {
		exec_pred_set(w, o->p, m, p);
	}
	if (o->q != EXEC_NO_PRED) {
		exec_pred_set(w, o->q, m, q);
	}
}

#define DEFCMP(name, S, T, expr)                                                                   \
	HANDLER(name)                                                                              \
	{                                                                                          \
		typedef T T_;                                                                      \
		const S *a = REF(const S, w, o->a);                                                \
		const S *b = REF(const S, w, o->b);                                                \
		int32_t c[EXEC_LANES] ALIGNED(64);                                                 \
                                                                                                   \
		LANES_LOOP                                                                         \
		{                                                                                  \
			c[i] = (expr) ? -1 : 0;                                                    \
		}                                                                                  \
		setp_finish(w, o, m, exec_pack_lanes(c));                                          \
		GO_ON;                                                                             \
	}

#define CMP_INT(suffix, S, T)                                                                      \
	DEFCMP(eq_##suffix, S, T, X == Y)                                                          \
	DEFCMP(ne_##suffix, S, T, X != Y)                                                          \
	DEFCMP(lt_##suffix, S, T, X < Y)                                                           \
	DEFCMP(le_##suffix, S, T, X <= Y)                                                          \
	DEFCMP(gt_##suffix, S, T, X > Y)                                                           \
	DEFCMP(ge_##suffix, S, T, X >= Y)

CMP_INT(u16, uint32_t, uint16_t)
CMP_INT(s16, uint32_t, int16_t)
CMP_INT(u32, uint32_t, uint32_t)
CMP_INT(s32, uint32_t, int32_t)
CMP_INT(u64, uint64_t, uint64_t)
CMP_INT(s64, uint64_t, int64_t)

#define CMP_FLOAT(suffix, S, x, y)                                                                 \
	DEFCMP(eq_##suffix, S, S, x == y)                                                          \
	DEFCMP(ne_##suffix, S, S, x<y || x> y)                                                     \
	DEFCMP(lt_##suffix, S, S, x < y)                                                           \
	DEFCMP(le_##suffix, S, S, x <= y)                                                          \
	DEFCMP(gt_##suffix, S, S, x > y)                                                           \
	DEFCMP(ge_##suffix, S, S, x >= y)                                                          \
	DEFCMP(equ_##suffix, S, S, !(x < y || x > y))                                              \
	DEFCMP(neu_##suffix, S, S, x != y)                                                         \
	DEFCMP(ltu_##suffix, S, S, !(x >= y))                                                      \
	DEFCMP(leu_##suffix, S, S, !(x > y))                                                       \
	DEFCMP(gtu_##suffix, S, S, !(x <= y))                                                      \
	DEFCMP(geu_##suffix, S, S, !(x < y))                                                       \
	DEFCMP(num_##suffix, S, S, x == x && y == y)                                               \
	DEFCMP(nan_##suffix, S, S, x != x || y != y)

CMP_FLOAT(f32, float, X, Y)
CMP_FLOAT(f32z, float, exec_flush(X), exec_flush(Y))
CMP_FLOAT(f64, double, X, Y)

/* Integer conversions between all pairs, by storage of the two sides. */
#define CVT_INT_FROM(suffix, S, T)                                                                 \
	DEF1(cvt_u8_##suffix, uint32_t, S, T, (uint8_t)X)                                          \
	DEF1(cvt_s8_##suffix, uint32_t, S, T, (int8_t)X)                                           \
	DEF1(cvt_u16_##suffix, uint32_t, S, T, (uint16_t)X)                                        \
	DEF1(cvt_s16_##suffix, uint32_t, S, T, (int16_t)X)                                         \
	DEF1(cvt_u32_##suffix, uint32_t, S, T, X)                                                  \
	DEF1(cvt_u64_##suffix, uint64_t, S, T, X)                                                  \
	DEF1(cvt_f32_##suffix, float, S, T, X)                                                     \
	DEF1(cvt_f64_##suffix, double, S, T, X)

CVT_INT_FROM(u8, uint32_t, uint8_t)
CVT_INT_FROM(s8, uint32_t, int8_t)
CVT_INT_FROM(u16, uint32_t, uint16_t)
CVT_INT_FROM(s16, uint32_t, int16_t)
CVT_INT_FROM(u32, uint32_t, uint32_t)
CVT_INT_FROM(s32, uint32_t, int32_t)
CVT_INT_FROM(u64, uint64_t, uint64_t)
CVT_INT_FROM(s64, uint64_t, int64_t)

DEF1(cvt_f64_f32, double, float, float, X)
DEF1(cvt_f64_f32z, double, float, float, exec_flush(exec_canonical(X)))
DEF1(cvt_f32_f64, float, double, double, X) /* NaN keeps sign and payload */
DEF1(cvt_s32_f32, int32_t, float, float, to_s32(X))
DEF1(cvt_u32_f32, uint32_t, float, float, exec_to_u32(X))
DEF1(cvt_s32_f64, int32_t, double, double, X == X ? to_s32(X) : INT32_MIN)
DEF1(cvt_u32_f64, uint32_t, double, double, X == X ? exec_to_u32(X) : 0x80000000)

DEF1(cvt_s64_f32, int64_t, float, float, exec_to_s64(X))
DEF1(cvt_u64_f32, uint64_t, float, float, exec_to_u64(X))
DEF1(cvt_s64_f64, int64_t, double, double, exec_to_s64(X))
DEF1(cvt_u64_f64, uint64_t, double, double, exec_to_u64(X))

HANDLER(selp_32)
{
	const uint32_t *a = REF(const uint32_t, w, o->a), *b = REF(const uint32_t, w, o->b);
	uint32_t *d = REF(uint32_t, w, o->d);
	uint32_t r = w->preds[o->r] ^ (o->r_not ? ~0u : 0);

	STORE_LANES(uint32_t, r & exec_lane_bit[i] ? a[i] : b[i]);
	GO_ON;
}

HANDLER(selp_64)
{
	const uint64_t *a = REF(const uint64_t, w, o->a), *b = REF(const uint64_t, w, o->b);
	uint64_t *d = REF(uint64_t, w, o->d);
	uint32_t r = w->preds[o->r] ^ (o->r_not ? ~0u : 0);

	STORE_LANES(uint64_t, r & exec_lane_bit[i] ? a[i] : b[i]);
	GO_ON;
}

/* Halves to a whole: 16 + 16 to 32, 32 + 32 to 64 bits. */
DEF2(pack_32, uint32_t, uint32_t, uint32_t, (X & 0xffff) | Y << 16)
DEF2(pack_64, uint64_t, uint32_t, uint64_t, X | Y << 32)
/* The low half is written first: the decoder ensures that d differs from a. */
#define DEF_UNPACK(name, S, low, high)                                                             \
	HANDLER(name)                                                                              \
	{                                                                                          \
		const S *a = REF(const S, w, o->a);                                                \
		uint32_t *d = REF(uint32_t, w, o->d);                                              \
                                                                                                   \
		STORE_LANES(uint32_t, low);                                                        \
		d = REF(uint32_t, w, o->e);                                                        \
		STORE_LANES(uint32_t, high);                                                       \
		GO_ON;                                                                             \
	}
DEF_UNPACK(unpack_32, uint32_t, a[i] & 0xffff, a[i] >> 16)
DEF_UNPACK(unpack_64, uint64_t, a[i], a[i] >> 32)

#define ROW_INT(name)                                                                              \
	{                                                                                          \
		[TY_U16] = name##_u16, [TY_S16] = name##_s16, [TY_U32] = name##_u32,               \
		[TY_S32] = name##_s32, [TY_U64] = name##_u64, [TY_S64] = name##_s64,               \
	}
#define ROW_ALL(name)                                                                              \
	{                                                                                          \
		[TY_U16] = name##_u16, [TY_S16] = name##_s16, [TY_U32] = name##_u32,               \
		[TY_S32] = name##_s32, [TY_U64] = name##_u64, [TY_S64] = name##_s64,               \
		[TY_F32] = name##_f32, [TY_F32Z] = name##_f32z, [TY_F64] = name##_f64,             \
	}
#define ROW_FLOAT(name)                                                                            \
	{                                                                                          \
		[TY_F32] = name##_f32, [TY_F32Z] = name##_f32z, [TY_F64] = name##_f64,             \
	}
#define ROW_SINGLE(name)                                                                           \
	{                                                                                          \
		[TY_F32] = name##_f32, [TY_F32Z] = name##_f32z,                                    \
	}
#define ROW_WORDS(name)                                                                            \
	{                                                                                          \
		[TY_U32] = name##_u32, [TY_S32] = name##_s32, [TY_U64] = name##_u64,               \
		[TY_S64] = name##_s64,                                                             \
	}
#define ROW_BITS(name)                                                                             \
	{                                                                                          \
		[TY_U32] = name##_u32, [TY_U64] = name##_u64,                                      \
	}
#define ROW_CVT_INT(to)                                                                            \
	[TY_U8] = cvt_##to##_u8, [TY_S8] = cvt_##to##_s8, [TY_U16] = cvt_##to##_u16,               \
	[TY_S16] = cvt_##to##_s16, [TY_U32] = cvt_##to##_u32, [TY_S32] = cvt_##to##_s32,           \
	[TY_U64] = cvt_##to##_u64, [TY_S64] = cvt_##to##_s64
#define ROW_CVT(to)                                                                                \
	{                                                                                          \
		ROW_CVT_INT(to)                                                                    \
	}

/* clang-format off */
const struct exec_handlers EXEC_TABLE = {
	.name = EXEC_TABLE_NAME,
	.alu = {
		[ALU_ADD] = ROW_ALL(add),
		[ALU_SUB] = ROW_ALL(sub),
		[ALU_MUL] = ROW_ALL(mul),
		[ALU_MUL_HI] = ROW_INT(mul_hi),
		[ALU_MUL_WIDE] = { [TY_U16] = mul_wide_u16, [TY_S16] = mul_wide_s16,
				   [TY_U32] = mul_wide_u32, [TY_S32] = mul_wide_s32 },
		[ALU_MAD] = ROW_INT(mad),
		[ALU_MAD_HI] = ROW_INT(mad_hi),
		[ALU_MAD_WIDE] = { [TY_U16] = mad_wide_u16, [TY_S16] = mad_wide_s16,
				   [TY_U32] = mad_wide_u32, [TY_S32] = mad_wide_s32 },
		[ALU_DIV] = ROW_ALL(div),
		[ALU_REM] = ROW_INT(rem),
		[ALU_MIN] = ROW_ALL(min),
		[ALU_MAX] = ROW_ALL(max),
		[ALU_MIN_NAN] = ROW_SINGLE(min_nan),
		[ALU_MAX_NAN] = ROW_SINGLE(max_nan),
		[ALU_ABS] = { [TY_S16] = abs_s16, [TY_S32] = abs_s32, [TY_S64] = abs_s64,
			[TY_F32] = abs_f32,
			      [TY_F32Z] = abs_f32z, [TY_F64] = abs_f64 },
		[ALU_NEG] = { [TY_S16] = neg_s16, [TY_S32] = neg_s32, [TY_S64] = neg_s64,
			[TY_F32] = neg_f32,
			      [TY_F32Z] = neg_f32z, [TY_F64] = neg_f64 },
		[ALU_AND] = { [TY_U16] = and_u32, [TY_U32] = and_u32, [TY_U64] = and_u64 },
		[ALU_OR] = { [TY_U16] = or_u32, [TY_U32] = or_u32, [TY_U64] = or_u64 },
		[ALU_XOR] = { [TY_U16] = xor_u32, [TY_U32] = xor_u32, [TY_U64] = xor_u64 },
		[ALU_NOT] = { [TY_U16] = not_u32, [TY_U32] = not_u32, [TY_U64] = not_u64 },
		[ALU_CNOT] = { [TY_U16] = cnot_u16, [TY_U32] = cnot_u32, [TY_U64] = cnot_u64 },
		[ALU_SHL] = { [TY_U16] = shl_u16, [TY_U32] = shl_u32, [TY_U64] = shl_u64 },
		[ALU_SHR] = ROW_INT(shr),
		[ALU_SAD] = ROW_INT(sad),
		[ALU_MUL24] = { [TY_U32] = mul24_u32, [TY_S32] = mul24_s32 },
		[ALU_MUL24_HI] = { [TY_U32] = mul24_hi_u32, [TY_S32] = mul24_hi_s32 },
		[ALU_MAD24] = { [TY_U32] = mad24_u32, [TY_S32] = mad24_s32 },
		[ALU_MAD24_HI] = { [TY_U32] = mad24_hi_u32, [TY_S32] = mad24_hi_s32 },
		[ALU_POPC] = ROW_BITS(popc),
		[ALU_CLZ] = ROW_BITS(clz),
		[ALU_BREV] = ROW_BITS(brev),
		[ALU_BFE] = ROW_WORDS(bfe),
		[ALU_BFI] = ROW_BITS(bfi),
		[ALU_BFIND] = ROW_WORDS(bfind),
		[ALU_BFIND_SHIFT] = ROW_WORDS(bfind_shift),
		[ALU_PRMT] = { [TY_U32] = prmt_u32 },
		[ALU_LOP3] = { [TY_U32] = lop3_u32 },
		[ALU_SHF_L_WRAP] = { [TY_U32] = shf_l_wrap },
		[ALU_SHF_L_CLAMP] = { [TY_U32] = shf_l_clamp },
		[ALU_SHF_R_WRAP] = { [TY_U32] = shf_r_wrap },
		[ALU_SHF_R_CLAMP] = { [TY_U32] = shf_r_clamp },
		[ALU_ADD_SAT] = { [TY_S32] = add_sat_s32, [TY_F32] = add_sat_f32,
			[TY_F32Z] = add_sat_f32z },
		[ALU_SUB_SAT] = { [TY_S32] = sub_sat_s32, [TY_F32] = sub_sat_f32,
			[TY_F32Z] = sub_sat_f32z },
		[ALU_MUL_SAT] = ROW_SINGLE(mul_sat),
		[ALU_FMA] = ROW_FLOAT(fma),
		[ALU_FMA_SAT] = ROW_SINGLE(fma_sat),
		[ALU_RCP] = ROW_FLOAT(rcp),
		[ALU_SQRT] = ROW_FLOAT(sqrt),
		[ALU_RSQRT] = ROW_FLOAT(rsqrt),
		[ALU_EX2] = ROW_SINGLE(ex2),
		[ALU_LG2] = ROW_SINGLE(lg2),
		[ALU_SIN] = ROW_SINGLE(sin),
		[ALU_COS] = ROW_SINGLE(cos),
		[ALU_TANH] = { [TY_F32] = tanh_f32 },
		[ALU_COPYSIGN] = { [TY_F32] = copysign_f32, [TY_F64] = copysign_f64 },
		[ALU_ROUND_N] = { [TY_F32] = round_n_f32, [TY_F64] = round_n_f64 },
		[ALU_ROUND_Z] = { [TY_F32] = round_z_f32, [TY_F64] = round_z_f64 },
		[ALU_ROUND_M] = { [TY_F32] = round_m_f32, [TY_F64] = round_m_f64 },
		[ALU_ROUND_P] = { [TY_F32] = round_p_f32, [TY_F64] = round_p_f64 },
		[ALU_MOV] = { [TY_U32] = mov_u32, [TY_U64] = mov_u64 },
		[ALU_SELP] = { [TY_U32] = selp_32, [TY_U64] = selp_64 },
		[ALU_PACK] = { [TY_U32] = pack_32, [TY_U64] = pack_64 },
		[ALU_UNPACK] = { [TY_U32] = unpack_32, [TY_U64] = unpack_64 },
	},
	.setp = {
		[CMP_EQ] = ROW_ALL(eq),
		[CMP_NE] = ROW_ALL(ne),
		[CMP_LT] = ROW_ALL(lt),
		[CMP_LE] = ROW_ALL(le),
		[CMP_GT] = ROW_ALL(gt),
		[CMP_GE] = ROW_ALL(ge),
		[CMP_EQU] = ROW_FLOAT(equ),
		[CMP_NEU] = ROW_FLOAT(neu),
		[CMP_LTU] = ROW_FLOAT(ltu),
		[CMP_LEU] = ROW_FLOAT(leu),
		[CMP_GTU] = ROW_FLOAT(gtu),
		[CMP_GEU] = ROW_FLOAT(geu),
		[CMP_NUM] = ROW_FLOAT(num),
		[CMP_NAN] = ROW_FLOAT(nan),
	},
	.cvt = {
		[TY_U8] = ROW_CVT(u8),
		[TY_S8] = ROW_CVT(s8),
		[TY_U16] = ROW_CVT(u16),
		[TY_S16] = ROW_CVT(s16),
		[TY_U32] = { [TY_U8] = cvt_u32_u8, [TY_S8] = cvt_u32_s8, [TY_U16] = cvt_u32_u16,
			     [TY_S16] = cvt_u32_s16, [TY_U32] = cvt_u32_u32, [TY_S32] = cvt_u32_s32,
			     [TY_U64] = cvt_u32_u64, [TY_S64] = cvt_u32_s64, [TY_F32] = cvt_u32_f32,
			     [TY_F64] = cvt_u32_f64 },
		[TY_S32] = { [TY_U8] = cvt_u32_u8, [TY_S8] = cvt_u32_s8, [TY_U16] = cvt_u32_u16,
			     [TY_S16] = cvt_u32_s16, [TY_U32] = cvt_u32_u32, [TY_S32] = cvt_u32_s32,
			     [TY_U64] = cvt_u32_u64, [TY_S64] = cvt_u32_s64, [TY_F32] = cvt_s32_f32,
			     [TY_F64] = cvt_s32_f64 },
		[TY_U64] = { ROW_CVT_INT(u64), [TY_F32] = cvt_u64_f32, [TY_F64] = cvt_u64_f64 },
		[TY_S64] = { ROW_CVT_INT(u64), [TY_F32] = cvt_s64_f32, [TY_F64] = cvt_s64_f64 },
		[TY_F32] = { [TY_U8] = cvt_f32_u8, [TY_S8] = cvt_f32_s8, [TY_U16] = cvt_f32_u16,
			     [TY_S16] = cvt_f32_s16, [TY_U32] = cvt_f32_u32, [TY_S32] = cvt_f32_s32,
			     [TY_U64] = cvt_f32_u64, [TY_S64] = cvt_f32_s64,
				[TY_F64] = cvt_f32_f64 },
		[TY_F64] = { [TY_U8] = cvt_f64_u8, [TY_S8] = cvt_f64_s8, [TY_U16] = cvt_f64_u16,
			     [TY_S16] = cvt_f64_s16, [TY_U32] = cvt_f64_u32, [TY_S32] = cvt_f64_s32,
			     [TY_U64] = cvt_f64_u64, [TY_S64] = cvt_f64_s64, [TY_F32] = cvt_f64_f32,
			     [TY_F32Z] = cvt_f64_f32z },
	},
	.shfl = { [SHFL_UP] = shfl_up, [SHFL_DOWN] = shfl_down, [SHFL_BFLY] = shfl_bfly,
		  [SHFL_IDX] = shfl_idx },
	.load = { [SP_GENERIC] = load_generic, [SP_GLOBAL] = load_global, [SP_SHARED] = load_shared,
		  [SP_LOCAL] = load_local, [SP_PARAM] = load_param },
	.store = { [SP_GENERIC] = store_generic, [SP_GLOBAL] = store_global,
		[SP_SHARED] = store_shared,
		   [SP_LOCAL] = store_local },
	.atom_add = { [SP_GENERIC] = atom_add_generic, [SP_GLOBAL] = atom_add_global,
		      [SP_SHARED] = atom_add_shared },
	.load_word = { [SP_GENERIC] = { load_generic_4, load_generic_8 },
		       [SP_GLOBAL] = { load_global_4, load_global_8 },
		       [SP_SHARED] = { load_shared_4, load_shared_8 } },
	.store_word = { [SP_GENERIC] = { store_generic_4, store_generic_8 },
			[SP_GLOBAL] = { store_global_4, store_global_8 },
			[SP_SHARED] = { store_shared_4, store_shared_8 } },
};
