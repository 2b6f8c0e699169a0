/* The verifier proves that a program is safe for its hook, or refuses it and reports instruction,
 * source line, rule and hint. */
#ifndef GBPF_BPF_LOAD_VERIFY_VERIFY_H
#define GBPF_BPF_LOAD_VERIFY_VERIFY_H

#include "bpf/load/elf/object.h"

/* NO_PRUNE: walk every path. MERGE: only the merging walk. Both are for tests. BRIEF: only the
 * first, cheap walk. */
enum {
	EBPF_VERIFY_NO_PRUNE = 1,
	EBPF_VERIFY_EXPLAIN = 2,
	EBPF_VERIFY_MERGE = 4,
	EBPF_VERIFY_BRIEF = 8,
};

#define EBPF_VERIFY_EFFORT                                                                         \
	1000000u /* visited instructions after which the verifier refuses the program */

/* Effort is counted in units of 5 to 15 ns: 16 for an instruction, one for a register or slot that
 * is copied, compared, joined or reached by an access at a variable place. No program takes more
 * than MAX_EFFORT; once the programs of a policy took POLICY_EFFORT together, the others are walked
 * briefly. */
#define EBPF_VERIFY_MAX_EFFORT 140000000u
#define EBPF_VERIFY_POLICY_EFFORT 60000000u

struct ebpf_verify_stats {
	uint32_t visited; /* instructions */
	uint32_t peak_states;
	uint32_t cost;	      /* worst-case executed instructions and helper costs */
	uint32_t stack_bytes; /* deepest */
	uint32_t effort;      /* of all walks; also set if the program is refused */
	uint32_t joins;	      /* states that the merging walk joined; 0: it was not needed */
};

/* Verifies a program. maps: definitions of the maps of the object. Returns 0 and fills *ret_stats
 * (may be NULL) if the program is accepted; -EACCES if it is refused (the report has place, rule,
 * hint and detail); -E2BIG if the verification takes too much effort; or -ENOMEM. */
int ebpf_verify(const struct ebpf_prog *prog, const struct ebpf_map_def *maps, uint32_t n_maps,
		unsigned flags, struct ebpf_verify_stats *ret_stats, struct report *r);

/* Returns whether the program calls a helper whose format the verifier has to know, which may be on
 * the stack. On the host bpf_trace_vprintk takes any format. */
int ebpf_verify_prints(const struct ebpf_prog *prog);

#endif
