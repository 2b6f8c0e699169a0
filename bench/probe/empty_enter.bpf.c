/* For `gbpf bench probe`: nothing, for each warp that enters. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gdev/enter")
int GBPF_PROG(nothing, gdev_enter)
{
	return 0;
}
