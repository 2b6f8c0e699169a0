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

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	struct gbpf_ops___twin *o = (void *)ctx;

	return bpf_core_field_offset(o->name[2]) == __builtin_offsetof(struct gbpf_ops, name) + 2 &&
			       bpf_core_field_size(o->name) == 32 && !bpf_core_field_exists(o->word) &&
			       bpf_core_field_exists(o->submit)
		       ? GBPF_HOLD
		       : GBPF_GO;
}

GBPF_LICENSE("GPL");
