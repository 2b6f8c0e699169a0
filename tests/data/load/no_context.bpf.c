/* refuse: go is a program of the hook submit, but takes a struct gbpf_retire_ctx */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(go, retire)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
