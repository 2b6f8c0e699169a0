/* refuse: there is no hook 'sumbit' */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/sumbit") int GBPF_PROG(f, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
