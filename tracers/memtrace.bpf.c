/* memtrace: what kernels access. Counts, for each memory space, kind and width of an access, the instructions that
 * warps execute, the lanes that take part, the bytes that they ask for and the sectors of 32 bytes that these are in.
 *
 * An addition to memory costs more than all else here, so an access is one addition if it is of a common shape: lanes
 * and sectors of such accesses follow from their number, and bytes from lanes and width. `gbpf trace` adds them up. No
 * counter is a part of a word, so none can overflow into another one. */
#include <gbpf/gbpf.bpf.h>

#define SPACES 5
#define KINDS 6
#define WIDTHS 8 /* 1, 2, 4 ... 64 bytes; 128 and more */

#define FULL_MAX 16 /* sectors of a full warp's access that is one addition */

struct access {
	u64 single; /* accesses of one lane, in one sector */
	/* Of all 32 lanes, in as many sectors as the name says. */
	u64 s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15, s16;
	/* Of all others: */
	u64 count, sectors;
	u64 lanes;	   /* whose width is that of the entry */
	u64 others, bytes; /* lanes with another width, and what they ask for */
};

struct {
	__uint(type, GBPF_MAP_SM_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE | GBPF_F_DEFER);
	__uint(max_entries, SPACES * KINDS * WIDTHS);
	__type(key, u32);
	__type(value, struct access);
} accesses SEC(".maps");

static __always_inline u32 width_class(u32 bytes)
{
	u32 e = 0;

	if (bytes >= 16) {
		bytes >>= 4;
		e = 4;
	}
	if (bytes >= 4) {
		bytes >>= 2;
		e += 2;
	}
	e += bytes >= 2;
	return e < WIDTHS ? e : WIDTHS - 1;
}

/* Returns the number of the word of `single` to `s16`, or a larger one. */
static __always_inline u32 shape_of(u32 lanes, u32 sectors)
{
	if (lanes == 32) {
		return sectors;
	}
	return (lanes | sectors) == 1 ? 0 : FULL_MAX + 1;
}

SEC("gdev/access")
int GBPF_PROG(access, gdev_access)
{
	u32 width = width_class(ctx->bytes);
	u32 k = (ctx->space * KINDS + ctx->op) * WIDTHS + width;
	struct access *a = bpf_map_lookup_elem(&accesses, &k);
	u32 shape, exact = 1 << width == ctx->bytes;

	if (!a) {
		return 0;
	}
	shape = exact ? shape_of(ctx->lanes, ctx->sectors) : FULL_MAX + 1;
	if (shape <= FULL_MAX) {
		__sync_fetch_and_add((u64 *)a + shape, 1);
		return 0;
	}
	__sync_fetch_and_add(&a->count, 1);
	__sync_fetch_and_add(&a->sectors, ctx->sectors);
	if (exact) {
		__sync_fetch_and_add(&a->lanes, ctx->lanes);
	} else {
		__sync_fetch_and_add(&a->others, ctx->lanes);
		__sync_fetch_and_add(&a->bytes, (u64)ctx->lanes * ctx->bytes);
	}
	return 0;
}

GBPF_LICENSE("MIT");
