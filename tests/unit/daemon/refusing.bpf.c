/* init refuses. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/init")
int GBPF_PROG(refusing_init, init)
{
	return -28; /* ENOSPC */
}

SEC("gbpf/exit")
int GBPF_PROG(refusing_exit, exit)
{
	gbpf_note(4, 1);
	return 0;
}

SEC("gbpf/submit")
int GBPF_PROG(refusing_submit, submit)
{
	return GBPF_GO;
}
