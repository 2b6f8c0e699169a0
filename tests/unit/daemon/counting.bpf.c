/* All hooks that run in gbpfd, with memory of both kinds: tick counts in a global and in each
 * tenant's instance; admit decides by the requested weight. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} seen SEC(".maps");

u64 marker = 0x1122334455667788;
u64 ticks;

SEC("gbpf/submit")
int GBPF_PROG(counting_submit, submit)
{
	u32 key = 1;
	u64 *mine = bpf_map_lookup_elem(&seen, &key);

	if (mine) {
		*mine += 1;
	}
	return ticks ? GBPF_GO : GBPF_HOLD;
}

SEC("gbpf/admit")
int GBPF_PROG(counting_admit, admit)
{
	if (ctx->weight == 13) {
		return GBPF_REJECT;
	}
	if (ctx->weight == 14 && ctx->tenants > 0) {
		return GBPF_QUEUE;
	}
	if (ctx->weight == 15) {
		ctx->class_id = GBPF_CLASS_BATCH;
		ctx->weight = 3;
	}
	return GBPF_ADMIT;
}

SEC("gbpf/tick")
int GBPF_PROG(counting_tick, tick)
{
	u32 key = 0, n = ctx->tenants;

	ticks += 1;
	gbpf_note(2, 1);
	for (u32 i = 0; i < 1024; i++) {
		u64 *theirs;

		if (i >= n) {
			break;
		}
		theirs = gbpf_tenant_lookup(&seen, i, &key);
		if (theirs) {
			*theirs += 1;
		}
	}
	return 0;
}
