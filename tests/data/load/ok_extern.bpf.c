/* accept: helpers by name; a weak one that does not exist is asked for before it is called. */
#define GBPF_EXTERN_HELPERS
#include "gbpf/gbpf.bpf.h"

extern u64 gbpf_from_the_future(u64 a, u64 b) __ksym __weak;
extern const int a_symbol __ksym __weak;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	if (gbpf_note) {
		gbpf_note(3, ctx->est_ns);
	}
	if (gbpf_from_the_future) {
		return gbpf_from_the_future(1, 2) & 1;
	}
	return &a_symbol ? GBPF_HOLD : GBPF_DEFER;
}

GBPF_LICENSE("GPL");
