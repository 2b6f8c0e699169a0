// Streams and events: order, callbacks, host functions, timing, and which stream a null stream is.
#include "runtime.h"

__global__ void add(int *p, int n)
{
	*p += n;
}

__global__ void wait_for(volatile int *flag)
{
	while (!*flag) {
	}
}

static void host_function(void *user)
{
	*(int *)user += 1;
}

static void callback(cudaStream_t, cudaError_t status, void *user)
{
	*(int *)user += status == cudaSuccess ? 10 : 1000;
}

int main()
{
	cudaStream_t a, b;
	cudaEvent_t start, end;
	int *p, *flag, seen = 0, value, priority, least, greatest;
	unsigned flags;
	float ms = -1;

	OK(cudaStreamCreate(&a));
	OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	OK(cudaStreamCreateWithPriority(&b, 1, greatest));
	OK(cudaStreamGetPriority(b, &priority));
	OK(cudaStreamGetFlags(b, &flags));
	CHECK(priority == greatest && flags == 1);
	OK(cudaEventCreate(&start));
	OK(cudaEventCreateWithFlags(&end, 0));
	OK(cudaMalloc((void **)&p, 4));
	OK(cudaMallocHost((void **)&flag, 4));
	*flag = 0;
	OK(cudaMemset(p, 0, 4));

	// b waits for a
	OK(cudaEventRecord(start, a));
	wait_for<<<1, 1, 0, a>>>(flag);
	add<<<1, 1, 0, a>>>(p, 5);
	OK(cudaLaunchHostFunc(a, host_function, &seen));
	OK(cudaStreamAddCallback(a, callback, &seen, 0));
	OK(cudaEventRecord(end, a));
	OK(cudaStreamWaitEvent(b, end, 0));
	add<<<1, 1, 0, b>>>(p, 7);
	FAILS(cudaErrorNotReady, cudaStreamQuery(b));
	FAILS(cudaErrorNotReady, cudaEventQuery(end));
	CHECK(cudaGetLastError() == cudaSuccess); // "not ready" is no error
	*(volatile int *)flag = 1;
	OK(cudaStreamSynchronize(b));
	CHECK(seen == 11);
	OK(cudaEventQuery(end));
	OK(cudaEventElapsedTime(&ms, start, end));
	CHECK(ms >= 0);
	OK(cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost));
	CHECK(value == 12);

	// the legacy stream waits for a, the calling thread's own one does not
	*flag = 0;
	wait_for<<<1, 1, 0, a>>>(flag);
	OK(cudaMemsetAsync_ptsz(p, 0, 4, nullptr));
	OK(cudaStreamSynchronize_ptsz(nullptr));
	OK(cudaStreamSynchronize(CU_STREAM_PER_THREAD));
	OK(cudaMemsetAsync(p, 1, 4, nullptr));
	FAILS(cudaErrorNotReady, cudaStreamQuery(nullptr));
	*(volatile int *)flag = 1;
	OK(cudaStreamSynchronize(nullptr));
	OK(cudaMemcpy_ptds(&value, p, 4, cudaMemcpyDeviceToHost));
	CHECK(value == 0x01010101);

	OK(cudaEventDestroy(start));
	OK(cudaEventDestroy(end));
	OK(cudaStreamDestroy(a));
	OK(cudaStreamDestroy(b));
	FAILS(cudaErrorInvalidValue, cudaStreamCreate(nullptr));
	return 0;
}
