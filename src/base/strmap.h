/* Hash table from byte strings to pointers; iteration follows insertion order. Not for shared
 * memory. */
#ifndef GBPF_BASE_STRMAP_H
#define GBPF_BASE_STRMAP_H

#include <stddef.h>
#include <stdint.h>

struct strmap_entry {
	char *key; /* owned, zero-terminated copy; NULL: removed */
	size_t key_len;
	uint64_t hash;
	void *value; /* borrowed */
};

struct strmap {
	struct strmap_entry *entries; /* owned, in insertion order */
	uint32_t *index;	      /* owned, open addressing; 0 empty, else entry + 1 */
	size_t n, cap, slots, live;
};

void strmap_init(struct strmap *m);
void strmap_finish(struct strmap *m);

/* 0, -EEXIST if present, -ENOMEM. */
int strmap_add(struct strmap *m, const char *key, void *value);
int strmap_add_n(struct strmap *m, const char *key, size_t len, void *value);
/* Returns NULL if absent. */
void *strmap_get(const struct strmap *m, const char *key);
void *strmap_get_n(const struct strmap *m, const char *key, size_t len);
/* Removes and returns the value; NULL if absent. */
void *strmap_del(struct strmap *m, const char *key);

uint64_t hash_bytes(const void *data, size_t len); /* FNV-1a, 64 bits, with a final multiply-xor */

#define strmap_each(m, e)                                                                          \
	for (struct strmap_entry *e = (m)->entries; (m)->n && e < (m)->entries + (m)->n; e++)      \
		if (e->key)

#endif
