/* The places of programs that have a tool: each writes a list of its own to the map KERNEL_PLACES
 * of the tool (gbpf.bpf.h) before a launch can have figures of them. So the list is read behind the
 * figures, and only if these have places that are not known. */
#include "cli/trace.h"

#include <stdlib.h>
#include <string.h>

#define MAP "KERNEL_PLACES"
#define WANTED UINT32_MAX /* there are figures of the place, and its row is not known */

/* The last number stands for all places that have no entry. */
static bool is_listed(const struct cli_trace_program *p, uint64_t place)
{
	return p->places && place < p->places - 1;
}

/* Returns the row of a place of which a program has figures. */
static uint32_t row_of(const struct cli_trace_program *p, uint64_t place)
{
	uint32_t row = is_listed(p, place) ? p->row[place] : 0;

	return row == WANTED ? CLI_TRACE_UNKNOWN : row ? row - 1 : CLI_TRACE_OTHERS;
}

/* Returns whether the row of a place of which there are figures is not known. */
static bool want(struct cli_trace_program *p, uint64_t place)
{
	if (!is_listed(p, place)) {
		return false;
	}
	p->row[place] = p->row[place] ? p->row[place] : WANTED;
	return p->row[place] == WANTED;
}

/* Returns whether the program has figures of places that are not known. */
static bool lacks(struct cli_trace_program *p, const struct cli_trace_map *m, const uint64_t *at)
{
	unsigned words = cli_trace_words(m);
	bool lacking = false;

	for (size_t i = 0; m->kind == CLI_TRACE_PLACED && i < CLI_TRACE_PLACES; i++) {
		lacking |= p->placed[i * words] && want(p, i);
	}
	for (size_t i = 0; m->places && i < m->entries; i++) {
		lacking |= at[i * words + m->time_word] && want(p, at[i * words + m->place_word]);
	}
	return lacking;
}

/* Takes the row of a place, unless it is known and the list is not that of a gbpfd that was
 * restarted, `again`: finding it takes long. An entry without figures may be in the middle of being
 * written. */
static void take(struct cli_trace *t, unsigned again, const json_t *entry)
{
	struct cli_trace_program *p = cli_trace_program(t, cli_u64(entry, "tenant"));
	const json_t *value = json_object_get(entry, "value");
	uint64_t place = cli_u64(entry, "key");

	if (p && is_listed(p, place) && (again ? p->row[place] : p->row[place] == WANTED) &&
	    cli_trace_number(json_object_get(value, "kernel"))) {
		p->row[place] = 1 + cli_trace_row(t->rows, value);
	}
}

/* ---- figures by row ---- */

static void add_up(struct cli_trace_program *p, unsigned words, uint64_t *to)
{
	memset(to, 0, (size_t)CLI_TRACE_ROWS * words * sizeof(*to));
	for (size_t i = 0; i < CLI_TRACE_PLACES; i++) {
		uint64_t *row = to + (size_t)row_of(p, i) * words;

		for (unsigned w = 0; p->placed[i * words] && w < words; w++) {
			row[w] += p->placed[i * words + w];
		}
	}
}

static void set_rows(struct cli_trace_program *p, const struct cli_trace_map *m, uint64_t *at)
{
	unsigned words = cli_trace_words(m);

	for (size_t i = 0; i < m->entries; i++, at += words) {
		at[m->row_word] = at[m->time_word] ? 1 + row_of(p, at[m->place_word]) : 0;
	}
}

static void store(struct cli_trace_program *p, const struct cli_trace_map *const *maps)
{
	for (unsigned m = 0; m < CLI_TRACE_MAPS && maps[m]; m++) {
		if (maps[m]->kind == CLI_TRACE_PLACED) {
			add_up(p, cli_trace_words(maps[m]), p->now.at[m]);
		} else if (maps[m]->places) {
			set_rows(p, maps[m], p->now.at[m]);
		}
	}
}

unsigned cli_trace_places(const struct cli_trace_tool *tool)
{
	unsigned n = 0;

	for (unsigned m = 0; m < CLI_TRACE_MAPS && tool->maps[m]; m++) {
		n = tool->maps[m]->kind == CLI_TRACE_PLACED ? CLI_TRACE_PLACES
		    : tool->maps[m]->places		    ? tool->maps[m]->places
							    : n;
	}
	return n;
}

static bool any_of(const json_t *rows, const char *member)
{
	const json_t *o;
	size_t i;

	json_array_foreach(rows, i, o)
	{
		if (json_is_true(json_object_get(o, member))) {
			return true;
		}
	}
	return false;
}

/* Places are where warps are now: those of an interval are counted once. */
void cli_trace_rest_note(struct cli_trace_rest *rest, const json_t *figures, bool total)
{
	const json_t *sites = json_object_get(figures, "sites");
	const json_t *places = json_object_get(figures, "places");

	rest->others = any_of(sites, "others") || any_of(places, "others");
	rest->unknown = any_of(sites, "unknown") || any_of(places, "unknown");
	rest->was_unknown = rest->was_unknown || (!total && any_of(sites, "unknown"));
}

static bool any_lacks(const struct cli_trace *t)
{
	const struct cli_trace_map *const *maps = t->tool->maps;
	bool lacking = false;

	for (struct cli_trace_program *p = t->programs; p; p = p->next) {
		for (unsigned m = 0; m < CLI_TRACE_MAPS && maps[m]; m++) {
			lacking |= lacks(p, maps[m], p->now.at[m]);
		}
	}
	return lacking;
}

int cli_trace_places_read(struct cli *c, struct cli_trace *t, bool again)
{
	int code = CLI_OK;

	if (!cli_trace_places(t->tool)) {
		return CLI_OK;
	}
	t->rows = t->rows ? t->rows : cli_trace_rows_new();
	if (!t->rows) {
		return cli_fail(c, CLI_FAILED, "memory", NULL, "trace: out of memory");
	}
	if (any_lacks(t) || again) {
		code = cli_trace_read_entries(c, t, MAP, again, take);
		cli_trace_rows_end_list(t->rows);
	}
	for (struct cli_trace_program *p = t->programs; p; p = p->next) {
		store(p, t->tool->maps);
	}
	return code;
}
