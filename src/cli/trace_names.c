/* Names of kernels: contexts of programs inside kernels have hashes of them. gbpfd is asked for the
 * kernels that were launched when there are figures of one whose name is not known; names stay when
 * its program ends. */
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "cli/probe_options.h"
#include "cli/trace.h"

#define NAMES_MAX 4096u

struct cli_trace_names {
	struct cli_trace_named {
		uint64_t hash;
		char *name; /* owned */
	} * at;		    /* owned; n */
	size_t n;
	size_t unknown; /* hashes without a name when gbpfd was last asked */
};

static const char *find(const struct cli_trace_names *names, uint64_t hash)
{
	for (size_t i = 0; names && i < names->n; i++) {
		if (names->at[i].hash == hash) {
			return names->at[i].name;
		}
	}
	return NULL;
}

const char *cli_trace_name(const struct cli_trace_names *names, uint64_t hash, char room[24])
{
	const char *name = find(names, hash);

	snprintf(room, 24, "0x%llx", (unsigned long long)hash);
	return name ? name : room;
}

static void add(struct cli_trace_names *names, const char *name)
{
	uint64_t hash = hash_bytes(name, strlen(name));
	struct cli_trace_named *at;
	char *copy;

	if (find(names, hash) || names->n == NAMES_MAX) {
		return;
	}
	at = realloc(names->at, (names->n + 1) * sizeof(*at));
	if (!at) {
		return;
	}
	names->at = at;
	copy = strdup(name);
	if (copy) {
		names->at[names->n++] = (struct cli_trace_named){ hash, copy };
	}
}

/* Without an answer kernels are shown by their hashes. */
static void ask(struct cli_trace *t)
{
	json_t *result = cli_probe_coverage(t->g, NULL, true), *tenant, *kernel;
	size_t i, k;

	json_array_foreach(json_object_get(result, "tenants"), i, tenant)
	{
		json_array_foreach(json_object_get(tenant, "kernels"), k, kernel)
		{
			add(t->names, cli_text(kernel, "name"));
		}
	}
	json_decref(result);
}

static size_t count_unknown(const struct cli_trace *t)
{
	const struct cli_trace_map *m = t->tool->maps[0];
	size_t n = 0;

	for (const struct cli_trace_program *p = t->programs; p; p = p->next) {
		for (size_t i = 0; i < m->entries; i++) {
			const uint64_t *e = p->now.at[0] + i * cli_trace_words(m);

			n += e[m->time_word] && !find(t->names, e[0]);
		}
	}
	return n;
}

void cli_trace_names_read(struct cli_trace *t)
{
	t->names = t->names ? t->names : calloc(1, sizeof(*t->names));
	if (t->names && count_unknown(t) != t->names->unknown) {
		ask(t);
		t->names->unknown = count_unknown(t);
	}
}

void cli_trace_names_free(struct cli_trace_names *names)
{
	for (size_t i = 0; names && i < names->n; i++) {
		free(names->at[i].name);
	}
	if (names) {
		free(names->at);
	}
	free(names);
}
