/* Counting of the host memory that kernels access (link_count.h). */
#include "soft/server/exec/link_count.h"

#include "soft/server/exec/access_check.h"

static bool counted;

void exec_link_enable(bool on)
{
	counted = on;
}

bool exec_link_counted(void)
{
	return counted;
}

int exec_op_link(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_space *s = w->block->launch.space;
	uint64_t last = UINT64_MAX, bytes = 0;

	exec_each_lane (m, lane) {
		uint64_t at = exec_lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm;
		uint64_t off = at - s->base; /* of other spaces: beyond the window */

		if (at != last && off < s->bytes &&
		    s->pages[off / EXEC_PAGE_BYTES] & EXEC_PAGE_LINK) {
			bytes += o->e;
		}
		last = at;
	}
	w->block->link_bytes[EXEC_LINK_UP] += o->sub & CHECK_READ ? bytes : 0;
	w->block->link_bytes[EXEC_LINK_DOWN] += o->sub & CHECK_WRITE ? bytes : 0;
	return STEP_NEXT;
}
