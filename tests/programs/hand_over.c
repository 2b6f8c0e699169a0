/* Blocks and lanes that wait for each other. */
#include "program.h"

#define BLOCKS 16
#define ROUNDS 20

int main(int argc, char **argv)
{
	int blocks = BLOCKS, rounds = ROUNDS, data[BLOCKS], order[BLOCKS + 1], count, lanes[32];
	CUdeviceptr flags, d, o, lock, c;
	bool right = true;
	struct program p;
	unsigned want = 1;

	program_open(&p, "handOver", argc, argv);
	flags = program_zeros(BLOCKS * 4);
	d = program_zeros(sizeof(data));
	o = program_zeros(sizeof(order));
	LAUNCH(program_kernel(&p, "handOver"), BLOCKS, 64, 0, &flags, &d, &o, &blocks);
	program_get(data, d, sizeof(data));
	program_get(order, o, sizeof(order));
	for (unsigned b = 1; b < BLOCKS; b++) {
		want = want * 3 + b;
		right = right && (unsigned)data[b] == want;
	}
	program_check(&p, right && order[BLOCKS] == BLOCKS, "what was handed on");
	program_exact(&p, "data", data, sizeof(data));
	lock = program_zeros(4);
	c = program_zeros(4);
	LAUNCH(program_kernel(&p, "takeTurns"), BLOCKS, 64, 0, &lock, &c, &rounds);
	program_get(&count, c, sizeof(count));
	program_check(&p, count == BLOCKS * ROUNDS, "the count under the lock");
	flags = program_zeros(32 * 4);
	o = program_zeros(sizeof(lanes));
	LAUNCH(program_kernel(&p, "lanesHandOver"), 1, 32, 0, &flags, &o);
	program_get(lanes, o, sizeof(lanes));
	program_check(&p, lanes[31] == 1 + 31 * 32 / 2, "the lanes' sum");
	program_exact(&p, "lanes", lanes, sizeof(lanes));
	return program_close(&p);
}
