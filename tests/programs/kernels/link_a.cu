// One half of a program that is linked when it runs: uses a function and words of the other half.
extern __device__ int twist(int v, int by);
extern __device__ int factor;
extern __constant__ int offsets[4];

extern "C" __global__ void linked(int *out, const int *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		out[i] = twist(in[i], i) * factor + offsets[i & 3];
	}
}
