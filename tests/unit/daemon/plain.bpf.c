/* The smallest policy: submits everything. No memory of its own. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/submit")
int GBPF_PROG(plain_submit, submit)
{
	return GBPF_GO;
}
