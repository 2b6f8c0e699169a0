/* `gbpf policy`: the group, and its verbs that ask gbpfd for a change of the active policy. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/client.h"
#include "cli/verbs.h"

#define SUFFIX ".bpf.o"

/* Installed policies that are spelt like name. best is written when there is one. */
static bool nearest_policy(const char *name, char *best, size_t cap)
{
	char dir[PATH_MAX], word[64];
	struct nearest n;
	struct dirent *e;
	bool any = false;
	DIR *d;

	if (path_lib(dir, sizeof(dir), "policies") < 0 || !(d = opendir(dir))) {
		return false;
	}
	while ((e = readdir(d))) {
		size_t len = strlen(e->d_name);

		if (len <= strlen(SUFFIX) || len >= sizeof(word) ||
		    strcmp(e->d_name + len - strlen(SUFFIX), SUFFIX) != 0) {
			continue;
		}
		snprintf(word, sizeof(word), "%.*s", (int)(len - strlen(SUFFIX)), e->d_name);
		nearest_init(&n, name);
		nearest_offer(&n, word);
		if (nearest_best(&n)) {
			snprintf(best, cap, "%s", word);
			any = true;
		}
	}
	closedir(d);
	return any;
}

int cli_policy_find(struct cli *c, const char *what, const char *name, char *path, size_t cap)
{
	size_t len = strlen(name);
	bool is_file = strchr(name, '/') || (len > 2 && strcmp(name + len - 2, ".o") == 0);
	char leaf[128], best[64], hint[128];

	if (is_file) {
		snprintf(path, cap, "%s", name);
		if (len < cap && access(path, R_OK) == 0) {
			return CLI_OK;
		}
		return cli_fail(c, errno == ENOENT ? CLI_NOT_FOUND : CLI_FAILED, "not-found", NULL,
				"%s: %s: %s", what, name, strerror(errno));
	}
	if (len + sizeof("policies/" SUFFIX) <= sizeof(leaf)) {
		snprintf(leaf, sizeof(leaf), "policies/%s" SUFFIX, name);
		if (path_lib(path, cap, leaf) == 0 && access(path, R_OK) == 0) {
			return CLI_OK;
		}
	}
	snprintf(hint, sizeof(hint),
		 "Give an installed policy's name or the path of a .bpf.o file");
	if (len > 2 && strcmp(name + len - 2, ".c") == 0) {
		snprintf(hint, sizeof(hint),
			 "Compile it first, and give the .bpf.o file. See: man 7 gbpf-policy");
	} else if (access(name, R_OK) == 0) {
		snprintf(hint, sizeof(hint), "Did you mean the file './%.80s'?", name);
	} else if (nearest_policy(name, best, sizeof(best))) {
		snprintf(hint, sizeof(hint), "Did you mean '%s'?", best);
	}
	return cli_fail(c, CLI_NOT_FOUND, "not-found", hint, "%s: no policy '%s' is installed",
			what, name);
}

/* "lc_first@3" of the active policy, or "". Never fails: it is decoration. */
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

/* "swapped lc_first@3 → fair@4 in 412 µs; 2 programs had it ready, longest pause 80 ns" */
static void print_change(const char *verb, const char *was, const json_t *r)
{
	uint64_t acked = cli_u64(r, "acked"), late = cli_u64(r, "late"),
		 stall = cli_u64(r, "stall_ns");
	char t[24];

	printf("%s %s%s%s@%llu in %s", verb, was, was[0] ? " → " : "", cli_text(r, "name"),
	       (unsigned long long)cli_u64(r, "version"),
	       cli_duration(t, cli_u64(r, "flip_ns") + cli_u64(r, "waited_ns")));
	if (acked + late) {
		printf("; %llu program%s had it ready", (unsigned long long)acked,
		       acked == 1 ? "" : "s");
	}
	if (late) {
		printf(", %llu will follow", (unsigned long long)late);
	}
	if (stall) {
		printf(", longest pause %s", cli_duration(t, stall));
	}
	putchar('\n');
}

static int load(struct cli *c, const char *what, const char *verb, unsigned flags)
{
	char path[PATH_MAX], was[80];
	struct gbpf *g = NULL;
	json_t *result = NULL;
	char *json = NULL;
	int rc, code = cli_policy_find(c, what, c->arg[0], path, sizeof(path));

	if (code != CLI_OK) {
		return code;
	}
	code = cli_open(c, &g);
	if (code == CLI_OK) {
		if (!c->json) {
			active_policy(g, was);
		}
		rc = gbpf_policy_load(g, path, NULL, flags, &json);
		code = cli_result(c, g, what, rc, json, &result);
	}
	gbpf_close(g);
	if (code != CLI_OK) {
		return code;
	}
	if (c->json) {
		return cli_json(c, (flags & GBPF_LOAD_SWAP) ? "policy.swap" : "policy.load",
				result);
	}
	print_change(was[0] ? verb : "loaded", was, result);
	json_decref(result);
	return CLI_OK;
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
		rc = gbpf_policy_rollback(g, version, &json);
		code = cli_result(c, g, "policy rollback", rc, json, &result);
	}
	gbpf_close(g);
	if (code != CLI_OK) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "policy.rollback", result);
	}
	print_change("rolled back", was, result);
	json_decref(result);
	return CLI_OK;
}

static int cmd_unload(struct cli *c)
{
	json_t *result = NULL;
	int code = cli_call(c, "policy unload", "policy.unload", NULL, &result);

	if (code != CLI_OK) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "policy.unload", result);
	}
	if (cli_u64(result, "version")) {
		printf("unloaded version %llu; nothing is held now\n",
		       (unsigned long long)cli_u64(result, "version"));
	} else {
		cli_note(c, "No policy was active.");
	}
	json_decref(result);
	return CLI_OK;
}

static const struct cli_verb *const subs[] = {
	&verb_policy_load,   &verb_policy_swap, &verb_policy_rollback,
	&verb_policy_unload, &verb_policy_list, &verb_policy_show,
	&verb_policy_check,  &verb_policy_exec, NULL,
};

const struct cli_verb verb_policy = {
	.name = "policy",
	.args = "...",
	.doc = "load, swap, inspect and check policies",
	.page = "gbpf-policy.1",
	.subs = subs,
};

const struct cli_verb verb_policy_load = {
	.name = "load",
	.args = "NAME|FILE",
	.doc = "verify a policy and make it the active one",
	.page = "gbpf-policy.1",
	.min_args = 1,
	.max_args = 1,
	.run = cmd_load,
};

const struct cli_verb verb_policy_swap = {
	.name = "swap",
	.args = "NAME|FILE",
	.doc = "replace the active policy while programs run",
	.page = "gbpf-policy.1",
	.min_args = 1,
	.max_args = 1,
	.run = cmd_swap,
};

const struct cli_verb verb_policy_rollback = {
	.name = "rollback",
	.args = "[VERSION]",
	.doc = "go back to the version before, or to a kept one",
	.page = "gbpf-policy.1",
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
