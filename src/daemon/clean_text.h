/* Texts that come from outside, made fit for logs, JSON and terminals. */
#ifndef GBPF_DAEMON_CLEAN_TEXT_H
#define GBPF_DAEMON_CLEAN_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* In place: control characters and what is not UTF-8 become '?'. */
void daemon_text_clean(char *s);

/* Copies at most cap - 1 bytes of a text that may be unterminated (len bytes), cleans it. */
void daemon_text_copy(char *out, size_t cap, const char *s, size_t len);

const char *daemon_class_name(uint32_t class_id); /* "normal" for what is out of range */
int daemon_class_from_name(const char *name);	  /* GBPF_CLASS_* or -1 */

#endif
