/* `gbpf policy list` and `show`: the stored versions, and the details of one. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "cli/connect.h"
#include "cli/verbs.h"

/* Appends "submit, retire"; the reply has names or objects with a name. */
static void hook_names(struct buf *out, const json_t *hooks)
{
	json_t *h;
	size_t i;

	json_array_foreach(hooks, i, h)
	{
		const char *name = json_is_string(h) ? json_string_value(h) : cli_text(h, "hook");

		buf_printf(out, "%s%s", i ? ", " : "", name);
	}
}

/* A version that was rolled back is marked; if several GPUs are known an active one has its own,
 * and those that are led are marked. */
static void state_text(struct buf *out, const json_t *v, const json_t *known_gpus)
{
	const char *state = cli_text(v, "state");
	bool back = strcmp(state, "kept") == 0 && strcmp(cli_text(v, "ended"), "rollback") == 0;
	const json_t *gpu;
	size_t i;

	buf_printf(out, "%s", back ? "rolled back" : state);
	json_array_foreach(json_array_size(known_gpus) > 1 ? json_object_get(v, "gpus") : NULL, i,
			   gpu)
	{
		json_int_t n = json_integer_value(gpu);

		buf_printf(out, "%s%lld%s", i ? ", " : " on GPU ", (long long)n,
			   cli_has_number(json_object_get(v, "led"), n) ? " (led)" : "");
	}
}

static int cmd_list(struct cli *c)
{
	static const char *const heads[] = { "NAME", "STATE", "LOADED", "LICENSE", "HOOKS" };
	json_t *result = NULL, *v;
	struct cli_table t;
	size_t i;
	int code = cli_call(c, "policy list", "policy.list", NULL, &result);

	if (code != CLI_OK) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "policy.list", result);
	}
	cli_table_init(&t);
	cli_table_column(&t, "VERSION", true);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i], false);
	}
	json_array_foreach(json_object_get(result, "versions"), i, v)
	{
		struct buf hooks = { 0 }, state = { 0 };
		char when[40];

		hook_names(&hooks, json_object_get(v, "hooks"));
		state_text(&state, v, json_object_get(result, "known_gpus"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(v, "version"));
		cli_table_cell(&t, "%s%s%s", cli_text(v, "name"),
			       cli_text(v, "author_version")[0] ? " " : "",
			       cli_text(v, "author_version"));
		cli_table_cell(&t, "%s", buf_text(&state));
		cli_table_cell(&t, "%s", cli_when(when, cli_u64(v, "loaded_wall_ns")));
		cli_table_cell(&t, "%s", cli_text(v, "license"));
		cli_table_cell(&t, "%s", buf_text(&hooks));
		buf_finish(&hooks);
		buf_finish(&state);
	}
	if (t.n) {
		cli_table_print(&t, stdout, c->color_out);
	} else {
		cli_note(c,
			 "No policy is loaded: nothing is held. Load one: gbpf policy load fair");
	}
	cli_table_finish(&t);
	json_decref(result);
	return CLI_OK;
}

static void print_value(const char *key, const json_t *v)
{
	struct buf safe = { 0 };

	if (json_is_string(v)) {
		cli_safe_text(&safe, json_string_value(v));
		printf("  %-20s %s\n", key, buf_text(&safe));
	} else if (json_is_integer(v)) {
		printf("  %-20s %lld\n", key, (long long)json_integer_value(v));
	}
	buf_finish(&safe);
}

static void print_hooks(struct cli *c, const json_t *hooks)
{
	struct cli_table t;
	json_t *h;
	size_t i;

	cli_table_init(&t);
	cli_table_column(&t, "  HOOK", false);
	cli_table_column(&t, "INSNS", true);
	cli_table_column(&t, "WORST PATH", true);
	json_array_foreach(hooks, i, h)
	{
		cli_table_cell(&t, "  %s",
			       json_is_string(h) ? json_string_value(h) : cli_text(h, "hook"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(h, "insns"));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(h, "cost"));
	}
	if (t.n) {
		cli_table_print(&t, stdout, c->color_out);
	}
	cli_table_finish(&t);
}

