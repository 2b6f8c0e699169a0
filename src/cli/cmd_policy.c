/* `gbpf policy`: the group, and the verbs that change the active policy. */
#include <stdlib.h>
#include <string.h>

#include "cli/connect.h"
#include "cli/policy_file.h"
#include "cli/verbs.h"
#include "cli/watch_swap.h"

/* Stores "lc_first@3" of the active policy, or "" on any error: it is used for information only. */
static void active_policy(struct gbpf *g, char out[80])
{
	char *json = NULL;
	json_t *list = gbpf_policy_list(g, &json) < 0 ? NULL : json_loads(json, 0, NULL);
	uint64_t active = cli_u64(list, "active");
	const json_t *v;
	size_t i;

	out[0] = 0;
	json_array_foreach(json_object_get(list, "versions"), i, v)
	{
		if (active && cli_u64(v, "version") == active) {
			snprintf(out, 80, "%.40s@%llu", cli_text(v, "name"),
				 (unsigned long long)active);
		}
	}
	json_decref(list);
	free(json);
}

/* --keep-maps: prints which maps were carried over and which start empty although the previous
 * version had them. */
static void print_maps_kept(const json_t *maps)
{
	const char *sep = "kept ";
	json_t *m;
	size_t i;

	json_array_foreach(maps, i, m)
	{
		if (json_is_true(json_object_get(m, "kept"))) {
			printf("%s%s", sep, cli_text(m, "map"));
			sep = ", ";
		}
	}
	if (sep[0] == ',') {
		putchar('\n');
	}
	json_array_foreach(maps, i, m)
	{
		if (json_is_false(json_object_get(m, "kept"))) {
			printf("not kept: %s %s\n", cli_text(m, "map"), cli_text(m, "reason"));
		}
	}
}

/* Prints "swapped lc_first@3 → fair@4 in 412 µs; 2 programs had it ready, longest pause so far 80
 * ns". The call that first sees the new version records the pause, so this swap's own is not
 * included yet. */
static void print_change(const struct cli *c, const char *verb, const char *was, const json_t *r)
{
	uint64_t acked = cli_u64(r, "acked"), late = cli_u64(r, "late"),
		 stall = cli_u64(r, "stall_ns");
	char t[24];

	if (c->quiet) {
		return;
	}
	printf("%s %s%s%s%s%s@%llu in %s", verb, was, was[0] ? " " : "", was[0] ? CLI_SIGN_TO : "",
	       was[0] ? " " : "", cli_text(r, "name"), (unsigned long long)cli_u64(r, "version"),
	       cli_duration(t, cli_u64(r, "flip_ns") + cli_u64(r, "waited_ns")));
	if (acked + late) {
		printf("; %llu program%s had it ready", (unsigned long long)acked,
		       acked == 1 ? "" : "s");
	}
	if (late) {
		printf(", %llu will follow", (unsigned long long)late);
	}
	if (stall) {
		printf(", longest pause so far %s", cli_duration(t, stall));
	}
	if (json_is_true(json_object_get(r, "volatile"))) {
		printf("; volatile, until gbpfd exits");
	}
	putchar('\n');
	print_maps_kept(json_object_get(r, "maps"));
}

enum { O_KEEP_MAPS, O_VOLATILE, O_WATCH, O_ROLLBACK_IF, O_DETACH };

#define KEEP_MAPS                                                                                  \
	[O_KEEP_MAPS] = { "keep-maps", 0, NULL, "maps that both versions have keep their contents" }

#define VOLATILE                                                                                   \
	[O_VOLATILE] = { "volatile", 0, NULL, "do not store it: it lasts until gbpfd exits" }

static const struct cli_option load_options[] = {
	KEEP_MAPS,
	VOLATILE,
	{ NULL, 0, NULL, NULL },
};

static const struct cli_option rollback_options[] = {
	KEEP_MAPS,
	{ NULL, 0, NULL, NULL },
};

static const struct cli_option swap_options[] = {
	KEEP_MAPS,
	VOLATILE,
	[O_WATCH] = { "watch", 0, "TIME", "monitor the new version for TIME" },
	[O_ROLLBACK_IF] = { "rollback-if", 0, "CONDITION",
			    "roll back as soon as this holds, such as 'p99>6ms'" },
	[O_DETACH] = { "detach", 0, NULL, "do not wait for the end of the watch" },
	{ NULL, 0, NULL, NULL },
};

