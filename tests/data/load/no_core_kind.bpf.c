/* refuse: relocation: struct gbpf_submit_ctx___new.est_ns.a is not known */
#include "gbpf/gbpf.bpf.h"

struct gbpf_submit_ctx___new {
	struct {
		u64 a;
	} est_ns;
} GBPF_CORE;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return ((struct gbpf_submit_ctx___new *)ctx)->est_ns.a & 1;
}

GBPF_LICENSE("GPL");
