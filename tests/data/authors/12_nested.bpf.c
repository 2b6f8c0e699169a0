/* Nested loops of small bounds: a load matrix of tenants and classes, with its fullest row and column. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

u64 load[32][4];
u32 full_row, full_col;

SEC("gbpf/tick") int GBPF_PROG(matrix, tick)
{
	u64 best = 0;
	u64 col[4] = {};
	u32 row_arg = 0, col_arg = 0;

	for (u32 i = 0; i < 32; i++) {
		u64 sum = 0;

		load[i][0] = gbpf_tenant_stat(i, GBPF_STAT_BUSY_NS);
		load[i][1] = gbpf_tenant_stat(i, GBPF_STAT_HELD_NS);
		load[i][2] = gbpf_tenant_stat(i, GBPF_STAT_BYTES);
		load[i][3] = gbpf_tenant_stat(i, GBPF_STAT_LAUNCHES);
		for (u32 k = 0; k < 4; k++) {
			sum += load[i][k];
			if (load[i][k] > col[k]) {
				col[k] = load[i][k];
			}
		}
		if (sum > best) {
			best = sum;
			row_arg = i;
		}
	}
	best = 0;
	for (u32 k = 0; k < 4; k++) {
		if (col[k] > best) {
			best = col[k];
			col_arg = k;
		}
	}
	full_row = row_arg;
	full_col = col_arg;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(spare, submit)
{
	return ctx->tenant == full_row && full_col < 2 && ctx->asked < 5 ? GBPF_HOLD : GBPF_GO;
}
