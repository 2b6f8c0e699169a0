/* refuse: loop: the loop makes no progress */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	while (bpf_get_prandom_u32() != 7) {
	}
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
