/* `gbpf policy`: the group, and the verbs that change the active policy. */
#include <stdlib.h>
#include <string.h>

#include "cli/connect.h"
#include "cli/policy_file.h"
#include "cli/verbs.h"
#include "cli/watch_swap.h"

#define SHOWN_WAIT_NS 1000000u

enum { O_GPU, O_KEEP_MAPS, O_VOLATILE, O_WATCH, O_ROLLBACK_IF, O_DETACH };

/* Stores the number of --gpu, -1 without it. */
static int gpu_option(struct cli *c, int *ret)
{
	uint64_t gpu;

	*ret = -1;
	if (!c->opt[O_GPU]) {
		return CLI_OK;
	}
	if (cli_number(c, "--gpu", c->opt[O_GPU], 0, INT32_MAX, &gpu)) {
		return CLI_USAGE;
	}
	*ret = (int)gpu;
	return CLI_OK;
}

/* As cli_open(); operations on policies are about that GPU then; -1: about all. */
static int open_on(struct cli *c, int gpu, struct gbpf **ret)
{
	int code = cli_open(c, ret);

	if (code == CLI_OK) {
		gbpf_on_gpu(*ret, gpu);
	}
	return code;
}

/* Returns " on GPU 1" with --gpu, or "". */
static const char *where(const struct cli *c, char out[24])
{
	snprintf(out, 24, "%s%.12s", c->opt[O_GPU] ? " on GPU " : "",
		 c->opt[O_GPU] ? c->opt[O_GPU] : "");
	return out;
}

/* Adds "lc_first@3, fair@4": the active policies, with --gpu that of this GPU; nothing on any
 * error, since it is used for information only. Returns whether gbpfd knows that GPU. */
static bool active_policies(const struct cli *c, struct gbpf *g, struct buf *out)
{
	char *json = NULL;
	json_t *list = gbpf_policy_list(g, &json) < 0 ? NULL : json_loads(json, 0, NULL);
	json_int_t gpu = c->opt[O_GPU] ? strtoll(c->opt[O_GPU], NULL, 10) : -1;
	bool known = !list || gpu < 0 || cli_has_number(json_object_get(list, "known_gpus"), gpu);
	const json_t *v;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, v)
	{
		if (gpu >= 0 ? cli_has_number(json_object_get(v, "gpus"), gpu)
			     : strcmp(cli_text(v, "state"), "active") == 0) {
			buf_printf(out, "%s%s@%llu", out->len ? ", " : "", cli_text(v, "name"),
				   (unsigned long long)cli_u64(v, "version"));
		}
	}
	json_decref(list);
	free(json);
	return known;
}

