/* refuse: struct thing.b is not known to this gBPF (CO-RE) */
#include "gbpf/gbpf.bpf.h"

struct thing {
	u64 a;
	u64 b;
} __attribute__((preserve_access_index));

GBPF_TENANT u64 at;

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	struct thing *t = (void *)ctx;

	return t->b & 1;
}

GBPF_LICENSE("GPL");
