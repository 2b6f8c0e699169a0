/* Finding the map that a verb of `gbpf map` names: its version or tool, its tenant, or the section
 * of a global variable. */
#include <stdlib.h>
#include <string.h>

#include "cli/map_print.h"
#include "cli/probe_options.h"

static int find_tenant(struct cli *c, const struct cli_map *m, const char *text, uint32_t *ret)
{
	uint64_t n;
	json_t *t;
	size_t i;

	if (cli_number(c, "--tenant", text, 0, INT32_MAX, &n)) {
		return CLI_USAGE;
	}
	json_array_foreach(m->tenants, i, t)
	{
		if (cli_u64(t, "pid") == n) {
			*ret = (uint32_t)cli_u64(t, "tenant");
			return CLI_OK;
		}
	}
	json_array_foreach(m->tenants, i, t)
	{
		if (cli_u64(t, "tenant") == n) {
			*ret = (uint32_t)n;
			return CLI_OK;
		}
	}
	return cli_fail(c, CLI_NOT_FOUND, "not-found", "`gbpf ps` shows those that there are",
			"map: no program %s runs under gBPF", text);
}

int cli_map_open(struct cli *c, struct cli_map *m, const char *name)
{
	const char *version = c->opt[CLI_MAP_VERSION], *probe = c->opt[CLI_MAP_PROBE];
	const char *tenant = c->opt[CLI_MAP_TENANT], *gpu = c->opt[CLI_MAP_GPU];
	uint64_t n;
	json_t *ps = NULL, *fit;
	char *json = NULL;
	int code;

	*m = (struct cli_map){
		.map = { .size = sizeof(m->map), .name = name, .tenant = GBPF_ALL_TENANTS }
	};
	if (version && cli_number(c, "--version", version, 1, INT64_MAX, &m->map.version)) {
		return CLI_USAGE;
	}
	if (gpu) {
		if (cli_number(c, "--gpu", gpu, 0, INT32_MAX, &n)) {
			return CLI_USAGE;
		}
		m->map.gpu = (uint32_t)n + 1;
	}
	code = probe ? cli_probe_id(c, "map", probe, &m->map.probe) : CLI_OK;
	if (code) {
		return code;
	}
	fit = json_string(name ? name : "");
	json_decref(fit);
	if (!fit) {
		return cli_fail(c, CLI_NOT_FOUND, "not-found", "`gbpf map list` shows the maps",
				"map: there is no map '%s'; names are UTF-8", name);
	}
	code = cli_open(c, &m->g);
	if (code == CLI_OK) {
		int rc = gbpf_ps(m->g, &json);

		code = cli_result(c, m->g, "map", rc, json, &ps);
	}
	if (code == CLI_OK) {
		m->tenants = json_incref(json_object_get(ps, "tenants"));
	}
	json_decref(ps);
	return code == CLI_OK && tenant ? find_tenant(c, m, tenant, &m->map.tenant) : code;
}

int cli_map_drain(struct cli *c, struct cli_map *m, const char *what)
{
	const struct gbpf_error *e;
	json_t *result = NULL;
	char *json = NULL;
	int code, rc = gbpf_map_drain(m->g, &m->map, &json);

	if (rc < 0) {
		e = gbpf_last_error(m->g);
		return strcmp(e->code, "usage") == 0 || strcmp(e->code, "busy") == 0
			       ? cli_fail_daemon(c, m->g, what)
			       : CLI_OK;
	}
	code = cli_result(c, m->g, what, rc, json, &result);
	if (cli_u64(result, "probe")) {
		m->map.probe = cli_u64(result, "probe");
		m->map.version = 0;
	}
	if (cli_u64(result, "late")) {
		cli_note(c, "%llu program%s did not answer in time; values may be old.",
			 (unsigned long long)cli_u64(result, "late"),
			 PLURAL(cli_u64(result, "late")));
	}
	json_decref(result);
	return code;
}

static bool section_has(struct cli *c, struct cli_map *m, const char *section)
{
	struct gbpf_map at = m->map;
	json_t *result, *entry;
	char *json = NULL;
	bool has;

	at.name = section;
	if (gbpf_map_get(m->g, &at, "0", &json) < 0) {
		return false;
	}
	result = json_loads(json, 0, NULL);
	free(json);
	entry = json_array_get(json_object_get(result, "entries"), 0);
	has = json_object_get(json_object_get(entry, "value"), m->map.name);
	json_decref(result);
	return has;
}

int cli_map_find_variable(struct cli *c, struct cli_map *m, const char *what)
{
	json_t *list = NULL, *v;
	char *json = NULL;
	size_t i;
	int rc = gbpf_map_list_of(m->g, &m->map, &json);
	int code = cli_result(c, m->g, what, rc, json, &list);

	if (code != CLI_OK) {
		return code;
	}
	json_array_foreach(json_object_get(list, "maps"), i, v)
	{
		if (strcmp(cli_text(v, "map"), m->map.name) == 0) {
			goto out; /* it is a map */
		}
	}
	json_array_foreach(json_object_get(list, "maps"), i, v)
	{
		if (json_is_true(json_object_get(v, "data")) &&
		    section_has(c, m, cli_text(v, "map"))) {
			m->section = strdup(cli_text(v, "map"));
			if (m->section) {
				m->variable = m->map.name;
				m->map.name = m->section;
				code = cli_map_drain(c, m, what);
			}
			break;
		}
	}
out:
	json_decref(list);
	return code;
}

void cli_map_note_gpu(struct cli *c, const json_t *result)
{
	json_t *gpus = json_object_get(result, "gpus"), *g;
	struct buf list = { 0 };
	size_t i;

	if (c->opt[CLI_MAP_GPU] || json_array_size(gpus) < 2 ||
	    strcmp(cli_text(result, "scope"), "all-gpus") == 0) {
		return;
	}
	json_array_foreach(gpus, i, g)
	{
		buf_printf(&list, "%s%lld", i ? ", " : "", (long long)json_integer_value(g));
	}
	cli_note(c, "On GPU %llu; each of GPUs %s has its own: --gpu.",
		 (unsigned long long)cli_u64(result, "gpu"), buf_text(&list));
	buf_finish(&list);
}

void cli_map_keep_variable(const struct cli_map *m, json_t *result)
{
	json_t *e;
	size_t i;

	if (!m->variable) {
		return;
	}
	json_object_set_new(result, "variable", json_string(m->variable));
	json_array_foreach(json_object_get(result, "entries"), i, e)
	{
		json_t *v = json_incref(json_object_get(json_object_get(e, "value"), m->variable));

		json_object_del(e, "key");
		json_object_set_new(e, "value", v ? v : json_null());
	}
}

void cli_map_finish(struct cli_map *m)
{
	free(m->section);
	json_decref(m->tenants);
	gbpf_close(m->g);
}

uint64_t cli_map_pid(const struct cli_map *m, uint64_t tenant)
{
	json_t *t;
	size_t i;

	json_array_foreach(m->tenants, i, t)
	{
		if (cli_u64(t, "tenant") == tenant) {
			return cli_u64(t, "pid");
		}
	}
	return 0;
}
