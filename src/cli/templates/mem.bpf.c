/* mypolicy: counts the copies and memsets of each tenant, and holds those that exceed a budget.
 *
 *	gbpf policy build    # compiles this file and checks it
 *	gbpf policy test mypolicy.bpf.o    # runs it without a GPU
 *	gbpf policy swap mypolicy.bpf.o    # makes it the active policy
 *	gbpf map dump traffic    # shows the operations and bytes
 *	gbpf policy rollback    # returns to the previous policy
 *
 * gBPF does not call policies about allocations, faults or eviction: there are no hooks for memory.
 * A policy sees the traffic: submit is called for each copy and memset with its bytes, which this
 * policy counts and paces.
 *
 * How it works: each tenant has a token bucket. It is refilled with time, and a copy takes its bytes
 * out; a tenant that has taken out too much waits for the refill. Kernels are never held. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

/* Constants: known to the verifier. */
const volatile u64 bytes_per_us = 20000; /* 20 GB/s for each tenant */
const volatile u64 burst_bytes = 64 << 20;

/* Global variables with GBPF_TENANT: each tenant has its own. */
GBPF_TENANT u64 bucket_bytes; /* taken out and not refilled yet */
GBPF_TENANT u64 flowed_ns;    /* time of the last refill */

/* Operations and bytes of each kind of operation, in a hash table. */
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

/* Sizes of the operations, in a histogram with a bucket for each power of two. */
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

/* Refills the bucket for the time since the last call; returns the bytes that are still taken out. */
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
		if (!ctx->asked) { /* counts operations, not calls of this hook */
			gbpf_note(HELD, 1);
		}
		ctx->why = GBPF_WHY_BUDGET; /* for `gbpf ps --why` */
		ctx->hold_ns = (taken - burst_bytes) / bytes_per_us * 1000 + 1000;
		return GBPF_DEFER;
	}
	bucket_bytes = taken + ctx->bytes;
	count(ctx->kind, ctx->bytes);
	return GBPF_GO;
}
