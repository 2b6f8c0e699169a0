/* accept: static maps; helpers by name; a weak one that does not exist is asked for before it is called. */
#define GBPF_EXTERN_HELPERS
#include "gbpf/gbpf.bpf.h"

extern u64 gbpf_from_the_future(u64 a, u64 b) __ksym __weak;
extern const int a_symbol __ksym __weak;

static struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} unseen SEC(".maps"), hidden SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	u32 zero = 0;
	u64 *v = bpf_map_lookup_elem(&hidden, &zero);

	if (gbpf_note) {
		gbpf_note(3, ctx->est_ns + (v ? *v : 1));
	}
	if (gbpf_from_the_future) {
		return gbpf_from_the_future(1, 2) & 1;
	}
	return &a_symbol ? GBPF_HOLD : GBPF_DEFER;
}

GBPF_LICENSE("GPL");
GBPF_VERSION("2024.11");
