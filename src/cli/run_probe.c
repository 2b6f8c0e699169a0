/* `gbpf run --probe`. gbpfd forgets a process's values with its session, so they are read while it
 * runs, and a process that exits waits for the reading (docs/DEVICE-RUNTIME.md, Exit). What gbpfd
 * answers is outside input: members that are missing or of another type read as 0 or "". */
#include "cli/run_probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/hot_words.h"
#include "cli/map_print.h"
#include "cli/policy_file.h"
#include "cli/probe_options.h"

#define CALL_MS 1000u /* signals for the program wait for a reading */
#define POLL_NS 50000000u
#define POLL_MOST_NS 250000000u
#define POLL_TIMES 4u /* pause after a reading, in times of its duration */
#define PAGE_ENTRIES 1000u
#define ENTRIES_MAX 10000u /* of a map and a reading */
#define PRINT_MAX 1000u	   /* as `gbpf map dump` */

int cli_run_probe_begin(struct cli *c, struct cli_run_probe *p, const char *object, const char *to)
{
	char *words[] = { unqual(object) };
	struct gbpf_probe probe = { .size = sizeof(probe),
				    .name = p->name,
				    .to = to,
				    .flags = GBPF_PROBE_HOLD | GBPF_PROBE_LATER };
	struct buf elf = { 0 };
	json_t *result = NULL;
	char *json = NULL;
	int code = cli_object_read(c, CLI_TOOL, "run", words, 1, &elf, p->name);

	if (code == CLI_OK) {
		cli_hot_words_check(c, p->name, &elf);
		code = cli_open(c, &p->g);
	}
	if (code == CLI_OK) {
		int rc = gbpf_probe_attach(p->g, elf.data, elf.len, &probe, &json);

		code = cli_result(c, p->g, "run", rc, json, &result);
	}
	buf_finish(&elf);
	if (code != CLI_OK) {
		return code;
	}
	p->id = cli_u64(result, "id");
	json_decref(result);
	p->found = json_array();
	p->maps = json_object();
	p->kernels = json_object();
	p->next = json_array();
	gbpf_set_timeout(p->g, CALL_MS);
	return CLI_OK;
}

uint64_t cli_run_probe_due(const struct cli_run_probe *p)
{
	uint64_t pause =
		MIN(MAX((uint64_t)POLL_NS, POLL_TIMES * p->took_ns), (uint64_t)POLL_MOST_NS);
	uint64_t since = clock_now_ns() - p->read_ns;

	if (!p->g || p->ended) {
		return UINT64_MAX;
	}
	return since < pause ? pause - since : 0;
}

/* ---- reading ---- */

/* Parses and frees the answer of a call. NULL: it has failed. An error ends the reading, unless
 * gbpfd is busy or absent: it may be restarted. */
static json_t *answer(struct cli *c, struct cli_run_probe *p, int rc, char *json)
{
	json_t *result = rc >= 0 && json ? json_loads(json, 0, NULL) : NULL;
	const struct gbpf_error *e = gbpf_last_error(p->g);

	free(json);
	if (rc < 0 && !p->ended && e->exit != CLI_UNREACHABLE && e->exit != CLI_TIMEOUT &&
	    strcmp(e->code, "busy") != 0) {
		p->ended = true;
		cli_note(c, "gbpf: run: tool %llu is read no further: %s",
			 (unsigned long long)p->id, e->message);
	}
	return result;
}

/* Returns the tool as it is listed now. Caller decrefs. */
static json_t *list(struct cli *c, struct cli_run_probe *p)
{
	char *json = NULL;
	int rc = gbpf_probe_list(p->g, &json);
	json_t *all = answer(c, p, rc, json), *tool = NULL, *t;
	size_t i;

	json_array_foreach(json_object_get(all, "probes"), i, t)
	{
		if (cli_u64(t, "id") == p->id) {
			tool = json_incref(t);
		}
	}
	if (all && !tool && !p->ended) {
		p->ended = true;
		cli_note(c, "gbpf: run: tool %llu was detached", (unsigned long long)p->id);
	}
	json_decref(all);
	return tool;
}

/* Returns whether a process of `found` is a tenant of a list. A process that executes another
 * program has a new session; one that comes back to a gbpfd that was restarted is the same. */
static bool is_same(const json_t *process, const json_t *tenant)
{
	return cli_u64(process, "pid") == cli_u64(tenant, "pid") &&
	       !json_is_true(json_object_get(tenant, "ended")) &&
	       (cli_u64(process, "connected_ns") == cli_u64(tenant, "connected_ns") ||
		json_is_true(json_object_get(tenant, "reattached")));
}

/* Returns the process that has the tenant's number in a list. */
static json_t *process_of(const struct cli_run_probe *p, const json_t *tool, uint64_t number)
{
	json_t *tenant, *process;
	size_t i, k;

	json_array_foreach(json_object_get(tool, "tenants"), i, tenant)
	{
		if (cli_u64(tenant, "tenant") != number) {
			continue;
		}
		json_array_foreach(p->found, k, process)
		{
			if (is_same(process, tenant)) {
				return process;
			}
		}
	}
	return NULL;
}

