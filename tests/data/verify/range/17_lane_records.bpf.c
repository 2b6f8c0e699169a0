/* Records of one lane: all lanes write one, with a member that shows whether it counts. Twins: the lanes part before the
 * call, or one lane has no record. */
/* twins: 2 */
#include "gbpf/gbpf.bpf.h"

struct record {
	u64 counts, time_ns;
};

struct {
	__uint(type, GBPF_MAP_SM_RING);
	__uint(max_entries, 64);
	__type(value, struct record);
	__uint(map_flags, GBPF_F_DEVICE);
} ring SEC(".maps");

SEC("gdev.lane/exit") int GBPF_PROG(check, gdev_exit)
{
	struct record r = { ctx->lane == 3, ctx->time_ns };

#if TWIN == 1
	if (ctx->lane == 3)
#elif TWIN == 2
	if (ctx->lane == 3) {
		return 0;
	}
#endif
	bpf_ringbuf_output(&ring, &r, sizeof(r), 0);
	return 0;
}

GBPF_LICENSE("GPL");
