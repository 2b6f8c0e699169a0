/* refuse: initialized pointers in data */
#include "gbpf/gbpf.bpf.h"

static int zero, one = 1;
int *table[] = { &zero, &one };

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	return *table[ctx->queue & 1] & 1;
}

GBPF_LICENSE("GPL");
