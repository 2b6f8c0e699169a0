/* mypolicy: tenants get GPU time by weight; who has used up his part waits for more.
 *
 *	gbpf policy build    # compiles this file and checks it
 *	gbpf policy test mypolicy.bpf.o    # runs it without a GPU
 *	gbpf policy swap mypolicy.bpf.o    # makes it the active policy
 *	gbpf policy rollback    # goes back to the one before
 *
 * How it works: every millisecond gbpfd adds to what each tenant may have used by now (allowed_ns); each tenant's own
 * programs add up what it has used (used_ns). Who is ahead by more than the slack has to wait. man 7 gbpf-policy has the
 * tutorial and the reference. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

/* Constants: the verifier knows their values. */
const volatile u64 slack_ns = 2000000;	/* how far ahead one may be */
const volatile u64 saved_ns = 10000000; /* how much unused time one may save up */

/* One account for each tenant. Its own programs write used_ns, gbpfd writes allowed_ns: nobody else sees it. */
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
		return GBPF_GO; /* cannot be, but the verifier wants to see it */
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY) {
		gbpf_note(LATENCY, 1);
		return GBPF_GO;
	}
	if (a->used_ns > a->allowed_ns + slack_ns) {
		if (!ctx->asked) { /* counts launches, not questions */
			gbpf_note(WAITED, 1);
		}
		ctx->hold_ns = 1000000; /* ask again after the next tick */
		return GBPF_DEFER;
	}
	return GBPF_GO;
}

/* Launches have finished: what they took counts. */
SEC("gbpf/retire")
int GBPF_PROG(mypolicy_retire, retire)
{
	u32 key = 0;
	struct account *a = bpf_map_lookup_elem(&accounts, &key);

	if (a && ctx->weight) {
		/* Atomic, because a program may launch from several threads. */
		__sync_fetch_and_add(&a->used_ns, ctx->duration_ns * 100 / ctx->weight);
	}
	return 0;
}

/* Every millisecond while anybody works, in gbpfd. */
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
