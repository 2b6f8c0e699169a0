/* alloca: allocates from the end of a thread's local memory downwards, towards the frames of its
 * calls. */
#include "soft/server/exec/handlers.h"
#include "soft/server/exec/warp_run.h"

static uint64_t *stack_pointers(struct exec_warp *w)
{
	return REF(uint64_t, w, REF_SLOT32(WARP_STACK, REF_WARP));
}

void exec_stack_reset(struct exec_warp *w)
{
	uint64_t *sp = stack_pointers(w);

	for (unsigned lane = 0; lane < EXEC_LANES; lane++) {
		sp[lane] = w->block->f->local_stride;
	}
}

/* d = address of a bytes aligned to imm; wide: which operands have 64 bits. */
int exec_op_alloca(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_function *f = w->block->f;
	uint64_t *sp = stack_pointers(w), low = f->local_stride - f->stack_bytes;

	exec_each_lane (m, lane) {
		uint64_t bytes = exec_lane_get(w, o->a, o->wide & WIDE_A, lane);

		if (bytes > sp[lane] - low ||
		    (sp[lane] - bytes) / (uint64_t)o->imm * (uint64_t)o->imm < low) {
			return exec_fault_set(w, o, EXEC_FAULT_TRAP, lane, bytes,
					      "alloca beyond the thread's stack");
		}
		sp[lane] = (sp[lane] - bytes) / (uint64_t)o->imm * (uint64_t)o->imm;
		exec_lane_set(w, o->d, o->wide & WIDE_D, lane, sp[lane]);
	}
	return STEP_NEXT;
}

int exec_op_stack_save(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const uint64_t *sp = stack_pointers(w);

	exec_each_lane (m, lane) {
		exec_lane_set(w, o->d, o->wide & WIDE_D, lane, sp[lane]);
	}
	return STEP_NEXT;
}

int exec_op_stack_restore(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_function *f = w->block->f;
	uint64_t *sp = stack_pointers(w);

	exec_each_lane (m, lane) {
		uint64_t v = exec_lane_get(w, o->a, o->wide & WIDE_A, lane);

		if (v < sp[lane] || v > f->local_stride) {
			return exec_fault_set(
				w, o, EXEC_FAULT_ADDRESS, lane, v,
				"stackrestore of a value that stacksave did not return");
		}
		sp[lane] = v;
	}
	return STEP_NEXT;
}
