/* refuse: bpf_dynptr_from_mem is extern, and gBPF has no helper of that name */
#include "gbpf/gbpf.bpf.h"

struct bpf_dynptr {
	u64 opaque[2];
};

extern int bpf_dynptr_from_mem(void *data, u64 bytes, u64 flags, struct bpf_dynptr *ptr) __ksym;

u64 data[4];

SEC("gbpf/tick") int GBPF_PROG(f, tick)
{
	struct bpf_dynptr ptr;

	return bpf_dynptr_from_mem(data, sizeof(data), 0, &ptr) & 0;
}

GBPF_LICENSE("GPL");
