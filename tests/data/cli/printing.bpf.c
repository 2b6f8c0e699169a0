/* Prints in a program's process and in gbpfd. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

SEC("gbpf/submit")
int GBPF_PROG(printing_submit, submit)
{
	bpf_printk("submit: kind %u of tenant %u, %lld", ctx->kind, ctx->tenant, -5ll);
	return GBPF_GO;
}

SEC("gbpf/init")
int GBPF_PROG(printing_init, init)
{
	bpf_printk("begins");
	return 0;
}

SEC("gbpf/tick")
int GBPF_PROG(printing_tick, tick)
{
	static const char fmt[] = "tick %llu\n";

	/* as bpf_printk of libbpf */
	if (bpf_trace_printk(fmt, sizeof(fmt), ctx->epoch) < 0) {
		gbpf_note(0, 1);
	}
	return 0;
}

SEC("gbpf/exit")
int GBPF_PROG(printing_exit, exit)
{
	bpf_printk("ends for reason %u", ctx->reason);
	return 0;
}
