/* Translation of one lane's address to host memory, and the fault if it is not valid. */
#include "base/compiler.h"
#include "soft/server/exec/op.h"

int exec_fault_set(struct exec_warp *w, const struct exec_op *o, enum exec_status status,
		   unsigned lane, uint64_t address, const char *what)
{
	struct exec_block *b = w->block;
	const uint32_t *x = (const uint32_t *)(b->block_slots + BLOCK_CTAID_X * EXEC_SLOT32);

	b->status = status;
	b->fault = (struct exec_fault){ .address = address,
					.line = o->line,
					.block = { x[0], x[EXEC_SLOT32 / sizeof(*x)],
						   x[2 * EXEC_SLOT32 / sizeof(*x)] },
					.thread = w->index * EXEC_LANES + lane,
					.what = what };
	b->fault.program = exec_origin_at(b->f->module, o->line, &b->fault.insn);
	return STEP_FAULT;
}

static void *global_pointer(const struct exec_space *s, uint64_t address, unsigned bytes,
			    bool write)
{
	uint64_t off = address - s->base;

	if (off >= s->bytes || s->bytes - off < bytes ||
	    !(s->pages[off / EXEC_PAGE_BYTES] & (write ? 2 : 1))) {
		return NULL;
	}
	return s->host + off;
}

static void *window_pointer(uint8_t *memory, uint64_t size, uint64_t off, unsigned bytes)
{
	return off < size && size - off >= bytes ? memory + off : NULL;
}

enum exec_space_kind exec_window_of(uint64_t address, uint64_t *ret_off)
{
	uint64_t window = address >> EXEC_WINDOW_SHIFT << EXEC_WINDOW_SHIFT;

	*ret_off = address - window;
	if (window == EXEC_WINDOW_SHARED) {
		return SP_SHARED;
	}
	if (window == EXEC_WINDOW_LOCAL) {
		return SP_LOCAL;
	}
	if (window == EXEC_WINDOW_PARAM) {
		return SP_PARAM;
	}
	*ret_off = address;
	return SP_GLOBAL;
}

void *exec_lane_pointer(struct exec_warp *w, const struct exec_op *o, enum exec_space_kind space,
			unsigned lane, uint64_t address, unsigned bytes, bool write)
{
	static const char *const outside[] = { "access outside valid memory",
					       "access outside valid global memory",
					       "access outside the block's shared memory",
					       "access outside the thread's local memory",
					       "access outside the kernel's parameters" };
	const struct exec_block *b = w->block;
	uint64_t off = address;
	void *p = NULL;

	if (address & (bytes - 1)) {
		exec_fault_set(w, o, EXEC_FAULT_ALIGN, lane, address, "misaligned access");
		return NULL;
	}
	if (space == SP_GENERIC) {
		space = exec_window_of(address, &off);
	}
	switch (space) {
	case SP_SHARED:
		p = window_pointer(b->shared, b->shared_bytes, off, bytes);
		break;
	case SP_LOCAL:
		p = window_pointer(b->local + (size_t)(w->index * EXEC_LANES + lane) *
						      b->f->local_stride,
				   b->f->local_stride, off, bytes);
		break;
	case SP_PARAM:
		/* NULL is unreachable here: the decoder refuses st.param to a kernel's parameters.
		 */
		p = write ? NULL
			  : window_pointer(unqual(b->launch.params), b->f->info.param_bytes, off,
					   bytes);
		break;
	default:
		p = global_pointer(b->launch.space, off, bytes, write);
		break;
	}
	if (!p) {
		exec_fault_set(w, o, EXEC_FAULT_ADDRESS, lane, address, outside[space]);
	}
	return p;
}
