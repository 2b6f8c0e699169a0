/* Kernels of gBPF's own, on a context's bypass stream: one takes a run's counter away, one closes
 * its gate. The first one also shows that kernels of the context get to run. */
#include "gpu/cuda/gpu_run_take_int.h"

#include "gpu/cuda/gpu_run_int.h"

#define SPARE_OFFSET 48u /* bytes from the counter to what nothing else uses; and 4 behind it */
/* The host's words, in bytes (gpu_run_memory_int.h). */
#define TAKEN_WORD 8u
#define SPARE_WORDS 16u

_Static_assert(PTX_BLOCK_READY == 32768, "the text below stores to the word behind a counter");
static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry gbpf_take(.param .u64 counter, .param .u64 bypass, .param .u64 out,\n"
	" .param .u32 value)\n"
	"{\n"
	".reg .b64 %rd<4>;\n"
	".reg .b32 %r<3>;\n"
	"ld.param.u64 %rd1, [counter];\n"
	"ld.param.u64 %rd2, [bypass];\n"
	"ld.param.u64 %rd3, [out];\n"
	"ld.param.u32 %r1, [value];\n"
	"atom.global.exch.b32 %r2, [%rd1], %r1;\n"
	"st.volatile.global.u32 [%rd2], %r2;\n"
	"st.volatile.global.u32 [%rd2+32768], %r2;\n"
	"st.volatile.global.u32 [%rd3], %r2;\n"
	"ret;\n"
	"}\n"
	".visible .entry gbpf_close(.param .u64 gate, .param .u64 out)\n"
	"{\n"
	".reg .b64 %rd<5>;\n"
	"ld.param.u64 %rd1, [gate];\n"
	"ld.param.u64 %rd2, [out];\n"
	"mov.u64 %rd3, 9223372036854775808;\n"
	"atom.global.or.b64 %rd4, [%rd1], %rd3;\n"
	"st.volatile.global.u64 [%rd2], %rd4;\n"
	"ret;\n"
	"}\n";

/* Launches the take kernel on the line at `counters` and `words`. from: offset of the counter that
 * is taken; SPARE_OFFSET if the launch shall only show that kernels get to run. */
static CUresult launch_take(const struct cuabi_table *real, CUfunction f, CUstream stream,
			    uint64_t counters, uint64_t words, uint32_t from, uint32_t value)
{
	uint64_t counter = counters + from,
		 bypass = counters + (from ? SPARE_OFFSET + 4 : GPU_RUN_BYPASS_COUNTER);
	uint64_t out = words + (from ? SPARE_WORDS : TAKEN_WORD);
	void *params[] = { &counter, &bypass, &out, &value };

	return real->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* Closes the gate at that address, and stores the value that it had. */
static CUresult launch_close(const struct cuabi_table *real, CUfunction f, CUstream stream,
			     uint64_t gate, uint64_t out)
{
	void *params[] = { &gate, &out };

	return real->cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static CUresult close_gate(struct gpu_run *run)
{
	return launch_close(run->device->real, run->home->bypass.close, run->home->bypass.stream,
			    run->line.counter + PTX_GATE_WORD,
			    run->line.words_device + GPU_RUN_GATE_COPY);
}

static CUresult take(struct gpu_run *run, uint32_t from, uint32_t value)
{
	return launch_take(run->device->real, run->home->bypass.take, run->home->bypass.stream,
			   run->line.counter, run->line.words_device, from, value);
}

CUresult gpu_run_take(struct gpu_run *run, uint32_t value)
{
	CUresult e = take(run, 0, value);

	return e || !run->gate.used ? e : close_gate(run);
}

uint32_t gpu_run_taken(const struct gpu_run *run)
{
	return load_acquire(run->line.words + TAKEN_WORD / 4);
}

CUresult gpu_run_beat(struct gpu_run *run)
{
	return take(run, SPARE_OFFSET, ++run->strike.beat);
}

bool gpu_run_beat_seen(const struct gpu_run *run, uint32_t number)
{
	return load_acquire(run->line.words + SPARE_WORDS / 4) == number - 1;
}

/* Done before the first launch of a run, for two reasons: loading might wait for a kernel that
 * hangs, and the driver loads lazily until a kernel's first launch. */
void gpu_run_bypass_prepare(struct gpu_device *d, struct gpu_run_context *x,
			    const struct gpu_run_slab *s, uint32_t ticket)
{
	const struct cuabi_table *real = d->real;
	CUfunction f, g;
	CUstream stream;

	if (x->bypass.stream || gpu_private_stream(d, &x->bypass.stream) != CUDA_SUCCESS) {
		return;
	}
	stream = x->bypass.stream; /* the context may be forgotten meanwhile */
	if (real->cuModuleLoadData(&x->bypass.module, ptx) != CUDA_SUCCESS ||
	    real->cuModuleGetFunction(&f, x->bypass.module, "gbpf_take") != CUDA_SUCCESS ||
	    real->cuModuleGetFunction(&g, x->bypass.module, "gbpf_close") != CUDA_SUCCESS) {
		return;
	}
	if (launch_take(real, f, stream, s->counters, s->done, 0, ticket) == CUDA_SUCCESS &&
	    launch_close(real, g, stream, s->counters + PTX_GATE_WORD + SPARE_OFFSET,
			 s->done + SPARE_WORDS) == CUDA_SUCCESS) {
		x->bypass.take_pending = f;
		x->bypass.close = g;
	}
}
