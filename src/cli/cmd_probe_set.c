/* `gbpf probe set`: which blocks run a tool, also of kernels that run. --sample, for it and for
 * attachments. */
#include <stdlib.h>
#include <string.h>

#include "cli/connect.h"
#include "cli/probe_options.h"
#include "cli/verbs.h"

#define EVERY_MAX 1000000u

enum { O_SAMPLE, O_OFF, O_ON };

static const struct cli_option options[] = {
	[O_SAMPLE] = { "sample", 's', "1/N", "one block in N runs it" },
	[O_OFF] = { "off", 0, NULL, "no block runs it" },
	[O_ON] = { "on", 0, NULL, "blocks run it again" },
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
	percent = strtod(text, &end);
	if (end == text || *(end + (*end == '%')) || !(percent >= 0.001 && percent <= 100)) {
		return cli_fail(c, CLI_USAGE, "usage", "For example 3%",
				"invalid percentage '%s' for --budget: expected 0.001 to 100",
				text);
	}
	*ret_ppm = (uint32_t)(percent * 10000 + 0.5);
	return CLI_OK;
}

static void print_set(const struct cli *c, const json_t *r)
{
	if (c->quiet) {
		return;
	}
	printf("tool %llu (", (unsigned long long)cli_u64(r, "id"));
	cli_put_safe(stdout, cli_text(r, "name"));
	if (json_is_true(json_object_get(r, "off"))) {
		printf("): off\n");
	} else {
		printf("): one block in %llu\n", (unsigned long long)cli_u64(r, "every"));
	}
}

static int cmd_set(struct cli *c)
{
	json_t *params, *result = NULL;
	uint32_t every;
	uint64_t id = 0;
	int code = cli_probe_sample(c, c->opt[O_SAMPLE], &every);

	if (code) {
		return code;
	}
	if (!!c->opt[O_OFF] + !!c->opt[O_ON] > 1 || !(c->opt[O_OFF] || c->opt[O_ON] || every)) {
		return cli_fail(c, CLI_USAGE, "usage", NULL,
				"probe set: expected --sample, --off or --on");
	}
	code = cli_probe_id(c, "probe set", c->arg[0], &id);
	if (code) {
		return code;
	}
	params = json_pack("{s:I}", "id", (json_int_t)id);
	if (every) {
		json_object_set_new(params, "every", json_integer(every));
	}
	if (c->opt[O_OFF] || c->opt[O_ON]) {
		json_object_set_new(params, "off", json_boolean(c->opt[O_OFF] != NULL));
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
					 .doc = "choose the blocks that run a tool",
					 .page = "gbpf-probe.1",
					 .options = options,
					 .min_args = 1,
					 .max_args = 1,
					 .run = cmd_set };
