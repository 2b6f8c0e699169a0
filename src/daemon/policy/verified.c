/* The memory of verified objects, and the list of those used last. */
#include "daemon/policy/verified.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/shm.h"
#include "base/strmap.h"

/* Maps the image and closes its descriptor, so that a remembered object holds none. */
static int map_image(struct daemon_verified *v)
{
	struct stat st;
	void *map;

	if (fstat(v->built.image_fd, &st) < 0) {
		return -1;
	}
	v->image_bytes = (size_t)st.st_size;
	map = mmap(NULL, v->image_bytes, PROT_READ, MAP_SHARED, v->built.image_fd, 0);
	if (map == MAP_FAILED) {
		return -1;
	}
	v->image = map;
	v->built.image_fd = fd_close(v->built.image_fd);
	return 0;
}

struct daemon_verified *daemon_verified_new(struct ebpf_built *built, struct buf *object,
					    const char *name)
{
	struct daemon_verified *v = calloc(1, sizeof(*v));

	if (!v) {
		return NULL;
	}
	v->users = 1;
	v->built = *built;
	if (map_image(v) < 0) {
		free(v);
		return NULL;
	}
	snprintf(v->name, sizeof(v->name), "%s", name);
	memset(built, 0, sizeof(*built));
	built->image_fd = -1;
	if (object) {
		v->hash = hash_bytes(object->data, object->len);
		v->object = *object;
		buf_init(object);
	}
	return v;
}

struct daemon_verified *daemon_verified_use(struct daemon_verified *v)
{
	(void)add_relaxed(&v->users, 1u);
	return v;
}

void daemon_verified_drop(struct daemon_verified *v)
{
	/* Orders the other users' accesses before the freeing. */
	if (v && sub_acqrel(&v->users, 1u) == 1) {
		ebpf_built_finish(&v->built);
		munmap(v->image, v->image_bytes);
		buf_finish(&v->object);
		free(v);
	}
}

int daemon_verified_image(const struct daemon_verified *v, uint64_t version)
{
	return ebpf_image_renumber(v->image, v->image_bytes, version);
}

/* ---- the cache ---- */

void daemon_verified_cache_init(struct daemon_verified_cache *c)
{
	memset(c, 0, sizeof(*c));
	lock_init(&c->lock, LOCK_VERIFIED);
}

void daemon_verified_cache_finish(struct daemon_verified_cache *c)
{
	while (c->n) {
		daemon_verified_drop(c->v[--c->n]);
	}
	lock_finish(&c->lock);
}

static size_t bytes_of(const struct daemon_verified *v)
{
	return v->object.len + v->image_bytes;
}

/* Returns the position of the object, or n. Two objects may have one hash. */
static unsigned find(const struct daemon_verified_cache *c, uint64_t hash, const char *name,
		     const struct buf *object)
{
	unsigned i = 0;

	while (i < c->n && (c->v[i]->hash != hash || c->v[i]->object.len != object->len ||
			    strcmp(c->v[i]->name, name) != 0 ||
			    memcmp(c->v[i]->object.data, object->data, object->len) != 0)) {
		i++;
	}
	return i;
}

static void to_front(struct daemon_verified_cache *c, unsigned at)
{
	struct daemon_verified *v = c->v[at];

	memmove(&c->v[1], &c->v[0], at * sizeof(c->v[0]));
	c->v[0] = v;
}

struct daemon_verified *daemon_verified_find(struct daemon_verified_cache *c, const char *name,
					     const struct buf *object)
{
	uint64_t hash = hash_bytes(object->data, object->len);
	struct daemon_verified *v = NULL;
	unsigned i;

	lock_take(&c->lock);
	i = find(c, hash, name, object);
	if (i < c->n) {
		v = daemon_verified_use(c->v[i]);
		to_front(c, i);
	}
	lock_release(&c->lock);
	return v;
}

void daemon_verified_add(struct daemon_verified_cache *c, struct daemon_verified *v)
{
	struct daemon_verified *out[DAEMON_VERIFIED_MAX];
	unsigned n = 0;

	if (bytes_of(v) > DAEMON_VERIFIED_BYTES) {
		return;
	}
	lock_take(&c->lock);
	if (find(c, v->hash, v->name, &v->object) == c->n) { /* two threads may verify one object */
		while (c->n && (c->n == DAEMON_VERIFIED_MAX ||
				c->bytes + bytes_of(v) > DAEMON_VERIFIED_BYTES)) {
			out[n++] = c->v[--c->n];
			c->bytes -= bytes_of(c->v[c->n]);
		}
		c->v[c->n] = daemon_verified_use(v);
		c->bytes += bytes_of(v);
		to_front(c, c->n++);
	}
	lock_release(&c->lock);
	while (n) {
		daemon_verified_drop(out[--n]);
	}
}
