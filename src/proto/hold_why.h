/* Reasons of holds (enum proto_why in proto/pages.h) as words of the control socket and as texts.
 * Reasons that policies set come from the constants GBPF_WHY_* of hooks.def. */
#ifndef GBPF_PROTO_HOLD_WHY_H
#define GBPF_PROTO_HOLD_WHY_H

#include <stdbool.h>
#include <stdint.h>

#define PROTO_WHY_WORD 32

/* Writes the word: "share", "limit"; "" for none and for values that are not reasons; "reason 1000"
 * for a number of the policy's own or one that this version does not know. Returns out. */
const char *proto_why_word(char out[PROTO_WHY_WORD], uint32_t why);
/* Returns a static text about the word's reason; NULL if the word is not known, such as that of a
 * newer gbpfd. *ret_by_policy: the policy has set it. */
const char *proto_why_text(const char *word, bool *ret_by_policy);

#endif
