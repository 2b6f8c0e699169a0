/* Streams with priorities, events between them, asynchronous copies, a host function. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#define N 8192
#define STREAMS 4

static int calls;

static void count(void *arg)
{
	int *at = arg;

	*at = ++calls;
}

int main(int argc, char **argv)
{
	int n = N, rounds = 2000, three = 3, one = 1, seen[STREAMS] = { 0 }, low, high;
	CUdeviceptr v[STREAMS], out, idle;
	CUstream streams[STREAMS];
	CUevent ready[STREAMS], begin, end;
	int *host[STREAMS], *result;
	bool right = true;
	struct program p;
	float ms = -1;

	program_open(&p, "streams", argc, argv);
	CU(cuCtxGetStreamPriorityRange(&low, &high));
	CU(cuEventCreate(&begin, CU_EVENT_DEFAULT));
	CU(cuEventCreate(&end, CU_EVENT_DEFAULT));
	CU(cuEventRecord(begin, NULL));
	out = program_zeros(N * sizeof(int));
	idle = program_zeros(N * sizeof(int));
	CU(cuMemAllocHost((void **)&result, N * sizeof(int)));
	for (int s = 0; s < STREAMS; s++) {
		CU(cuStreamCreateWithPriority(&streams[s], CU_STREAM_NON_BLOCKING,
					      s % 2 ? high : low));
		CU(cuEventCreate(&ready[s], CU_EVENT_DISABLE_TIMING));
		CU(cuMemAllocHost((void **)&host[s], N * sizeof(int)));
		CU(cuMemAlloc(&v[s], N * sizeof(int)));
		for (int i = 0; i < N; i++) {
			host[s][i] = i * (s + 1);
		}
		CU(cuMemcpyHtoDAsync(v[s], host[s], N * sizeof(int), streams[s]));
		LAUNCH3(program_kernel(&p, "affine"), N / 256, 1, 1, 256, 1, 1, 0, streams[s],
			&v[s], &three, &one, &n);
		CU(cuLaunchHostFunc(streams[s], count, &seen[s]));
		if (s > 0) {
			CU(cuStreamWaitEvent(streams[s], ready[s - 1], 0));
			LAUNCH3(program_kernel(&p, "combine"), N / 256, 1, 1, 256, 1, 1, 0,
				streams[s], &v[s], &v[s - 1], &v[s], &n);
		}
		CU(cuEventRecord(ready[s], streams[s]));
		LAUNCH3(program_kernel(&p, "busy"), 8, 1, 1, 256, 1, 1, 0, streams[s], &idle,
			&rounds);
	}
	CU(cuStreamWaitEvent(streams[0], ready[STREAMS - 1], 0));
	CU(cuMemcpyDtoDAsync(out, v[STREAMS - 1], N * sizeof(int), streams[0]));
	CU(cuMemcpyDtoHAsync(result, out, N * sizeof(int), streams[0]));
	CU(cuStreamSynchronize(streams[0]));
	for (unsigned i = 0; i < N; i++) {
		unsigned want = i * 3 + 1;

		for (unsigned s = 1; s < STREAMS; s++) {
			want = want * 31 + i * (s + 1) * 3 + 1;
		}
		right = right && (unsigned)result[i] == want;
	}
	CU(cuCtxSynchronize());
	CU(cuEventRecord(end, NULL));
	CU(cuEventSynchronize(end));
	CU(cuEventElapsedTime(&ms, begin, end));
	program_check(&p, right, "what the last stream has");
	program_check(&p, ms > 0 && calls == STREAMS, "the events or the host functions");
	program_exact(&p, "chain", result, N * sizeof(int));
	for (int s = 0; s < STREAMS; s++) {
		CU(cuStreamDestroy(streams[s]));
		CU(cuEventDestroy(ready[s]));
		CU(cuMemFreeHost(host[s]));
	}
	return program_close(&p);
}
