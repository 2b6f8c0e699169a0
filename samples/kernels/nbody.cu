/* Accelerations of n bodies by all pairs, positions staged through shared memory. */
#include "cuda_words.h"

KERNEL nbody(const float *pos, float *acc, int n)
{
	__shared__ float tile[64 * 4];
	int i = GLOBAL_INDEX, t = threadIdx_x;
	float x = pos[i * 4], y = pos[i * 4 + 1], z = pos[i * 4 + 2], ax = 0, ay = 0, az = 0;

	for (int base = 0; base < n; base += 64) {
		for (int k = 0; k < 4; k++) {
			tile[t * 4 + k] = pos[(base + t) * 4 + k];
		}
		syncthreads();
		for (int j = 0; j < 64; j++) {
			float dx = tile[j * 4] - x, dy = tile[j * 4 + 1] - y, dz = tile[j * 4 + 2] - z;
			float inv = __nvvm_rsqrt_approx_f(dx * dx + dy * dy + dz * dz + 0.01f);
			float f = tile[j * 4 + 3] * inv * inv * inv;

			ax += f * dx;
			ay += f * dy;
			az += f * dz;
		}
		syncthreads();
	}
	acc[i * 3] = ax;
	acc[i * 3 + 1] = ay;
	acc[i * 3 + 2] = az;
}
