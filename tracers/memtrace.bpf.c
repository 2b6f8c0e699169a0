/* memtrace: what kernels access. Counts, for each memory space, kind and width of an access, the instructions that
 * warps execute, the lanes that take part, the bytes that they ask for and the sectors of 32 bytes that these are in. */
#include <gbpf/gbpf.bpf.h>

#define SPACES 5
#define KINDS 6
#define WIDTHS 8 /* 1, 2, 4 ... 64 bytes; 128 and more */

struct access {
	u64 count, lanes, bytes, sectors;
};

struct {
	__uint(type, GBPF_MAP_SM_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
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

SEC("gdev/access")
int GBPF_PROG(access, gdev_access)
{
	u32 k = (ctx->space * KINDS + ctx->op) * WIDTHS + width_class(ctx->bytes);
	struct access *a = bpf_map_lookup_elem(&accesses, &k);

	if (a) {
		__sync_fetch_and_add(&a->count, 1);
		__sync_fetch_and_add(&a->lanes, ctx->lanes);
		__sync_fetch_and_add(&a->bytes, (u64)ctx->lanes * ctx->bytes);
		__sync_fetch_and_add(&a->sectors, ctx->sectors);
	}
	return 0;
}

GBPF_LICENSE("MIT");
