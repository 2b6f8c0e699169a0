/* amid IMAGE HOW: something happens while another thread's first load of machine code is in the
 * middle of the shim's self-test (GBPF_POINT_HOLD, of test builds, names the file that says so):
 *   kill        the process is killed
 *   fork        a child that loads, launches and exits by itself; exec: one that executes this
 *   self-exec   the process executes this program
 *   reset       of the primary context in which the self-test runs
 * A program then loads the image and launches its kernel: another one, the child and the parent, or
 * the same one. Without HOW: only that. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/program.h"
#include "../unit/eventually.h"

#define WORDS (64u * 128u)
#define LAUNCHES 20u

static char **args;
static char hold[512]; /* the file that exists while the self-test is held */
static CUcontext primary;

static void await_hold(void)
{
	eventually(access(hold, F_OK) == 0);
}

/* Loads the image and computes with its kernel. Returns whether the result is right. */
static bool compute(void)
{
	uint32_t n = WORDS, a = 3, salt = 5, k = 7, spin = 100, wrong = 0, *words;
	CUdeviceptr data = program_zeros(WORDS * 4), counter = program_zeros(4);
	CUmodule module;
	CUfunction step;
	CUstream s;

	CU(cuModuleLoad(&module, args[1]));
	CU(cuModuleGetFunction(&step, module, "step"));
	CU(cuStreamCreate(&s, 1));
	program_settle(counter);
	CU(cuMemsetD32(data, 0, WORDS));
	CU(cuCtxSynchronize());
	for (unsigned i = 0; i < LAUNCHES; i++) {
		void *params[] = { &data, &n, &a, &salt, &k, &counter, &spin };

		CU(cuLaunchKernel(step, WORDS / 64, 1, 1, 64, 1, 1, 0, s, params, NULL));
	}
	CU(cuStreamSynchronize(s));
	words = program_room(WORDS * 4);
	CU(cuMemcpyDtoH(words, data, WORDS * 4));
	for (uint32_t i = 0; i < WORDS; i++) {
		uint32_t v = 0;

		for (unsigned j = 0; j < LAUNCHES; j++) {
			v = v * 3 + 5 * (i + 1) + 7;
		}
		wrong += words[i] != v;
	}
	CU(cuModuleUnload(module));
	if (wrong) {
		fprintf(stderr, "amid: %u words are wrong, the first is %u\n", wrong, words[0]);
	}
	free(words);
	return !wrong;
}

static void open_primary(void)
{
	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(&primary, 0));
	CU(cuCtxSetCurrent(primary));
}

static void *first_load(void *arg)
{
	CUmodule module;

	CU(cuCtxSetCurrent(primary));
	*(CUresult *)arg = cuModuleLoad(&module, args[1]);
	return NULL;
}

struct resetting {
	pid_t thread; /* [atomic] */
	CUresult r;
};

static void *reset(void *arg)
{
	struct resetting *x = arg;

	__atomic_store_n(&x->thread, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	x->r = cuDevicePrimaryCtxReset_v2(0);
	return NULL;
}

/* Returns whether that thread waits for something, or has ended. */
static bool stands(pid_t thread)
{
	char path[64], line[512] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	f = fopen(path, "r");
	if (f) {
		(void)!fgets(line, sizeof(line), f);
		fclose(f);
	}
	return !f || strstr(line, ") S ");
}

static void execute(void)
{
	char *again[] = { args[0], args[1], NULL };

	unsetenv("GBPF_POINT_HOLD");
	execv("/proc/self/exe", again);
	_exit(120);
}

/* What a forked child may do is the driver's decision; it must not stand still. */
static void run_child(bool exec)
{
	CUmodule module;
	CUfunction f;

	alarm(EVENTUALLY_S);
	if (exec) {
		execute();
	}
	if (cuModuleLoad(&module, args[1]) == CUDA_SUCCESS) {
		(void)cuModuleGetFunction(&f, module, "step");
	}
	(void)cuLaunchKernel((CUfunction)args, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	(void)cuDevicePrimaryCtxReset_v2(0);
	exit(0);
}

static bool fork_child(bool exec)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		run_child(exec);
	}
	if (waitpid(child, &status, 0) != child || status != 0) {
		fprintf(stderr, "amid: the child ended with status %#x\n", (unsigned)status);
		return false;
	}
	return true;
}

/* The reset waits for the self-test, or goes on at once. */
static void reset_amid(void)
{
	struct resetting x = { 0, CUDA_ERROR_UNKNOWN };
	pid_t thread;
	pthread_t t;

	CU(pthread_create(&t, NULL, reset, &x) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS);
	eventually((thread = __atomic_load_n(&x.thread, __ATOMIC_ACQUIRE)) && stands(thread));
	unlink(hold);
	pthread_join(t, NULL);
	CU(x.r);
}

/* Returns the exit code. */
static int amid(const char *how)
{
	CUresult load = CUDA_ERROR_UNKNOWN;
	bool ok = true;
	pthread_t t;

	open_primary();
	CU(pthread_create(&t, NULL, first_load, &load) ? CUDA_ERROR_OPERATING_SYSTEM
						       : CUDA_SUCCESS);
	await_hold();
	if (strcmp(how, "kill") == 0) {
		kill(getpid(), SIGKILL);
	} else if (strcmp(how, "self-exec") == 0) {
		unlink(hold);
		execute();
	} else if (strcmp(how, "reset") == 0) {
		reset_amid();
	} else {
		ok = fork_child(strcmp(how, "exec") == 0);
	}
	unlink(hold);
	pthread_join(t, NULL);
	if (strcmp(how, "reset") == 0) { /* the load ended before it, or failed */
		open_primary();
	} else {
		CU(load);
	}
	return ok && compute() ? 0 : 1;
}

int main(int argc, char **argv)
{
	const char *path = getenv("GBPF_POINT_HOLD");
	int status;
	pid_t first;

	args = argv;
	if (argc == 2) {
		open_primary();
		return compute() ? 0 : 1;
	}
	if (argc != 3 || !path || !strchr(path, ':')) {
		return 2;
	}
	snprintf(hold, sizeof(hold), "%s", strchr(path, ':') + 1);
	if (strcmp(argv[2], "kill") != 0) {
		return amid(argv[2]);
	}
	first = fork();
	if (first == 0) {
		return amid(argv[2]);
	}
	if (waitpid(first, &status, 0) != first || !WIFSIGNALED(status) ||
	    WTERMSIG(status) != SIGKILL) {
		return 1;
	}
	unlink(hold);
	unsetenv("GBPF_POINT_HOLD");
	open_primary();
	return compute() ? 0 : 1;
}
