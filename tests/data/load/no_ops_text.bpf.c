/* refuse: mine.submit: go in section '.text' is no program */
#include "gbpf/gbpf.bpf.h"

__noinline int go(struct gbpf_submit_ctx *ctx)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops mine = { .submit = go };

GBPF_LICENSE("GPL");