/* Notes the processes that have the tool now. */
static void note_processes(struct cli_run_probe *p, const json_t *tool)
{
	json_t *tenant;
	size_t i;

	json_array_foreach(json_object_get(tool, "tenants"), i, tenant)
	{
		uint64_t connected = cli_u64(tenant, "connected_ns");
		json_t *process = process_of(p, tool, cli_u64(tenant, "tenant"));

		if (process) {
			json_object_set_new(process, "connected_ns",
					    json_integer((json_int_t)connected));
		} else if (!json_is_true(json_object_get(tenant, "ended"))) {
			json_array_append_new(p->found,
					      json_pack("{s:I,s:I,s:I}", "tenant",
							(json_int_t)json_array_size(p->found),
							"pid", (json_int_t)cli_u64(tenant, "pid"),
							"connected_ns", (json_int_t)connected));
		}
	}
}

/* gbpfd counts kernels while their programs run. */
static void note_kernels(struct cli_run_probe *p, const json_t *tool)
{
	static const char *const members[] = { "kernels", "refused", "in_part", "falls_back",
					       "unseen" };

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		uint64_t n = MAX(cli_u64(p->kernels, members[i]), cli_u64(tool, members[i]));

		json_object_set_new(p->kernels, members[i], json_integer((json_int_t)n));
	}
	if (cli_text(tool, "why")[0]) {
		json_object_set(p->kernels, "why", json_object_get(tool, "why"));
	}
}

/* Reads a map of all processes. Caller decrefs; NULL: not all of it could be read. */
static json_t *dump(struct cli *c, struct cli_run_probe *p, const char *name)
{
	const struct gbpf_map map = {
		.size = sizeof(map), .name = name, .tenant = GBPF_ALL_TENANTS, .probe = p->id
	};
	json_t *all = NULL, *page, *entries;
	char *after = NULL;

	do {
		char *json = NULL;
		int rc = gbpf_map_dump(p->g, &map, after, PAGE_ENTRIES, 1, &json);

		page = answer(c, p, rc, json);
		free(after);
		after = cli_text(page, "next")[0] ? strdup(cli_text(page, "next")) : NULL;
		if (all) {
			json_array_extend(json_object_get(all, "entries"),
					  json_object_get(page, "entries"));
			json_decref(page);
		} else {
			all = page;
		}
		entries = json_object_get(all, "entries");
	} while (page && after && json_array_size(entries) < ENTRIES_MAX);
	if (!page) {
		json_decref(all);
		all = NULL;
	}
	json_object_del(all, "next");
	json_object_set_new(all, "more", json_boolean(after != NULL));
	free(after);
	return all;
}

/* Replaces the entries of a map of those processes that were there before and after the reading:
 * what was read of another one may be a part. */
static void take(struct cli_run_probe *p, const json_t *before, const json_t *after, json_t *read)
{
	const char *name = cli_text(read, "map");
	json_t *entries = json_array(), *e;
	size_t i;

	json_array_foreach(json_object_get(read, "entries"), i, e)
	{
		uint64_t tenant = cli_u64(e, "tenant");
		json_t *process = process_of(p, before, tenant);

		if (process && process == process_of(p, after, tenant)) {
			json_object_set(e, "tenant", json_object_get(process, "tenant"));
			json_array_append(entries, e);
		}
	}
	json_array_foreach(json_object_get(json_object_get(p->maps, name), "entries"), i, e)
	{
		json_t *process = json_array_get(p->found, cli_u64(e, "tenant")), *tenant;
		bool there = false;
		size_t k;

		json_array_foreach(json_object_get(after, "tenants"), k, tenant)
		{
			there |= is_same(process, tenant);
		}
		if (!there) {
			json_array_append(entries, e);
		}
	}
	json_object_set_new(read, "entries", entries);
	json_object_set(p->maps, name, read);
}

static void show_line(void *arg, json_t *line)
{
	(void)arg;
	cli_probe_print_line(stderr, line);
}

/* Prints lines that are new. A tool that prints nothing has no lines. */
static void read_lines(struct cli *c, struct cli_run_probe *p)
{
	bool more = true;

	while (more && !p->ended) {
		json_t *params = json_pack("{s:I,s:O}", "id", (json_int_t)p->id, "next", p->next);
		char *text = params ? json_dumps(params, JSON_COMPACT) : NULL, *json = NULL;
		int rc = text ? gbpf_call(p->g, "probe.log", text, -1, &json) : -1;
		json_t *page = rc >= 0 && json ? json_loads(json, 0, NULL) : NULL;

		free(json);
		free(text);
		json_decref(params);
		cli_probe_show_lines(page, show_line, c);
		p->missed += cli_u64(page, "missed");
		more = json_is_true(json_object_get(page, "more"));
		if (page) {
			json_decref(p->next);
			p->next = json_incref(json_object_get(page, "next"));
		}
		json_decref(page);
	}
}

