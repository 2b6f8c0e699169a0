/* Random programs that look like something: numbers of doubtful origin, bounded in doubtful ways,
 * then used as indices. Most are wrong somewhere; the verifier must tell which. */
#ifndef GBPF_TESTS_BPF_LOAD_GEN_H
#define GBPF_TESTS_BPF_LOAD_GEN_H

#include "bpf/load/verify.h"
#include "random.h"

#define GEN_MAX_INSNS 512u
#define GEN_MAPS 5u

struct gen {
	struct rng *rng;
	struct ebpf_insn insns[GEN_MAX_INSNS];
	uint32_t n;
	uint16_t numbers; /* registers that hold a number */
	unsigned branches;
	int daemon;
	uint32_t calls[8]; /* to be pointed at the function */
	unsigned n_calls;
	int in_function;
};

/* The maps that programs use: value_bytes, entries, flags, is_data. */
extern const uint32_t gen_maps[GEN_MAPS][4];

/* Makes a program for hook submit (3) or tick (6); insns borrowed from g. */
void gen_program(struct gen *g, struct rng *r, struct ebpf_prog *prog);

#endif
