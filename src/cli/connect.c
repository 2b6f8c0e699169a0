/* Calls to gbpfd. Replies are outside input: a missing member reads as empty. */
#include "cli/connect.h"

#include <stdlib.h>
#include <string.h>

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

int cli_result(struct cli *c, struct gbpf *g, const char *what, int rc, char *json, json_t **ret)
{
	json_error_t e;
	json_t *v;

	if (rc < 0) {
		free(json);
		return cli_fail_daemon(c, g, what);
	}
	v = json ? json_loads(json, 0, &e) : NULL;
	free(json);
	if (!json_is_object(v)) {
		json_decref(v);
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
