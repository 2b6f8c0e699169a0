/* waits IMAGE: a kernel whose blocks wait for later blocks and which is interrupted at any point
 * still ends: its missing blocks are launched concurrently, and later launches of it run as a
 * whole. */
#include <stdio.h>
#include <stdlib.h>

#include "../programs/program.h"

#define BLOCKS 12u
#define LAUNCHES 120u

int main(int argc, char **argv)
{
	uint32_t words[BLOCKS];
	CUdeviceptr flags;
	CUfunction f;
	struct program p;

	program_open(&p, "waits", argc, argv);
	f = program_kernel(&p, "backwards");
	flags = program_zeros(sizeof(words));
	program_settle(flags);
	for (unsigned i = 0; i < LAUNCHES && !p.wrong; i++) {
		void *params[] = { &flags };

		CU(cuMemsetD32Async(flags, 0, BLOCKS, NULL));
		CU(cuLaunchKernel(f, BLOCKS, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
		CU(cuStreamSynchronize(NULL));
		program_get(words, flags, sizeof(words));
		for (uint32_t b = 0; b < BLOCKS; b++) {
			program_check(&p, words[b] == b + 7, "a block's word");
		}
	}
	return program_close(&p);
}
