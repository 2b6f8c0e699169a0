/* bpf_get_current_pid_tgid is the kernel's. */
#include "gbpf/gbpf.bpf.h"

static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;

SEC("gbpf/submit") int GBPF_PROG(who, submit)
{
	return bpf_get_current_pid_tgid() & 1 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
