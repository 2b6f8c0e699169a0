/* From a launch to the driver: chooses the form of a kernel, for launches that are neither at block
 * level (defer/block_launch.c) nor nodes of graphs. Launches that take no probed form while a tool
 * is attached go to launch_own() in probe/probe_launch.c. */
#include "shim/launch/shim_launch.h"
#include "shim/probe/shim_probe.h"

CUresult shim_kernel_issue(struct shim_kernel_call *k)
{
	return load_relaxed(&shim.probes_attached)
		       ? shim_probe_launch(k)
		       : shim_code_launch(k, k->f, k->smem, k->params, k->extra, NULL);
}

CUresult shim_launch_issue(struct shim_launch *l, const struct shim_call *c, const uint64_t *a)
{
	/* Pairs with the releases in shim_code_lead(). */
	return l->call.f && unlikely(load_acquire(&shim.forms)) ? shim_kernel_issue(&l->call)
								: c->run(a);
}
