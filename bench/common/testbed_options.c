/* Command lines and output of the benches' coordinators. `gbpf bench` starts them and has checked
 * all options, so invalid ones are refused without an explanation here. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/common/testbed.h"

bool bench_testbed_option(struct bench_testbed *w, const char *name, const char *value, int *i)
{
	const struct {
		const char *name;
		const char **text;
		bool *flag;
	} table[] = {
		{ "--libcuda", &w->libcuda, NULL }, { "--gbpf", &w->gbpf, NULL },
		{ "--gbpfd", &w->gbpfd, NULL },	    { "--server", &w->server, NULL },
		{ "--client", &w->client, NULL },   { "--soft", NULL, &w->soft },
		{ "--json", NULL, &w->json },	    { "--progress", NULL, &w->progress },
	};

	for (size_t k = 0; k < ARRAY_SIZE(table); k++) {
		if (strcmp(table[k].name, name) != 0) {
			continue;
		}
		if (table[k].flag) {
			*table[k].flag = true;
		} else {
			*table[k].text = value;
			++*i;
		}
		return true;
	}
	return false;
}

bool bench_testbed_names(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		if (strncmp(p, name, n) == 0 && (p[n] == 0 || p[n] == ',')) {
			return true;
		}
	}
	return false;
}

bool bench_testbed_value(const struct bench_testbed_value *table, size_t n, const char *name,
			 const char *value)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(table[i].name, name) != 0) {
			continue;
		}
		if (table[i].number) {
			*table[i].number = (unsigned)strtoul(value, NULL, 10);
		} else {
			*table[i].text = value;
		}
		return true;
	}
	return false;
}

int bench_testbed_usage(const struct bench_testbed *w)
{
	fprintf(stderr, "gbpf: bench %s: invalid arguments; use 'gbpf bench %s'\n", w->bench,
		w->bench);
	return 2;
}

int bench_testbed_document(struct bench_testbed *w, const struct json_t *doc, const char *save)
{
	if (w->json) {
		json_dumpf(doc, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	if (save && json_dump_file(doc, save, JSON_INDENT(2)) < 0) {
		return bench_testbed_fail(w, "cannot write %s", save);
	}
	return 0;
}
