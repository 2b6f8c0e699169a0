/* refuse: CONFIG_HZ is a value of .kconfig, which is not supported */
#include "gbpf/gbpf.bpf.h"

extern int CONFIG_HZ __attribute__((section(".kconfig")));

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return CONFIG_HZ & 1;
}

GBPF_LICENSE("GPL");
