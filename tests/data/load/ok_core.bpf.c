/* accept: fields, types and enumerators by name, wherever they lie in the running gBPF. */
#include "gbpf/gbpf.bpf.h"

struct gbpf_submit_ctx___moved {
	u32 weight;
	u32 tenant;
	u32 from_the_future;
	u64 est_ns;
	u64 blocks;
	u64 flags; /* u32 here: its loads become narrower */
} GBPF_CORE;

struct gbpf_retire_ctx___gone {
	u64 nothing;
} GBPF_CORE;

struct gbpf_unknown {
	u64 a;
} GBPF_CORE;

enum gbpf_helper_id___more {
	GBPF_HELPER_bpf_loop___here = 1,
	GBPF_HELPER_gbpf_of_the_future = 4711,
};

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	struct gbpf_submit_ctx___moved *c = (void *)ctx;

	if (bpf_core_field_exists(c->from_the_future)) {
		return c->from_the_future & 1;
	}
	if (bpf_core_type_exists(struct gbpf_unknown)) {
		return 2;
	}
	if (bpf_core_enum_value_exists(enum gbpf_helper_id___more, GBPF_HELPER_gbpf_of_the_future)) {
		return 2;
	}
	if (bpf_core_enum_value(enum gbpf_helper_id___more, GBPF_HELPER_bpf_loop___here) != 181) {
		return 2;
	}
	if (bpf_core_type_size(struct gbpf_submit_ctx) != sizeof(struct gbpf_submit_ctx) ||
	    !bpf_core_type_exists(struct gbpf_retire_ctx) || bpf_core_field_size(c->flags) != 4 ||
	    bpf_core_field_offset(c->est_ns) != __builtin_offsetof(struct gbpf_submit_ctx, est_ns)) {
		return 2;
	}
	return c->est_ns == 11 && c->blocks == 12 && c->weight == 13 && c->tenant == 14 && c->flags == 15
		       ? GBPF_HOLD
		       : GBPF_GO;
}

GBPF_LICENSE("GPL");
