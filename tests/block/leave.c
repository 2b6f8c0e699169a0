/* leave IMAGE HOW ROUNDS: launches kernels of ROUNDS computations on two streams and exits without
 * waiting: `exit` from main, `destroy` of the context, `unload` of the module, `stream` destroyed,
 * `_exit`. exit and _exit must not take long, whatever holds the kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/program.h"

#define WORDS (64u * 512u)

static int work(int argc, char **argv, int left)
{
	uint32_t n = WORDS, a = 3, salt = 5, k = 7, spin = (uint32_t)atoi(argv[3]);
	CUstream streams[3] = { NULL };
	CUdeviceptr data, counter;
	CUfunction step;
	struct program p;
	uint64_t begin;

	program_open(&p, "leave", argc, argv);
	step = program_kernel(&p, "step");
	data = program_zeros(WORDS * 4);
	counter = program_zeros(4);
	CU(cuStreamCreate(&streams[1], 0));
	CU(cuStreamCreate(&streams[2], 1));
	program_settle(counter);
	for (int i = 0; i < 20; i++) {
		void *params[] = { &data, &n, &a, &salt, &k, &counter, &spin };

		CU(cuLaunchKernel(step, WORDS / 64, 1, 1, 64, 1, 1, 0, streams[1 + i / 10], params,
				  NULL));
	}
	begin = program_ns();
	if (write(left, &begin, sizeof(begin)) != sizeof(begin)) {
		return 1;
	}
	if (strcmp(argv[2], "stream") == 0) {
		CU(cuStreamDestroy(streams[1]));
		CU(cuStreamDestroy(streams[2]));
	} else if (strcmp(argv[2], "unload") == 0) {
		CU(cuModuleUnload(p.module));
	} else if (strcmp(argv[2], "destroy") == 0) {
		CU(cuCtxDestroy(p.context));
	} else if (strcmp(argv[2], "_exit") == 0) {
		_exit(0);
	}
	return 0;
}

int main(int argc, char **argv)
{
	bool quick = argc == 4 && strstr(argv[2], "exit") != NULL;
	uint64_t left = 0, took;
	int pipes[2], status;
	pid_t child;

	if (argc != 4 || pipe(pipes) != 0 || (child = fork()) < 0) {
		return 2;
	}
	if (child == 0) {
		return work(argc, argv, pipes[1]);
	}
	if (waitpid(child, &status, 0) != child || status != 0 ||
	    read(pipes[0], &left, sizeof(left)) != sizeof(left)) {
		return 1;
	}
	took = program_ns() - left;
	fprintf(stderr, "leaving took %lu ms\n", (unsigned long)(took / 1000000u));
	return quick && took > 2000000000u;
}
