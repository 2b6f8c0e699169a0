/* Decoding of special registers: slots that a block fills, constants, and clocks read when the
 * instruction runs. Clusters have one block. */
#include <stdlib.h>
#include <string.h>

#include "soft/server/exec/decode/decode_kernel.h"

enum exec_special_kind { SLOT, VALUE, CLOCK };

#define BLOCK32(slot) SLOT, REF_SLOT32(slot, REF_BLOCK)
#define WARP32(slot) SLOT, REF_SLOT32(slot, REF_WARP)

static const struct special {
	const char *name;
	enum exec_special_kind kind;
	uint32_t value; /* reference, value, or CLOCK_* */
	uint8_t bytes;
} specials[] = {
	{ "%aggr_smem_size", BLOCK32(BLOCK_TOTAL_SMEM), 4 },
	{ "%clock", CLOCK, CLOCK_CYCLES, 4 },
	{ "%clock64", CLOCK, CLOCK_CYCLES, 8 },
	{ "%clock_hi", CLOCK, CLOCK_CYCLES_HI, 4 },
	{ "%cluster_ctaid.w", VALUE, 0, 4 },
	{ "%cluster_ctaid.x", VALUE, 0, 4 },
	{ "%cluster_ctaid.y", VALUE, 0, 4 },
	{ "%cluster_ctaid.z", VALUE, 0, 4 },
	{ "%cluster_ctarank", VALUE, 0, 4 },
	{ "%cluster_nctaid.w", VALUE, 0, 4 },
	{ "%cluster_nctaid.x", VALUE, 1, 4 },
	{ "%cluster_nctaid.y", VALUE, 1, 4 },
	{ "%cluster_nctaid.z", VALUE, 1, 4 },
	{ "%cluster_nctarank", VALUE, 1, 4 },
	{ "%clusterid.w", VALUE, 0, 4 },
	{ "%clusterid.x", BLOCK32(BLOCK_CTAID_X), 4 },
	{ "%clusterid.y", BLOCK32(BLOCK_CTAID_Y), 4 },
	{ "%clusterid.z", BLOCK32(BLOCK_CTAID_Z), 4 },
	{ "%ctaid.w", VALUE, 0, 4 },
	{ "%ctaid.x", BLOCK32(BLOCK_CTAID_X), 4 },
	{ "%ctaid.y", BLOCK32(BLOCK_CTAID_Y), 4 },
	{ "%ctaid.z", BLOCK32(BLOCK_CTAID_Z), 4 },
	{ "%current_graph_exec", VALUE, 0, 8 },
	{ "%dynamic_smem_size", BLOCK32(BLOCK_DYN_SMEM), 4 },
	{ "%envreg1", BLOCK32(BLOCK_ENVREG1), 4 },
	{ "%envreg2", BLOCK32(BLOCK_ENVREG2), 4 },
	{ "%globaltimer", CLOCK, CLOCK_TIMER, 8 },
	{ "%globaltimer_hi", CLOCK, CLOCK_TIMER_HI, 4 },
	{ "%globaltimer_lo", CLOCK, CLOCK_TIMER_LO, 4 },
	{ "%gridid", BLOCK32(BLOCK_GRIDID32), 4 },
	{ "%laneid", WARP32(WARP_LANEID), 4 },
	{ "%lanemask_eq", WARP32(WARP_MASK_EQ), 4 },
	{ "%lanemask_ge", WARP32(WARP_MASK_GE), 4 },
	{ "%lanemask_gt", WARP32(WARP_MASK_GT), 4 },
	{ "%lanemask_le", WARP32(WARP_MASK_LE), 4 },
	{ "%lanemask_lt", WARP32(WARP_MASK_LT), 4 },
	{ "%nclusterid.w", VALUE, 0, 4 },
	{ "%nclusterid.x", BLOCK32(BLOCK_NCTAID_X), 4 },
	{ "%nclusterid.y", BLOCK32(BLOCK_NCTAID_Y), 4 },
	{ "%nclusterid.z", BLOCK32(BLOCK_NCTAID_Z), 4 },
	{ "%nctaid.w", VALUE, 0, 4 },
	{ "%nctaid.x", BLOCK32(BLOCK_NCTAID_X), 4 },
	{ "%nctaid.y", BLOCK32(BLOCK_NCTAID_Y), 4 },
	{ "%nctaid.z", BLOCK32(BLOCK_NCTAID_Z), 4 },
	{ "%nsmid", BLOCK32(BLOCK_NSMID), 4 },
	{ "%ntid.w", VALUE, 0, 4 },
	{ "%ntid.x", BLOCK32(BLOCK_NTID_X), 4 },
	{ "%ntid.y", BLOCK32(BLOCK_NTID_Y), 4 },
	{ "%ntid.z", BLOCK32(BLOCK_NTID_Z), 4 },
	{ "%nwarpid", BLOCK32(BLOCK_NWARPID), 4 },
	{ "%reserved_smem_offset_0", VALUE, 0, 4 },
	{ "%reserved_smem_offset_1", VALUE, 0, 4 },
	{ "%reserved_smem_offset_begin", VALUE, 0, 4 },
	{ "%reserved_smem_offset_cap", VALUE, 0, 4 },
	{ "%reserved_smem_offset_end", VALUE, 0, 4 },
	{ "%smid", BLOCK32(BLOCK_SMID), 4 },
	{ "%tid.w", VALUE, 0, 4 },
	{ "%tid.x", WARP32(WARP_TID_X), 4 },
	{ "%tid.y", WARP32(WARP_TID_Y), 4 },
	{ "%tid.z", WARP32(WARP_TID_Z), 4 },
	{ "%total_smem_size", BLOCK32(BLOCK_TOTAL_SMEM), 4 },
	{ "%warpid", WARP32(WARP_WARPID), 4 },
};

