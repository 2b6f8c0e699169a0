/* churn IMAGE SEED ROUNDS: four threads load machine code as modules and libraries, get its kernels
 * by handles of every origin, launch them, and unload it while other threads launch theirs. Each
 * thread checks its own results. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../programs/program.h"

#define BLOCKS 24u
#define THREADS 64u
#define WORDS (BLOCKS * THREADS)
#define N_THREADS 4u

static struct program p;
static uint32_t rounds;

struct worker {
	pthread_t thread;
	uint64_t seed;
	CUdeviceptr to;
	CUstream stream;
	CUlibrary library; /* of the round, or */
	CUmodule module;
	CUfunction f;
	uint32_t factor; /* of all launches since the last check */
	bool wrong;
};

static uint32_t below(struct worker *w, uint32_t n)
{
	return program_random(&w->seed) % n;
}

static CUfunction enumerated(CUmodule m)
{
	CUfunction all[8] = { NULL };
	const char *name = NULL;

	CU(cuModuleEnumerateFunctions(all, 2, m));
	CU(cuFuncGetName(&name, all[0]));
	return strcmp(name, "add") == 0 ? all[0] : all[1];
}

static void load_library(struct worker *w)
{
	CUkernel kernel = NULL, all[2];
	CUmodule m = NULL;

	CU(cuLibraryLoadFromFile(&w->library, p.argv[1], NULL, NULL, 0, NULL, NULL, 0));
	switch (below(w, 4)) {
	case 0:
		CU(cuLibraryGetKernel(&kernel, w->library, "add"));
		w->f = (CUfunction)(void *)kernel;
		break;
	case 1:
		CU(cuLibraryGetKernel(&kernel, w->library, "add"));
		CU(cuKernelGetFunction(&w->f, kernel));
		break;
	case 2:
		CU(cuLibraryGetModule(&m, w->library));
		CU(cuModuleGetFunction(&w->f, m, "add"));
		break;
	default:
		CU(cuLibraryEnumerateKernels(all, 2, w->library));
		CU(cuLibraryGetModule(&m, w->library));
		w->f = enumerated(m);
		break;
	}
}

static void load(struct worker *w)
{
	w->library = NULL;
	w->module = NULL;
	if (below(w, 2)) {
		load_library(w);
		return;
	}
	CU(cuModuleLoad(&w->module, p.argv[1]));
	if (below(w, 2)) {
		CU(cuModuleGetFunction(&w->f, w->module, "add"));
	} else {
		w->f = enumerated(w->module);
	}
}

static void launch(struct worker *w)
{
	uint32_t a = below(w, 1000);
	uint16_t b = 0;
	void *params[] = { &w->to, &a, &b };

	CU(cuLaunchKernel(w->f, BLOCKS, 1, 1, THREADS, 1, 1, 0, w->stream, params, NULL));
	w->factor += a;
}

static void check(struct worker *w)
{
	uint32_t words[WORDS];

	CU(cuMemcpyDtoHAsync(words, w->to, sizeof(words), w->stream));
	CU(cuStreamSynchronize(w->stream));
	for (uint32_t i = 0; i < WORDS; i++) {
		w->wrong = w->wrong || words[i] != w->factor * (i + 1);
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;

	CU(cuCtxSetCurrent(p.context));
	for (uint32_t i = 0; i < rounds && !w->wrong; i++) {
		load(w);
		for (uint32_t n = 1 + below(w, 5); n; n--) {
			launch(w);
		}
		if (below(w, 3) == 0) {
			check(w);
		}
		if (w->library) {
			CU(cuLibraryUnload(w->library));
		} else {
			CU(cuModuleUnload(w->module));
		}
	}
	check(w);
	return NULL;
}

int main(int argc, char **argv)
{
	struct worker w[N_THREADS];

	if (argc != 4) {
		fputs("usage: churn IMAGE SEED ROUNDS\n", stderr);
		return 2;
	}
	rounds = (uint32_t)strtoul(argv[3], NULL, 10);
	program_open(&p, "churn", argc, argv);
	memset(w, 0, sizeof(w));
	for (uint32_t i = 0; i < N_THREADS; i++) {
		w[i].seed = (strtoull(argv[2], NULL, 10) * N_THREADS + i) * 2654435761u + 1;
		w[i].to = program_zeros(WORDS * sizeof(uint32_t));
		CU(cuStreamCreate(&w[i].stream, CU_STREAM_NON_BLOCKING));
	}
	program_settle(w[0].to);
	CU(cuMemsetD32(w[0].to, 0, WORDS));
	CU(cuCtxSynchronize());
	for (uint32_t i = 0; i < N_THREADS; i++) {
		if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0) {
			return 2;
		}
	}
	for (uint32_t i = 0; i < N_THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		program_check(&p, !w[i].wrong, "a thread's results");
	}
	return program_close(&p);
}
