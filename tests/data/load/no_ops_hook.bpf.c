/* refuse: mine.retire: more is a program of the hook tick, not of retire */
#include "gbpf/gbpf.bpf.h"

SEC("struct_ops/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("?gbpf/tick") int GBPF_PROG(more, retire)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops mine = { .submit = go, .retire = more };

GBPF_LICENSE("GPL");