static int load(struct cli *c, const char *what, const char *verb, unsigned flags)
{
	struct buf elf = { 0 };
	struct gbpf *g = NULL;
	json_t *result = NULL;
	char *json = NULL;
	char was[80] = "", name[64];
	uint64_t watch_ns = 0;
	int rc, code, end = CLI_OK;

	code = cli_watch_options(c, c->opt[O_WATCH], c->opt[O_ROLLBACK_IF],
				 c->opt[O_DETACH] != NULL, &watch_ns);
	if (code == CLI_OK) {
		code = cli_policy_read(c, what, c->arg, c->n_args, &elf, name);
	}
	if (code == CLI_OK) {
		code = cli_open(c, &g);
	}
	if (code == CLI_OK) {
		if (!c->json) {
			active_policy(g, was);
		}
		flags |= c->opt[O_KEEP_MAPS] ? GBPF_LOAD_KEEP_MAPS : 0;
		flags |= c->opt[O_VOLATILE] ? GBPF_LOAD_VOLATILE : 0;
		rc = gbpf_policy_load_watched(g, elf.data, elf.len, name, flags, watch_ns,
					      c->opt[O_ROLLBACK_IF], &json);
		code = cli_result(c, g, what, rc, json, &result);
	}
	buf_finish(&elf);
	if (code == CLI_OK && !c->json) {
		print_change(c, was[0] ? verb : "loaded", was, result);
	}
	if (code == CLI_OK && watch_ns && !c->opt[O_DETACH]) {
		json_t *watch = NULL;

		fflush(stdout);
		end = cli_watch_await(c, g, cli_u64(result, "version"), &watch);
		if (!watch) { /* gbpfd has exited; the error was printed */
			code = end;
		}
		json_object_set_new(result, "watch", watch ? watch : json_null());
	}
	gbpf_close(g);
	if (code != CLI_OK) {
		json_decref(result);
		return code;
	}
	if (c->json) {
		code = cli_json(c, (flags & GBPF_LOAD_SWAP) ? "policy.swap" : "policy.load",
				result);
		return end ? end : code;
	}
	json_decref(result);
	return end;
}

static int cmd_load(struct cli *c)
{
	return load(c, "policy load", "loaded", 0);
}

static int cmd_swap(struct cli *c)
{
	return load(c, "policy swap", "swapped", GBPF_LOAD_SWAP);
}

static int cmd_rollback(struct cli *c)
{
	struct gbpf *g = NULL;
	json_t *result = NULL;
	char *json = NULL;
	uint64_t version = 0;
	char was[80];
	int rc, code;

	if (c->n_args && cli_number(c, "VERSION", c->arg[0], 1, INT64_MAX, &version)) {
		return CLI_USAGE;
	}
	code = cli_open(c, &g);
	if (code == CLI_OK) {
		if (!c->json) {
			active_policy(g, was);
		}
		rc = gbpf_policy_activate(g, version, c->opt[O_KEEP_MAPS] ? GBPF_LOAD_KEEP_MAPS : 0,
					  &json);
		code = cli_result(c, g, "policy rollback", rc, json, &result);
	}
	gbpf_close(g);
	if (code != CLI_OK) {
		return code;
	}
	code = cli_check_stored(c, "policy rollback", result);
	if (c->json) {
		rc = cli_json(c, "policy.rollback", result);
		return rc ? rc : code;
	}
	print_change(c, "rolled back", was, result);
	json_decref(result);
	return code;
}

static int cmd_unload(struct cli *c)
{
	json_t *result = NULL;
	int code = cli_call(c, "policy unload", "policy.unload", NULL, &result);

	if (code != CLI_OK) {
		return code;
	}
	code = cli_check_stored(c, "policy unload", result);
	if (c->json) {
		int rc = cli_json(c, "policy.unload", result);

		return rc ? rc : code;
	}
	if (cli_u64(result, "version") && !c->quiet) {
		printf("unloaded version %llu; nothing is held now\n",
		       (unsigned long long)cli_u64(result, "version"));
	} else if (!cli_u64(result, "version")) {
		cli_note(c, "No policy was active.");
	}
	json_decref(result);
	return code;
}

static const struct cli_verb *const subs[] = {
	&verb_policy_new,
	&verb_policy_build,
	&verb_policy_check,
	&verb_policy_test,
	&verb_policy_load,
	&verb_policy_swap,
	&verb_policy_watch,
	&verb_policy_rollback,
	&verb_policy_unload,
	&verb_policy_list,
	&verb_policy_show,
	&verb_policy_exec,
	NULL,
};

const struct cli_verb verb_policy = {
	.name = "policy",
	.args = "...",
	.doc = "write, check, test, load and swap policies",
	.page = "gbpf-policy.1",
	.subs = subs,
};

const struct cli_verb verb_policy_load = {
	.name = "load",
	.args = "NAME|OBJECT...",
	.doc = "verify a policy and make it the active one",
	.page = "gbpf-policy.1",
	.options = load_options,
	.min_args = 1,
	.max_args = -1,
	.run = cmd_load,
};

const struct cli_verb verb_policy_swap = {
	.name = "swap",
	.args = "NAME|OBJECT...",
	.doc = "replace the active policy while programs run",
	.page = "gbpf-policy.1",
	.options = swap_options,
	.min_args = 1,
	.max_args = -1,
	.run = cmd_swap,
};

const struct cli_verb verb_policy_rollback = {
	.name = "rollback",
	.args = "[VERSION]",
	.doc = "return to the previous version, or to a stored one",
	.page = "gbpf-policy.1",
	.options = rollback_options,
	.max_args = 1,
	.run = cmd_rollback,
};

const struct cli_verb verb_policy_unload = {
	.name = "unload",
	.args = "",
	.doc = "run without a policy: nothing is held",
	.page = "gbpf-policy.1",
	.run = cmd_unload,
};
