/* refuse: has another size or place in its word here (CO-RE) */
#include "gbpf/gbpf.bpf.h"

struct gbpf_submit_ctx___new {
	u32 a;
	u32 flags : 5;
} GBPF_CORE;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return ((struct gbpf_submit_ctx___new *)ctx)->flags & 1;
}

GBPF_LICENSE("GPL");
