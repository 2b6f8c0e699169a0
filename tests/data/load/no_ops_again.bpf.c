/* refuse: mine.submit: go fills the hook submit already, by its section */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("?gbpf/retire") int GBPF_PROG(more, retire)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops mine = { .submit = go };

GBPF_LICENSE("GPL");
