/* refuse: mine.name: longer than 31 characters */
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

SEC("?gbpf/tick") int GBPF_PROG(more, tick)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops___future mine = { .submit = go, .name = "01234567890123456789012345678901" };

GBPF_LICENSE("GPL");
