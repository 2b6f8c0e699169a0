/* More dynamic shared memory than a kernel gets without asking. */
#include "program.h"

#define N 10000
#define THREADS 256

static int in[N], out[N];

int main(int argc, char **argv)
{
	unsigned shared = THREADS * 8 + N * 4 + N * 2;
	CUdeviceptr d, o, s;
	uint64_t seed = 12;
	int n = N, limit = 0;
	bool right = true;
	struct program p;
	CUfunction f;
	double sum;

	program_open(&p, "dynamicShared", argc, argv);
	for (int i = 0; i < N; i++) {
		in[i] = (int)(program_random(&seed) % 5000);
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	s = program_zeros(8);
	f = program_kernel(&p, "rearrange");
	program_check(&p,
		      cuLaunchKernel(f, 1, 1, 1, THREADS, 1, 1, shared, NULL,
				     (void *[]){ &o, &s, &d, &n }, NULL) != CUDA_SUCCESS,
		      "a launch that did not ask for its shared memory");
	CU(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared));
	CU(cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
				p.device));
	program_check(&p, limit >= (int)shared, "the limit of shared memory");
	LAUNCH(f, 1, THREADS, shared, &o, &s, &d, &n);
	program_get(out, o, sizeof(out));
	program_get(&sum, s, sizeof(sum));
	for (int k = 0; k < N; k++) {
		int at = N - 1 - k;

		right = right && out[k] == in[at] + (short)(in[at] * 3) + k % 33;
	}
	program_check(&p, right, "the new order");
	program_check(&p, sum == THREADS * (THREADS - 1) / 4.0, "the sum");
	program_exact(&p, "order", out, sizeof(out));
	return program_close(&p);
}
