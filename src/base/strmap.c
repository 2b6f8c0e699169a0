/* Open addressing over an ordered array of entries; rebuilt when half full. */
#include "base/strmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint64_t hash_bytes(const void *data, size_t len)
{
	const unsigned char *p = data;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < len; i++) {
		h = (h ^ p[i]) * 0x100000001b3u;
	}
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15u;
	return h ^ (h >> 29);
}

void strmap_init(struct strmap *m)
{
	memset(m, 0, sizeof(*m));
}

void strmap_finish(struct strmap *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->entries[i].key);
	}
	free(m->entries);
	free(m->index);
	strmap_init(m);
}

static struct strmap_entry *find(const struct strmap *m, const char *key, size_t len, uint64_t hash)
{
	if (!m->slots) {
		return NULL;
	}
	for (size_t i = hash & (m->slots - 1); m->index[i]; i = (i + 1) & (m->slots - 1)) {
		struct strmap_entry *e = &m->entries[m->index[i] - 1];

		if (e->key && e->hash == hash && e->key_len == len && !memcmp(e->key, key, len)) {
			return e;
		}
	}
	return NULL;
}

static void place(struct strmap *m, size_t entry)
{
	size_t i = m->entries[entry].hash & (m->slots - 1);

	while (m->index[i]) {
		i = (i + 1) & (m->slots - 1);
	}
	m->index[i] = (uint32_t)entry + 1;
}

/* Moves the entries together. The index must be made again. */
static void remove_deleted(struct strmap *m)
{
	size_t live = 0;

	for (size_t i = 0; i < m->n; i++) {
		if (m->entries[i].key) {
			m->entries[live++] = m->entries[i];
		}
	}
	m->n = live;
}

/* Makes room for one more entry: removes deleted ones, grows both arrays. */
static int make_room(struct strmap *m)
{
	struct strmap_entry *entries;
	size_t cap = m->cap, slots;
	uint32_t *index;

	if (m->n < m->cap) {
		return 0;
	}
	if (m->live * 4 >= cap * 3) {
		cap = cap ? cap * 2 : 8;
	}
	if (cap > UINT32_MAX / 4) {
		return -ENOMEM;
	}
	slots = cap * 2;
	index = calloc(slots, sizeof(*index));
	entries = index ? realloc(m->entries, cap * sizeof(*entries)) : NULL;
	if (!entries) { /* nothing has been moved: the old index still holds */
		free(index);
		return -ENOMEM;
	}
	free(m->index);
	m->entries = entries;
	m->index = index;
	m->cap = cap;
	m->slots = slots;
	remove_deleted(m);
	for (size_t i = 0; i < m->n; i++) {
		place(m, i);
	}
	return 0;
}

int strmap_add_n(struct strmap *m, const char *key, size_t len, void *value)
{
	uint64_t hash = hash_bytes(key, len);
	struct strmap_entry *e;
	char *copy;
	int err;

	if (find(m, key, len, hash)) {
		return -EEXIST;
	}
	copy = malloc(len + 1);
	if (!copy) {
		return -ENOMEM;
	}
	err = make_room(m);
	if (err) {
		free(copy);
		return err;
	}
	memcpy(copy, key, len);
	copy[len] = 0;
	e = &m->entries[m->n++];
	*e = (struct strmap_entry){ copy, len, hash, value };
	place(m, m->n - 1);
	m->live++;
	return 0;
}

int strmap_add(struct strmap *m, const char *key, void *value)
{
	return strmap_add_n(m, key, strlen(key), value);
}

void *strmap_get_n(const struct strmap *m, const char *key, size_t len)
{
	struct strmap_entry *e = find(m, key, len, hash_bytes(key, len));

	return e ? e->value : NULL;
}

void *strmap_get(const struct strmap *m, const char *key)
{
	return strmap_get_n(m, key, strlen(key));
}

void *strmap_del(struct strmap *m, const char *key)
{
	size_t len = strlen(key);
	struct strmap_entry *e = find(m, key, len, hash_bytes(key, len));

	if (!e) {
		return NULL;
	}
	free(e->key);
	e->key = NULL;
	m->live--;
	return e->value;
}
