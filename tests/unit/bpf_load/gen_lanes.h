/* Generates random programs that each lane of a warp runs: values that are the same for all lanes
 * and values that vary meet in branches, loops, memory and functions. */
#ifndef GBPF_TESTS_BPF_LOAD_GEN_LANES_H
#define GBPF_TESTS_BPF_LOAD_GEN_LANES_H

#include "bpf/load/verify/verify.h"
#include "random.h"

#define LANES_MAX_INSNS 512u
#define LANES_SLOTS 8u /* initialized words at the end of the main function's frame */

/* Maps that programs use, by index. */
enum { LANES_CONSTANT, LANES_SHARED, LANES_DATA, LANES_MAPS };

struct gen_lanes {
	struct rng *rng;
	struct ebpf_insn insns[LANES_MAX_INSNS];
	uint32_t n;
	int in_function;
	unsigned depth; /* of loops */
	struct {
		uint32_t at;
	} open[16]; /* forward jumps without a target yet */
	unsigned n_open;
	struct {
		uint32_t at;
		int back; /* called by bpf_loop */
	} calls[16];
	unsigned n_calls;
};

/* Makes a program of LANES_WIDE_INSNS instructions with a path almost as long as the budget allows:
 * 20 sides of branches that vary, with branches and memory in each. */
#define LANES_WIDE_INSNS 4096u
void gen_lanes_wide(struct ebpf_insn insns[LANES_WIDE_INSNS], struct ebpf_prog *prog);

/* Makes a program for hook gdev_enter; its instructions are borrowed from g. */
void gen_lanes(struct gen_lanes *g, struct rng *r, struct ebpf_prog *prog);

#endif
