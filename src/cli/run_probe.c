/* `gbpf run --probe`. gbpfd forgets a process's values with its session, so they are read while it
 * runs, and a process that exits waits for the reading (docs/DEVICE-RUNTIME.md, Exit). What gbpfd
 * answers is outside input: members that are missing or of another type read as 0 or "". */
#include "cli/run_probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bpf/run/printk.h"
#include "cli/hot_words.h"
#include "cli/map_print.h"
#include "cli/policy_file.h"
#include "cli/probe_options.h"
#include "proto/pages.h"

#define CALL_TIMEOUT_MS 1000u /* signals for the program wait for a reading */
#define ENTRIES_MAX 10000u    /* of a map and a reading, */
#define KEPT_MAX 100000u      /* and with those of processes that have ended */
#define LINE_PAGES 256u	      /* of a reading: a program may print faster than lines are read */
#define PRINT_MAX 1000u	      /* as `gbpf map dump` */

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
	p->unread = json_object();
	gbpf_set_timeout(p->g, (unsigned)clock_patience(CALL_TIMEOUT_MS));
	return CLI_OK;
}

uint64_t cli_run_probe_due(const struct cli_run_probe *p)
{
	uint64_t pause = cli_poll_ns(p->took_ns), since = clock_now_ns() - p->read_ns;

	if (!p->g || p->ended) {
		return UINT64_MAX;
	}
	return since < pause ? pause - since : 0;
}

/* ---- reading ---- */

/* An error of a call ends the reading, unless gbpfd is busy or absent: it may be restarted. */
static void check(struct cli *c, struct cli_run_probe *p, int rc)
{
	const struct gbpf_error *e = gbpf_last_error(p->g);

	if (rc < 0 && !p->ended && e->exit != CLI_UNREACHABLE && e->exit != CLI_TIMEOUT &&
	    strcmp(e->code, "busy") != 0) {
		p->ended = true;
		cli_note(c, "gbpf: run: tool %llu %s%s", (unsigned long long)p->id,
			 e->exit == CLI_NOT_FOUND ? "was detached" : "is read no further: ",
			 e->exit == CLI_NOT_FOUND ? "" : e->message);
	}
}

/* As cli_answer(). */
static json_t *answer(struct cli *c, struct cli_run_probe *p, int rc, char *json)
{
	check(c, p, rc);
	return cli_answer(rc, json);
}

/* Returns the tool as it is listed now. Caller decrefs. */
static json_t *list(struct cli *c, struct cli_run_probe *p)
{
	char *json = NULL;
	int rc = gbpf_probe_list(p->g, &json);
	json_t *all = answer(c, p, rc, json), *tool = json_incref(cli_tool_in(all, p->id));

	if (all && !tool && !p->ended) {
		p->ended = true;
		cli_note(c, "gbpf: run: tool %llu was detached", (unsigned long long)p->id);
	}
	json_decref(all);
	return tool;
}

/* Returns the process that a tenant of a list is: the latest one, since a process may have executed
 * other programs before. */
