/* long IMAGE HANGS: launches a kernel whose blocks last until the program lets them end, and which
 * is interrupted at any point, until the missing blocks of that many launches were launched
 * concurrently. All blocks of a launch end together, long after these have begun. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../programs/program.h"

#define BLOCKS 12u
#define WATCHED_NS UINT64_C(60000000) /* less than any time for which a stream is watched */
#define HOLD_NS UINT64_C(150000000)   /* more than an end that the missing blocks may have caused */

/* How many launches an interruption takes depends on the machine and on what else it does: a bound
 * of time ends a program that is never interrupted, well before the test's own limit. */
#define TRIES_NS UINT64_C(120000000000)

static void pause_ns(long ns)
{
	struct timespec t = { 0, ns };

	(void)nanosleep(&t, NULL);
}

/* Waits until that many blocks have begun. Returns how long that took. */
static uint64_t await_blocks(volatile uint32_t *begun, uint32_t n)
{
	uint64_t since = program_ns();

	while (__atomic_load_n(begun, __ATOMIC_ACQUIRE) != n) {
		pause_ns(100000);
	}
	return program_ns() - since;
}

int main(int argc, char **argv)
{
	uint64_t started = program_ns();
	uint32_t hangs = 0, wanted;
	volatile uint32_t *words;
	CUdeviceptr begun, round;
	struct program p;
	CUfunction f;
	void *host;

	if (argc != 3) {
		return 2;
	}
	wanted = (uint32_t)atoi(argv[2]);
	program_open(&p, "long", argc, argv);
	f = program_kernel(&p, "hold");
	CU(cuMemAllocHost(&host, 4096));
	words = host;
	words[0] = words[16] = 0;
	CU(cuMemHostGetDevicePointer_v2(&begun, host, 0));
	round = begun + 64;
	program_settle(program_zeros(4));
	for (uint32_t i = 1; hangs < wanted && program_ns() - started < TRIES_NS; i++) {
		void *params[] = { &begun, &round, &i };
		uint64_t until;

		CU(cuLaunchKernel(f, BLOCKS, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
		if (await_blocks(words, BLOCKS * i) > WATCHED_NS) {
			hangs++;
			until = program_ns() + HOLD_NS;
			while (program_ns() < until) {
				pause_ns(1000000);
			}
		}
		__atomic_store_n(&words[16], i, __ATOMIC_RELEASE);
		CU(cuStreamSynchronize(NULL));
	}
	program_check(&p, words[0] % BLOCKS == 0, "the number of blocks");
	program_check(&p, hangs == wanted, "the number of interrupted launches");
	return program_close(&p);
}
