/* GPU operations of bench-control's and bench-switch's processes. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "bench/control/try_controls.h"
#include "cuabi/lookup.h"

void bench_say(const char *format, ...)
{
	char line[400];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(line, sizeof(line) - 1, format, ap);
	va_end(ap);
	n = MIN(n, (int)sizeof(line) - 2);
	line[n] = '\n';
	(void)!write(1, line, (size_t)n + 1);
}

double bench_us_since(uint64_t start)
{
	return (double)(clock_now_ns() - start) / 1e3;
}

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
			  ".visible .entry beat(.param .u64 word, .param .u64 limit)\n{\n"
			  ".reg .pred %p<3>;\n.reg .b64 %rd<8>;\n"
			  "ld.param.u64 %rd1, [word];\nld.param.u64 %rd2, [limit];\n"
			  "mov.u64 %rd3, %globaltimer;\nadd.s64 %rd4, %rd3, %rd2;\n"
			  "AGAIN:\n"
			  "mov.u64 %rd5, %globaltimer;\n"
			  "st.volatile.global.u64 [%rd1], %rd5;\n"
			  "ld.volatile.global.u64 %rd6, [%rd1+8];\n"
			  "setp.ne.u64 %p1, %rd6, 0;\n@%p1 bra END;\n"
			  "setp.lt.u64 %p2, %rd5, %rd4;\n@%p2 bra AGAIN;\n"
			  "END:\nret;\n}\n"
			  ".visible .entry work(.param .u64 ns)\n{\n"
			  ".reg .pred %p<2>;\n.reg .b64 %rd<5>;\n"
			  "ld.param.u64 %rd1, [ns];\n"
			  "mov.u64 %rd2, %globaltimer;\nadd.s64 %rd3, %rd2, %rd1;\n"
			  "AGAIN:\nmov.u64 %rd4, %globaltimer;\n"
			  "setp.lt.u64 %p1, %rd4, %rd3;\n@%p1 bra AGAIN;\n"
			  "ret;\n}\n"
			  ".visible .entry empty()\n{\nret;\n}\n";

void bench_must(CUresult e, const char *what)
{
	if (e != CUDA_SUCCESS) {
		bench_say("%-22s CUDA error %d", what, (int)e);
		_exit(2);
	}
}

void bench_cuda_open(struct bench_cuda *c, const char *library)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL), *host = NULL;
	uint64_t start;
	CUmodule m;

	if (!lib) {
		bench_say("%-22s %s", "library", dlerror());
		_exit(2);
	}
	cuabi_table_load(&c->real, lib);
	c->learn_error = gpu_learn_install(lib);
	start = clock_now_ns();
	bench_must(c->real.cuInit(0), "cuInit");
	bench_must(c->real.cuDeviceGet(&c->device, 0), "cuDeviceGet");
	bench_must(c->real.cuDevicePrimaryCtxRetain(&c->ctx, c->device), "context");
	bench_must(c->real.cuCtxSetCurrent(c->ctx), "cuCtxSetCurrent");
	c->init_ns = clock_now_ns() - start;
	bench_must(c->real.cuModuleLoadData(&m, ptx), "cuModuleLoadData");
	bench_must(c->real.cuModuleGetFunction(&c->beat, m, "beat"), "beat");
	bench_must(c->real.cuModuleGetFunction(&c->work, m, "work"), "work");
	bench_must(c->real.cuModuleGetFunction(&c->empty, m, "empty"), "empty");
	bench_must(c->real.cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP),
		   "cuMemHostAlloc");
	c->word = host;
	bench_must(c->real.cuMemHostGetDevicePointer_v2(&c->word_device, host, 0),
		   "device pointer");
	bench_must(c->real.cuStreamCreateWithPriority(&c->stream, CU_STREAM_NON_BLOCKING, 0),
		   "stream");
	if (gpu_device_create(&c->gpu, &c->real) < 0) {
		_exit(2);
	}
}

void bench_cuda_beat(struct bench_cuda *c, uint64_t limit_ns)
{
	CUdeviceptr word = c->word_device;
	void *params[] = { &word, &limit_ns };
	uint64_t start = clock_now_ns();

	c->word[0] = c->word[1] = 0;
	bench_must(c->real.cuLaunchKernel(c->beat, 1, 1, 1, 1, 1, 1, 0, c->stream, params, NULL),
		   "cuLaunchKernel");
	while (!c->word[0] && bench_us_since(start) < 2e6) {
		clock_sleep_ns(20000);
	}
}

void bench_cuda_beat_stop(struct bench_cuda *c)
{
	c->word[1] = 1;
	bench_must(c->real.cuStreamSynchronize(c->stream), "cuStreamSynchronize");
}
