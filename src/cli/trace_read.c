/* Reading the maps of a tool. Each program has maps of its own, which end with it; the figures of
 * programs that have ended are kept as they were last read. What gbpfd answers is outside input:
 * entries that the tool cannot have are ignored. */
#include "cli/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define PAGE_ENTRIES 4096u
/* Time in which programs find a gbpfd that was restarted. */
#define RETURN_TIMEOUT_NS UINT64_C(3000000000)

static size_t size_of(const struct cli_trace_map *m)
{
	return (size_t)m->entries * cli_trace_words(m);
}

/* ---- values ---- */

static bool values_init(const struct cli_trace_tool *tool, struct cli_trace_values *v)
{
	bool good = true;

	memset(v, 0, sizeof(*v));
	for (unsigned m = 0; m < CLI_TRACE_MAPS && tool->maps[m]; m++) {
		v->at[m] = calloc(size_of(tool->maps[m]), sizeof(uint64_t));
		good &= v->at[m] != NULL;
	}
	return good;
}

void cli_trace_values_finish(struct cli_trace_values *v)
{
	for (unsigned m = 0; m < CLI_TRACE_MAPS; m++) {
		free(v->at[m]);
	}
	memset(v, 0, sizeof(*v));
}

/* Takes the states that are later than those that are known. */
static void take_states(const struct cli_trace_map *m, uint64_t *to, const uint64_t *from)
{
	size_t words = cli_trace_words(m);

	for (size_t i = 0; i < m->entries; i++, to += words, from += words) {
		if (from[m->time_word] > to[m->time_word]) {
			memcpy(to, from, words * sizeof(*to));
		}
	}
}

static void take_maxima(const struct cli_trace_map *m, uint64_t *to, const uint64_t *from)
{
	for (size_t i = 0; i < size_of(m); i++) {
		to[i] = MAX(to[i], from[i]);
	}
}

static void values_add(const struct cli_trace_tool *tool, struct cli_trace_values *to,
		       const struct cli_trace_values *from, bool states)
{
	for (unsigned m = 0; m < CLI_TRACE_MAPS && tool->maps[m]; m++) {
		enum cli_trace_kind kind = tool->maps[m]->kind;
		bool sums = kind == CLI_TRACE_SUMS || kind == CLI_TRACE_MADE ||
			    kind == CLI_TRACE_PLACED;

		if (kind == CLI_TRACE_KEYED && to->at[m] && from->at[m]) {
			cli_trace_keyed_add(tool->maps[m], to->at[m], from->at[m]);
		}
		if (kind == CLI_TRACE_MAXIMA && to->at[m] && from->at[m]) {
			take_maxima(tool->maps[m], to->at[m], from->at[m]);
		}
		if (kind == CLI_TRACE_STATES && states && to->at[m] && from->at[m]) {
			take_states(tool->maps[m], to->at[m], from->at[m]);
		}
		for (size_t i = 0; sums && to->at[m] && from->at[m] && i < size_of(tool->maps[m]);
		     i++) {
			to->at[m][i] += from->at[m][i];
		}
	}
}

static bool counts(const struct cli_trace_map *m, size_t i)
{
	return !(m->lasting >> i % cli_trace_words(m) & 1);
}

/* A program may write its maps itself, so a counter may have become less. States stay. */
static void values_subtract(const struct cli_trace_tool *tool, struct cli_trace_values *to,
			    const struct cli_trace_values *from)
{
	for (unsigned m = 0; m < CLI_TRACE_MAPS && tool->maps[m]; m++) {
		enum cli_trace_kind kind = tool->maps[m]->kind;
		bool plain = kind != CLI_TRACE_STATES && kind != CLI_TRACE_KEYED;

		if (kind == CLI_TRACE_KEYED) {
			cli_trace_keyed_subtract(tool->maps[m], to->at[m], from->at[m]);
		}
		for (size_t i = 0; plain && i < size_of(tool->maps[m]); i++) {
			if (counts(tool->maps[m], i)) {
				to->at[m][i] -= MIN(to->at[m][i], from->at[m][i]);
			}
		}
	}
}

bool cli_trace_sum(const struct cli_trace *t, const struct cli_trace_values *before,
		   struct cli_trace_values *ret)
{
	if (!values_init(t->tool, ret)) {
		cli_trace_values_finish(ret);
		return false;
	}
	ret->region_bytes = t->region_bytes;
	ret->names = t->names;
	ret->rows = t->rows;
	ret->in_part = t->in_part;
	ret->why_in_part = t->why_in_part;
	ret->now_ns = t->newest_ns ? t->read_ns - t->behind_ns : 0;
	values_add(t->tool, ret, &t->gone, false);
	for (const struct cli_trace_program *p = t->programs; p; p = p->next) {
		values_add(t->tool, ret, &p->now, true);
	}
	if (before) {
		values_subtract(t->tool, ret, before);
	}
	return true;
}

