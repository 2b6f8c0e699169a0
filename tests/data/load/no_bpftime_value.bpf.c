/* refuse: map slots: sizes or flags do not suit the type */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, 1502);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u32);
} slots SEC(".maps");

SEC("gdev/exit/*")
int GBPF_PROG(leave, gdev_exit)
{
	return 0;
}

GBPF_LICENSE("GPL");
