/* accept: paths through arrays, anonymous structs and unions, and a bitfield of a type that is the object's own twin of
 * gBPF's. */
#include "gbpf/gbpf.bpf.h"

struct gbpf_ops___twin {
	union {
		struct {
			char name[4];
		};
		u64 word;
	};
	int (*submit)(void *ctx);
} GBPF_CORE;

struct gbpf_submit_ctx___two {
	u32 weight;
	s32 priority;
} GBPF_CORE;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	struct gbpf_ops___twin *o = (void *)ctx;

	return bpf_core_field_offset(o->name[2]) == __builtin_offsetof(struct gbpf_ops, name) + 2 &&
			       bpf_core_field_size(o->name) == 32 && !bpf_core_field_exists(o->word) &&
			       bpf_core_field_exists(o->submit) &&
			       __builtin_preserve_field_info(((struct gbpf_submit_ctx___two *)0)->priority, 3) == 1 &&
			       __builtin_preserve_field_info(((struct gbpf_submit_ctx___two *)0)->weight, 3) == 0 &&
			       __builtin_preserve_field_info(((struct gbpf_submit_ctx___two *)0)->weight, 4) == 32 &&
			       __builtin_preserve_field_info(((struct gbpf_submit_ctx___two *)0)->weight, 5) == 32 &&
			       __builtin_btf_type_id(*(struct gbpf_submit_ctx *)0, 1) != 0
		       ? GBPF_HOLD
		       : GBPF_GO;
}

GBPF_LICENSE("GPL");
