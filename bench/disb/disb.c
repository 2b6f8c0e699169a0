/* `gbpf bench disb`: the workloads of DISB under several ways of sharing. This file parses the
 * arguments and writes the document; gbpf has checked the user's input. */
#include "bench/disb/disb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool parse_one(struct bench_disb *b, const char *name, const char *text, int *i)
{
	const struct bench_testbed_value table[] = {
		{ "--policy", &b->policy, NULL },
		{ "--policy-name", &b->policy_name, NULL },
		{ "--conditions", &b->conditions, NULL },
		{ "--workloads", &b->workloads, NULL },
		{ "--save", &b->save, NULL },
		{ "--script", &b->torch, NULL },
		{ "--python", &b->python, NULL },
		{ "--repeats", NULL, &b->rounds },
	};

	if (bench_testbed_option(&b->testbed, name, text, i)) {
		return true;
	}
	if (strcmp(name, "--graphs") == 0) {
		b->graphs = true;
		return true;
	}
	++*i;
	if (bench_testbed_value(table, ARRAY_SIZE(table), name, text)) {
		return true;
	}
	if (strcmp(name, "--seconds") == 0) {
		b->seconds = strtod(text, NULL);
	} else if (strcmp(name, "--be") == 0) {
		b->periodic = strcmp(text, "periodic") == 0;
	} else {
		return false;
	}
	return true;
}

static bool parse(struct bench_disb *b, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!parse_one(b, argv[i], i + 1 < argc ? argv[i + 1] : "", &i)) {
			return false;
		}
	}
	return b->seconds > 0 && b->seconds <= 3600 && b->rounds >= 1 && b->rounds <= DISB_ROUNDS &&
	       b->policy && b->testbed.libcuda && b->testbed.gbpf && b->testbed.client;
}

static json_t *models_json(const struct bench_disb *b)
{
	json_t *a = json_array();

	for (unsigned m = 0; m < DISB_MODELS; m++) {
		if (b->alone_ms[m] > 0) {
			json_array_append_new(
				a,
				json_pack("{s:s, s:s, s:f, s:f, s:i}", "model", disb_models[m].name,
					  "is", disb_models[m].doc, "reference_ms",
					  disb_models[m].ms, "alone_ms", b->alone_ms[m], "kernels",
					  b->torch ? 0
						   : (int)MAX(disb_models[m].kernels / b->divide,
							      1)));
		}
	}
	return a;
}

static void print_models(const struct bench_disb *b)
{
	printf("%s, policy %s, %g s a measurement, %u round%s, batch %s. %s alone:", b->device,
	       b->policy_name, b->seconds, b->rounds, PLURAL(b->rounds),
	       b->periodic ? "periodic" : "in closed loops",
	       b->graphs  ? "PyTorch's networks as CUDA graphs"
	       : b->torch ? "PyTorch's networks"
			  : "Models");
	for (unsigned m = 0; m < DISB_MODELS; m++) {
		if (b->alone_ms[m] > 0) {
			printf(" %s %.2f ms", disb_models[m].name, b->alone_ms[m]);
		}
	}
	putchar('\n');
}

static int put_document(struct bench_disb *b)
{
	json_object_set_new(b->document, "device", json_string(b->device));
	json_object_set_new(b->document, "networks",
			    json_string(b->graphs  ? "PyTorch, CUDA graphs"
					: b->torch ? "PyTorch"
						   : "synthetic"));
	json_object_set_new(b->document, "models", models_json(b));
	return bench_testbed_document(&b->testbed, b->document, b->save);
}

int main(int argc, char **argv)
{
	static struct bench_disb b = { .rounds = 1,
				       .seconds = 10,
				       .policy_name = "",
				       .python = "python3",
				       .divide = 1,
				       .blocks = 2 };
	int err;

	b.testbed.bench = "disb";
	if (!parse(&b, argc, argv)) {
		return bench_testbed_usage(&b.testbed);
	}
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
	b.testbed.progress |= isatty(2) != 0;
	b.results = json_array();
	b.document =
		json_pack("{s:s, s:s, s:f, s:i, s:b, s:o}", "schema", "gbpf.bench.disb/1", "policy",
			  b.policy_name, "seconds", b.seconds, "rounds", (int)b.rounds,
			  "periodic_batch", (int)b.periodic, "workloads", b.results);
	err = bench_disb_run(&b);
	if (!err && !b.testbed.json) {
		print_models(&b);
	}
	err = err ? err : put_document(&b);
	if (err) {
		bench_testbed_complain(&b.testbed);
	}
	bench_disb_finish(&b);
	return err || b.failed || fflush(stdout) ? 1 : 0;
}
