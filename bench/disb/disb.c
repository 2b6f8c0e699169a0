/* `gbpf bench dev disb`: the workloads of DISB under several ways of sharing. This file parses the
 * arguments; gbpf has checked the user's input. */
#include "bench/disb/disb.h"

#include <string.h>

static bool in_range(const struct bench_disb *b)
{
	return b->seconds > 0 && b->seconds <= 3600 && b->rounds >= 1 && b->rounds <= DISB_ROUNDS &&
	       b->testbed.policy && b->testbed.libcuda && b->testbed.gbpf && b->testbed.client;
}

int main(int argc, char **argv)
{
	static struct bench_disb b = { .rounds = 1, .seconds = 10, .python = "python3" };
	const char *batch = "closed";
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),	 { "--conditions", .text = &b.conditions },
		{ "--workloads", .text = &b.workloads }, { "--script", .text = &b.torch },
		{ "--python", .text = &b.python },	 { "--be", .text = &batch },
		{ "--repeats", .number = &b.rounds },	 { "--seconds", .real = &b.seconds },
		{ "--graphs", .flag = &b.graphs },	 { NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || !in_range(&b)) {
		return bench_program_usage();
	}
	b.periodic = strcmp(batch, "periodic") == 0;
	b.soft = b.testbed.soft;
	if (!b.workloads) {
		b.workloads = b.torch ? "A,B,C,D,E,REAL" : "A,B,C,D,E,REAL,Y,Z";
	}
	if (b.torch) {
		b.testbed.client = b.python;
	}
	b.threads = b.soft ? 64 : 256;
	b.blocks = b.soft ? 1 : 2;
	b.divide = b.soft ? 8 : 1;
	err = bench_disb_run(&b);
	return bench_testbed_exit(&b.testbed, err, b.failed);
}
