/* mypolicy: counts what each tenant copies and sets, and holds copies back that exceed a budget.
 *
 *	gbpf policy build    # compiles this file and checks it
 *	gbpf policy test mypolicy.bpf.o    # runs it without a GPU
 *	gbpf policy swap mypolicy.bpf.o    # makes it the active policy
 *	gbpf map dump traffic    # shows what was copied
 *	gbpf policy rollback    # goes back to the one before
 *
 * gBPF does not call policies about allocations, faults or eviction: there are no hooks for memory. What a policy sees of
 * memory is the traffic: each copy and memset comes to submit with its bytes, and that is what this one counts and paces.
 *
 * How it works: a token bucket for each tenant. Bytes flow in with time, a copy takes its bytes out; who has taken out too
 * much waits until enough has flowed in. Kernels are never held. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

/* Constants: the verifier knows their values. */
const volatile u64 bytes_per_us = 20000; /* 20 GB/s for each tenant */
const volatile u64 burst_bytes = 64 << 20;

/* Global variables with GBPF_TENANT: each tenant has its own. */
GBPF_TENANT u64 bucket_bytes; /* taken out and not flowed in again */
GBPF_TENANT u64 flowed_ns;    /* until when */

/* A hash table: which kind of operation moved how much. */
struct traffic {
	u64 operations, bytes;
};

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(max_entries, 16);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32); /* GBPF_KIND_* */
	__type(value, struct traffic);
} traffic SEC(".maps");

/* How large the operations are, as a histogram with a bucket for each power of two. */
GBPF_HISTOGRAM(sizes, 1);

enum { HELD }; /* counters of gbpf_note: `gbpf policy show` prints them */

static __always_inline void count(u32 kind, u64 bytes)
{
	struct traffic *t = bpf_map_lookup_elem(&traffic, &kind);

	if (!t) {
		struct traffic first = {};

		bpf_map_update_elem(&traffic, &kind, &first, BPF_NOEXIST);
		t = bpf_map_lookup_elem(&traffic, &kind);
		if (!t) {
			return; /* the table is full */
		}
	}
	__sync_fetch_and_add(&t->operations, 1);
	__sync_fetch_and_add(&t->bytes, bytes);
	gbpf_hist_add(&sizes, 0, bytes);
}

/* What has flowed in since the last time. */
static __always_inline u64 level(u64 now)
{
	u64 in = (now - flowed_ns) / 1000 * bytes_per_us;

	bucket_bytes = in < bucket_bytes ? bucket_bytes - in : 0;
	flowed_ns = now;
	return bucket_bytes;
}

SEC("gbpf/submit")
int GBPF_PROG(mypolicy_submit, submit)
{
	u64 taken;

	if (ctx->kind != GBPF_KIND_COPY && ctx->kind != GBPF_KIND_MEMSET) {
		return GBPF_GO;
	}
	taken = level(ctx->now_ns);
	if (taken > burst_bytes) {
		if (!ctx->asked) { /* counts operations, not questions */
			gbpf_note(HELD, 1);
		}
		ctx->hold_ns = (taken - burst_bytes) / bytes_per_us * 1000 + 1000;
		return GBPF_DEFER;
	}
	bucket_bytes = taken + ctx->bytes;
	count(ctx->kind, ctx->bytes);
	return GBPF_GO;
}
