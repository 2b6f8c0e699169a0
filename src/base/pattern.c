/* Patterns of names. Only the last * is tried again, so no pattern takes exponential time. */
#include "base/pattern.h"

#include <stddef.h>

bool pattern_matches(const char *pattern, const char *name)
{
	const char *star = NULL, *from = NULL;

	while (*name) {
		if (*pattern == '*') {
			star = ++pattern;
			from = name;
		} else if (*pattern == *name || *pattern == '?') {
			pattern++;
			name++;
		} else if (star) {
			pattern = star;
			name = ++from;
		} else {
			return false;
		}
	}
	while (*pattern == '*') {
		pattern++;
	}
	return !*pattern;
}

bool pattern_may_match(const char *pattern, const char *begin)
{
	while (*begin && *pattern != '*') {
		if (*pattern != *begin && *pattern != '?') {
			return false;
		}
		pattern++;
		begin++;
	}
	return true;
}