static int by_name(const void *key, const void *entry)
{
	return strcmp(key, ((const struct special *)entry)->name);
}

/* %envreg0 to 31, %pm0 to 7 and %pm0_64 are 0. Returns 0 if the name is none of these, else its
 * bytes. */
static unsigned zero_register(const char *name)
{
	bool pm = strncmp(name, "%pm", 3) == 0;
	const char *digits = name + (pm ? 3 : 7);
	unsigned long n;
	char *end;

	if ((!pm && strncmp(name, "%envreg", 7) != 0) || *digits < '0' || *digits > '9') {
		return 0;
	}
	n = strtoul(digits, &end, 10);
	if (n > (pm ? 7u : 31u) || (*digits == '0' && end != digits + 1)) {
		return 0;
	}
	return *end == '\0' ? 4 : pm && strcmp(end, "_64") == 0 ? 8 : 0;
}

static int read_clock(struct exec_decoder *d, const struct special *s, uint32_t *ret)
{
	struct exec_op op = exec_dec_op(d, exec_op_clock);
	int err = exec_dec_new_register(d, s->bytes == 8 ? TY_U64 : TY_U32, &op.d);

	op.sub = (uint8_t)s->value;
	op.wide = s->bytes == 8 ? WIDE_D : 0;
	*ret = op.d;
	return err < 0 ? err : exec_dec_emit(d, &op);
}

int exec_dec_special(struct exec_decoder *d, const char *name, enum exec_type t, uint32_t *ret)
{
	unsigned bytes = exec_dec_type_bytes(t), zero;
	const struct special *s;

	if (bytes == 8 && strcmp(name, "%gridid") == 0) {
		*ret = REF_SLOT32(BLOCK_GRIDID, REF_BLOCK);
		return 0;
	}
	s = bsearch(name, specials, ARRAY_SIZE(specials), sizeof(specials[0]), by_name);
	zero = s ? 0 : zero_register(name);
	if (zero && (zero == 8) == (bytes == 8)) {
		return exec_dec_constant(d, 0, zero == 8, ret);
	}
	/* narrow forms of old programs read the low half */
	if (!s || (s->bytes == 8) != (bytes == 8)) {
		return 1;
	}
	switch (s->kind) {
	case SLOT:
		*ret = s->value;
		return 0;
	case VALUE:
		return exec_dec_constant(d, s->value, bytes == 8, ret);
	default:
		return read_clock(d, s, ret);
	}
}
