/* An iterator is made by hand and not destroyed. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(walk, submit)
{
	struct bpf_iter_num it;
	u64 sum = 0;
	int *i;

	bpf_iter_num_new(&it, 0, 10);
	while ((i = bpf_iter_num_next(&it))) {
		sum += *i;
	}
	return sum > 40 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
