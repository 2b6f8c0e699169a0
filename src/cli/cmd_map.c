/* `gbpf map`: the group; list, get, set and delete. */
#include <stdlib.h>
#include <string.h>

#include "cli/map_print.h"
#include "cli/verbs.h"

static const struct cli_option options[] = {
	CLI_MAP_TABLE,
	{ NULL, 0, NULL, NULL },
};

static const char *scope_text(const char *scope)
{
	return strcmp(scope, "tenant") == 0	? "each program"
	       : strcmp(scope, "device") == 0	? "each program, on the GPU"
	       : strcmp(scope, "host") == 0	? "each program, in pinned host memory"
	       : strcmp(scope, "block") == 0	? "each warp, in shared memory"
	       : strcmp(scope, "daemon") == 0	? "gbpfd only"
	       : strcmp(scope, "all-gpus") == 0 ? "gbpfd only, on all GPUs"
	       : strcmp(scope, "constant") == 0 ? "constant"
						: "all";
}

/* Shortens the type of a data section to its variables: "section .bss {u64 a, u64 b}". */
static const char *short_type(char *out, size_t cap, const char *type)
{
	const char *brace = strchr(type, '{');

	if (strncmp(type, "section", 7) == 0 && brace) {
		type = brace;
	}
	if ((size_t)snprintf(out, cap, "%s", type) >= cap) {
		memcpy(out + cap - 4, "...", 4);
	}
	return out;
}

static int cmd_list(struct cli *c)
{
	static const char *const heads[] = { "MAP", "TYPE", "OF", "KEY", "VALUE" };
	json_t *result = NULL, *v;
	struct cli_table t;
	struct cli_map m;
	char *json = NULL;
	char n[24], text[64];
	size_t i;
	int rc, code = cli_map_open(c, &m, NULL);

	if (code == CLI_OK) {
		rc = gbpf_map_list_of(m.g, &m.map, &json);
		code = cli_result(c, m.g, "map list", rc, json, &result);
	}
	cli_map_finish(&m);
	if (code != CLI_OK || c->json) {
		return code == CLI_OK ? cli_json(c, "map.list", result) : code;
	}
	cli_table_init(&t);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		cli_table_column(&t, heads[i], false);
	}
	cli_table_column(&t, "ENTRIES", true);
	cli_table_column(&t, "SIZE", true);
	json_array_foreach(json_object_get(result, "maps"), i, v)
	{
		cli_table_cell(&t, "%s", cli_text(v, "map"));
		cli_table_cell(&t, "%s", cli_text(v, "type"));
		cli_table_cell(&t, "%s", scope_text(cli_text(v, "scope")));
		cli_table_cell(&t, "%s", cli_text(v, "key"));
		cli_table_cell(&t, "%s", short_type(text, sizeof(text), cli_text(v, "value")));
		cli_table_cell(&t, "%llu", (unsigned long long)cli_u64(v, "max_entries"));
		cli_table_cell(&t, "%s", cli_bytes(n, cli_u64(v, "bytes")));
	}
	if (t.n) {
		cli_table_print(&t, stdout, c->color_out);
	} else {
		cli_note(c, "%s has no maps.", cli_text(result, "policy"));
	}
	cli_table_finish(&t);
	cli_map_note_gpu(c, result);
	json_decref(result);
	return CLI_OK;
}

/* A variable takes no key; map entries need one. */
static int check_key(struct cli *c, const struct cli_map *m, const char *what, bool given,
		     bool enough)
{
	if (m->variable && given) {
		return cli_fail(c, CLI_USAGE, "usage", "It has no keys",
				"%s: '%s' is a global variable", what, m->variable);
	}
	return enough ? CLI_OK
		      : cli_fail(c, CLI_USAGE, "usage", "See: gbpf help map get",
				 "%s: which entry? MAP KEY", what);
}

static int cmd_get(struct cli *c)
{
	json_t *result = NULL;
	struct cli_map m;
	char *json = NULL;
	int rc, code = cli_map_open(c, &m, c->arg[0]);

	if (code == CLI_OK) {
		code = cli_map_drain(c, &m, "map get");
	}
	if (code == CLI_OK) {
		code = cli_map_find_variable(c, &m, "map get");
	}
	if (code == CLI_OK) {
		code = check_key(c, &m, "map get", c->n_args > 1, m.variable || c->n_args > 1);
	}
	if (code == CLI_OK) {
		rc = gbpf_map_get(m.g, &m.map, m.variable ? "0" : c->arg[1], &json);
		code = cli_result(c, m.g, "map get", rc, json, &result);
		cli_map_keep_variable(&m, result);
	}
	if (code == CLI_OK && !c->json) {
		cli_map_print(c, &m, result);
		cli_map_note_gpu(c, result);
	}
	cli_map_finish(&m);
	if (code == CLI_OK && c->json) {
		return cli_json(c, "map.get", result);
	}
	json_decref(result);
	return code;
}

