/* rare_events IMAGE HOW [LAUNCHES]: kernels on two streams, and a rare event while they run: `fork`
 * (a child that uses nothing, and one that tries), `thread` (the launching thread exits), `stop`
 * (the process is stopped for 300 ms), `reset` of the primary context while other kernels run.
 * Every word must then have the value that the kernels compute. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/program.h"
#include "../unit/eventually.h"

#define WORDS (64u * 512u)

static struct program p;
static CUstream streams[2];
static CUdeviceptr data[2], counter;
static unsigned launches = 40; /* even */

static void launch_on(CUfunction step, CUstream s, CUdeviceptr to, CUdeviceptr count)
{
	uint32_t n = WORDS, a = 3, salt = 5, k = 7, spin = 300;
	void *params[] = { &to, &n, &a, &salt, &k, &count, &spin };

	CU(cuLaunchKernel(step, WORDS / 64, 1, 1, 64, 1, 1, 0, s, params, NULL));
}

static void *launch(void *arg)
{
	CUfunction step;

	(void)arg;
	CU(cuCtxSetCurrent(p.context));
	step = program_kernel(&p, "step");
	for (unsigned i = 0; i < launches; i++) {
		launch_on(step, streams[i % 2], data[i % 2], counter);
	}
	return NULL;
}

static void fork_twice(void)
{
	int status;

	for (int use = 0; use < 2; use++) {
		pid_t child = fork();

		if (child == 0) {
			if (use) { /* whatever the driver returns */
				(void)cuStreamQuery(streams[0]);
				(void)cuMemFree(data[0]);
				(void)cuStreamDestroy(streams[0]);
			}
			_exit(0);
		}
		CU(child > 0 && waitpid(child, &status, 0) == child && status == 0
			   ? CUDA_SUCCESS
			   : CUDA_ERROR_UNKNOWN);
	}
}

static bool is_stopped(pid_t pid)
{
	char path[64], line[512] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (f) {
		(void)!fgets(line, sizeof(line), f);
		fclose(f);
	}
	return strstr(line, ") T ") != NULL;
}

static void stand_still(void)
{
	pid_t self = getpid(), child = fork();

	if (child == 0) {
		eventually(is_stopped(self));
		usleep(300000); /* the time for which it is stopped */
		kill(self, SIGCONT);
		_exit(0);
	}
	raise(SIGSTOP);
	(void)waitpid(child, NULL, 0);
}

static void reset_primary(void)
{
	CUdeviceptr other;
	CUcontext primary;
	CUfunction step;
	CUmodule module;
	CUstream s;

	CU(cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuCtxSetCurrent(primary));
	CU(cuModuleLoad(&module, p.argv[1]));
	CU(cuModuleGetFunction(&step, module, "step"));
	CU(cuMemAlloc(&other, WORDS * 4 + 64));
	CU(cuStreamCreate(&s, 1));
	for (unsigned i = 0; i < launches; i++) {
		launch_on(step, s, other, other + WORDS * 4ul);
	}
	CU(cuDevicePrimaryCtxReset_v2(0));
	CU(cuCtxSetCurrent(p.context));
}

static uint32_t check(CUdeviceptr at)
{
	uint32_t *words = program_room(WORDS * 4), wrong = 0;

	CU(cuMemcpyDtoH(words, at, WORDS * 4));
	for (uint32_t i = 0; i < WORDS; i++) {
		uint32_t v = 0;

		for (unsigned k = 0; k < launches / 2; k++) {
			v = v * 3 + 5 * (i + 1) + 7;
		}
		wrong += words[i] != v;
	}
	free(words);
	return wrong;
}

int main(int argc, char **argv)
{
	uint32_t wrong;
	pthread_t t;

	if (argc < 3) {
		return 2;
	}
	launches = argc > 3 ? (unsigned)atoi(argv[3]) : launches;
	program_open(&p, "rare_events", argc, argv);
	data[0] = program_zeros(WORDS * 4);
	data[1] = program_zeros(WORDS * 4);
	counter = program_zeros(4);
	CU(cuStreamCreate(&streams[0], 1));
	CU(cuStreamCreate(&streams[1], 1));
	program_settle(counter);
	CU(cuCtxSynchronize());
	if (strcmp(argv[2], "thread") == 0) {
		CU(pthread_create(&t, NULL, launch, NULL) == 0 && pthread_join(t, NULL) == 0
			   ? CUDA_SUCCESS
			   : CUDA_ERROR_UNKNOWN);
	} else {
		launch(NULL);
	}
	if (strcmp(argv[2], "fork") == 0) {
		fork_twice();
	} else if (strcmp(argv[2], "stop") == 0) {
		stand_still();
	} else if (strcmp(argv[2], "reset") == 0) {
		reset_primary();
	}
	CU(cuCtxSynchronize());
	wrong = check(data[0]) + check(data[1]);
	if (wrong) {
		fprintf(stderr, "%u words are wrong\n", wrong);
		return 1;
	}
	return program_close(&p);
}
