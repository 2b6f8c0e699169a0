/* ipc IMAGE ROUNDS: two processes alternate in using one buffer, ordered by a shared event. In each
 * turn a process awaits the event, multiplies each word by 3 and adds a term, in launches that may
 * be interrupted, and records the event. A record that takes effect before all blocks of the launch
 * have run would let the other process read stale words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/program.h"

#define THREADS 64u
#define BLOCKS 192u
#define WORDS (THREADS * BLOCKS)
#define CHECKED 5 /* rounds */

struct shared {
	CUipcEventHandle event;
	CUipcMemHandle memory;
};

static struct program p;
static int to, from; /* the other process */
static uint32_t *seen;

static void tell(const void *data, size_t bytes)
{
	if (write(to, data, bytes) != (ssize_t)bytes) {
		_exit(EXIT_FAILURE);
	}
}

static void hear(void *data, size_t bytes)
{
	if (read(from, data, bytes) != (ssize_t)bytes) {
		_exit(EXIT_FAILURE);
	}
}

static void check(uint32_t round, const uint32_t *expected)
{
	for (uint32_t i = 0; i < WORDS; i++) {
		if (seen[i] != expected[i]) {
			fprintf(stderr, "ipc: round %u, word %u (block %u): %08x instead of %08x\n",
				round, i, i / THREADS, seen[i], expected[i]);
			_exit(EXIT_FAILURE);
		}
	}
}

static void work(CUfunction step, CUdeviceptr data, CUdeviceptr counter, uint32_t round, CUstream s)
{
	uint32_t n = WORDS, a = 3, salt = round * 7 + 1, k = round, spin = 200;
	void *params[] = { &data, &n, &a, &salt, &k, &counter, &spin };

	CU(cuLaunchKernel(step, BLOCKS, 1, 1, THREADS, 1, 1, 0, s, params, NULL));
	if (round % 4 < 2) { /* later calls are deferred then */
		CU(cuMemsetD32Async(counter, 0, 1, s));
	}
}

static void turns(uint32_t rounds, uint32_t mine, CUdeviceptr data, CUevent event)
{
	uint32_t *expected = program_room(WORDS * 4);
	CUfunction step = program_kernel(&p, "step");
	CUdeviceptr counter = program_zeros(16);
	CUstream s;
	char go = 0;

	CU(cuStreamCreate(&s, 1));
	CU(cuMemAllocHost((void **)(void *)&seen, WORDS * 4));
	program_settle(counter);
	for (uint32_t r = 0; r < rounds; r++) {
		for (uint32_t i = 0; i < WORDS; i++) {
			expected[i] = expected[i] * 3 + (r * 7 + 1) * (i + 1) + r;
		}
		if (r % 2 != mine) {
			continue;
		}
		if (r) {
			hear(&go, 1);
			CU(cuStreamWaitEvent(s, event, 0));
		}
		work(step, data, counter, r, s);
		if (r % CHECKED == 0) {
			CU(cuMemcpyDtoHAsync(seen, data, WORDS * 4, s));
		}
		CU(cuEventRecord(event, s));
		tell(&go, 1);
		if (r % CHECKED == 0) {
			CU(cuStreamSynchronize(s));
			check(r, expected);
		}
	}
	CU(cuStreamSynchronize(s));
	free(expected);
}

static void owner(uint32_t rounds)
{
	CUdeviceptr data;
	struct shared h;
	CUevent event;
	char go;

	data = program_zeros(WORDS * 4);
	CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
	CU(cuIpcGetEventHandle(&h.event, event));
	CU(cuIpcGetMemHandle(&h.memory, data));
	CU(cuCtxSynchronize());
	tell(&h, sizeof(h));
	turns(rounds, 0, data, event);
	while (read(from, &go, 1) > 0) { /* the other process still uses the memory */
	}
	CU(cuEventDestroy(event));
}

static void guest(uint32_t rounds)
{
	CUdeviceptr data;
	struct shared h;
	CUevent event;

	hear(&h, sizeof(h));
	CU(cuIpcOpenEventHandle(&event, h.event));
	CU(cuIpcOpenMemHandle_v2(&data, h.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	turns(rounds, 1, data, event);
	CU(cuIpcCloseMemHandle(data));
	CU(cuEventDestroy(event));
	close(to);
}

int main(int argc, char **argv)
{
	int down[2], up[2], status = 1, rc;
	uint32_t rounds;
	pid_t child;

	if (argc < 3 || pipe(down) || pipe(up)) {
		fputs("usage: ipc IMAGE ROUNDS\n", stderr);
		return 2;
	}
	rounds = (uint32_t)strtoul(argv[2], NULL, 10);
	child = fork();
	to = child ? down[1] : up[1];
	from = child ? up[0] : down[0];
	close(child ? down[0] : up[0]);
	close(child ? up[1] : down[1]);
	program_open(&p, child ? "ipc" : "ipc (guest)", argc, argv);
	if (!child) {
		guest(rounds);
		return program_close(&p);
	}
	owner(rounds);
	close(to);
	rc = program_close(&p);
	return waitpid(child, &status, 0) == child && status == 0 ? rc : EXIT_FAILURE;
}
