/* Time of day: a table of hours and limits, set by the operator with the offset of the clock. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

struct period {
	u16 from, to; /* minutes of the day */
	u32 limit;
};

u64 offset_ns;
struct period periods[8];
u32 limit_now;

SEC("gbpf/tick") int GBPF_PROG(clock, tick)
{
	u64 minutes = (ctx->now_ns + offset_ns) / 60000000000ULL % 1440;
	u32 limit = 100;

	for (int i = 0; i < 8; i++) {
		struct period *p = &periods[i];

		if (p->from == p->to) {
			continue;
		}
		if (p->from < p->to) {
			if (minutes >= p->from && minutes < p->to && p->limit < limit) {
				limit = p->limit;
			}
		} else if ((minutes >= p->from || minutes < p->to) && p->limit < limit) {
			limit = p->limit;
		}
	}
	limit_now = limit;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(night, submit)
{
	return ctx->class_id == GBPF_CLASS_BATCH && ctx->inflight >= limit_now ? GBPF_HOLD : GBPF_GO;
}
