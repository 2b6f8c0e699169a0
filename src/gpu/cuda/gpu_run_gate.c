/* Launches with an entry stub (ptx/block_gate.h). One launch is one piece. All launches of a run
 * share one gate, whose values grow from submission to submission, so it is set only after an
 * interruption, while nothing of the run is on the device. */
#include "gpu/cuda/gpu_run_gate_int.h"

#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "gpu/cuda/gpu_run_int.h"

#define NONE UINT64_MAX

void gpu_run_gate_copy(struct gpu_run_entry *l, const struct gpu_block_launch *b)
{
	l->gate = true;
	memcpy(l->grid, b->grid, sizeof(l->grid));
	l->wave = b->wave;
	l->smem = b->smem;
	l->n_attrs = b->n_attrs;
	if (b->n_attrs) {
		memcpy(l->attrs, b->attrs, b->n_attrs * sizeof(l->attrs[0]));
	}
}

static CUresult launch(struct gpu_run *run, struct gpu_run_entry *l, CUstream stream,
		       const struct ptx_gate_arg *arg)
{
	size_t bytes = l->params_bytes + sizeof(*arg);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, l->params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	CUlaunchConfig config = { .gridDimX = l->grid[0],
				  .gridDimY = l->grid[1],
				  .gridDimZ = l->grid[2],
				  .blockDimX = l->block[0],
				  .blockDimY = l->block[1],
				  .blockDimZ = l->block[2],
				  .sharedMemBytes = l->smem,
				  .hStream = stream,
				  .attrs = l->attrs,
				  .numAttrs = l->n_attrs };

	memcpy(l->params + l->params_bytes, arg, sizeof(*arg));
	if (l->n_attrs) {
		return run->device->real->cuLaunchKernelEx(&config, l->clone, NULL, extra);
	}
	return run->device->real->cuLaunchKernel(l->clone, l->grid[0], l->grid[1], l->grid[2],
						 l->block[0], l->block[1], l->block[2], l->smem,
						 stream, NULL, extra);
}

CUresult gpu_run_gate_launch(struct gpu_run *run, struct gpu_run_entry *l, CUstream stream,
			     uint32_t forced)
{
	struct ptx_gate_arg arg = {
		.leases = load_relaxed(&run->home->leases),
		.gate = run->line.counter + PTX_GATE_WORD,
		.done = run->line.words_device,
		.first = l->first,
		.end = l->first + l->total,
		.number = run->pieces.number + 1,
		.groups = run->halt.force_all ? 0 : load_acquire(&run->home->groups),
		.base = run->gate.base,
		.from = l->covered,
		/* The first wave that begins is that behind the blocks which leave. */
		.wave = l->wave + MIN(l->covered, UINT32_MAX - l->wave),
		.ask = forced ? l->covered + MIN(forced, l->total - l->covered) : 0,
	};
	CUresult e = launch(run, l, stream, &arg);

	if (!e) {
		l->from = arg.from;
		l->base = arg.base;
		run->gate.base += l->total;
		run->gate.used = true;
	}
	return e;
}

/* The bypass blocks have a gate of their own, which nobody closes. */
CUresult gpu_run_gate_bypass(struct gpu_run *run, struct gpu_run_entry *l, uint32_t ran,
			     uint64_t counter, uint64_t done)
{
	struct ptx_gate_arg arg = { .leases = load_relaxed(&run->home->leases),
				    .gate = counter + PTX_GATE_WORD,
				    .done = done,
				    .first = l->first,
				    .end = l->first + l->total,
				    .from = ran };

	return launch(run, l, run->home->bypass.stream, &arg);
}

CUresult gpu_run_gate_reopen(struct gpu_run *run)
{
	uint32_t half = (uint32_t)(run->gate.base >> 32) + 1;

	if (!run->gate.used) {
		return CUDA_SUCCESS;
	}
	if (half > GPU_RUN_GATE_MAX) { /* what an earlier run of the line had on the device ended
					  long ago: see gpu_run_line_return */
		half = GPU_RUN_GATE_FIRST;
	}
	run->gate.base = gpu_run_gate_base(half);
	return run->device->real->cuMemsetD32Async(run->line.counter + PTX_GATE_WORD, half, 2,
						   run->home->io);
}

CUresult gpu_run_gate_read(struct gpu_run *run, bool reopen)
{
	CUresult e;

	if (!run->gate.used) {
		return CUDA_SUCCESS;
	}
	e = run->device->real->cuMemcpyDtoHAsync_v2(
		(void *)((uintptr_t)run->line.words + GPU_RUN_GATE_COPY),
		run->line.counter + PTX_GATE_WORD, sizeof(uint64_t), run->home->io);
	return e || !reopen ? e : gpu_run_gate_reopen(run);
}

uint64_t gpu_run_gate_value(const struct gpu_run *run)
{
	const volatile uint64_t *copy =
		(const volatile uint64_t *)((uintptr_t)run->line.words + GPU_RUN_GATE_COPY);

	return load_acquire(copy);
}

/* Returns how much of a launch on the device has run, or NONE if the gate's value is impossible. */
static uint64_t gate_ran(const struct gpu_run *run, const struct gpu_run_entry *l, bool idle)
{
	uint64_t gate = gpu_run_gate_value(run), value = gate & ~PTX_GATE_CLOSED;
	uint64_t ran = MAX((uint64_t)l->from, value > l->base ? value - l->base : 0);

	/* Since the counter was taken this launch cannot publish its end, so blocks of those behind
	 * may have raised the gate, too. They came because all of it had run. */
	if (!idle) {
		return value > run->gate.base ? NONE : MIN(ran, (uint64_t)l->total);
	}
	/* On an idle stream either all blocks have run and the end is published, or one has closed
	 * the gate; or no block was left to run, because the last cluster, of which the gate counts
	 * the first block, had run when the counter was taken. */
	if (!(gate & PTX_GATE_CLOSED)) {
		return l->from ? l->total : NONE;
	}
	return ran < l->total ? ran : NONE;
}

bool gpu_run_gate_progress(const struct gpu_run *run, uint32_t *counter, bool idle)
{
	const struct gpu_run_entry *l;
	uint32_t i, drawn;
	uint64_t ran;

	if (!gpu_run_locate(run, *counter, &i, &drawn)) {
		return false;
	}
	l = &run->list.entry[i % GPU_RUN_DEPTH];
	if (i == run->list.head || !l->gate) {
		return true;
	}
	ran = l->out ? gate_ran(run, l, idle) : l->covered;
	if (ran == NONE) {
		return false;
	}
	*counter += (uint32_t)ran;
	return drawn == 0;
}
