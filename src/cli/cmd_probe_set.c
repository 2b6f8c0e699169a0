/* `gbpf probe set`: which blocks of which kernels run a tool, also while they run, and its budget.
 * --sample and --budget, for it and for attachments. */
#include <stdlib.h>
#include <string.h>

#include "cli/connect.h"
#include "cli/probe_options.h"
#include "cli/verbs.h"

#define EVERY_MAX 1000000u

enum { O_SAMPLE, O_OFF, O_ON, O_BUDGET, O_KERNEL };

static const struct cli_option options[] = {
	[O_SAMPLE] = { "sample", 's', "1/N", "one block in N runs it" },
	[O_OFF] = { "off", 0, NULL, "no block runs it" },
	[O_ON] = { "on", 0, NULL, "blocks run it again" },
	[O_BUDGET] = { "budget", 'b', "PERCENT|none",
		       "what it may add to the time of its kernels' launches" },
	[O_KERNEL] = { "kernel", 'k', "PATTERN", "--sample, --off, --on: only in these kernels" },
	{ NULL, 0, NULL, NULL },
};

int cli_probe_sample(struct cli *c, const char *text, uint32_t *ret_every)
{
	unsigned long n = 0;
	char *end = NULL;

	*ret_every = 0;
	if (!text) {
		return CLI_OK;
	}
	if (strncmp(text, "1/", 2) == 0 && text[2] >= '1' && text[2] <= '9') {
		n = strtoul(text + 2, &end, 10);
	}
	if (!end || *end || n > EVERY_MAX) {
		return cli_fail(c, CLI_USAGE, "usage", "For example 1/8",
				"invalid share of blocks '%s' for --sample: expected 1/1 to 1/%u",
				text, EVERY_MAX);
	}
	*ret_every = (uint32_t)n;
	return CLI_OK;
}

int cli_probe_budget(struct cli *c, const char *text, uint32_t *ret_ppm)
{
	double percent;
	char *end;

	*ret_ppm = 0;
	if (!text) {
		return CLI_OK;
	}
	if (strcmp(text, "none") == 0) {
		*ret_ppm = GBPF_PROBE_NO_BUDGET;
		return CLI_OK;
	}
	percent = strtod(text, &end);
	if (end == text || *(end + (*end == '%')) || !(percent >= 0.001 && percent <= 100)) {
		return cli_fail(
			c, CLI_USAGE, "usage", "For example 3%",
			"invalid percentage '%s' for --budget: expected 0.001 to 100, or none",
			text);
	}
	*ret_ppm = (uint32_t)(percent * 10000 + 0.5);
	return CLI_OK;
}

void cli_probe_print_scopes(const json_t *p)
{
	const json_t *s;
	size_t i;

	json_array_foreach(json_object_get(p, "scopes"), i, s)
	{
		const json_t *off = json_object_get(s, "off");
		uint64_t every = cli_u64(s, "every");

		printf("tool %llu, kernels ", (unsigned long long)cli_u64(p, "id"));
		cli_put_safe(stdout, cli_text(s, "kernel"));
		printf(":");
		if (every == 1) {
			printf(" all blocks");
		} else if (every) {
			printf(" one block in %llu", (unsigned long long)every);
		}
		if (off) {
			printf("%s %s", every ? "," : "", json_is_true(off) ? "off" : "on");
		}
		printf("\n");
	}
}

static void print_set(const struct cli *c, const json_t *r)
{
	if (c->quiet) {
		return;
	}
	printf("tool %llu (", (unsigned long long)cli_u64(r, "id"));
	cli_put_safe(stdout, cli_text(r, "name"));
	if (json_is_true(json_object_get(r, "off"))) {
		printf("): off");
	} else if (cli_u64(r, "every")) {
		printf("): one block in %llu", (unsigned long long)cli_u64(r, "every"));
	} else {
		printf("): all blocks");
	}
	if (cli_u64(r, "budget_ppm")) {
		printf(", budget %g %%\n", (double)cli_u64(r, "budget_ppm") / 1e4);
	} else {
		printf(", no budget\n");
	}
	cli_probe_print_scopes(r);
}

/* Reads a percentage, or "none", which is 0. */
static int read_budget(struct cli *c, uint32_t *ret_ppm)
{
	int code = cli_probe_budget(c, c->opt[O_BUDGET], ret_ppm);

	*ret_ppm = *ret_ppm == GBPF_PROBE_NO_BUDGET ? 0 : *ret_ppm;
	return code;
}

/* Checks which options are given together. */
static int check_options(struct cli *c, uint32_t every)
{
	bool blocks = every || c->opt[O_OFF] || c->opt[O_ON];

	if (!!c->opt[O_OFF] + !!c->opt[O_ON] > 1 || !(blocks || c->opt[O_BUDGET])) {
		return cli_fail(c, CLI_USAGE, "usage", NULL,
				"probe set: expected --sample, --off, --on or --budget");
	}
	if (c->opt[O_KERNEL] && c->opt[O_BUDGET]) {
		return cli_fail(c, CLI_USAGE, "usage", "Set the budget without --kernel",
				"probe set: --budget with --kernel: a budget is of the whole tool");
	}
	return CLI_OK;
}

/* Returns what the options set; NULL: the pattern is not UTF-8. */
static json_t *settings(const struct cli *c, uint64_t id, uint32_t every, uint32_t budget)
{
	json_t *p = json_pack("{s:I}", "id", (json_int_t)id);

	if (every) {
		json_object_set_new(p, "every", json_integer(every));
	}
	if (c->opt[O_OFF] || c->opt[O_ON]) {
		json_object_set_new(p, "off", json_boolean(c->opt[O_OFF] != NULL));
	}
	if (c->opt[O_BUDGET]) {
		json_object_set_new(p, "budget_ppm", json_integer(budget));
	}
	if (c->opt[O_KERNEL] &&
	    json_object_set_new(p, "kernel", json_string(c->opt[O_KERNEL])) < 0) {
		json_decref(p);
		return NULL;
	}
	return p;
}

static int cmd_set(struct cli *c)
{
	json_t *params, *result = NULL;
	uint32_t every, budget;
	uint64_t id = 0;
	int code = cli_probe_sample(c, c->opt[O_SAMPLE], &every);

	code = code ? code : read_budget(c, &budget);
	code = code ? code : check_options(c, every);
	code = code ? code : cli_probe_id(c, "probe set", c->arg[0], &id);
	if (code) {
		return code;
	}
	params = settings(c, id, every, budget);
	if (!params) {
		return cli_fail(c, CLI_USAGE, "usage", "For example gemm*",
				"invalid pattern for --kernel: not UTF-8");
	}
	code = cli_call(c, "probe set", "probe.set", params, &result);
	if (code) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "probe.set", result);
	}
	print_set(c, result);
	json_decref(result);
	return CLI_OK;
}

const struct cli_verb verb_probe_set = { .name = "set",
					 .args = "ID|NAME",
					 .doc = "choose the blocks that run a tool, and its budget",
					 .page = "gbpf-probe.1",
					 .options = options,
					 .min_args = 1,
					 .max_args = 1,
					 .run = cmd_set };
