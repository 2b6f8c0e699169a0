/* Admits a program once its vGPU's reservation is free, for vgpu_named.bats. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/admit")
int GBPF_PROG(memory_admit, admit)
{
	if (ctx->rejoin || !ctx->mem_size) {
		return GBPF_ADMIT;
	}
	return ctx->mem_used + ctx->mem_free < ctx->mem_reserve ? GBPF_QUEUE : GBPF_ADMIT;
}
