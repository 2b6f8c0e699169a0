/* `gbpf bench dev soft`: speed of the soft GPU. Each section measures in child processes that are
 * clients of one server, and writes records of it and of the machine without the soft GPU. */
#include "bench/soft/bench_soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

static const struct {
	const char *name;
	void (*run)(struct bench_soft *b);
} sections[SOFT_BENCH_SECTIONS] = {
	{ "fma", bench_soft_fma },	 { "samples", bench_soft_samples },
	{ "empty", bench_soft_empty },	 { "copy", bench_soft_copy },
	{ "slices", bench_soft_slices }, { "many", bench_soft_many },
	{ "kills", bench_soft_kills },
};

void bench_soft_broken(struct bench_soft *b, const char *section, const char *why)
{
	b->failed++;
	bench_program_record("broken", json_pack("{s:s, s:s}", "section", section, "why", why));
}

static bool take_sections(struct bench_soft *b, int n, char **names)
{
	for (int k = 0; k < n; k++) {
		size_t i = 0;

		while (i < ARRAY_SIZE(sections) && strcmp(sections[i].name, names[k]) != 0) {
			i++;
		}
		if (i == ARRAY_SIZE(sections)) {
			return false;
		}
		b->only[i] = b->some = true;
	}
	return true;
}

static int measure(void *arg)
{
	struct bench_soft *b = arg;

	bench_program_record("set_up", json_pack("{s:i, s:i, s:i, s:i}", "rounds", (int)b->rounds,
						 "ms", (int)b->ms, "workers", (int)b->hello.workers,
						 "sms", (int)b->hello.sms));
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		if (!b->some || b->only[i]) {
			sections[i].run(b);
		}
	}
	return b->failed > 0;
}

static int run(struct bench_soft *b, bool *ret_failed)
{
	int code, err;

	b->testbed.soft = !b->running;
	if (bench_testbed_init(&b->testbed) < 0) {
		return -1;
	}
	err = bench_soft_server_find(b);
	if (err < 0) {
		return bench_testbed_fail(
			&b->testbed, "the soft GPU's server cannot be reached: %s", strerror(-err));
	}
	code = bench_testbed_apart(&b->testbed, measure, b);
	*ret_failed = code > 0;
	return MIN(code, 0);
}

int main(int argc, char **argv)
{
	static struct bench_soft b = { .rounds = 7, .ms = 1000, .kills = 100 };
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),
		{ "--samples", .text = &b.samples },
		{ "--rounds", .number = &b.rounds },
		{ "--ms", .number = &b.ms },
		{ "--kills", .number = &b.kills },
		{ "--running", .flag = &b.running },
		{ NULL },
	};
	bool failed = false;
	int err;

	if (!bench_program_options(table, &argc, argv) || !take_sections(&b, argc - 1, argv + 1) ||
	    !b.testbed.libcuda || !b.testbed.server || !b.samples || b.rounds < 1 ||
	    b.rounds > 1000 || b.ms < 1 || b.ms > 100000 || b.kills > 1000000) {
		return bench_program_usage();
	}
	err = run(&b, &failed);
	return bench_testbed_exit(&b.testbed, err, failed);
}
