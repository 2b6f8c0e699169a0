/* Patterns of names: * stands for any characters, ? for one. */
#ifndef GBPF_BASE_PATTERN_H
#define GBPF_BASE_PATTERN_H

#include <stdbool.h>

/* Returns whether the whole name matches. The time is bounded by the product of the lengths. */
bool pattern_matches(const char *pattern, const char *name);

/* Returns whether the pattern matches some name that starts with begin. */
bool pattern_may_match(const char *pattern, const char *begin);

#endif
