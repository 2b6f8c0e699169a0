/* refuse: helper: bpf_puts: the text has a '%' */
#include "gbpf/gbpf.bpf.h"

SEC("gdev/enter") int GBPF_PROG(f, gdev_enter)
{
	static const char text[] = "block %llu";

	bpf_puts(text);
	return 0;
}

GBPF_LICENSE("GPL");
