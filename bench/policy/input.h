/* Inputs of the programs that compare code generators: an array that the benchmark fills with
 * random words (map "inputs") or with text (map "texts"), so that no result can be computed at
 * compile time. Results are written to compared memory. */
#ifndef GBPF_BENCH_INPUT_H
#define GBPF_BENCH_INPUT_H

#include <gbpf/gbpf.bpf.h>

#define INPUTS 256

struct input {
	union {
		u64 w[8];
		u32 h[16];
		u8 b[64];
	};
	u64 out;
};

#define INPUT_MAP(name)                                                                                                     \
	struct {                                                                                                            \
		__uint(type, GBPF_MAP_ARRAY);                                                                               \
		__uint(max_entries, INPUTS);                                                                                \
		__type(key, u32);                                                                                           \
		__type(value, struct input);                                                                                \
	} name SEC(".maps")

#define INPUT_OF(map, ctx)                                                                                                  \
	({                                                                                                                  \
		u32 ___key = (ctx)->epoch & (INPUTS - 1);                                                                   \
		(struct input *)bpf_map_lookup_elem(&map, &___key);                                                         \
	})

#endif
