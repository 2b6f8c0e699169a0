/* full_queue IMAGE CALLS: a stream waits for a word that the last block of another stream's kernel
 * stores, and has more calls queued behind that wait than a hardware queue takes. The kernel is
 * interrupted: if the thread that launches its missing blocks waited for room in the queue, both
 * would deadlock. */
#include <stdio.h>
#include <stdlib.h>

#include "../programs/program.h"

#define THREADS 64u
#define BLOCKS 192u
#define WORDS (THREADS * BLOCKS)
#define ROUNDS 4u

static struct program p;

/* Words become a * x + salt * (i + 1) + k; in this program all of them are k. */
static void fill(CUfunction step, CUdeviceptr data, CUdeviceptr counter, uint32_t k, uint32_t spin,
		 CUstream s)
{
	uint32_t n = WORDS, a = 0, salt = 0;
	void *params[] = { &data, &n, &a, &salt, &k, &counter, &spin };

	CU(cuLaunchKernel(step, BLOCKS, 1, 1, THREADS, 1, 1, 0, s, params, NULL));
}

int main(int argc, char **argv)
{
	CUdeviceptr gate, data, counter, last;
	uint32_t calls, word = 0;
	CUstream opens, waits;
	CUfunction step;

	if (argc < 3) {
		fputs("usage: full_queue IMAGE CALLS\n", stderr);
		return 2;
	}
	program_open(&p, "full_queue", argc, argv);
	calls = (uint32_t)strtoul(argv[2], NULL, 10);
	step = program_kernel(&p, "step");
	gate = program_zeros(WORDS * 4);
	data = program_zeros(WORDS * 4);
	counter = program_zeros(16);
	last = gate + (WORDS - 1) * 4;
	CU(cuStreamCreate(&opens, 1));
	CU(cuStreamCreate(&waits, 1));
	program_settle(counter);
	for (uint32_t r = 1; r <= ROUNDS; r++) {
		fill(step, gate, counter, r, 3000, opens);
		if (r % 2) { /* later calls are deferred, or not */
			fill(step, data, counter, 0, 100, waits);
		}
		CU(cuStreamWaitValue32(waits, last, r, CU_STREAM_WAIT_VALUE_EQ));
		for (uint32_t i = 0; i < calls; i++) {
			CU(cuMemsetD32Async(data, i + r, 1, waits));
		}
		CU(cuStreamSynchronize(waits));
		CU(cuMemcpyDtoH(&word, data, 4));
		program_check(&p, word == calls - 1 + r, "the last of the calls was the last");
		CU(cuStreamSynchronize(opens));
	}
	return program_close(&p);
}