static void read_maps(struct cli *c, struct cli_run_probe *p, const json_t *before)
{
	const struct gbpf_map of = { .size = sizeof(of),
				     .tenant = GBPF_ALL_TENANTS,
				     .probe = p->id };
	char *json = NULL;
	int rc = gbpf_map_list_of(p->g, &of, &json);
	json_t *maps = answer(c, p, rc, json), *read = json_array(), *map, *after;
	size_t i;

	json_array_foreach(json_object_get(maps, "maps"), i, map)
	{
		bool constant = strstr(cli_text(map, "map"), ".rodata") != NULL;
		json_t *values = p->ended || constant ? NULL : dump(c, p, cli_text(map, "map"));

		if (values) {
			json_array_append_new(read, values);
		}
	}
	after = p->ended ? NULL : list(c, p);
	json_array_foreach(after ? read : NULL, i, map)
	{
		take(p, before, after, map);
	}
	json_decref(after);
	json_decref(read);
	json_decref(maps);
}

void cli_run_probe_read(struct cli *c, struct cli_run_probe *p)
{
	const struct gbpf_map of = { .size = sizeof(of),
				     .tenant = GBPF_ALL_TENANTS,
				     .probe = p->id };
	uint64_t begin = clock_now_ns();
	char *json = NULL;
	int rc = gbpf_map_drain(p->g, &of, &json);
	json_t *drained = answer(c, p, rc, json);
	json_t *before = drained && !p->ended ? list(c, p) : NULL;

	if (before) {
		note_processes(p, before);
		note_kernels(p, before);
		read_lines(c, p);
		read_maps(c, p, before);
		json_decref(p->tool);
		p->tool = json_incref(before);
	}
	json_decref(before);
	json_decref(drained);
	p->read_ns = clock_now_ns();
	p->took_ns = p->read_ns - begin;
}

/* ---- the end ---- */

static void print_map(struct cli *c, const struct cli_map *m, json_t *map)
{
	json_t *entries = json_object_get(map, "entries"), *shown = json_array();
	size_t n = json_array_size(entries);

	for (size_t i = 0; i < MIN(n, (size_t)PRINT_MAX); i++) {
		json_array_append(shown, json_array_get(entries, i));
	}
	json_object_set_new(map, "entries", shown);
	if (n) {
		fputs("\nmap ", stdout);
		cli_put_safe(stdout, cli_text(map, "map"));
		putchar('\n');
		fflush(stdout);
		cli_map_print(c, m, map);
	}
	if (n > PRINT_MAX || json_is_true(json_object_get(map, "more"))) {
		cli_note(c, "gbpf: run: map %s has more entries%s", cli_text(map, "map"),
			 n > PRINT_MAX ? "; --json prints more" : "");
	}
	if (cli_u64(map, "dropped")) {
		cli_note(c, "gbpf: run: %llu insertions found no room: raise max_entries of %s",
			 (unsigned long long)cli_u64(map, "dropped"), cli_text(map, "map"));
	}
}

static void print_notes(struct cli *c, const struct cli_run_probe *p)
{
	uint64_t falls_back = cli_u64(p->kernels, "falls_back");

	if (!cli_u64(p->kernels, "kernels")) {
		cli_note(c, "gbpf: run: no kernel ran tool '%s'%s%s", p->name,
			 cli_text(p->kernels, "why")[0] ? ": " : "", cli_text(p->kernels, "why"));
	}
	if (falls_back) {
		cli_note(c, "gbpf: run: launches of %llu kernel%s ran without the tool",
			 (unsigned long long)falls_back, PLURAL(falls_back));
	}
	if (p->missed) {
		cli_note(c, "gbpf: run: %llu printed line%s overwritten before %s read",
			 (unsigned long long)p->missed, p->missed == 1 ? " was" : "s were",
			 p->missed == 1 ? "it was" : "they were");
	}
	if (p->tool) {
		cli_probe_note_gaps(c, p->tool);
	}
}

static void print_document(struct cli *c, struct cli_run_probe *p)
{
	json_t *maps = json_array(), *map;
	const char *name;

	json_object_foreach(p->maps, name, map)
	{
		json_array_append(maps, map);
	}
	(void)cli_json(c, "run.probe",
		       json_pack("{s:s,s:O,s:O,s:I,s:o}", "tool", p->name, "processes", p->found,
				 "kernels", p->kernels, "missed", (json_int_t)p->missed, "maps",
				 maps));
}

void cli_run_probe_end(struct cli *c, struct cli_run_probe *p)
{
	struct cli_map m = { .tenants = p->found };
	const char *name;
	char *json = NULL;
	json_t *map;

	if (p->g && !p->ended && p->id) {
		(void)gbpf_probe_detach(p->g, (uint32_t)p->id, &json);
		free(json);
	}
	if (p->id && c->json) {
		print_document(c, p);
	} else if (p->id) {
		json_object_foreach(p->maps, name, map)
		{
			print_map(c, &m, map);
		}
		print_notes(c, p);
		(void)cli_flush(c);
	}
	gbpf_close(p->g);
	json_decref(p->tool);
	json_decref(p->found);
	json_decref(p->maps);
	json_decref(p->kernels);
	json_decref(p->next);
}
