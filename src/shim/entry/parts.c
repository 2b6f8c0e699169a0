/* The parts of the shim, in the order in which they are called. */
#include "shim/entry/parts.h"

#include "base/compiler.h"
#include "shim/capture_state.h"
#include "shim/code/shim_code.h"
#include "shim/defer/block_launch.h"
#include "shim/entry/link_calls.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/kernel_handle.h"
#include "shim/kernel/loaded_image.h"
#include "shim/mem/charge.h"
#include "shim/mem/copies.h"
#include "shim/object/driver_device.h"
#include "shim/object/graph_events.h"
#include "shim/object/green_context.h"
#include "shim/object/interprocess.h"
#include "shim/object/queue_drain.h"
#include "shim/object/stream_queue.h"
#include "shim/probe/shim_probe.h"

/* Kernels come before probes, whose thread looks up kernels of executable graphs, and would know
 * those again that it has just forgotten; both, and clones, before images, by whose records they
 * find what is an owner's. Clones, with which kernels' records end, come before images and machine
 * code, from which they borrow. Queues come after all that waits for work or for other threads,
 * which may open them again, and before what their runs use. */
static const struct shim_part *const parts[] = {
	&shim_kernel_part, &shim_probe_part,	    &shim_copies_part, &shim_stub_part,
	&shim_queue_part,  &shim_clone_part,	    &shim_image_part,  &shim_block_part,
	&shim_device_part, &shim_code_part,	    &shim_mem_part,    &shim_capture_part,
	&shim_green_part,  &shim_interprocess_part, &shim_graph_part,  &shim_link_part,
};
_Static_assert(ARRAY_SIZE(parts) <= SHIM_PARTS_MAX, "raise SHIM_PARTS_MAX in entry/parts.h");

static bool is_concerned(const struct shim_part *p)
{
	return !p->if_attached || shim_attached();
}

struct shim_end shim_parts_unloading(const void *owner)
{
	struct shim_end e = { .of = owner };

	shim_drain_pending();
	for (unsigned i = 0; i < ARRAY_SIZE(parts); i++) {
		if (is_concerned(parts[i]) && parts[i]->unloading) {
			e.before[i] = parts[i]->unloading(owner);
		}
	}
	return e;
}

void shim_parts_unloaded(const struct shim_end *e, bool gone)
{
	for (unsigned i = 0; i < ARRAY_SIZE(parts); i++) {
		if (is_concerned(parts[i]) && parts[i]->unloaded) {
			parts[i]->unloaded(e->of, e->before[i], gone);
		}
	}
}

struct shim_end shim_parts_context_ending(CUcontext ctx)
{
	struct shim_end e = { .of = ctx };

	for (unsigned i = 0; ctx && i < ARRAY_SIZE(parts); i++) {
		if (!is_concerned(parts[i])) {
			continue;
		}
		if (parts[i]->context_ending) {
			e.before[i] = parts[i]->context_ending(ctx);
		}
		if (parts[i]->context_forget) {
			parts[i]->context_forget(ctx);
		}
	}
	return e;
}

void shim_parts_context_ended(const struct shim_end *e, bool gone)
{
	CUcontext ctx = (CUcontext)unqual(e->of);

	for (unsigned i = 0; ctx && i < ARRAY_SIZE(parts); i++) {
		if (!is_concerned(parts[i])) {
			continue;
		}
		if (parts[i]->context_ended) {
			parts[i]->context_ended(ctx, e->before[i], gone);
		}
		if (parts[i]->context_forget && gone) {
			parts[i]->context_forget(ctx);
		}
	}
}

void shim_parts_child(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(parts); i++) {
		if (parts[i]->child) {
			parts[i]->child();
		}
	}
}
