/* refuse: bounds:  */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u8 slots[32];

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	s32 i = (s32)(ctx->queue & 0xff) - 8;

	if (i < 32) {
		slots[i] = 1;
	}
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
