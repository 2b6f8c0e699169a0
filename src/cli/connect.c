/* Calls to gbpfd. Replies are outside input: a missing member reads as empty. */
#include "cli/connect.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_ENTRIES 1000u
#define POLL_MIN_NS 50000000u
#define POLL_TIMES 4u /* pause after a reading, in times of its duration */

int cli_fail_daemon(struct cli *c, struct gbpf *g, const char *what)
{
	const struct gbpf_error *e = gbpf_last_error(g);
	bool known = (e->exit > 0 && e->exit <= CLI_TIMEOUT) || e->exit == CLI_UNSTORED;
	int code = known ? e->exit : CLI_FAILED;
	struct report r;

	report_init(&r);
	report_set(&r, 0, e->code[0] ? e->code : "failed", "%s", e->message);
	report_hint(&r, "%s", e->hint);
	buf_puts(&r.detail, e->detail);
	code = cli_fail_report(c, code, what, &r);
	report_finish(&r);
	return code;
}

unsigned cli_timeout_ms(const struct cli *c)
{
	uint64_t ms = (c->timeout_ns + 999999) / 1000000;

	return (unsigned)MIN(ms, (uint64_t)UINT32_MAX);
}

int cli_open(struct cli *c, struct gbpf **ret)
{
	struct gbpf *g = NULL;
	char name[64];
	int rc = gbpf_open(&g, c->global[CLI_SOCKET], GBPF_OPEN_NO_CONNECT);

	if (g) {
		gbpf_set_timeout(g, cli_timeout_ms(c));
	}
	if (rc < 0) {
		rc = cli_fail_daemon(c, g, cli_verb_name(c, name, sizeof(name)));
		gbpf_close(g);
		return rc;
	}
	*ret = g;
	return CLI_OK;
}

json_t *cli_answer(int rc, char *json)
{
	json_t *v = rc >= 0 && json ? json_loads(json, 0, NULL) : NULL;

	free(json);
	if (!json_is_object(v)) {
		json_decref(v);
		return NULL;
	}
	return v;
}

int cli_result(struct cli *c, struct gbpf *g, const char *what, int rc, char *json, json_t **ret)
{
	json_t *v = cli_answer(rc, json);

	if (rc < 0) {
		return cli_fail_daemon(c, g, what);
	}
	if (!v) {
		return cli_fail(c, CLI_FAILED, "protocol",
				"Do gbpf and gbpfd have the same version? See: gbpf status",
				"%s: gbpfd's answer is not a JSON object", what);
	}
	*ret = v;
	return CLI_OK;
}

int cli_call(struct cli *c, const char *what, const char *method, json_t *params, json_t **ret)
{
	char *text = params ? json_dumps(params, JSON_COMPACT) : NULL;
	struct gbpf *g = NULL;
	char *json = NULL;
	int code = cli_open(c, &g);

	if (code == CLI_OK) {
		int rc = gbpf_call(g, method, text, -1, &json);

		code = cli_result(c, g, what, rc, json, ret);
	}
	gbpf_close(g);
	free(text);
	json_decref(params);
	return code;
}

int cli_check_stored(struct cli *c, const char *what, const json_t *result)
{
	if (!json_is_false(json_object_get(result, "stored")) ||
	    json_is_true(json_object_get(result, "volatile"))) {
		return CLI_OK;
	}
	if (!c->json) {
		fprintf(stderr,
			"gbpf: %s: in effect, but not stored: it is lost when gbpfd exits. "
			"`gbpf events` shows the reason\n",
			what);
	}
	return CLI_UNSTORED;
}

int cli_map_page(struct gbpf *g, const struct gbpf_map *map, unsigned limit, bool nonzero,
		 char **after, json_t **ret)
{
	char *json = NULL;
	int rc = gbpf_map_dump(g, map, *after, limit, nonzero, &json);

	*ret = cli_answer(rc, json);
	free(*after);
	*after = cli_text(*ret, "next")[0] ? strdup(cli_text(*ret, "next")) : NULL;
	return rc;
}

/* Adds a page to those before it, with the values that found no room in a hash table. Takes
 * both. */
static json_t *join(json_t *all, json_t *page)
{
	uint64_t dropped = cli_u64(all, "dropped") + cli_u64(page, "dropped");

	if (!all) {
		return page;
	}
	json_array_extend(json_object_get(all, "entries"), json_object_get(page, "entries"));
	if (dropped) {
		json_object_set_new(all, "dropped", json_integer((json_int_t)dropped));
	}
	json_decref(page);
	return all;
}

int cli_map_dump(struct gbpf *g, const struct gbpf_map *map, uint64_t limit, bool nonzero,
		 json_t **ret)
{
	uint64_t have = 0;
	char *after = NULL;
	json_t *page;
	int rc;

	*ret = NULL;
	do {
		unsigned n =
			limit ? (unsigned)MIN(limit - have, (uint64_t)PAGE_ENTRIES) : PAGE_ENTRIES;

		rc = cli_map_page(g, map, n, nonzero, &after, &page);
		if (!page) {
			json_decref(*ret);
			*ret = NULL;
			return rc;
		}
		*ret = join(*ret, page);
		have = json_array_size(json_object_get(*ret, "entries"));
	} while (after && (!limit || have < limit));
	json_object_del(*ret, "next");
	json_object_set_new(*ret, "more", json_boolean(after != NULL));
	free(after);
	return rc;
}

uint64_t cli_u64(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_real(v)) {
		return json_real_value(v) > 0 ? (uint64_t)json_real_value(v) : 0;
	}
	return json_is_integer(v) && json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v)
							       : 0;
}

const char *cli_text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

bool cli_has_number(const json_t *array, json_int_t number)
{
	const json_t *j;
	size_t i;

	json_array_foreach(array, i, j)
	{
		if (json_is_integer(j) && json_integer_value(j) == number) {
			return true;
		}
	}
	return false;
}

json_t *cli_tool_in(const json_t *list, uint64_t id)
{
	json_t *tool;
	size_t i;

	json_array_foreach(json_object_get(list, "probes"), i, tool)
	{
		if (cli_u64(tool, "id") == id) {
			return tool;
		}
	}
	return NULL;
}

bool cli_is_program(const json_t *tenant, uint64_t pid, uint64_t connected_ns)
{
	return pid == cli_u64(tenant, "pid") && !json_is_true(json_object_get(tenant, "ended")) &&
	       (connected_ns == cli_u64(tenant, "connected_ns") ||
		json_is_true(json_object_get(tenant, "reattached")));
}

uint64_t cli_poll_ns(uint64_t took_ns)
{
	return MIN(MAX((uint64_t)POLL_MIN_NS, POLL_TIMES * took_ns), (uint64_t)CLI_POLL_MAX_NS);
}
