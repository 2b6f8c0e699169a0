/* The verifier proves that a program is safe for its hook, or refuses it and reports instruction,
 * source line, rule and hint. */
#ifndef GBPF_BPF_LOAD_VERIFY_VERIFY_H
#define GBPF_BPF_LOAD_VERIFY_VERIFY_H

#include "bpf/load/elf/object.h"

enum { EBPF_VERIFY_NO_PRUNE = 1, EBPF_VERIFY_EXPLAIN = 2 };

#define EBPF_VERIFY_EFFORT                                                                         \
	1000000u /* visited instructions after which the verifier refuses the program */

struct ebpf_verify_stats {
	uint32_t visited; /* instructions */
	uint32_t peak_states;
	uint32_t cost;	      /* worst-case executed instructions and helper costs */
	uint32_t stack_bytes; /* deepest */
};

/* Verifies a program. maps: definitions of the maps of the object. Returns 0 and fills ret_stats
 * (may be NULL) if the program is accepted; -EACCES if it is refused (the report has place, rule,
 * hint and detail); -E2BIG if the verification takes too much effort; or -ENOMEM. */
int ebpf_verify(const struct ebpf_prog *prog, const struct ebpf_map_def *maps, uint32_t n_maps,
		unsigned flags, struct ebpf_verify_stats *ret_stats, struct report *r);

#endif
