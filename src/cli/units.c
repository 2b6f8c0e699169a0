/* Numbers with three significant digits and a unit; parsing of durations. */
#include "cli/cli.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void three_digits(char *out, size_t cap, double v, const char *unit)
{
	int digits = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;

	snprintf(out, cap, "%.*f%s", digits, v, unit);
}

const char *cli_duration(char out[24], uint64_t ns)
{
	double v = (double)ns;

	if (ns < 1000) {
		snprintf(out, 24, "%u ns", (unsigned)ns);
	} else if (v < 999.5e3) {
		three_digits(out, 24, v / 1e3, cli_sign(" µs", " us"));
	} else if (v < 999.5e6) {
		three_digits(out, 24, v / 1e6, " ms");
	} else if (v < 99.5e9) {
		three_digits(out, 24, v / 1e9, " s");
	} else if (v < 100 * 60e9) {
		snprintf(out, 24, "%.0f min", v / 60e9);
	} else if (v < 48 * 3600e9) {
		snprintf(out, 24, "%.1f h", v / 3600e9);
	} else {
		snprintf(out, 24, "%.1f d", v / 86400e9);
	}
	return out;
}

const char *cli_count(char out[24], uint64_t n)
{
	if (n < 100000) {
		snprintf(out, 24, "%u", (unsigned)n);
	} else if ((double)n < 999.5e3) {
		three_digits(out, 24, (double)n / 1e3, "k");
	} else if ((double)n < 999.5e6) {
		three_digits(out, 24, (double)n / 1e6, "M");
	} else {
		three_digits(out, 24, (double)n / 1e9, "G");
	}
	return out;
}

const char *cli_plain(char out[24], uint64_t n)
{
	snprintf(out, 24, "%llu", (unsigned long long)n);
	return out;
}

const char *cli_bytes(char out[24], uint64_t n)
{
	static const char *const units[] = { " B", " KiB", " MiB", " GiB", " TiB" };
	double v = (double)n;
	unsigned k = 0;

	while (v >= 999.5 && k + 1 < ARRAY_SIZE(units)) {
		v /= 1024;
		k++;
	}
	if (k == 0) {
		snprintf(out, 24, "%u B", (unsigned)n);
	} else {
		three_digits(out, 24, v, units[k]);
	}
	return out;
}

const char *cli_when(char out[40], uint64_t wall_ns)
{
	time_t s = (time_t)(wall_ns / 1000000000);
	struct tm tm;
	size_t n;

	if (!localtime_r(&s, &tm)) {
		return "?";
	}
	n = strftime(out, 40, "%Y-%m-%d %H:%M:%S", &tm);
	snprintf(out + n, 40 - n, ".%03u", (unsigned)(wall_ns / 1000000 % 1000));
	return out;
}

int cli_parse_duration(const char *text, uint64_t bare_ns, uint64_t *ret_ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = { { "ns", 1 },   { "us", 1e3 },   { "ms", 1e6 },   { "s", 1e9 },
		      { "m", 60e9 }, { "h", 3600e9 }, { "d", 86400e9 } };
	char *end;
	double v;

	if ((text[0] < '0' || text[0] > '9') && text[0] != '.') {
		return -EINVAL;
	}
	v = strtod(text, &end);
	if (!*end) {
		v *= (double)bare_ns;
		if (!bare_ns || !(v < 1e18)) {
			return -EINVAL;
		}
		*ret_ns = (uint64_t)v;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(end, units[i].unit) == 0 && v * units[i].ns < 1e18) {
			*ret_ns = (uint64_t)(v * units[i].ns);
			return 0;
		}
	}
	return -EINVAL;
}

int cli_parse_bytes(const char *text, uint64_t *ret)
{
	static const char units[] = "KMGTP";
	uint64_t factor = 1;
	const char *unit;
	char *end;
	double v;

	if (text[0] < '0' || text[0] > '9') {
		return -EINVAL;
	}
	v = strtod(text, &end);
	unit = *end ? strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
	if (unit) {
		factor = (uint64_t)1 << 10 * (unit - units + 1);
		end++;
		end += strncmp(end, "iB", 2) == 0 ? 2 : *end == 'B';
	} else if (*end == 'B') {
		end++;
	}
	if (*end || v * (double)factor >= (double)((uint64_t)1 << 62)) {
		return -EINVAL;
	}
	*ret = (uint64_t)(v * (double)factor);
	return 0;
}

bool cli_parse_user(const char *name, uint32_t *ret)
{
	const struct passwd *p = getpwnam(name);
	char *end;
	unsigned long long n;

	if (p) {
		*ret = p->pw_uid;
		return true;
	}
	errno = 0;
	n = strtoull(name, &end, 10);
	*ret = (uint32_t)n;
	return name[0] >= '0' && name[0] <= '9' && !*end && !errno && n < UINT32_MAX;
}

const char *cli_user(char out[64], uint32_t uid)
{
	const struct passwd *p = getpwuid(uid);

	if (p) {
		snprintf(out, 64, "%s", p->pw_name);
	} else {
		snprintf(out, 64, "%u", uid);
	}
	return out;
}
