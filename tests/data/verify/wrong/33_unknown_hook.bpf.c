/* There is no hook of that name. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/sumbit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