bool cli_trace_any(const struct cli_trace_tool *tool, const struct cli_trace_values *v)
{
	for (unsigned m = 0; m < CLI_TRACE_MAPS && tool->maps[m]; m++) {
		for (size_t i = 0; i < size_of(tool->maps[m]); i++) {
			if (v->at[m][i] && counts(tool->maps[m], i)) {
				return true;
			}
		}
	}
	return false;
}

bool cli_trace_several(const struct cli_trace *t)
{
	uint64_t n = t->n_gone;

	for (const struct cli_trace_program *p = t->programs; p; p = p->next) {
		n += cli_trace_any(t->tool, &p->now);
	}
	return n > 1;
}

/* ---- programs ---- */

struct cli_trace_program *cli_trace_program(const struct cli_trace *t, uint64_t tenant)
{
	struct cli_trace_program *p = t->programs;

	while (p && p->tenant != tenant) {
		p = p->next;
	}
	return p;
}

static void program_free(struct cli_trace_program *p)
{
	cli_trace_values_finish(&p->now);
	free(p->placed);
	free(p->row);
	free(p);
}

static void clear_living(const struct cli_trace_tool *tool, struct cli_trace_values *v)
{
	for (unsigned m = 0; m < CLI_TRACE_MAPS && tool->maps[m]; m++) {
		unsigned words = cli_trace_words(tool->maps[m]);

		for (size_t i = 0; tool->maps[m]->living && i < size_of(tool->maps[m]); i++) {
			v->at[m][i] *= !(tool->maps[m]->living >> i % words & 1);
		}
	}
}

/* Keeps the values of programs that are not there any more. */
static void settle(struct cli_trace *t)
{
	struct cli_trace_program **link = &t->programs, *p;

	while ((p = *link)) {
		if (p->present) {
			link = &p->next;
			continue;
		}
		*link = p->next;
		if (t->gone.at[0] || values_init(t->tool, &t->gone)) {
			t->n_gone += cli_trace_any(t->tool, &p->now);
			clear_living(t->tool, &p->now);
			values_add(t->tool, &t->gone, &p->now, false);
		}
		program_free(p);
	}
}

/* Returns the words of all places of a program; 0: the tool has none. */
static size_t placed_words(const struct cli_trace_tool *tool)
{
	size_t n = 0;

	for (unsigned m = 0; m < CLI_TRACE_MAPS && tool->maps[m]; m++) {
		if (tool->maps[m]->kind == CLI_TRACE_PLACED) {
			n = (size_t)CLI_TRACE_PLACES * cli_trace_words(tool->maps[m]);
		}
	}
	return n;
}

static bool program_init(struct cli_trace_program *p, const struct cli_trace_tool *tool)
{
	size_t placed = placed_words(tool);

	p->placed = placed ? calloc(placed, sizeof(*p->placed)) : NULL;
	p->places = cli_trace_places(tool);
	p->row = p->places ? calloc(p->places, sizeof(*p->row)) : NULL;
	return values_init(tool, &p->now) && (!placed || p->placed) && (!p->places || p->row);
}

static bool add_program(struct cli_trace *t, const json_t *tenant)
{
	struct cli_trace_program *p = calloc(1, sizeof(*p));

	if (!p || !program_init(p, t->tool)) {
		if (p) {
			program_free(p);
		}
		return false;
	}
	p->tenant = cli_u64(tenant, "tenant");
	p->pid = cli_u64(tenant, "pid");
	p->connected_ns = cli_u64(tenant, "connected_ns");
	p->present = true;
	p->next = t->programs;
	t->programs = p;
	return true;
}

/* Returns whether programs may still be on their way to a gbpfd that was restarted. */
static bool is_back(const struct cli_trace *t)
{
	return t->back_ns && clock_now_ns() - t->back_ns < clock_patience(RETURN_TIMEOUT_NS);
}

/* Matches the programs with those that have the tool now; numbers of tenants are given again. */
static bool take_programs(struct cli_trace *t, const json_t *tenants)
{
	const json_t *tenant;
	bool good = true;
	size_t i;

	for (struct cli_trace_program *p = t->programs; p; p = p->next) {
		p->present = is_back(t);
	}
	json_array_foreach(tenants, i, tenant)
	{
		struct cli_trace_program *p = cli_trace_program(t, cli_u64(tenant, "tenant"));

		if (p) {
			p->present = cli_is_program(tenant, p->pid, p->connected_ns);
			p->connected_ns = cli_u64(tenant, "connected_ns");
		}
	}
	settle(t);
	json_array_foreach(tenants, i, tenant)
	{
		if (!json_is_true(json_object_get(tenant, "ended")) &&
		    !cli_trace_program(t, cli_u64(tenant, "tenant"))) {
			good &= add_program(t, tenant);
		}
	}
	return good;
}

