/* Files of a store, of policies or tools: objects and their descriptions, as <dir>/N.bpf.o and
 * N.json, and others. */
#ifndef GBPF_DAEMON_STORE_FILE_H
#define GBPF_DAEMON_STORE_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define DAEMON_STORE_OBJECT_MAX (16u << 20)

void daemon_store_path(char out[4200], const char *dir, uint64_t version, const char *ending);
/* Returns true for a regular file. Others may block gbpfd: a pipe does until a writer opens it. */
bool daemon_store_is_file(const char *path);
/* Returns the object in a regular file of at most max bytes; NULL: it has none. */
json_t *daemon_store_read_json(const char *path, size_t max);

/* For the worker. Each writes a new file, syncs it, and renames it over the old one. 0 or -errno.
 */
int daemon_store_write_object(const char *dir, uint64_t version, const void *object, size_t bytes,
			      const char *meta);
int daemon_store_write(const char *dir, const char *file, const char *text);
int daemon_store_read_object(const char *dir, uint64_t version, struct buf *object);
void daemon_store_delete_files(const char *dir, uint64_t version);

#endif
