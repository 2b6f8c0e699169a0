/* Figures by key: what hash tables of a tool say, in open addressed tables. What gbpfd answers may
 * be more than fits; keys without room are left out, as the tool's own tables leave them out. */
#include <string.h>

#include "base/strmap.h"
#include "cli/trace.h"

unsigned cli_trace_words(const struct cli_trace_map *m)
{
	unsigned n = 0;

	while (m->fields && m->fields[n]) {
		n++;
	}
	return m->fields ? n : 1;
}

/* Returns the entry with the key, or the first free place; NULL: neither. */
static size_t place_of(const struct cli_trace_map *m, const uint64_t *at, const uint64_t *key)
{
	size_t bytes = m->time_word * sizeof(*key), words = cli_trace_words(m);
	size_t first = (size_t)(hash_bytes(key, bytes) % m->entries);

	for (size_t i = 0; i < m->entries; i++) {
		size_t place = (first + i) % m->entries;
		const uint64_t *e = at + place * words;

		if (!e[m->time_word] || memcmp(e, key, bytes) == 0) {
			return place;
		}
	}
	return m->entries;
}

uint64_t *cli_trace_keyed(const struct cli_trace_map *m, uint64_t *at, const uint64_t *key)
{
	size_t place = place_of(m, at, key);
	uint64_t *e = at + place * cli_trace_words(m);

	if (place == m->entries) {
		return NULL;
	}
	memcpy(e, key, m->time_word * sizeof(*key));
	return e;
}

void cli_trace_keyed_add(const struct cli_trace_map *m, uint64_t *to, const uint64_t *from)
{
	size_t words = cli_trace_words(m);

	for (size_t i = 0; i < m->entries; i++, from += words) {
		uint64_t *e = from[m->time_word] ? cli_trace_keyed(m, to, from) : NULL;

		if (e) {
			e[m->time_word] += from[m->time_word];
		}
	}
}

/* Entries of `to` that become 0 are free places, so nothing may be looked up there afterwards. */
void cli_trace_keyed_subtract(const struct cli_trace_map *m, uint64_t *to, const uint64_t *from)
{
	size_t words = cli_trace_words(m);

	for (size_t i = 0; i < m->entries; i++, to += words) {
		size_t place = to[m->time_word] ? place_of(m, from, to) : m->entries;

		if (place < m->entries) {
			to[m->time_word] -=
				MIN(to[m->time_word], from[place * words + m->time_word]);
		}
	}
}
