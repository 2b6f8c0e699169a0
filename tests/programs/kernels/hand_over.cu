// Blocks that wait for each other: flags handed on through volatile words and fences, with
// __nanosleep between looks. Every block must be resident or the earlier ones must go on.
extern "C" __global__ void handOver(volatile int *flags, volatile int *data, int *order, int blocks)
{
	int b = blockIdx.x;

	if (threadIdx.x == 0) {
		if (b > 0) {
			while (flags[b - 1] == 0) {
				__nanosleep(100);
			}
			__threadfence();
		}
		data[b] = b == 0 ? 1 : data[b - 1] * 3 + b;
		__threadfence();
		flags[b] = 1;
		order[b] = atomicAdd(&order[blocks], 1);
	}
}

// A lock taken by one lane of each block.
extern "C" __global__ void takeTurns(int *lock, volatile int *count, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		if (threadIdx.x == 0) {
			while (atomicCAS(lock, 0, 1) != 0) {
				__nanosleep(20);
			}
			__threadfence();
			*count = *count + 1;
			__threadfence();
			atomicExch(lock, 0);
		}
		__syncthreads();
	}
}

// Lanes of one warp that wait for each other need their own places in the program.
extern "C" __global__ void lanesHandOver(volatile int *flags, int *out)
{
	int t = threadIdx.x;

	if (t > 0) {
		while (flags[t - 1] == 0) {
		}
	}
	__threadfence();
	out[t] = t == 0 ? 1 : out[t - 1] + t;
	__threadfence();
	flags[t] = 1;
}
