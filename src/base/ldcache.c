/* Parser for the dynamic linker's cache in its new format (glibc, sysdeps/generic/dl-cache.h:
 * struct cache_file_new). The file is outside input, so every offset is checked. */
#include "base/ldcache.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "glibc-ld.so.cache1.1"
#define FLAGS_X86_64_LIBC6 0x0303
#define MAX_CACHE_BYTES (16u << 20)
#define HEAD_BYTES 48
#define ENTRY_BYTES 24

static uint32_t word(const char *data, size_t at)
{
	uint32_t v;

	memcpy(&v, data + at, sizeof(v));
	return v;
}

/* Returns the zero-terminated text at an offset, "" if the offset is beyond the file. */
static const char *text_at(const struct buf *b, uint32_t at)
{
	return at < b->len ? b->data + at : "";
}

bool ldcache_scan(const struct buf *cache, const char *soname, unsigned nth, char *path, size_t cap)
{
	uint32_t n;

	if (cache->len < HEAD_BYTES || memcmp(cache->data, MAGIC, strlen(MAGIC)) != 0) {
		return false;
	}
	n = word(cache->data, strlen(MAGIC));
	if (n > (cache->len - HEAD_BYTES) / ENTRY_BYTES) {
		return false;
	}
	for (uint32_t i = 0; i < n; i++) {
		size_t at = HEAD_BYTES + (size_t)i * ENTRY_BYTES;

		if (word(cache->data, at) == FLAGS_X86_64_LIBC6 &&
		    strcmp(text_at(cache, word(cache->data, at + 4)), soname) == 0 && nth-- == 0) {
			int len = snprintf(path, cap, "%s",
					   text_at(cache, word(cache->data, at + 8)));

			return len > 0 && (size_t)len < cap;
		}
	}
	return false;
}

bool ldcache_find(const char *soname, unsigned nth, char *path, size_t cap)
{
	struct buf b;
	bool found = false;

	buf_init(&b);
	if (buf_read_file(&b, "/etc/ld.so.cache", MAX_CACHE_BYTES) == 0) {
		found = ldcache_scan(&b, soname, nth, path, cap);
	}
	buf_finish(&b);
	return found;
}
