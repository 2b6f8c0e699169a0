/* refuse: extern bpf_loop is declared with 2 parameters, gBPF's has 4 */
#define GBPF_EXTERN_HELPERS
#define bpf_loop bpf_loop_of_the_header
#include "gbpf/gbpf.bpf.h"

#undef bpf_loop

extern long bpf_loop(u32 n, void *callback) __ksym;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return bpf_loop(1, 0) & 1;
}

GBPF_LICENSE("GPL");