/* ---- reading ---- */

/* Counts of an LRU_HASH begin again when their key has been evicted, so the highest one stays. */
static void take_keyed(const struct cli_trace_map *map, uint64_t *at, const json_t *e)
{
	const json_t *key = json_object_get(e, "key");
	uint64_t count = cli_trace_number(json_object_get(e, "value")),
		 words[CLI_TRACE_KEY_WORDS] = { 0 };
	unsigned n = map->time_word;
	uint64_t *entry;

	for (unsigned w = 0; w < n; w++) {
		words[w] = cli_trace_number(
			json_is_object(key) ? json_object_get(key, map->fields[w]) : key);
	}
	entry = count ? cli_trace_keyed(map, at, words) : NULL;
	if (entry) {
		entry[n] = MAX(entry[n], count);
	}
}

/* A program whose count has become less has the tool anew, and numbers its places otherwise. */
static void take_placed(struct cli_trace_program *p, const struct cli_trace_map *map, uint64_t key,
			const json_t *value)
{
	unsigned words = cli_trace_words(map);
	uint64_t *to = p->placed + key * words, before = to[0];

	for (unsigned w = 0; w < words; w++) {
		to[w] = cli_trace_number(json_object_get(value, map->fields[w]));
	}
	if (to[0] < before) {
		memset(p->row, 0, p->places * sizeof(*p->row));
	}
}

static void take_entry(struct cli_trace *t, unsigned m, const json_t *e)
{
	const struct cli_trace_map *map = t->tool->maps[m];
	const json_t *value = json_object_get(e, "value");
	uint64_t key = cli_u64(e, "key");
	struct cli_trace_program *p = cli_trace_program(t, cli_u64(e, "tenant"));
	unsigned words = cli_trace_words(map);

	if (p && map->kind == CLI_TRACE_KEYED) {
		take_keyed(map, p->now.at[m], e);
		return;
	}
	if (p && map->kind == CLI_TRACE_PLACED && key < CLI_TRACE_PLACES) {
		take_placed(p, map, key, value);
		return;
	}
	if (!p || map->kind == CLI_TRACE_PLACED || key >= map->entries) {
		return;
	}
	for (unsigned w = 0; w < words; w++) {
		const json_t *word = map->fields ? json_object_get(value, map->fields[w]) : value;

		p->now.at[m][key * words + w] = cli_trace_number(word);
	}
}

/* Returns CLI_OK if the error means that the tool has ended or that gbpfd is absent, else prints
 * it. */
static int ended_or_fail(struct cli *c, struct cli_trace *t)
{
	const struct gbpf_error *e = gbpf_last_error(t->g);

	if (e->exit == CLI_UNREACHABLE) {
		t->absent = true;
		return CLI_OK;
	}
	if (e->exit != CLI_NOT_FOUND) {
		return cli_fail_daemon(c, t->g, "trace");
	}
	t->ended = true;
	return CLI_OK;
}

int cli_trace_read_entries(struct cli *c, struct cli_trace *t, const char *name, unsigned m,
			   void (*take)(struct cli_trace *t, unsigned m, const json_t *entry))
{
	const struct gbpf_map map = {
		.size = sizeof(map), .name = name, .tenant = GBPF_ALL_TENANTS, .probe = t->id
	};
	char *after = NULL;
	int code = CLI_OK;

	do {
		json_t *page, *e;
		size_t i;

		if (cli_map_page(t->g, &map, PAGE_ENTRIES, true, &after, &page) < 0) {
			return ended_or_fail(c, t);
		}
		code = page ? CLI_OK : cli_result(c, t->g, "trace", 0, NULL, &page);
		json_array_foreach(json_object_get(page, "entries"), i, e)
		{
			take(t, m, e);
		}
		json_decref(page);
	} while (after);
	return code;
}

/* States that are not listed any more have ended. */
static void clear_states(struct cli_trace *t, unsigned m)
{
	for (struct cli_trace_program *p = t->programs; p; p = p->next) {
		memset(p->now.at[m], 0, size_of(t->tool->maps[m]) * sizeof(uint64_t));
	}
}

/* Compares the clocks of GPU and host: the latest time in a state was at most as long ago as it is
 * behind, and the least difference of all readings is off by the time between two of them. */
