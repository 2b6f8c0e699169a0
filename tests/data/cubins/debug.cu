// Small kernels for images with debugging information, relocatable ones and linked ones.
extern "C" {
__device__ __noinline__ int step(int x)
{
	return x * x + 1;
}

__global__ void steps(int *p, int n)
{
	for (int i = 0; i < n; i++) {
		p[threadIdx.x] = step(p[threadIdx.x]);
	}
}

__global__ void copies(int *to, const int *from)
{
	to[blockIdx.x] = from[threadIdx.x];
}
}
