/* A site with the separator of sections. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

SEC("gdev/access/*/load/global")
int GBPF_PROG(loads, gdev_access)
{
	return 0;
}
