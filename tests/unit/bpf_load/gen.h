/* Generates random but plausible programs: unknown numbers, bounded in ways that may be too weak,
 * then used as indices. Most contain an error; the verifier must find it. */
#ifndef GBPF_TESTS_BPF_LOAD_GEN_H
#define GBPF_TESTS_BPF_LOAD_GEN_H

#include "bpf/load/verify/verify.h"
#include "random.h"

#define GEN_MAX_INSNS 640u
#define GEN_MAPS 9u

enum { GEN_MAP_HASH = 5, GEN_MAP_QUEUE, GEN_MAP_RING, GEN_MAP_PROGS };

/* Functions that a program may have besides its main one. */
enum gen_function { GEN_MAIN, GEN_CALLED, GEN_LOOP, GEN_EACH, GEN_TAIL, GEN_FUNCTIONS };

struct gen_map {
	uint32_t type, key_bytes, value_bytes, entries, flags, is_data;
};

struct gen {
	struct rng *rng;
	struct ebpf_insn insns[GEN_MAX_INSNS];
	uint32_t n;
	uint16_t numbers; /* registers that hold a number */
	unsigned branches, max_branches;
	int daemon;
	int plain; /* no loops by convergence */
	struct {
		uint32_t at; /* an instruction that names a function */
		enum gen_function function;
	} uses[16];
	unsigned n_uses;
	int in_function;
	struct ebpf_tail tails[2];
};

/* The maps that programs use. */
extern const struct gen_map gen_maps[GEN_MAPS];

/* Makes a program for hook submit (3) or tick (6); insns and tails borrowed from g. blocks: how
 * long it may become. */
void gen_program(struct gen *g, struct rng *r, struct ebpf_prog *prog, unsigned blocks,
		 unsigned branches);

/* The same with plain loops, often nested, whose bodies keep minima and counts. */
void gen_loops(struct gen *g, struct rng *r, struct ebpf_prog *prog);

#endif
