/* Makes text from outside safe for logs, JSON and terminals. */
#ifndef GBPF_DAEMON_CLEAN_TEXT_H
#define GBPF_DAEMON_CLEAN_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Replaces control characters, characters that reorder text, and bytes that are not UTF-8 by '?',
 * in place. */
void daemon_text_clean(char *s);

/* Copies at most cap - 1 bytes of a text of len bytes, which need not be terminated, and cleans the
 * copy. */
void daemon_text_copy(char *out, size_t cap, const char *s, size_t len);

const char *daemon_class_name(uint32_t class_id); /* returns "normal" if out of range */
int daemon_class_from_name(const char *name);	  /* returns GBPF_CLASS_* or -1 */

#endif
