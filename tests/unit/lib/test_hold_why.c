/* Words and texts of the reasons of holds: each number has one word, and only known words a text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "policy/ctx.h"
#include "proto/hold_why.h"
#include "proto/pages.h"

static void assert_word(uint32_t why, const char *word)
{
	char out[PROTO_WHY_WORD];

	assert_ptr_equal(proto_why_word(out, why), out);
	assert_string_equal(out, word);
}

static void mechanisms_have_words_of_their_own(void **state)
{
	assert_word(PROTO_WHY_NONE, "");
	assert_word(PROTO_WHY_POLICY, "policy");
	assert_word(PROTO_WHY_LIMIT, "limit");
	assert_word(PROTO_WHY_MIN_SHARE, "min-share");
	assert_word(PROTO_WHY_LEASE, "lease");
	assert_word(PROTO_WHY_COLLECTIVE, "collective");
	assert_word(PROTO_WHY_GROUP, "group");
	assert_word(PROTO_WHY_GROUP + 1, ""); /* a tenant may write anything */
	assert_word(PROTO_WHY_REASON - 1, "");
}

static void reasons_of_policies_are_named_after_their_constants(void **state)
{
	assert_word(PROTO_WHY_REASON | GBPF_WHY_LATENCY, "latency");
	assert_word(PROTO_WHY_REASON | GBPF_WHY_CAP, "cap");
	assert_word(PROTO_WHY_REASON | GBPF_WHY_NONE, "reason 0");
	assert_word(PROTO_WHY_REASON | (GBPF_WHY_CAP + 1), "reason 11");
	assert_word(PROTO_WHY_REASON | GBPF_WHY_POLICY, "reason 1000");
	assert_word(PROTO_WHY_REASON | PROTO_WHY_REASONS, "reason 1073741823");
	assert_word(UINT32_MAX, "reason 1073741823");
}

static void known_words_have_texts(void **state)
{
	char word[PROTO_WHY_WORD];
	bool by_policy;

	assert_string_equal(proto_why_text("policy", &by_policy), "the policy said HOLD");
	assert_false(by_policy);
	assert_string_equal(proto_why_text("share", &by_policy),
			    "its share of the GPU or of the copy bandwidth is used up");
	assert_true(by_policy);
	for (uint32_t why = PROTO_WHY_REASON | 1; why <= (PROTO_WHY_REASON | GBPF_WHY_CAP); why++) {
		assert_true(strlen(proto_why_text(proto_why_word(word, why), &by_policy)) > 10);
		assert_true(by_policy);
	}
	assert_null(proto_why_text("", &by_policy));
	assert_null(proto_why_text("reason 7", &by_policy));
	assert_null(proto_why_text("none", &by_policy));
	assert_false(by_policy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mechanisms_have_words_of_their_own),
		cmocka_unit_test(reasons_of_policies_are_named_after_their_constants),
		cmocka_unit_test(known_words_have_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
