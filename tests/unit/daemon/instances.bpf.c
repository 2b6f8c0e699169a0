/* What each instance of a version sees of its GPU. With CHANGED, init refuses GPU 1. With LARGE,
 * the worker makes instances, since their memory takes the loop too long. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} own SEC(".maps");

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, u64);
} table SEC(".maps");

#ifdef LARGE
struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 200000);
	__type(key, u32);
	__type(value, u64);
} large SEC(".maps");
#endif

u64 begun, kept, admitted, active, tenants_found, launches;

SEC("gbpf/init")
int GBPF_PROG(instances_init, init)
{
	u32 key = ctx->gpu;
	u64 value = 1;

	begun = 100 + ctx->gpu;
	kept = ctx->kept_maps;
	bpf_map_update_elem(&table, &key, &value, 0);
#ifdef CHANGED
	return ctx->gpu == 1 ? -19 : 0;
#else
	return 0;
#endif
}

SEC("gbpf/admit")
int GBPF_PROG(instances_admit, admit)
{
	u32 key = 0;
	u64 *mark = gbpf_tenant_lookup(&own, ctx->tenant, &key);

	if (mark) {
		*mark = 10 + ctx->gpu;
	}
	admitted++;
	return GBPF_ADMIT;
}

SEC("gbpf/submit")
int GBPF_PROG(instances_submit, submit)
{
	return begun ? GBPF_GO : GBPF_HOLD;
}

SEC("gbpf/tick")
int GBPF_PROG(instances_tick, tick)
{
	u64 n = 0, sum = 0;

	active = ctx->active;
	for (u32 i = 0; i < 8; i++) {
		if (gbpf_tenant_class(i) >= 0) {
			n++;
			sum += gbpf_tenant_stat(i, GBPF_STAT_LAUNCHES);
		}
	}
	tenants_found = n;
	launches = sum;
	return 0;
}
