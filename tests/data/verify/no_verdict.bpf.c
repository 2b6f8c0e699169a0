/* refuse: verdict: the verdict is 0 to 4294967295, but submit allows 0 to 3 */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	return ctx->queue;
}

GBPF_LICENSE("GPL");
