/* Options and records of a measuring program; see program.h. bench/report has checked the user's
 * input, so invalid options are refused without an explanation here. */
#include "bench/common/program.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static bool set(const struct bench_program_option *o, const char *value)
{
	char *end = NULL;
	unsigned long n;

	if (o->text) {
		*o->text = value;
		return true;
	}
	if (o->real) {
		*o->real = strtod(value, &end);
		return end != value && !*end;
	}
	n = strtoul(value, &end, 10);
	*o->number = (unsigned)n;
	return end != value && !*end && n <= UINT_MAX;
}

bool bench_program_options(const struct bench_program_option *table, int *argc, char **argv)
{
	int words = 1;

	prctl(PR_SET_PDEATHSIG, SIGTERM); /* the run ends with its reader */
	for (int i = 1; i < *argc; i++) {
		const struct bench_program_option *o = table;

		if (argv[i][0] != '-') {
			argv[words++] = argv[i];
			continue;
		}
		while (o->name && strcmp(o->name, argv[i]) != 0) {
			o++;
		}
		if (o->name && o->flag) {
			*o->flag = true;
		} else if (!o->name || ++i == *argc || !set(o, argv[i])) {
			return false;
		}
	}
	*argc = words;
	return true;
}

int bench_program_usage(void)
{
	fprintf(stderr, "gbpf: %s: invalid arguments; `gbpf bench` starts it\n",
		program_invocation_short_name);
	return 2;
}

bool bench_program_lists(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		if (strncmp(p, name, n) == 0 && (p[n] == 0 || p[n] == ',')) {
			return true;
		}
	}
	return false;
}

unsigned bench_program_numbers(const char *list, unsigned min, unsigned max, unsigned *v,
			       unsigned n_max)
{
	for (unsigned n = 0; n < n_max; list++) {
		char *end;
		unsigned long number = strtoul(list, &end, 10);

		if (end == list || number < min || number > max) {
			return 0;
		}
		v[n++] = (unsigned)number;
		if (*end != ',') {
			return *end ? 0 : n;
		}
		list = end;
	}
	return 0;
}

int bench_program_record(const char *name, json_t *body)
{
	json_t *record = json_pack("{s:o}", name, body);
	int err = record ? json_dumpf(record, stdout, JSON_COMPACT) : -1;

	json_decref(record);
	return err < 0 || putchar('\n') == EOF || fflush(stdout) ? -1 : 0;
}

json_t *bench_program_text(const char *text)
{
	json_t *j = json_string(text);
	char *plain = j ? NULL : strdup(text);

	for (char *p = plain; p && *p; p++) {
		*p = (unsigned char)*p < 0x80 ? *p : '?';
	}
	j = j ? j : json_string(plain ? plain : "");
	free(plain);
	return j;
}

int bench_program_fail(const char *fmt, ...)
{
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	bench_program_record("error", bench_program_text(text));
	return -1;
}

int bench_program_end(bool failed)
{
	return bench_program_record("end", json_null()) < 0 || failed ? 1 : 0;
}

json_t *bench_program_floats(const float *v, unsigned n)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < n; i++) {
		json_array_append_new(a, json_real((double)v[i]));
	}
	return a;
}

json_t *bench_program_doubles(const double *v, unsigned n)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < n; i++) {
		json_array_append_new(a, json_real(v[i]));
	}
	return a;
}

json_t *bench_program_integers(const unsigned *v, unsigned n)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < n; i++) {
		json_array_append_new(a, json_integer((json_int_t)v[i]));
	}
	return a;
}

json_t *bench_program_differences(const uint64_t *now, const uint64_t *before, unsigned n)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < n; i++) {
		json_array_append_new(a, json_integer((json_int_t)(now[i] - before[i])));
	}
	return a;
}
