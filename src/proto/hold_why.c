/* The table of reasons. */
#include "proto/hold_why.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "proto/pages.h"

#define PREFIX "GBPF_WHY_"
#define DOC_PREFIX "reason of a hold: "

static const struct constant {
	const char *name;
	uint64_t value;
	const char *doc;
} constants[] = {
#define GBPF_CONST(name, value, doc) { #name, (uint64_t)(value), doc },
#include "gbpf/hooks.def"
};

static const struct reason {
	uint32_t why;
	const char *word, *text;
} reasons[] = {
	{ PROTO_WHY_POLICY, "policy", "the policy said HOLD" },
	{ PROTO_WHY_LIMIT, "limit", "it went because the hold limit was reached" },
	{ PROTO_WHY_MIN_SHARE, "min-share",
	  "it went because the minimum share had paid for it, after a launch that went at the hold "
	  "limit" },
	{ PROTO_WHY_LEASE, "lease",
	  "it was stopped between blocks for a latency request of another program" },
	{ PROTO_WHY_COLLECTIVE, "collective", "it was not held: work of this kind never is" },
	{ PROTO_WHY_GROUP, "group",
	  "it waited for its group, of which a policy held another process or GPU" },
};

/* Returns whether a constant is a reason that policies set, other than NONE. */
static bool is_reason(const struct constant *c)
{
	return strncmp(c->name, PREFIX, strlen(PREFIX)) == 0 && c->value != 0 &&
	       strcmp(c->name, PREFIX "POLICY") != 0;
}

/* Writes the name of a constant in lower case, without its prefix. */
static const char *word_of(char out[PROTO_WHY_WORD], const struct constant *c)
{
	const char *from = c->name + strlen(PREFIX);
	size_t i;

	for (i = 0; from[i] && i + 1 < PROTO_WHY_WORD; i++) {
		out[i] = (char)(from[i] == '_'			   ? '-'
				: from[i] >= 'A' && from[i] <= 'Z' ? from[i] - 'A' + 'a'
								   : from[i]);
	}
	out[i] = 0;
	return out;
}

const char *proto_why_word(char out[PROTO_WHY_WORD], uint32_t why)
{
	uint32_t number = why & PROTO_WHY_REASONS;

	out[0] = 0;
	if (!(why & PROTO_WHY_REASON)) {
		for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
			if (reasons[i].why == why) {
				snprintf(out, PROTO_WHY_WORD, "%s", reasons[i].word);
			}
		}
		return out;
	}
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
		if (is_reason(&constants[i]) && constants[i].value == number) {
			return word_of(out, &constants[i]);
		}
	}
	snprintf(out, PROTO_WHY_WORD, "reason %u", number);
	return out;
}

const char *proto_why_text(const char *word, bool *ret_by_policy)
{
	char own[PROTO_WHY_WORD];

	*ret_by_policy = false;
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		if (strcmp(reasons[i].word, word) == 0) {
			return reasons[i].text;
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
		if (is_reason(&constants[i]) && strcmp(word_of(own, &constants[i]), word) == 0) {
			*ret_by_policy = true;
			return constants[i].doc + strlen(DOC_PREFIX);
		}
	}
	return NULL;
}
