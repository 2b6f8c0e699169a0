/* Cleaning of texts: jansson refuses text that is not UTF-8, and terminals interpret control
 * characters. */
#include "daemon/clean_text.h"

#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"

static const char *const classes[] = { "latency", "normal", "batch" };

const char *daemon_class_name(uint32_t class_id)
{
	return class_id < ARRAY_SIZE(classes) ? classes[class_id] : "normal";
}

int daemon_class_from_name(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(classes); i++) {
		if (strcmp(name, classes[i]) == 0) {
			return (int)i;
		}
	}
	return -1;
}

/* Returns true for characters that change the order or the lines in which a terminal shows what
 * follows: a program's name could feign another row of `gbpf ps`. U+061C, U+200E, U+200F,
 * U+2028..U+202E, U+2066..U+2069. */
static bool reorders(const unsigned char *s)
{
	if (s[0] == 0xd8) {
		return s[1] == 0x9c;
	}
	if (s[0] != 0xe2) {
		return false;
	}
	return (s[1] == 0x80 && (s[2] == 0x8e || s[2] == 0x8f || (s[2] >= 0xa8 && s[2] <= 0xae))) ||
	       (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9);
}

/* Returns the length of the well-formed UTF-8 sequence at s (Unicode 15, table 3-7), or 0. Does not
 * read beyond the terminating zero byte. */
static unsigned sequence(const unsigned char *s)
{
	static const struct {
		unsigned char first, last, low, high, more;
	} rows[] = { { 0xc2, 0xdf, 0x80, 0xbf, 1 }, { 0xe0, 0xe0, 0xa0, 0xbf, 2 },
		     { 0xe1, 0xec, 0x80, 0xbf, 2 }, { 0xed, 0xed, 0x80, 0x9f, 2 },
		     { 0xee, 0xef, 0x80, 0xbf, 2 }, { 0xf0, 0xf0, 0x90, 0xbf, 3 },
		     { 0xf1, 0xf3, 0x80, 0xbf, 3 }, { 0xf4, 0xf4, 0x80, 0x8f, 3 } };

	if (s[0] < 0x80) {
		return s[0] >= 0x20 && s[0] != 0x7f;
	}
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (s[0] < rows[i].first || s[0] > rows[i].last || s[1] < rows[i].low ||
		    s[1] > rows[i].high) {
			continue;
		}
		for (unsigned k = 2; k <= rows[i].more; k++) {
			if (s[k] < 0x80 || s[k] > 0xbf) {
				return 0;
			}
		}
		/* U+0080..U+009F are control characters too */
		return (s[0] == 0xc2 && s[1] < 0xa0) || reorders(s) ? 0 : rows[i].more + 1u;
	}
	return 0;
}

void daemon_text_clean(char *s)
{
	while (*s) {
		unsigned n = sequence((unsigned char *)s);

		if (n) {
			s += n;
		} else {
			*s++ = '?';
		}
	}
}

void daemon_text_copy(char *out, size_t cap, const char *s, size_t len)
{
	size_t n = strnlen(s, len);

	n = MIN(n, cap - 1);
	memcpy(out, s, n);
	out[n] = 0;
	daemon_text_clean(out);
}
