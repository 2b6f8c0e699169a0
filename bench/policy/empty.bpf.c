/* Returns GO and does nothing else. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/submit")
int GBPF_PROG(empty, submit)
{
	return GBPF_GO;
}