static json_t *process_of(const struct cli_run_probe *p, const json_t *tenant)
{
	for (size_t i = json_array_size(p->found); i--;) {
		json_t *process = json_array_get(p->found, i);

		if (cli_is_program(tenant, cli_u64(process, "pid"),
				   cli_u64(process, "connected_ns"))) {
			return process;
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
		json_t *process = process_of(p, tenant);

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

/* Reads a map of all processes. Caller decrefs; NULL: not all of it could be read. Some maps are
 * not for all users; the others are read. */
static json_t *dump(struct cli *c, struct cli_run_probe *p, const char *name)
{
	const struct gbpf_map map = {
		.size = sizeof(map), .name = name, .tenant = GBPF_ALL_TENANTS, .probe = p->id
	};
	json_t *all = NULL;
	int rc = cli_map_dump(p->g, &map, ENTRIES_MAX, true, &all);
	const struct gbpf_error *e = gbpf_last_error(p->g);

	if (rc >= 0 || (e->exit != CLI_PERMISSION && e->exit != CLI_USAGE)) {
		check(c, p, rc);
	} else if (!json_object_get(p->unread, name)) {
		json_object_set_new(p->unread, name, json_true());
		cli_note(c, "gbpf: run: map %s cannot be read: %s", name, e->message);
	}
	return all;
}

/* The processes that have the tool before and after a reading, so that all of their values were
 * read: what was read of another one may be a part. */
struct complete {
	json_t *of[PROTO_MAX_TENANTS]; /* borrowed: by number of the tenant; NULL: none */
	bool *is_read;		       /* owned: by number of the process */
	size_t n;		       /* processes that were found so far */
};

static bool find_complete(const struct cli_run_probe *p, const json_t *before, const json_t *after,
			  struct complete *ret)
{
	json_t *had[PROTO_MAX_TENANTS] = { 0 }, *tenant;
	size_t i;

	memset(ret, 0, sizeof(*ret));
	ret->n = json_array_size(p->found);
	ret->is_read = calloc(ret->n + 1, sizeof(*ret->is_read));
	json_array_foreach(json_object_get(before, "tenants"), i, tenant)
	{
		had[cli_u64(tenant, "tenant") % PROTO_MAX_TENANTS] = process_of(p, tenant);
	}
	json_array_foreach(json_object_get(after, "tenants"), i, tenant)
	{
		uint64_t number = cli_u64(tenant, "tenant") % PROTO_MAX_TENANTS;
		json_t *process = process_of(p, tenant);

		if (process && process == had[number] && ret->is_read) {
			ret->of[number] = process;
			ret->is_read[cli_u64(process, "tenant")] = true;
		}
	}
	return ret->is_read;
}

/* Takes the entries that were read: of processes, and those of all of them together. */
static void take_read(const struct complete *now, json_t *entries, json_t *read)
{
	json_t *e;
	size_t i;

	json_array_foreach(read, i, e)
	{
		bool of_tenant = json_object_get(e, "tenant");
		json_t *process = now->of[cli_u64(e, "tenant") % PROTO_MAX_TENANTS];

		if (of_tenant && process) {
			json_object_set(e, "tenant", json_object_get(process, "tenant"));
		}
		if (!of_tenant || process) {
			json_array_append(entries, e);
		}
	}
}

/* Keeps the entries of processes that have ended, or were not read. Returns false if there are too
 * many. */
static bool keep_old(const struct complete *now, json_t *entries, json_t *old)
{
	bool all = true;
	json_t *e;
	size_t i;

	json_array_foreach(old, i, e)
	{
		uint64_t process = cli_u64(e, "tenant");

		if (!json_object_get(e, "tenant") || (process < now->n && now->is_read[process])) {
			continue;
		}
		if (json_array_size(entries) >= KEPT_MAX) {
			all = false;
			break;
		}
		json_array_append(entries, e);
	}
	return all;
}

/* Takes what was read of a map in place of what was read before. */
static void take(struct cli_run_probe *p, const struct complete *now, json_t *read)
{
	const char *name = cli_text(read, "map");
	json_t *old = json_object_get(p->maps, name), *entries = json_array();
	uint64_t dropped = MAX(cli_u64(read, "dropped"), cli_u64(old, "dropped"));
	bool more = json_is_true(json_object_get(read, "more")) ||
		    json_is_true(json_object_get(old, "more"));

	take_read(now, entries, json_object_get(read, "entries"));
	more |= !keep_old(now, entries, json_object_get(old, "entries"));
	json_object_set_new(read, "entries", entries);
	json_object_set_new(read, "more", json_boolean(more));
	if (dropped) {
		json_object_set_new(read, "dropped", json_integer((json_int_t)dropped));
	}
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

	for (unsigned n = 0; more && n < LINE_PAGES && !p->ended; n++) {
		json_t *params = json_pack("{s:I,s:O}", "id", (json_int_t)p->id, "next", p->next);
		char *text = params ? json_dumps(params, JSON_COMPACT) : NULL, *json = NULL;
		int rc = text ? gbpf_call(p->g, "probe.log", text, -1, &json) : -1;
		json_t *page = cli_answer(rc, json);

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
	struct complete now;
	size_t i;

	json_array_foreach(json_object_get(maps, "maps"), i, map)
	{
		const char *name = cli_text(map, "map"), *scope = cli_text(map, "scope");
		bool has_values = strcmp(name, EBPF_PRINT_MAP) != 0 &&
				  strcmp(scope, "constant") != 0 && strcmp(scope, "block") != 0;
		json_t *values = has_values && !p->ended ? dump(c, p, name) : NULL;

		if (values) {
			json_array_append_new(read, values);
		}
	}
	after = p->ended ? NULL : list(c, p);
	if (after && find_complete(p, before, after, &now)) {
		json_array_foreach(read, i, map)
		{
			take(p, &now, map);
		}
		free(now.is_read);
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
	}
	if (before && json_array_size(json_object_get(before, "tenants"))) {
		json_decref(p->tool);
		p->tool = json_incref(before);
	}
	p->absent = !before;
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
	uint64_t refused = cli_u64(p->kernels, "refused");
	const char *why = cli_text(p->kernels, "why");

	if (!cli_u64(p->kernels, "kernels")) {
		cli_note(c, "gbpf: run: no kernel ran tool '%s'%s%s", p->name, why[0] ? ": " : "",
			 why);
	} else if (refused) {
		cli_note(c, "gbpf: run: %llu kernel%s cannot run the tool%s%s",
			 (unsigned long long)refused, PLURAL(refused), why[0] ? ": " : "", why);
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
		       json_pack("{s:s,s:b,s:O,s:O,s:I,s:o}", "tool", p->name, "detached",
				 (int)p->ended, "processes", p->found, "kernels", p->kernels,
				 "missed", (json_int_t)p->missed, "maps", maps));
}

static void print(struct cli *c, struct cli_run_probe *p)
{
	struct cli_map m = { .tenants = p->found };
	const char *name;
	json_t *map;

	if (c->json) {
		print_document(c, p);
		return;
	}
	json_object_foreach(p->maps, name, map)
	{
		print_map(c, &m, map);
	}
	print_notes(c, p);
	(void)cli_flush(c);
}

void cli_run_probe_end(struct cli *c, struct cli_run_probe *p)
{
	bool shown = p->id && p->started;
	char *json = NULL;

	if (shown && !p->ended && !p->absent) {
		cli_run_probe_read(c, p); /* processes that the program has left may still run */
	}
	if (p->id && !p->ended) {
		(void)gbpf_probe_detach(p->g, (uint32_t)p->id, &json);
		free(json);
	}
	if (shown) {
		print(c, p);
	}
	gbpf_close(p->g);
	json_decref(p->tool);
	json_decref(p->found);
	json_decref(p->maps);
	json_decref(p->kernels);
	json_decref(p->next);
	json_decref(p->unread);
}
