/* refuse: legacy map definitions (struct bpf_map_def) are not supported */
#include "gbpf/gbpf.bpf.h"

struct bpf_map_def {
	u32 type, key_size, value_size, max_entries;
};

struct bpf_map_def SEC("maps") old = { 2, 4, 8, 4 };

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