static void compare_clocks(struct cli_trace *t, unsigned m)
{
	const struct cli_trace_map *map = t->tool->maps[m];
	uint64_t newest = 0;

	for (const struct cli_trace_program *p = t->programs; p; p = p->next) {
		for (size_t i = 0; i < map->entries; i++) {
			newest = MAX(newest,
				     p->now.at[m][i * cli_trace_words(map) + map->time_word]);
		}
	}
	t->read_ns = clock_now_ns();
	if (newest > t->newest_ns) {
		/* Modulo 2^64: the clocks count from different beginnings. */
		if (!t->newest_ns || (int64_t)(t->read_ns - newest - t->behind_ns) < 0) {
			t->behind_ns = t->read_ns - newest;
		}
		t->newest_ns = newest;
	}
}

/* Notes the kernels that run a part of the tool, which are listed only while their programs run.
 * The reason of a program may be that of another refusal. */
static void note_part(struct cli_trace *t, const json_t *p)
{
	const json_t *tenant;
	size_t i;

	t->in_part = MAX(t->in_part, cli_u64(p, "in_part"));
	json_array_foreach(json_object_get(p, "tenants"), i, tenant)
	{
		const char *why = cli_text(tenant, "why");

		if (cli_u64(tenant, "in_part") && strstr(why, "runs without")) {
			snprintf(t->why_in_part, sizeof(t->why_in_part), "%s", why);
		}
	}
}

/* gbpfd counts programs only while they run, so what is of the whole trace is kept. */
static void take_counts(struct cli_trace *t, const json_t *p)
{
	const char *why = cli_text(p, "why");

	t->kernels = cli_u64(p, "kernels");
	t->waiting = cli_u64(p, "waiting");
	t->kernels_max = MAX(t->kernels_max, t->kernels);
	t->refused = MAX(t->refused, cli_u64(p, "refused"));
	t->unseen = MAX(t->unseen, cli_u64(p, "unseen"));
	t->falls_back = MAX(t->falls_back, cli_u64(p, "falls_back"));
	if (why[0]) {
		snprintf(t->why, sizeof(t->why), "%s", why);
	}
}

/* Finds the tool in the list, its state and its programs. */
static int read_state(struct cli *c, struct cli_trace *t)
{
	json_t *list = NULL, *p;
	char *json = NULL;
	int code;

	if (gbpf_probe_list(t->g, &json) < 0) {
		return ended_or_fail(c, t);
	}
	code = cli_result(c, t->g, "trace", 0, json, &list);
	if (code != CLI_OK) {
		return code;
	}
	p = cli_tool_in(list, t->id);
	t->ended = strcmp(cli_text(p, "state"), "attached") != 0;
	if (!t->ended) {
		take_counts(t, p);
		note_part(t, p);
		if (!take_programs(t, json_object_get(p, "tenants"))) {
			code = cli_fail(c, CLI_FAILED, "memory", NULL, "trace: out of memory");
		}
	}
	json_decref(list);
	return code;
}

/* A gbpfd that was restarted has the tool again, but not its programs at once. */
static void note_restart(struct cli_trace *t)
{
	uint32_t generation = gbpf_hello(t->g)->generation;

	if (t->generation && generation != t->generation) {
		t->back_ns = clock_now_ns();
	}
	t->generation = generation;
}

int cli_trace_read(struct cli *c, struct cli_trace *t)
{
	const struct gbpf_map all = { .size = sizeof(all),
				      .tenant = GBPF_ALL_TENANTS,
				      .probe = t->id };
	char *json = NULL;
	int code = CLI_OK;

	t->absent = false;
	if (gbpf_map_drain(t->g, &all, &json) < 0) {
		return ended_or_fail(c, t);
	}
	free(json);
	note_restart(t);
	code = read_state(c, t);
	for (unsigned m = 0;
	     code == CLI_OK && !t->ended && !t->absent && m < CLI_TRACE_MAPS && t->tool->maps[m];
	     m++) {
		enum cli_trace_kind kind = t->tool->maps[m]->kind;

		if (kind == CLI_TRACE_STATES) {
			clear_states(t, m);
		}
		if (kind != CLI_TRACE_MADE) {
			code = cli_trace_read_entries(c, t, t->tool->maps[m]->name, m, take_entry);
		}
		if (kind == CLI_TRACE_STATES) {
			compare_clocks(t, m);
		}
	}
	if (code == CLI_OK && !t->ended && !t->absent) {
		code = cli_trace_places_read(c, t, is_back(t));
	}
	for (struct cli_trace_program *p = t->programs;
	     code == CLI_OK && !t->ended && t->tool->pair && p; p = p->next) {
		t->tool->pair(&p->now);
	}
	if (code == CLI_OK && t->tool->by_name) {
		cli_trace_names_read(t);
	}
	return code;
}

void cli_trace_finish(struct cli_trace *t)
{
	while (t->programs) {
		struct cli_trace_program *p = t->programs;

		t->programs = p->next;
		program_free(p);
	}
	cli_trace_values_finish(&t->gone);
	cli_trace_names_free(t->names);
	cli_trace_rows_free(t->rows);
	gbpf_close(t->g);
}
