/* printf in kernels. The text is the result; lanes of a warp print in their order. */
#include "program.h"

#include <stdio.h>

int main(int argc, char **argv)
{
	struct program p;
	int n = 5;

	program_open(&p, "print", argc, argv);
	LAUNCH(program_kernel(&p, "sayHello"), 4, 64, 0, &n);
	CU(cuCtxSynchronize());
	CU(cuLaunchKernel(program_kernel(&p, "sayLanes"), 1, 1, 1, 8, 1, 1, 0, NULL, NULL, NULL));
	CU(cuCtxSynchronize());
	fflush(stdout);
	return program_close(&p);
}
