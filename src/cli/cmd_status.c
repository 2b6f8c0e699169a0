/* `gbpf status`, `on`, `off` and `shutdown`: state of gbpfd itself. */
#include <string.h>

#include "cli/connect.h"
#include "cli/verbs.h"

static int cmd_off_on(struct cli *c, const char *verb, const char *said)
{
	json_t *result = NULL;
	int code = cli_call(c, verb, verb, NULL, &result);

	if (code != CLI_OK) {
		return code;
	}
	code = cli_check_stored(c, verb, result);
	if (c->json) {
		int rc = cli_json(c, verb, result);

		return rc ? rc : code;
	}
	if (!c->quiet) {
		puts(said);
	}
	json_decref(result);
	return code;
}

static int cmd_off(struct cli *c)
{
	return cmd_off_on(c, "off", "off: every program passes straight through");
}

static int cmd_on(struct cli *c)
{
	return cmd_off_on(c, "on", "on: the policy decides");
}

static int cmd_shutdown(struct cli *c)
{
	struct gbpf *g = NULL;
	int code = cli_open(c, &g);

	if (code == CLI_OK && gbpf_shutdown(g) < 0) {
		code = cli_fail_daemon(c, g, "shutdown");
	}
	gbpf_close(g);
	if (code != CLI_OK) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "shutdown", json_object());
	}
	cli_note(c, "gbpfd has stopped; programs continue without it.");
	return CLI_OK;
}

/* Prints "held_ns" as "held" with a unit; underscores become blanks. */
static void print_number(const char *key, uint64_t v)
{
	static const char *const units[] = { "_ns", "_bytes" };
	const char *(*const prints[])(char *, uint64_t) = { cli_duration, cli_bytes, cli_plain };
	char name[64], text[24];
	size_t n = strlen(key), unit;

	for (unit = 0; unit < ARRAY_SIZE(units); unit++) {
		size_t u = strlen(units[unit]);

		if (n > u && strcmp(key + n - u, units[unit]) == 0) {
			n -= u;
			break;
		}
	}
	snprintf(name, sizeof(name), "%.*s", (int)MIN(n, sizeof(name) - 1), key);
	for (char *p = name; *p; p++) {
		*p = *p == '_' ? ' ' : *p;
	}
	printf("  %-20s %s\n", name, prints[unit](text, v));
}

static void print_text(const char *key, const char *value)
{
	struct buf safe = { 0 };

	cli_safe_text(&safe, value);
	printf("%-12s %s\n", key, safe.len ? buf_text(&safe) : "-");
	buf_finish(&safe);
}

/* Prints uptime, policy and state first, then the non-zero counters. The rest is in --json. */
static void print_status(const json_t *result)
{
	const json_t *policy = json_object_get(result, "policy"), *daemon;
	const char *key;
	char text[128], t[24];
	json_t *v;

	daemon = json_object_get(result, "daemon");
	snprintf(text, sizeof(text), "%.40s, PID %llu, user id %llu", cli_text(result, "version"),
		 (unsigned long long)cli_u64(result, "pid"),
		 (unsigned long long)cli_u64(daemon, "uid"));
	print_text("gbpfd", text);
	print_text("uptime", cli_duration(t, cli_u64(result, "uptime_ns")));
	print_text("device", cli_text(result, "device"));
	snprintf(text, sizeof(text), "none: nothing is held");
	if (cli_u64(policy, "version")) {
		snprintf(text, sizeof(text), "%.60s@%llu%s", cli_text(policy, "name"),
			 (unsigned long long)cli_u64(policy, "version"),
			 json_is_true(json_object_get(result, "off"))
				 ? ", switched off: everything passes through"
				 : "");
	}
	print_text("policy", text);
	print_text("programs", cli_plain(t, cli_u64(result, "tenants")));
	print_text("memory", cli_bytes(t, cli_u64(result, "memory_bytes")));
	print_text("socket", cli_text(daemon, "socket"));
	print_text("state", cli_text(result, "state_dir"));
	puts("counted since its start:");
	json_object_foreach(json_object_get(result, "counters"), key, v)
	{
		if (json_integer_value(v)) {
			print_number(key, (uint64_t)json_integer_value(v));
		}
	}
	if (cli_u64(result, "leaked")) {
		print_number("leaked", cli_u64(result, "leaked"));
	}
}

static int cmd_status(struct cli *c)
{
	struct gbpf *g = NULL;
	const struct gbpf_hello *h;
	json_t *result = NULL;
	char *json = NULL;
	int rc, code = cli_open(c, &g);

	if (code == CLI_OK) {
		rc = gbpf_status(g, &json);
		code = cli_result(c, g, "status", rc, json, &result);
	}
	h = code == CLI_OK ? gbpf_hello(g) : NULL;
	if (h) {
		json_object_set_new(result, "daemon",
				    json_pack("{s:s, s:i, s:i, s:s, s:b, s:s}", "version",
					      h->version, "pid", h->pid, "uid", h->uid, "device",
					      h->device, "off", h->off, "socket",
					      gbpf_socket_path(g)));
	}
	gbpf_close(g);
	if (code != CLI_OK) {
		return code;
	}
	if (c->json) {
		return cli_json(c, "status", result);
	}
	print_status(result);
	json_decref(result);
	return CLI_OK;
}

const struct cli_verb verb_status = {
	.name = "status",
	.args = "",
	.doc = "show uptime, active policy and counters of gbpfd",
	.page = "gbpf.1",
	.run = cmd_status,
};

const struct cli_verb verb_off = {
	.name = "off",
	.args = "",
	.doc = "pass all programs through immediately",
	.page = "gbpf.1",
	.run = cmd_off,
};

const struct cli_verb verb_on = {
	.name = "on",
	.args = "",
	.doc = "enable policy decisions again",
	.page = "gbpf.1",
	.run = cmd_on,
};

const struct cli_verb verb_shutdown = {
	.name = "shutdown",
	.args = "",
	.doc = "stop gbpfd; programs continue",
	.page = "gbpf.1",
	.run = cmd_shutdown,
};
