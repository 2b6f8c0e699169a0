/* refused IMAGE: launches that the driver refuses, among launches that are interrupted. A launch
 * that waits in a run has succeeded for the program, so one that the driver would refuse must not
 * get there. */
#include "../programs/program.h"

#define BLOCKS 64u
#define ROUNDS 30u
#define SHARED_BYTES 50000u /* more than a kernel gets without asking */

static CUresult launch(CUfunction f, unsigned threads, unsigned shared, CUdeviceptr word)
{
	void *params[] = { &word };

	return cuLaunchKernel(f, BLOCKS, 1, 1, threads, 1, 1, shared, NULL, params, NULL);
}

int main(int argc, char **argv)
{
	CUfunction any, few;
	CUdeviceptr word;
	struct program p;
	uint32_t n = 0;

	program_open(&p, "refused", argc, argv);
	any = program_kernel(&p, "any");
	few = program_kernel(&p, "small");
	word = program_zeros(sizeof(n));
	program_settle(word);
	CU(cuMemsetD32(word, 0, 1));
	for (unsigned i = 0; i < ROUNDS && !p.wrong; i++) {
		CU(launch(any, 64, 0, word));
		CU(launch(any, 64, 1024, word));
		CU(launch(few, 64, 0, word));
		program_check(&p, launch(any, 64, SHARED_BYTES, word) != CUDA_SUCCESS,
			      "a launch with too much shared memory");
		program_check(&p, launch(few, 96, 0, word) != CUDA_SUCCESS,
			      "a launch with too many threads");
		program_check(&p, launch(any, 2048, 0, word) != CUDA_SUCCESS,
			      "a launch with more threads than any block has");
		if (i % 16 == 0) {
			CU(cuStreamSynchronize(NULL));
		}
	}
	CU(cuFuncSetAttribute(any, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
			      (int)SHARED_BYTES));
	CU(launch(any, 64, SHARED_BYTES, word));
	CU(cuFuncSetAttribute(any, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
	program_check(&p, launch(any, 64, SHARED_BYTES, word) != CUDA_SUCCESS,
		      "a launch with more than was asked for last");
	CU(cuCtxSynchronize());
	program_get(&n, word, sizeof(n));
	program_check(&p, n == BLOCKS * (3 * ROUNDS + 1), "the number of blocks that ran");
	program_exact(&p, "blocks", &n, sizeof(n));
	return program_close(&p);
}
