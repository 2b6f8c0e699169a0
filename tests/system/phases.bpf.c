/* What collective_phase tells each program, in its own row; note 0 counts beginnings. TENTH: the answer at every tenth collective; GBPF_COLLECTIVE_HOLD stops the
 * group for 20 ms. */
#include <gbpf/gbpf.bpf.h>

struct seen {
	u64 begun, ended, last, ranks, waited_ns;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_TENANT);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct seen);
} seen SEC(".maps");

SEC("gbpf/collective_phase")
int GBPF_PROG(see, collective_phase)
{
	u32 zero = 0;
	struct seen *s = bpf_map_lookup_elem(&seen, &zero);

	if (!s) {
		return GBPF_COLLECTIVE_GO;
	}
	if (ctx->phase == GBPF_PHASE_END) {
		s->ended = ctx->number;
		return GBPF_COLLECTIVE_GO;
	}
	gbpf_note(0, 1);
	s->begun = ctx->number;
	s->ranks = ctx->ranks;
	s->last += ctx->ready == ctx->ranks;
	s->waited_ns += ctx->waited_ns;
	ctx->hold_ns = 20000000;
	return ctx->number % 10 ? GBPF_COLLECTIVE_GO : TENTH;
}

GBPF_LICENSE("MIT");
