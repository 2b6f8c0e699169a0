/* refuse: relocation: struct gbpf_submit_ctx___new.priority has another size or place in its word here (CO-RE) */
#include "gbpf/gbpf.bpf.h"

struct gbpf_submit_ctx___new {
	u32 a;
	s64 priority;
} GBPF_CORE;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return ((struct gbpf_submit_ctx___new *)ctx)->priority & 1;
}

GBPF_LICENSE("GPL");