/* After an operation on a GPU that gbpfd does not know. */
static void note_unknown(struct cli *c, bool known)
{
	if (!known) {
		cli_note(c, "No program has used GPU %s yet: this takes effect when one does.",
			 c->opt[O_GPU]);
	}
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

/* Prints " (verified in 1.1 s, swapped in 566 µs)", whose sum is the time of the operation, and
 * what it waited for if that took a millisecond. */
static void print_times(const json_t *r)
{
	uint64_t queued = cli_u64(r, "queued_ns"), waited = cli_u64(r, "waited_ns");
	char t[24];

	if (json_is_true(json_object_get(r, "verified_before"))) {
		printf(" (verified before");
	} else {
		printf(" (verified in %s", cli_duration(t, cli_u64(r, "verify_ns")));
	}
	if (queued >= SHOWN_WAIT_NS) {
		printf(", waited %s for other operations", cli_duration(t, queued));
	}
	printf(", swapped in %s", cli_duration(t, cli_u64(r, "swap_ns")));
	if (waited >= SHOWN_WAIT_NS) {
		printf(", %s of it for programs", cli_duration(t, waited));
	}
	printf(")");
}

/* Prints "swapped lc_first@3 → fair@4 in 1.1 s (verified in 1.1 s, swapped in 566 µs); 2 programs
 * had it ready, longest pause so far 80 ns". The call that first sees the new version records the
 * pause, so this swap's own is not included yet. */
static void print_change(const struct cli *c, const char *verb, const char *was, const json_t *r)
{
	uint64_t acked = cli_u64(r, "acked"), late = cli_u64(r, "late"),
		 stall = cli_u64(r, "stall_ns");
	char t[24], gpu[24];

	if (c->quiet) {
		return;
	}
	printf("%s %s%s%s%s%s@%llu%s in %s", verb, was, was[0] ? " " : "",
	       was[0] ? CLI_SIGN_TO : "", was[0] ? " " : "", cli_text(r, "name"),
	       (unsigned long long)cli_u64(r, "version"), where(c, gpu),
	       cli_duration(t, cli_u64(r, "total_ns")));
	print_times(r);
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

#define GPU [O_GPU] = { "gpu", 0, "NUMBER", "on this GPU alone (default: on all)" }

#define KEEP_MAPS                                                                                  \
	[O_KEEP_MAPS] = { "keep-maps", 0, NULL, "maps that both versions have keep their contents" }

#define VOLATILE                                                                                   \
	[O_VOLATILE] = { "volatile", 0, NULL, "do not store it: it lasts until gbpfd exits" }

static const struct cli_option load_options[] = {
	GPU,
	KEEP_MAPS,
	VOLATILE,
	{ NULL, 0, NULL, NULL },
};

static const struct cli_option rollback_options[] = {
	GPU,
	KEEP_MAPS,
	{ NULL, 0, NULL, NULL },
};

static const struct cli_option unload_options[] = {
	GPU,
	{ NULL, 0, NULL, NULL },
};

static const struct cli_option swap_options[] = {
	GPU,
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
	struct buf elf = { 0 }, was = { 0 };
	struct gbpf *g = NULL;
	json_t *result = NULL;
	char *json = NULL;
	char name[64];
	uint64_t watch_ns = 0;
	int rc, code, end = CLI_OK, gpu;
	bool known = true;

	code = cli_watch_options(c, c->opt[O_WATCH], c->opt[O_ROLLBACK_IF],
				 c->opt[O_DETACH] != NULL, &watch_ns);
	if (code == CLI_OK) {
		code = gpu_option(c, &gpu);
	}
	if (code == CLI_OK) {
		code = cli_object_read(c, CLI_POLICY, what, c->arg, c->n_args, &elf, name);
	}
	if (code == CLI_OK) {
		code = open_on(c, gpu, &g);
	}
	if (code == CLI_OK) {
		if (!c->json) {
			known = active_policies(c, g, &was);
		}
		flags |= c->opt[O_KEEP_MAPS] ? GBPF_LOAD_KEEP_MAPS : 0;
		flags |= c->opt[O_VOLATILE] ? GBPF_LOAD_VOLATILE : 0;
		rc = gbpf_policy_load_watched(g, elf.data, elf.len, name, flags, watch_ns,
					      c->opt[O_ROLLBACK_IF], &json);
		code = cli_result(c, g, what, rc, json, &result);
	}
	buf_finish(&elf);
	if (code == CLI_OK && !c->json) {
		print_change(c, was.len ? verb : "loaded", buf_text(&was), result);
		note_unknown(c, known);
	}
	buf_finish(&was);
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
	struct buf was = { 0 };
	struct gbpf *g = NULL;
	json_t *result = NULL;
	char *json = NULL;
	uint64_t version = 0;
	int rc, code, gpu;
	bool known = true;

	if (c->n_args && cli_number(c, "VERSION", c->arg[0], 1, INT64_MAX, &version)) {
		return CLI_USAGE;
	}
	code = gpu_option(c, &gpu);
	if (code == CLI_OK) {
		code = open_on(c, gpu, &g);
	}
	if (code == CLI_OK) {
		if (!c->json) {
			known = active_policies(c, g, &was);
		}
		rc = gbpf_policy_activate(g, version, c->opt[O_KEEP_MAPS] ? GBPF_LOAD_KEEP_MAPS : 0,
					  &json);
		code = cli_result(c, g, "policy rollback", rc, json, &result);
	}
	gbpf_close(g);
	if (code == CLI_OK) {
		code = cli_check_stored(c, "policy rollback", result);
		if (c->json) {
			rc = cli_json(c, "policy.rollback", result);
			code = rc ? rc : code;
		} else {
			print_change(c, "rolled back", buf_text(&was), result);
			note_unknown(c, known);
			json_decref(result);
		}
	}
	buf_finish(&was);
	return code;
}

static int cmd_unload(struct cli *c)
{
	struct buf was = { 0 };
	struct gbpf *g = NULL;
	json_t *result = NULL;
	char *json = NULL;
	char gpu_text[24];
	int rc, gpu, code = gpu_option(c, &gpu);

	if (code == CLI_OK) {
		code = open_on(c, gpu, &g);
	}
	if (code == CLI_OK) {
		if (!c->json) {
			(void)active_policies(c, g, &was);
		}
		rc = gbpf_policy_unload(g, &json);
		code = cli_result(c, g, "policy unload", rc, json, &result);
	}
	gbpf_close(g);
	if (code == CLI_OK) {
		code = cli_check_stored(c, "policy unload", result);
		if (c->json) {
			rc = cli_json(c, "policy.unload", result);
			code = rc ? rc : code;
		} else {
			if (!was.len) {
				buf_printf(&was, "version %llu",
					   (unsigned long long)cli_u64(result, "version"));
			}
			if (!c->quiet) {
				printf("unloaded %s%s; nothing is held %s\n", buf_text(&was),
				       where(c, gpu_text), c->opt[O_GPU] ? "there" : "now");
			}
			json_decref(result);
		}
	}
	buf_finish(&was);
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
	.options = unload_options,
	.run = cmd_unload,
};
