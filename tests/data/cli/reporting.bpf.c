/* Local hooks report to tick through a queue of each tenant. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

struct report {
	u32 tenant, kind;
	u64 blocks;
};

struct {
	__uint(type, GBPF_MAP_QUEUE);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(value, struct report);
} reports SEC(".maps");

u64 seen, blocks, strange, last_error;

SEC("gbpf/submit")
int GBPF_PROG(reporting_submit, submit)
{
	struct report r = { .tenant = ctx->tenant, .kind = ctx->kind, .blocks = ctx->blocks };

	/* Full: the oldest reports are dropped. */
	return bpf_map_push_elem(&reports, &r, BPF_EXIST) ? GBPF_HOLD : GBPF_GO;
}

SEC("gbpf/tick")
int GBPF_PROG(reporting_tick, tick)
{
	u32 t, i, n = ctx->tenants < 1024 ? ctx->tenants : 1024;

	bpf_for (t, 0, n) {
		bpf_for (i, 0, 8) {
			struct report r;
			long err = gbpf_tenant_pop(&reports, t, &r);

			if (err) {
				last_error = -err;
				break;
			}
			seen++;
			blocks += r.blocks;
			strange += r.tenant != t; /* a tenant may write anything */
		}
	}
	return 0;
}
