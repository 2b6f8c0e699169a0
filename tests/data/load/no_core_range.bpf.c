/* refuse: gbpf_ops___new.name[40] is not known */
#include "gbpf/gbpf.bpf.h"

struct gbpf_ops___new {
	char name[64];
} GBPF_CORE;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return bpf_core_field_offset(((struct gbpf_ops___new *)ctx)->name[40]) & 1;
}

GBPF_LICENSE("GPL");
