/* accept: a loop that the operator's constant bounds. */
#include "gbpf/gbpf.bpf.h"

const volatile u32 rounds = 20;
GBPF_TENANT u64 sum;

SEC("gbpf/submit") int GBPF_PROG(rounds_of, submit)
{
	for (u32 i = 0; i < rounds; i++) {
		sum += bpf_get_prandom_u32();
	}
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
