/* The interpreter for verified programs: the body of interp_body.inc without checks. Two guards
 * remain because they cost nothing on the main path: a call beyond the last frame and an unknown
 * opcode end the run with 0. */
#pragma GCC diagnostic ignored "-Wpedantic" /* labels as values: the dispatch loop */

#include "bpf/run/interp/interp.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/run/interp/alu.h"
#include "bpf/run/decode.h"

struct saved_frame {
	const struct ebpf_insn *ret; /* the call instruction */
	uint64_t kept[5];	     /* r6 - r10 */
};

/* The frames available to a callback: those that the caller of the helper has left, so that all
 * callbacks together use no more stack than the program alone. Valid while such a helper runs. */
struct frames {
	uint8_t (*stacks)[EBPF_STACK_BYTES];
	struct saved_frame *saved;
	unsigned n;
};
static TLS_FAST struct frames *frames_left;

#define CALLS_BACK(slot) ((slot) == EBPF_SLOT_bpf_loop || (slot) == EBPF_SLOT_bpf_for_each_map_elem)
#define DISPATCH() goto *labels[ip->code]
#define ACCESS(p, bytes, write) ((void)0)
#define ALIGNED_ACCESS(p, bytes) ((void)0)
#define MAP(index) ((void)0)
#define EBPF_HELPER(slot)                                                                          \
	do {                                                                                       \
		if ((slot) < 0) {                                                                  \
			return 0;                                                                  \
		}                                                                                  \
	} while (0)
#define INVOKE(slot)                                                                               \
	do {                                                                                       \
		if (CALLS_BACK(slot)) {                                                            \
			struct frames mine = { stacks + frame + 1, saved + frame + 1,              \
					       n_frames - frame - 1 };                             \
			struct frames *outer = frames_left;                                        \
                                                                                                   \
			frames_left = &mine;                                                       \
			r[0] = env->helpers[slot](r[1], r[2], r[3], r[4], r[5], env);              \
			frames_left = outer;                                                       \
		} else {                                                                           \
			r[0] = env->helpers[slot](r[1], r[2], r[3], r[4], r[5], env);              \
		}                                                                                  \
	} while (0)
#define TAIL()                                                                                     \
	do {                                                                                       \
		if (frame) {                                                                       \
			return 0;                                                                  \
		}                                                                                  \
	} while (0)
#define ENTER()                                                                                    \
	do {                                                                                       \
		if (frame + 1 >= n_frames) {                                                       \
			return 0;                                                                  \
		}                                                                                  \
	} while (0)
#define BAD() return 0
#define DONE() return r[0]

/* Runs code from ip on. stacks, saved: n_frames entries, of which the first belongs to this
 * function. */
static NOINLINE uint64_t run(const struct ebpf_code *code, const struct ebpf_insn *ip,
			     const uint64_t args[4], struct ebpf_env *env,
			     uint8_t (*stacks)[EBPF_STACK_BYTES], struct saved_frame *saved,
			     unsigned n_frames)
{
	const unsigned bottom = 0;
	unsigned frame = bottom, chain = 0;
	uint64_t r[16]; /* 16, so that a register field always indexes into it */

	/* Assign one by one: an initializer compiles to `rep stos`, which takes longer than many a
	 * program. */
	r[0] = r[5] = r[6] = r[7] = r[8] = r[9] = 0;
	r[1] = args[0];
	r[2] = args[1];
	r[3] = args[2];
	r[4] = args[3];
	r[10] = (uintptr_t)stacks[0] + EBPF_STACK_BYTES;
#include "bpf/run/interp/interp_body.inc"
}

uint64_t ebpf_interp_verified(const struct ebpf_insn *insns, uint32_t n, void *ctx,
			      struct ebpf_env *env)
{
	const struct ebpf_code code = { insns, n, NULL, 0 };

	return ebpf_interp_code(&code, ctx, env);
}

uint64_t ebpf_interp_code(const struct ebpf_code *code, void *ctx, struct ebpf_env *env)
{
	ALIGNED(16) uint8_t stacks[EBPF_MAX_FRAMES][EBPF_STACK_BYTES];
	struct saved_frame saved[EBPF_MAX_FRAMES];
	const uint64_t args[4] = { (uintptr_t)ctx, 0, 0, 0 };

	return run(code, code->insns, args, env, stacks, saved, EBPF_MAX_FRAMES);
}

uint64_t ebpf_interp_call(const struct ebpf_insn *fn, uint64_t a1, uint64_t a2, uint64_t a3,
			  uint64_t a4, struct ebpf_env *env)
{
	const struct frames *f = frames_left;
	const uint64_t args[4] = { a1, a2, a3, a4 };

	if (!f || !f->n) {
		return 1; /* ends the loop; cannot happen, because the verifier has proved that the
			     frames suffice */
	}
	return run(NULL, fn, args, env, f->stacks, f->saved, f->n);
}
