// The other half.
__device__ int factor = 7;
__constant__ int offsets[4] = { 100, 200, 300, 400 };
static __device__ int shared_name(int v) { return v ^ 21; }

__device__ int twist(int v, int by)
{
	return shared_name(v) + (by % 5) * v;
}

extern "C" __global__ void setFactor(int v)
{
	factor = v;
}
