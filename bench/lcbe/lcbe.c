/* `gbpf bench lcbe`: a latency client and batch clients under several ways of sharing, in one run.
 * This file parses the arguments; gbpf has checked the user's input. */
#include "bench/lcbe/lcbe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double number(const char *text)
{
	char *end;
	double v = strtod(text, &end);

	return end == text || *end ? -1 : v;
}

static bool parse_number(struct bench_lcbe_settings *s, const char *name, const char *text)
{
	const struct {
		const char *name;
		unsigned *at, max;
	} table[] = {
		{ "--requests", &s->requests, 1000000 },
		{ "--repeats", &s->rounds, LCBE_ROUNDS },
		{ "--batch-clients", &s->batch_clients, LCBE_BATCH },
		{ "--streams", &s->streams, 64 },
		{ "--depth", &s->depth, 64 },
		{ "--grid", &s->grid, 1u << 24 },
		{ "--threads", &s->threads, 1024 },
		{ "--kernels", &s->kernels, 1000 },
		{ "--hint-us", &s->hint_us, 1000000 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].name, name) == 0) {
			double v = number(text);

			*table[i].at = v >= 0 && v <= table[i].max ? (unsigned)v : UINT32_MAX;
			return true;
		}
	}
	return false;
}

static bool parse_text(struct bench_lcbe *b, const char *name, const char *text)
{
	const struct bench_testbed_value table[] = {
		{ "--policy", &b->set.policy, NULL },
		{ "--policy-name", &b->set.policy_name, NULL },
		{ "--conditions", &b->set.conditions, NULL },
		{ "--save", &b->set.save, NULL },
		{ "--svg", &b->set.svg, NULL },
		{ "--lc-cmd", &b->set.lc_cmd, NULL },
		{ "--be-cmd", &b->set.be_cmd, NULL },
	};

	return bench_testbed_value(table, ARRAY_SIZE(table), name, text);
}

static bool parse_kinds(struct bench_lcbe_settings *s, const char *text)
{
	memset(s->kind, 0, sizeof(s->kind));
	while (*text) {
		size_t n = strcspn(text, ","), k = 0;

		while (k < PAGE_KINDS && (strlen(lcbe_kind_names[k]) != n ||
					  strncmp(lcbe_kind_names[k], text, n) != 0)) {
			k++;
		}
		if (k == PAGE_KINDS) {
			return false;
		}
		s->kind[k] = true;
		text += n + (text[n] == ',');
	}
	return true;
}

static bool parse_flag(struct bench_lcbe *b, const char *name)
{
	const struct {
		const char *name;
		bool *at;
	} table[] = {
		{ "--default-stream", &b->set.default_stream },
		{ "--restart", &b->set.restart },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].name, name) == 0) {
			*table[i].at = true;
			return true;
		}
	}
	return false;
}

static bool parse(struct bench_lcbe *b, int argc, char **argv)
{
	struct bench_lcbe_settings *s = &b->set;

	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (parse_flag(b, argv[i]) ||
		    bench_testbed_option(&b->testbed, argv[i], value, &i)) {
			continue;
		}
		if (strcmp(argv[i], "--block-us") == 0) {
			s->block_us = number(value);
		} else if (strcmp(argv[i], "--lc-us") == 0) {
			s->lc_us = number(value);
		} else if (strcmp(argv[i], "--seconds") == 0) {
			s->seconds = number(value);
		} else if (strcmp(argv[i], "--kinds") == 0) {
			if (!parse_kinds(s, value)) {
				return false;
			}
		} else if (!parse_number(s, argv[i], value) && !parse_text(b, argv[i], value)) {
			return false;
		}
		i++;
	}
	return s->rounds >= 1 && s->rounds <= LCBE_ROUNDS && s->batch_clients >= 1 &&
	       s->batch_clients <= LCBE_BATCH && s->threads >= 1 && s->threads <= 1024 &&
	       s->streams >= 1 && s->streams <= 64 && s->depth >= 1 && s->depth <= 64 &&
	       s->requests >= 1 && s->requests <= 1000000 && s->grid <= 1u << 24 &&
	       s->kernels >= 1 && s->kernels <= 1000 && s->block_us > 0 && s->lc_us > 0 &&
	       s->seconds > 0 && !s->lc_cmd == !s->be_cmd && s->policy && b->testbed.libcuda &&
	       b->testbed.gbpf && b->testbed.client;
}

/* Sets defaults that suit the device. */
static void set_defaults(struct bench_lcbe *b, int argc, char **argv)
{
	bool soft = false;

	for (int i = 1; i < argc; i++) {
		soft |= strcmp(argv[i], "--soft") == 0;
	}
	b->set = (struct bench_lcbe_settings){ .requests = soft ? 100 : 1000,
					       .rounds = 5,
					       .batch_clients = 1,
					       .streams = 1,
					       .depth = 2,
					       .threads = soft ? 64 : 256,
					       .kernels = soft ? 8 : 40,
					       .hint_us = 500,
					       .block_us = soft ? 300 : 30,
					       .lc_us = soft ? 20 : 5, /* 7 with its launch */
					       .seconds = soft ? 60 : 300,
					       .kind = { true, true, true },
					       .policy_name = "" };
	b->testbed.bench = "lcbe";
}

int main(int argc, char **argv)
{
	static struct bench_lcbe b;
	int err;

	set_defaults(&b, argc, argv);
	if (!parse(&b, argc, argv)) {
		return bench_testbed_usage(&b.testbed);
	}
	b.testbed.progress |= isatty(2) != 0;
	err = bench_lcbe_run(&b);
	if (!err) {
		bench_testbed_progress(&b.testbed, "lcbe: evaluating");
		if (b.testbed.progress && isatty(2)) {
			fputs("\r\033[K", stderr);
		}
		err = bench_lcbe_report(&b);
	}
	if (err) {
		bench_testbed_complain(&b.testbed);
	}
	bench_lcbe_finish(&b);
	return err || b.failed || fflush(stdout) ? 1 : 0;
}
