/* refuse: first and second are both programs for the hook submit */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(first, submit)
{
	return GBPF_GO;
}

SEC("gbpf/submit") int GBPF_PROG(second, submit)
{
	return GBPF_HOLD;
}

GBPF_LICENSE("GPL");
