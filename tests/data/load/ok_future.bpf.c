/* accept: a struct of programs from a gBPF with more members, which are zero here. */
#include "gbpf/gbpf.bpf.h"

struct gbpf_ops___future {
	u64 timeout_ms;
	int (*migrate)(void *ctx);
	int (*submit)(struct gbpf_submit_ctx *ctx);
	u32 a : 3, b : 5;
	char name[64];
	struct {
		u32 x, y;
	} more[2];
};

SEC("struct_ops/submit") int GBPF_PROG(go, submit)
{
	return GBPF_HOLD;
}

SEC(".struct_ops") struct gbpf_ops___future later = { .submit = go, .name = "later" };

GBPF_LICENSE("GPL");
