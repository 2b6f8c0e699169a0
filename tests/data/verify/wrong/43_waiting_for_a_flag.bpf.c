/* A program does not wait; it returns HOLD and is asked again. */
#include "gbpf/gbpf.bpf.h"

volatile u32 ready;

SEC("gbpf/submit") int GBPF_PROG(wait, submit)
{
	while (!ready) {
	}
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
