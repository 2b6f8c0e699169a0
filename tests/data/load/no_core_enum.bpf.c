/* refuse: relocation: enum gbpf_const___new.GBPF_OF_THE_FUTURE is not known */
#include "gbpf/gbpf.bpf.h"

enum gbpf_const___new {
	GBPF_OF_THE_FUTURE = 9,
};

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return bpf_core_enum_value(enum gbpf_const___new, GBPF_OF_THE_FUTURE) & 1;
}

GBPF_LICENSE("GPL");
