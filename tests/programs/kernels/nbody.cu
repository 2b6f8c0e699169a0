// All pairs of bodies attract each other; positions of a tile in shared memory.
#include "words.h"

extern "C" __global__ void integrateBodies(float4 *to, float4 *velocity, const float4 *from,
					   float step, float damping, float softening2, int tiles)
{
	extern __shared__ float4 tile[];
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float4 p = from[i], v = velocity[i];
	float ax = 0, ay = 0, az = 0;

	for (int t = 0; t < tiles; t++) {
		tile[threadIdx.x] = from[t * blockDim.x + threadIdx.x];
		__syncthreads();
#pragma unroll 8
		for (unsigned k = 0; k < blockDim.x; k++) {
			float x = tile[k].x - p.x, y = tile[k].y - p.y, z = tile[k].z - p.z;
			float d = fmaf(x, x, fmaf(y, y, fmaf(z, z, softening2)));
			float r = rsqrtf(d), s = tile[k].w * (r * r * r);

			ax = fmaf(x, s, ax);
			ay = fmaf(y, s, ay);
			az = fmaf(z, s, az);
		}
		__syncthreads();
	}
	v.x = (v.x + ax * step) * damping;
	v.y = (v.y + ay * step) * damping;
	v.z = (v.z + az * step) * damping;
	p.x += v.x * step;
	p.y += v.y * step;
	p.z += v.z * step;
	to[i] = p;
	velocity[i] = v;
}
