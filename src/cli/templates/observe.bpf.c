/* mypolicy: observes. It holds nothing; it measures kernels and reports the slow ones.
 *
 *	gbpf policy build    # compiles this file and checks it
 *	gbpf policy test mypolicy.bpf.o    # runs it without a GPU
 *	gbpf policy swap mypolicy.bpf.o    # makes it the active policy
 *	gbpf map dump kernels    # shows count and duration of each kernel
 *	gbpf map dump durations    # draws a histogram of durations
 *	gbpf map watch slow    # prints slow work as it happens
 *	gbpf policy rollback    # returns to the previous policy
 */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

/* Constants: known to the verifier. */
const volatile u64 slow_ns = 10000000; /* longer launches are reported */

/* Statistics of a kernel. When the table is full it evicts a least recently used element. */
struct kernel {
	u64 launches, busy_ns, max_ns;
};

struct {
	__uint(type, GBPF_MAP_LRU_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u64); /* hash of the kernel's name; `gbpf ps --why` shows the names */
	__type(value, struct kernel);
} kernels SEC(".maps");

enum { DURATION, HELD }; /* rows of the histogram */

GBPF_HISTOGRAM(durations, 2);

/* Records for `gbpf map watch slow`. Without a reader the buffer fills up, and further records are
 * lost. */
struct slow_work {
	u64 kernel, duration_ns, held_ns;
	u32 tenant, count;
};

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 16384); /* bytes */
	__uint(map_flags, GBPF_F_TENANT);
	__type(value, struct slow_work);
} slow SEC(".maps");

enum { LAUNCHES, DURING_LATENCY, NOT_REPORTED }; /* counters of gbpf_note: `gbpf policy show` prints them */

SEC("gbpf/submit")
int GBPF_PROG(mypolicy_submit, submit)
{
	gbpf_note(LAUNCHES, 1);
	if (ctx->lc_open) {
		gbpf_note(DURING_LATENCY, 1); /* lc_first would have held this one */
	}
	return GBPF_GO;
}

static __always_inline void account(u64 id, u64 duration_ns, u64 launches)
{
	struct kernel *k = bpf_map_lookup_elem(&kernels, &id);

	if (!k) {
		struct kernel first = {};

		bpf_map_update_elem(&kernels, &id, &first, BPF_NOEXIST);
		k = bpf_map_lookup_elem(&kernels, &id);
		if (!k) {
			return;
		}
	}
	__sync_fetch_and_add(&k->launches, launches);
	__sync_fetch_and_add(&k->busy_ns, duration_ns);
	if (duration_ns > k->max_ns) {
		k->max_ns = duration_ns;
	}
}

static __always_inline void report(struct gbpf_retire_ctx *ctx)
{
	struct slow_work *w = bpf_ringbuf_reserve(&slow, sizeof(*w), 0);

	if (!w) {
		gbpf_note(NOT_REPORTED, 1); /* full */
		return;
	}
	w->kernel = ctx->kernel;
	w->duration_ns = ctx->duration_ns;
	w->held_ns = ctx->held_ns;
	w->tenant = ctx->tenant;
	w->count = ctx->count;
	bpf_ringbuf_submit(w, 0);
}

SEC("gbpf/retire")
int GBPF_PROG(mypolicy_retire, retire)
{
	gbpf_hist_add(&durations, DURATION, ctx->duration_ns);
	gbpf_hist_add(&durations, HELD, ctx->held_ns);
	if (ctx->kernel) {
		account(ctx->kernel, ctx->duration_ns, ctx->count);
	}
	if (ctx->duration_ns > slow_ns) {
		report(ctx);
	}
	return 0;
}
