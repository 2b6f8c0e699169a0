/* refuse: mine.migrate: this gBPF's struct gbpf_ops has no such member */
#include "gbpf/gbpf.bpf.h"

struct gbpf_ops___future {
	int (*submit)(struct gbpf_submit_ctx *ctx);
	int (*migrate)(void *ctx);
	u32 a : 3, b : 5;
	char *text;
	char name[64];
};

SEC("struct_ops/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("struct_ops/more") int GBPF_PROG(more, tick)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops___future mine = { .submit = go, .migrate = (void *)more };

GBPF_LICENSE("GPL");
