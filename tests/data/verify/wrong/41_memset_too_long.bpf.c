/* The size is that of the wrong structure. */
#include "gbpf/gbpf.bpf.h"

struct small {
	u64 a[2];
};

GBPF_TENANT struct small stats;

SEC("gbpf/queue_destroy") int GBPF_PROG(clear, queue_destroy)
{
	__builtin_memset(&stats, 0, sizeof(stats) + 8);
	return 0;
}

GBPF_LICENSE("GPL");
