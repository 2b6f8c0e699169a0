/* The interpreter for verified programs: the body of interp_body.inc without checks. What it still
 * guards against costs nothing on the way: frames beyond the last one and opcodes that do not exist
 * end the run with 0. */
#include "bpf/run/interp.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/run/alu.h"
#include "bpf/run/decode.h"

struct saved_frame {
	const struct ebpf_insn *ret; /* the call */
	uint64_t kept[5];	     /* r6 - r10 */
};

#define DISPATCH() goto *labels[ip->code]
#define ACCESS(p, bytes, write) ((void)0)
#define ALIGNED_ACCESS(p, bytes) ((void)0)
#define MAP(index) ((void)0)
#define HELPER(slot)                                                                               \
	do {                                                                                       \
		if ((slot) < 0) {                                                                  \
			return 0;                                                                  \
		}                                                                                  \
	} while (0)
#define INVOKE(slot) r[0] = env->helpers[slot](r[1], r[2], r[3], r[4], r[5], env)
#define TAIL()                                                                                     \
	do {                                                                                       \
		if (frame) {                                                                       \
			return 0;                                                                  \
		}                                                                                  \
	} while (0)
#define ENTER()                                                                                    \
	do {                                                                                       \
		if (frame + 1 >= EBPF_MAX_FRAMES) {                                                \
			return 0;                                                                  \
		}                                                                                  \
	} while (0)
#define BAD() return 0
#define DONE() return r[0]

/* A callback is a run of its own, with frames of its own: what it may reach of its caller's frame
 * it gets by address. */
static uint64_t run(const struct ebpf_code *code, const struct ebpf_insn *ip, uint64_t a1,
		    uint64_t a2, uint64_t a3, uint64_t a4, struct ebpf_env *env)
{
	ALIGNED(16) uint8_t stacks[EBPF_MAX_FRAMES][EBPF_STACK_BYTES];
	struct saved_frame saved[EBPF_MAX_FRAMES];
	const unsigned bottom = 0;
	unsigned frame = bottom, chain = 0;
	uint64_t r[16]; /* 16, so that a register field always indexes into it */

	/* One by one: an initializer becomes a `rep stos`, which takes longer than many a program.
	 */
	r[0] = r[5] = r[6] = r[7] = r[8] = r[9] = 0;
	r[1] = a1;
	r[2] = a2;
	r[3] = a3;
	r[4] = a4;
	r[10] = (uintptr_t)stacks[0] + EBPF_STACK_BYTES;
#include "bpf/run/interp_body.inc"
}

uint64_t ebpf_interp_verified(const struct ebpf_insn *insns, uint32_t n, void *ctx,
			      struct ebpf_env *env)
{
	const struct ebpf_code code = { insns, n, NULL, 0 };

	return ebpf_interp_code(&code, ctx, env);
}

uint64_t ebpf_interp_code(const struct ebpf_code *code, void *ctx, struct ebpf_env *env)
{
	return run(code, code->insns, (uintptr_t)ctx, 0, 0, 0, env);
}

uint64_t ebpf_interp_call(const struct ebpf_insn *fn, uint64_t a1, uint64_t a2, uint64_t a3,
			  uint64_t a4, struct ebpf_env *env)
{
	return run(NULL, fn, a1, a2, a3, a4, env);
}
