/* `gbpf bench preempt`: a latency client and batch clients under several ways of sharing, in one
 * run. This file parses the arguments; gbpf has checked the user's input. */
#include "bench/lcbe/lcbe.h"

#include <string.h>

static bool in_range(const struct bench_lcbe *b)
{
	const struct bench_lcbe_settings *s = &b->set;

	return s->rounds >= 1 && s->rounds <= LCBE_ROUNDS && s->batch_clients >= 1 &&
	       s->batch_clients <= LCBE_BATCH && s->threads >= 1 && s->threads <= 1024 &&
	       s->streams >= 1 && s->streams <= 64 && s->depth >= 1 && s->depth <= 64 &&
	       s->requests >= 1 && s->requests <= 1000000 && s->grid <= 1u << 24 &&
	       s->kernels >= 1 && s->kernels <= 1000 && s->hint_us <= 1000000 &&
	       s->think_us <= 1000000 && s->block_us > 0 && s->lc_us > 0 && s->seconds > 0 &&
	       !s->lc_cmd == !s->be_cmd &&
	       !(s->lc_cmd && (s->machine_code || s->probe || s->swap)) && b->testbed.policy &&
	       b->testbed.libcuda && b->testbed.gbpf && b->testbed.client;
}

/* Sets defaults that suit the device. */
static void set_defaults(struct bench_lcbe_settings *s, int argc, char **argv)
{
	bool soft = false;

	for (int i = 1; i < argc; i++) {
		soft |= strcmp(argv[i], "--soft") == 0;
	}
	*s = (struct bench_lcbe_settings){ .requests = soft ? 100 : 1000,
					   .rounds = 5,
					   .batch_clients = 1,
					   .streams = 1,
					   .depth = 2,
					   .threads = soft ? 64 : 256,
					   .kernels = soft ? 8 : 40,
					   .hint_us = 500,
					   .think_us = soft ? 500 : 60,
					   .block_us = soft ? 300 : 30,
					   .lc_us = soft ? 20 : 5, /* 7 with its launch */
					   .seconds = soft ? 60 : 300,
					   .kinds = "one,queued,synced" };
}

int main(int argc, char **argv)
{
	static struct bench_lcbe b;
	struct bench_lcbe_settings *s = &b.set;
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),
		{ "--requests", .number = &s->requests },
		{ "--repeats", .number = &s->rounds },
		{ "--batch-clients", .number = &s->batch_clients },
		{ "--streams", .number = &s->streams },
		{ "--depth", .number = &s->depth },
		{ "--grid", .number = &s->grid },
		{ "--threads", .number = &s->threads },
		{ "--kernels", .number = &s->kernels },
		{ "--hint-us", .number = &s->hint_us },
		{ "--think-us", .number = &s->think_us },
		{ "--conditions", .text = &s->conditions },
		{ "--kinds", .text = &s->kinds },
		{ "--probe", .text = &s->probe },
		{ "--swap", .text = &s->swap },
		{ "--lc-cmd", .text = &s->lc_cmd },
		{ "--be-cmd", .text = &s->be_cmd },
		{ "--block-us", .real = &s->block_us },
		{ "--lc-us", .real = &s->lc_us },
		{ "--seconds", .real = &s->seconds },
		{ "--default-stream", .flag = &s->default_stream },
		{ "--restart", .flag = &s->restart },
		{ "--machine-code", .flag = &s->machine_code },
		{ NULL },
	};
	int err;

	set_defaults(s, argc, argv);
	if (!bench_program_options(table, &argc, argv) || !in_range(&b)) {
		return bench_program_usage();
	}
	err = bench_lcbe_run(&b);
	bench_lcbe_finish(&b);
	return bench_testbed_exit(&b.testbed, err, b.failed);
}