/* Prints the entry as it is now: "set accounts[0] = {used_ns=5}". */
static void print_done(const struct cli *c, const char *verb, const json_t *result)
{
	const json_t *entry = json_array_get(json_object_get(result, "entries"), 0);
	const json_t *value = json_object_get(entry, "value");
	struct buf text = { 0 };

	if (c->quiet) {
		return;
	}
	printf("%s %s", verb, c->arg[0]);
	if (json_object_get(entry, "key")) {
		cli_map_text(&text, json_object_get(entry, "key"), 200);
		printf("[%s]", buf_text(&text));
	}
	buf_clear(&text);
	if (value) {
		cli_map_text(&text, value, 400);
		printf(" = %s", buf_text(&text));
	}
	putchar('\n');
	buf_finish(&text);
}

static int done(struct cli *c, struct cli_map *m, const char *what, const char *schema,
		const char *verb, int rc, char *json)
{
	json_t *result = NULL;
	int code = cli_result(c, m->g, what, rc, json, &result);

	cli_map_keep_variable(m, result);
	if (code == CLI_OK && c->json) {
		return cli_json(c, schema, result);
	}
	if (code == CLI_OK) {
		print_done(c, verb, result);
	}
	json_decref(result);
	return code;
}

/* One word after the map is a value to push or to store in a variable; of two the first is the key.
 */
static int cmd_set(struct cli *c)
{
	const char *key = c->n_args > 2 ? c->arg[1] : NULL;
	struct buf value = { 0 };
	struct cli_map m;
	char *json = NULL;
	int rc, code = cli_map_open(c, &m, c->arg[0]);

	if (code == CLI_OK) {
		code = cli_map_find_variable(c, &m, "map set");
	}
	if (code == CLI_OK) {
		code = check_key(c, &m, "map set", key != NULL, true);
	}
	for (int i = key ? 2 : 1; i < c->n_args; i++) {
		buf_printf(&value, "%s%s%s%s", value.len ? ", " : "", m.variable ? m.variable : "",
			   m.variable ? "=" : "", c->arg[i]);
	}
	if (code == CLI_OK) {
		rc = gbpf_map_set(m.g, &m.map, m.variable ? "0" : key, buf_text(&value), &json);
		code = done(c, &m, "map set", "map.set", key || m.variable ? "set" : "pushed to",
			    rc, json);
	}
	cli_map_finish(&m);
	buf_finish(&value);
	return code;
}

static int cmd_delete(struct cli *c)
{
	const char *key = c->n_args > 1 ? c->arg[1] : NULL;
	struct cli_map m;
	char *json = NULL;
	int rc, code = cli_map_open(c, &m, c->arg[0]);

	if (code == CLI_OK) {
		rc = gbpf_map_delete(m.g, &m.map, key, &json);
		code = done(c, &m, "map delete", "map.delete", key ? "deleted" : "taken from", rc,
			    json);
	}
	cli_map_finish(&m);
	return code;
}

static const struct cli_verb *const subs[] = {
	&verb_map_list,	  &verb_map_dump,  &verb_map_get, &verb_map_set,
	&verb_map_delete, &verb_map_watch, NULL,
};

const struct cli_verb verb_map = {
	.name = "map",
	.args = "...",
	.doc = "inspect and change the maps of a policy or tool",
	.page = "gbpf-map.1",
	.subs = subs,
};

const struct cli_verb verb_map_list = {
	.name = "list",
	.args = "",
	.doc = "list the maps of the active policy, or of a tool",
	.page = "gbpf-map.1",
	.options = options,
	.run = cmd_list,
};

const struct cli_verb verb_map_get = {
	.name = "get",
	.args = "MAP [KEY]",
	.doc = "print one entry, or a global variable",
	.page = "gbpf-map.1",
	.options = options,
	.min_args = 1,
	.max_args = 2,
	.run = cmd_get,
};

const struct cli_verb verb_map_set = {
	.name = "set",
	.args = "MAP [KEY] VALUE...",
	.doc = "write an entry, a member of one, or a variable",
	.page = "gbpf-map.1",
	.options = options,
	.min_args = 2,
	.max_args = -1,
	.run = cmd_set,
};

const struct cli_verb verb_map_delete = {
	.name = "delete",
	.args = "MAP [KEY]",
	.doc = "remove an entry; without a key remove the next one",
	.page = "gbpf-map.1",
	.options = options,
	.min_args = 1,
	.max_args = 2,
	.run = cmd_delete,
};
