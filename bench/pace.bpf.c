/* For `gbpf bench dev pace`: launches everything that can be stopped between blocks at block level,
 * large grids of clones in gBPF's own pieces, machine code with the gate mode that the bench sets,
 * and holds nothing. The measured cost is that of the mechanism
 * alone. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} gate SEC(".maps");

SEC("gbpf/submit")
int GBPF_PROG(pace_submit, submit)
{
	u32 key = 0, *mode = bpf_map_lookup_elem(&gate, &key);

	if (ctx->block_ok) {
		ctx->level = GBPF_LEVEL_BLOCK;
		ctx->gate = mode ? *mode : GBPF_GATE_DEFAULT;
	}
	return GBPF_GO;
}