static void print_maps(const json_t *maps)
{
	json_t *m;
	size_t i;

	json_array_foreach(maps, i, m)
	{
		if (json_is_string(m)) {
			print_value("map", m);
			continue;
		}
		const char *scope = cli_text(m, "scope");

		printf("  map %s: %s%s", cli_text(m, "name"), cli_text(m, "type"),
		       cli_text(m, "type")[0] ? " of " : "");
		if (cli_u64(m, "value_bytes")) {
			printf("%llu x ", (unsigned long long)cli_u64(m, "max_entries"));
		}
		printf("%llu bytes%s%s\n",
		       (unsigned long long)(cli_u64(m, "value_bytes") ? cli_u64(m, "value_bytes")
								      : cli_u64(m, "max_entries")),
		       scope[0] ? ", " : "",
		       strcmp(scope, "tenant") == 0 ? "one for each program" : scope);
	}
}

static void print_notes(const json_t *notes)
{
	json_t *n;
	size_t i;

	json_array_foreach(notes, i, n)
	{
		if (json_integer_value(n)) {
			printf("  note %-15zu %lld\n", i, (long long)json_integer_value(n));
		}
	}
}

/* Prints hooks whose programs failed at run time: "  submit failed: 3 helper errors, 1 slow". */
static void print_failures(const json_t *failures)
{
	static const struct {
		const char *key, *one, *many;
	} kinds[] = { { "helper_errors", "helper error", "helper errors" },
		      { "verdict_errors", "verdict out of range", "verdicts out of range" },
		      { "stale_epochs", "call that outlived its epoch",
			"calls that outlived their epochs" },
		      { "slow", "slow call", "slow calls" } };
	json_t *f;
	size_t i;

	json_array_foreach(failures, i, f)
	{
		const char *sep = ": ";

		printf("  %s failed", cli_text(f, "hook"));
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
			uint64_t n = cli_u64(f, kinds[k].key);

			if (n) {
				printf("%s%llu %s", sep, (unsigned long long)n,
				       n == 1 ? kinds[k].one : kinds[k].many);
				sep = ", ";
			}
		}
		putchar('\n');
	}
}

static void print_version(struct cli *c, const json_t *result)
{
	const json_t *counters = json_object_get(result, "counters");
	struct buf state = { 0 };
	const char *key;
	json_t *v;
	char when[40];

	state_text(&state, result, json_object_get(result, "known_gpus"));
	printf("%s@%llu: %s%s%s, loaded %s, license %s\n", cli_text(result, "name"),
	       (unsigned long long)cli_u64(result, "version"), buf_text(&state),
	       cli_text(result, "author_version")[0] ? ", version " : "",
	       cli_text(result, "author_version"),
	       cli_when(when, cli_u64(result, "loaded_wall_ns")), cli_text(result, "license"));
	buf_finish(&state);
	print_hooks(c, json_object_get(result, "hooks"));
	print_maps(json_object_get(result, "maps"));
	json_object_foreach((json_t *)unqual(counters), key, v)
	{
		print_value(key, v);
		if (strcmp(key, "notes") == 0) {
			print_notes(v);
		} else if (strcmp(key, "failures") == 0) {
			print_failures(v);
		}
	}
}

static int cmd_show(struct cli *c)
{
	json_t *params = json_object(), *result = NULL;
	uint64_t version = 0;
	int code;

	if (c->n_args && cli_number(c, "VERSION", c->arg[0], 1, INT64_MAX, &version)) {
		json_decref(params);
		return CLI_USAGE;
	}
	if (version) {
		json_object_set_new(params, "version", json_integer((json_int_t)version));
	}
	code = cli_call(c, "policy show", "policy.show", params, &result);
	if (code != CLI_OK) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "policy.show", result);
	}
	print_version(c, result);
	json_decref(result);
	return CLI_OK;
}

const struct cli_verb verb_policy_list = {
	.name = "list",
	.args = "",
	.doc = "list the active and the stored versions",
	.page = "gbpf-policy.1",
	.run = cmd_list,
};

const struct cli_verb verb_policy_show = {
	.name = "show",
	.args = "[VERSION]",
	.doc = "show hooks, maps, costs and counters of a version",
	.page = "gbpf-policy.1",
	.max_args = 1,
	.run = cmd_show,
};
