/* Quotas by user: device time of all tenants of a user in a small table, searched linearly. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

struct user {
	u32 uid;
	u32 used;
	u64 ns;
};

struct user users[32];
u32 uid_of[GBPF_TENANTS];
u32 over[GBPF_TENANTS];
const volatile u64 quota_ns = 1000000000;

SEC("gbpf/admit") int GBPF_PROG(enter, admit)
{
	u32 free = 32, found = 32;

	for (u32 i = 0; i < 32; i++) {
		if (users[i].used && users[i].uid == ctx->uid) {
			found = i;
			break;
		}
		if (!users[i].used && free == 32) {
			free = i;
		}
	}
	if (found == 32) {
		if (free == 32) {
			return GBPF_REJECT;
		}
		users[free].used = 1;
		users[free].uid = ctx->uid;
		found = free;
	}
	uid_of[ctx->tenant] = found + 1;
	return GBPF_ADMIT;
}

SEC("gbpf/tick") int GBPF_PROG(charge, tick)
{
	for (u32 i = 0; i < 32; i++) {
		users[i].ns = 0;
	}
	for (u32 t = 0; t < ctx->tenants; t++) {
		u32 u = uid_of[t];

		if (u && u <= 32) {
			users[u - 1].ns += gbpf_tenant_stat(t, GBPF_STAT_BUSY_NS);
		}
	}
	for (u32 t = 0; t < ctx->tenants; t++) {
		u32 u = uid_of[t];

		over[t] = u && u <= 32 && users[u - 1].ns > quota_ns;
	}
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	return over[ctx->tenant] && ctx->lc_open ? GBPF_DEFER : GBPF_GO;
}
