/* `gbpf probe coverage`: which kernels of running programs can be probed, and how. */
#include <errno.h>
#include <stdlib.h>

#include "cli/connect.h"
#include "cli/probe_options.h"
#include "cli/verbs.h"

static const char *const forms[] = { "ptx", "stub", "brackets", "none", "unknown" };

static double real(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

json_t *cli_probe_target(const char *program)
{
	char *end = NULL;
	unsigned long long n;

	if (!program) {
		return json_object();
	}
	errno = 0;
	n = strtoull(program, &end, 10);
	return program[0] >= '0' && program[0] <= '9' && !*end && !errno && n <= INT64_MAX
		       ? json_pack("{s:I}", "to", (json_int_t)n)
		       : json_pack("{s:s}", "to", program);
}

static void add_kernels(struct cli_table *t, const json_t *tenant)
{
	const json_t *k;
	size_t i;

	json_array_foreach(json_object_get(tenant, "kernels"), i, k)
	{
		cli_table_cell(t, "%llu", (unsigned long long)cli_u64(tenant, "pid"));
		cli_table_cell(t, "%s", cli_text(tenant, "name"));
		cli_table_cell(t, "%s", cli_text(k, "name"));
		cli_table_cell(t, "%s", cli_text(k, "form"));
		cli_table_cell(t, "%llu", (unsigned long long)cli_u64(k, "launches"));
		cli_table_cell(t, "%llu", (unsigned long long)cli_u64(k, "graph_launches"));
		cli_table_cell(t, "%.1f %%", 100 * real(k, "share"));
		cli_table_cell(t, "%.1f %%", 100 * real(k, "share_ns"));
		cli_table_cell(t, "%s", cli_text(k, "why"));
	}
}

static void print_kernels(const struct cli *c, const json_t *tenants)
{
	static const struct {
		const char *name;
		bool right;
	} heads[] = { { "PID", true },	 { "PROGRAM", false }, { "KERNEL", false },
		      { "FORM", false }, { "LAUNCHES", true }, { "IN GRAPHS", true },
		      { "SHARE", true }, { "GPU TIME", true }, { "WHY", false } };
	struct cli_table t;
	const json_t *tenant;
	size_t i;

	cli_table_init(&t);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i].name, heads[i].right);
	}
	json_array_foreach(tenants, i, tenant)
	{
		add_kernels(&t, tenant);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
}

/* One line for each program: "4711 train: ptx 97.1 % of launches, 99.0 % of GPU time; ...". */
static void print_sums(const json_t *tenants)
{
	const json_t *tenant;
	size_t i;

	json_array_foreach(tenants, i, tenant)
	{
		const char *between = ": ";

		printf("%llu ", (unsigned long long)cli_u64(tenant, "pid"));
		cli_put_safe(stdout, cli_text(tenant, "name"));
		for (unsigned f = 0; f < ARRAY_SIZE(forms); f++) {
			const json_t *o =
				json_object_get(json_object_get(tenant, "forms"), forms[f]);

			if (cli_u64(o, "launches")) {
				printf("%s%s %.1f %% of launches, %.1f %% of GPU time", between,
				       forms[f], 100 * real(o, "share"), 100 * real(o, "share_ns"));
				between = "; ";
			}
		}
		puts(between[0] == ':' ? ": no launches" : "");
	}
}

static void note_late(struct cli *c, const json_t *tenants)
{
	const json_t *tenant;
	size_t i;

	json_array_foreach(tenants, i, tenant)
	{
		if (!json_is_true(json_object_get(tenant, "answered"))) {
			cli_note(c, "%llu has not answered in time; ask again",
				 (unsigned long long)cli_u64(tenant, "pid"));
		}
	}
}

static void note_divided(struct cli *c, const json_t *tenants)
{
	const json_t *tenant;
	size_t i;

	json_array_foreach(tenants, i, tenant)
	{
		if (cli_u64(tenant, "divided_ns")) {
			cli_note(c,
				 "GPU time of graphs of %llu is divided evenly among their "
				 "kernels: durations of these alone are not known",
				 (unsigned long long)cli_u64(tenant, "pid"));
		}
	}
}

static int cmd_coverage(struct cli *c)
{
	json_t *params = cli_probe_target(c->n_args ? c->arg[0] : NULL), *result = NULL, *tenants;
	int code;

	if (!params) {
		return cli_fail(c, CLI_USAGE, "usage", "`gbpf ps` lists programs",
				"probe coverage: invalid name of a program");
	}
	code = cli_call(c, "probe coverage", "probe.coverage", params, &result);
	if (code) {
		return code;
	}
	tenants = json_object_get(result, "tenants");
	note_late(c, tenants);
	if (c->json) {
		return cli_json(c, "probe.coverage", result);
	}
	if (json_array_size(tenants)) {
		print_kernels(c, tenants);
		print_sums(tenants);
		note_divided(c, tenants);
	} else {
		cli_note(c, "No program runs under gBPF.");
	}
	json_decref(result);
	return CLI_OK;
}

const struct cli_verb verb_probe_coverage = {
	.name = "coverage",
	.args = "[PID|NAME]",
	.doc = "list which kernels can be probed, and how",
	.page = "gbpf-probe.1",
	.max_args = 1,
	.run = cmd_coverage,
};
