/* accept: a policy as a struct of programs. */
#include "gbpf/gbpf.bpf.h"

u64 total;

SEC("struct_ops/go") int GBPF_PROG(go, submit)
{
	return ctx->est_ns > 1000 ? GBPF_HOLD : GBPF_GO;
}

SEC("?gbpf/tick") int GBPF_PROG(count, tick)
{
	total += 1;
	return 0;
}

SEC("struct_ops") int GBPF_PROG(begin, init)
{
	total = 7;
	return 0;
}

SEC("?gbpf/retire") int GBPF_PROG(unused, retire)
{
	return 0;
}

SEC("gbpf/retire") int GBPF_PROG(done, retire)
{
	return 0;
}

SEC(".struct_ops")
struct gbpf_ops mine = {
	.submit = go,
	.tick = count,
	.init = begin,
	.name = "struct_form",
	.version = "1.2-rc3",
};

GBPF_LICENSE("GPL");
