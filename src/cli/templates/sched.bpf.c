/* mypolicy: gives tenants GPU time by weight; a tenant that has used up its share waits.
 *
 *	gbpf policy build    # compiles this file and checks it
 *	gbpf policy test mypolicy.bpf.o    # runs it without a GPU
 *	gbpf policy swap mypolicy.bpf.o    # makes it the active policy
 *	gbpf policy rollback    # returns to the previous policy
 *
 * How it works: every millisecond gbpfd increases each tenant's allowance (allowed_ns); each tenant's
 * own programs add up its usage (used_ns). A tenant that is ahead by more than the slack waits. man 7
 * gbpf-policy has the tutorial and the reference. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

/* Constants: known to the verifier. */
const volatile u64 slack_ns = 2000000;	/* time by which a tenant may be ahead */
const volatile u64 saved_ns = 10000000; /* maximum unused time that a tenant may save */

/* One account for each tenant. Its own programs write used_ns, gbpfd writes allowed_ns; other
 * tenants cannot access it. */
struct account {
	u64 used_ns;	/* GPU time at weight 100 */
	u64 allowed_ns;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

enum { WAITED, LATENCY }; /* counters of gbpf_note: `gbpf policy show` prints them */

/* A launch is about to go to the GPU: GBPF_GO, GBPF_HOLD or GBPF_DEFER. Runs in the tenant's process. */
SEC("gbpf/submit")
int GBPF_PROG(mypolicy_submit, submit)
{
	u32 key = 0;
	struct account *a = bpf_map_lookup_elem(&accounts, &key);

	if (!a) {
		return GBPF_GO; /* cannot happen, but the verifier requires the check */
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		gbpf_note(LATENCY, 1);
		return GBPF_GO;
	}
	if (a->used_ns > a->allowed_ns + slack_ns) {
		if (!ctx->asked) { /* counts launches, not calls of this hook */
			gbpf_note(WAITED, 1);
		}
		ctx->why = GBPF_WHY_SHARE; /* for `gbpf ps --why` */
		ctx->hold_ns = 1000000; /* ask again after the next tick */
		return GBPF_DEFER;
	}
	return GBPF_GO;
}

/* Launches have finished: adds their duration to the account. */
SEC("gbpf/retire")
int GBPF_PROG(mypolicy_retire, retire)
{
	u32 key = 0;
	struct account *a = bpf_map_lookup_elem(&accounts, &key);

	if (a && ctx->weight) {
		/* Atomic, because a program may launch from several threads. */
		__sync_fetch_and_add(&a->used_ns, gbpf_used_ns(ctx) * 100 / ctx->weight);
	}
	return 0;
}

/* Runs in gbpfd every millisecond while a tenant is active. */
SEC("gbpf/tick")
int GBPF_PROG(mypolicy_tick, tick)
{
	u64 active = ctx->active ? ctx->active : 1;
	u64 part = ctx->period_ns / active;
	u32 key = 0, t;

	bpf_for (t, 0, 1024) {
		struct account *a;

		if (t >= ctx->tenants) {
			break;
		}
		a = gbpf_tenant_lookup(&accounts, t, &key);
		if (!a) {
			continue; /* no tenant has this number */
		}
		a->allowed_ns += part;
		if (a->allowed_ns > a->used_ns + saved_ns) {
			a->allowed_ns = a->used_ns + saved_ns;
		}
	}
	return 0;
}
