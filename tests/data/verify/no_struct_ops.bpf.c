/* refuse: my_ops: struct ops is no struct of programs that gBPF knows */
#include "gbpf/gbpf.bpf.h"

struct ops {
	int (*submit)(void *ctx);
};

static int f(void *ctx)
{
	return 0;
}

SEC(".struct_ops") struct ops my_ops = { .submit = f };

GBPF_LICENSE("GPL");
