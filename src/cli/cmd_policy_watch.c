/* `gbpf policy watch`: shows the watch of `policy swap --watch`, or ends it. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "cli/connect.h"
#include "cli/verbs.h"
#include "cli/watch_swap.h"

enum { O_CANCEL };

static const struct cli_option options[] = {
	[O_CANCEL] = { "cancel", 0, NULL, "end the watch; the version stays active" },
	{ NULL, 0, NULL, NULL },
};

static double seconds(const json_t *w, const char *key)
{
	return (double)cli_u64(w, key) / 1e9;
}

static void version_text(uint64_t version, char out[48])
{
	snprintf(out, 48, version ? "version %llu" : "no policy", (unsigned long long)version);
}

/* A condition has passed gbpfd's parser, which refuses control characters; a name may be anything.
 */
static void print_name(const json_t *w)
{
	struct buf safe = { 0 };

	cli_safe_text(&safe, cli_text(w, "name"));
	printf("%s@%llu", buf_text(&safe), (unsigned long long)cli_u64(w, "version"));
	buf_finish(&safe);
}

static void print_values(const json_t *w)
{
	json_t *v;
	size_t i;

	json_array_foreach(json_object_get(w, "values"), i, v)
	{
		printf("  %-24s %s\n", cli_text(v, "metric"), cli_text(v, "text"));
	}
}

static void print_running(const json_t *w)
{
	double passed = seconds(w, "passed_ns"), total = seconds(w, "watch_ns");
	char to[48];

	version_text(cli_u64(w, "before"), to);
	printf("watching ");
	print_name(w);
	printf(": %.0f s of %.0f s, %.0f s left%s\n", passed, total, total - passed,
	       json_is_true(json_object_get(w, "resumed")) ? "; gbpfd was restarted meanwhile"
							   : "");
	printf("  %s to %s if %s\n",
	       strcmp(cli_text(w, "state"), "rolling-back") == 0 ? "is being rolled back"
								 : "rolls back",
	       to, cli_text(w, "condition"));
	print_values(w);
}

/* The last watch, when none runs. */
static void print_ended(const json_t *w)
{
	const char *state = cli_text(w, "state"), *reason = cli_text(w, "reason");
	char to[48];

	version_text(cli_u64(w, "before"), to);
	printf("no watch is running; the last one: ");
	print_name(w);
	if (strcmp(state, "rolled-back") == 0) {
		char took[24];

		printf(" was rolled back to %s in %s: %s\n", to,
		       cli_duration(took, cli_u64(w, "rollback_ns")), reason);
	} else if (strcmp(state, "kept") == 0 && reason[0]) {
		printf(" stays: %s was %s\n", cli_text(w, "condition"), reason);
	} else if (strcmp(state, "kept") == 0) {
		printf(" stays: %s did not happen in %.3g s\n", cli_text(w, "condition"),
		       seconds(w, "watch_ns"));
	} else {
		printf(": ended early: %s\n", reason);
	}
}

static int cancel(struct cli *c, json_t *params)
{
	json_t *w = NULL;
	int code = cli_call(c, "policy watch", "policy.watch_cancel", params, &w);

	if (code != CLI_OK) {
		return code;
	}
	code = cli_check_stored(c, "policy watch", w);
	if (c->json) {
		int rc = cli_json(c, "policy.watch", w);

		return rc ? rc : code;
	}
	if (!c->quiet) {
		printf("the watch of ");
		print_name(w);
		printf(" is cancelled after %.0f s; the version stays\n", seconds(w, "passed_ns"));
	}
	json_decref(w);
	return code;
}

static int cmd_watch(struct cli *c)
{
	json_t *params, *w = NULL;
	uint64_t version = 0;
	int code;

	if (c->n_args && cli_number(c, "VERSION", c->arg[0], 1, INT64_MAX, &version)) {
		return CLI_USAGE;
	}
	params = version ? json_pack("{s:I}", "version", (json_int_t)version) : NULL;
	if (c->opt[O_CANCEL]) {
		return cancel(c, params);
	}
	code = cli_call(c, "policy watch", "policy.watch", params, &w);
	if (code != CLI_OK) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "policy.watch", w);
	}
	if (cli_watch_runs(w)) {
		print_running(w);
	} else {
		print_ended(w);
	}
	json_decref(w);
	return CLI_OK;
}

const struct cli_verb verb_policy_watch = {
	.name = "watch",
	.args = "[VERSION]",
	.doc = "show the watch of a swapped version, or cancel it",
	.page = "gbpf-policy.1",
	.options = options,
	.max_args = 1,
	.run = cmd_watch,
};
