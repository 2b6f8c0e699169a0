/* Memory that several contexts use, and the descriptors that stand for it. Such a descriptor is the
 * writing end of a pipe whose reading end stays here: the kernel passes it from process to process,
 * tells it apart from all others, and says when the last holder has gone. Nobody reads or maps
 * anything through it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/shm.h"
#include "soft/server/machine.h"

#define TOKENS_MAX 4096u
#define TOKENS_OF_CLIENT 1024u
#define LARGE_BYTES (4u << 20)

struct token {
	struct list in_all;
	struct client *client; /* who made it; NULL: gone */
	int fd;
	dev_t device;
	ino_t inode;
	struct extent *extent; /* a reference, or NULL */
	uint64_t pool;
	struct gpu *gpu;
};

/* Guarded by device.lock, as everything here. */
static struct {
	bool ready;
	struct list tokens;
	unsigned n_tokens, n_extents, n_stores;
	int epoll;
	uint64_t server;
} shares;

static void random_fill(void *p, size_t n)
{
	uint8_t *at = p;

	while (n) {
		ssize_t got = getrandom(at, n, 0);

		if (got > 0) {
			at += got;
			n -= (size_t)got;
		}
	}
}

uint64_t share_server(void)
{
	if (!shares.server) {
		random_fill(&shares.server, sizeof(shares.server));
		shares.server |= 1;
	}
	return shares.server;
}

uint64_t share_count(void)
{
	return shares.n_extents + shares.n_tokens;
}

/* Half of the descriptors that this process may have stay for clients. */
static bool many_stores(void)
{
	struct rlimit r;

	return getrlimit(RLIMIT_NOFILE, &r) == 0 && shares.n_stores >= r.rlim_cur / 2;
}

struct store *store_create(uint64_t bytes)
{
	struct store *s = many_stores() ? NULL : calloc(1, sizeof(*s));

	if (!s) {
		return NULL;
	}
	s->refs = 1;
	s->fd = shm_create("gbpf-soft-memory", bytes, SHM_NOEXEC);
	if (s->fd < 0) {
		free(s);
		return NULL;
	}
	shares.n_stores++;
	return s;
}

void store_punch(struct store *s, uint64_t offset, uint64_t bytes)
{
	fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

int store_leave(struct store *s)
{
	int fd = -1;

	if (s && --s->refs == 0) {
		fd = s->fd;
		free(s);
		shares.n_stores--;
	}
	return fd;
}

void store_unref(struct store *s)
{
	fd_close(store_leave(s));
}

struct extent *extent_of(struct store *s, struct gpu *gpu, uint64_t offset, uint64_t bytes)
{
	struct extent *x = calloc(1, sizeof(*x));

	if (!x) {
		return NULL;
	}
	*x = (struct extent){ .store = s, .gpu = gpu, .offset = offset, .bytes = bytes, .refs = 1 };
	random_fill(x->secret, sizeof(x->secret));
	s->refs++;
	shares.n_extents++;
	return x;
}

struct extent *extent_create(struct gpu *gpu, uint64_t bytes)
{
	struct extent *x = NULL;
	struct store *s;

	if (!memory_charge(gpu, bytes)) {
		return NULL;
	}
	s = store_create(bytes);
	if (s) {
		x = extent_of(s, gpu, 0, bytes);
		store_unref(s);
	}
	if (!x) {
		memory_uncharge(gpu, bytes);
	}
	return x;
}

static void *close_it(void *fd)
{
	close((int)(intptr_t)fd);
	return NULL;
}

/* The last descriptor of many pages: giving them back takes long, and others wait for the lock. */
static void close_pages(int fd, uint64_t bytes)
{
	pthread_attr_t attr;
	pthread_t t;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (fd >= 0 && (bytes < LARGE_BYTES ||
			pthread_create(&t, &attr, close_it, (void *)(intptr_t)fd) != 0)) {
		close(fd);
	}
	pthread_attr_destroy(&attr);
}

void extent_unref(struct extent *x)
{
	if (--x->refs) {
		return;
	}
	memory_uncharge(x->gpu, x->bytes);
	if (x->home) {
		memory_bury(x->home, x->home_page);
	}
	if (x->store->refs > 1) {
		store_punch(x->store, x->offset, x->bytes);
	}
	close_pages(store_leave(x->store), x->bytes);
	free(x);
	shares.n_extents--;
}

static void token_drop(struct token *t)
{
	list_remove(&t->in_all);
	close(t->fd); /* leaves the epoll too */
	if (t->extent) {
		extent_unref(t->extent);
	}
	free(t);
	shares.n_tokens--;
}

/* True while somebody holds the other end. */
static bool held(const struct token *t, const struct epoll_event *e, int n)
{
	for (int i = 0; i < n; i++) {
		if (e[i].data.u64 == (uint64_t)t->inode) {
			return false;
		}
	}
	return true;
}

/* The thread that waits for last holders to go. */
static void *janitor(void *device)
{
	struct device *dev = device;
	struct epoll_event e[32];

	for (;;) {
		int n = epoll_wait(shares.epoll, e, ARRAY_SIZE(e), -1);

		pthread_mutex_lock(&dev->lock);
		list_each_safe(&shares.tokens, t, struct token, in_all)
		{
			if (!held(t, e, MAX(n, 0))) {
				token_drop(t);
			}
		}
		pthread_mutex_unlock(&dev->lock);
	}
	return NULL;
}

static int start_janitor(struct device *dev)
{
	pthread_t t;

	if (shares.ready) {
		return 0;
	}
	list_init(&shares.tokens);
	shares.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (shares.epoll < 0) {
		return -errno;
	}
	if (pthread_create(&t, NULL, janitor, dev) != 0) {
		shares.epoll = fd_close(shares.epoll);
		return -EAGAIN;
	}
	pthread_detach(t);
	shares.ready = true;
	return 0;
}

static bool many_tokens(const struct client *c)
{
	unsigned own = 0;

	list_each (&shares.tokens, t, struct token, in_all) {
		own += t->client == c;
	}
	return own >= TOKENS_OF_CLIENT || shares.n_tokens >= TOKENS_MAX;
}

static int token_open(struct token *t)
{
	struct epoll_event e = { .events = EPOLLHUP };
	struct stat st;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0) {
		return -errno;
	}
	t->fd = ends[0];
	if (fstat(t->fd, &st) < 0) {
		goto fail;
	}
	t->device = st.st_dev;
	t->inode = st.st_ino;
	e.data.u64 = st.st_ino;
	if (epoll_ctl(shares.epoll, EPOLL_CTL_ADD, t->fd, &e) < 0) {
		goto fail;
	}
	return ends[1];
fail:
	close(ends[0]);
	close(ends[1]);
	return -EMFILE;
}

int token_create(struct client *c, struct extent *x, uint64_t pool, struct gpu *gpu)
{
	int err = start_janitor(c->dev), fd;
	struct token *t;

	if (err || many_tokens(c)) {
		return err ? err : -ENOSPC;
	}
	t = calloc(1, sizeof(*t));
	if (!t) {
		return -ENOMEM;
	}
	t->client = c;
	t->extent = x;
	t->pool = pool;
	t->gpu = gpu;
	fd = token_open(t);
	if (fd < 0) {
		free(t);
		return fd;
	}
	if (x) {
		x->refs++;
	}
	list_append(&shares.tokens, &t->in_all);
	shares.n_tokens++;
	return fd;
}

int token_find(const struct stat *st, struct extent **ret_extent, uint64_t *ret_pool,
	       struct gpu **ret_gpu)
{
	if (!shares.ready || !S_ISFIFO(st->st_mode)) {
		return -ENOENT;
	}
	list_each (&shares.tokens, t, struct token, in_all) {
		if (t->inode == st->st_ino && t->device == st->st_dev) {
			*ret_extent = t->extent;
			*ret_pool = t->pool;
			*ret_gpu = t->gpu;
			return 0;
		}
	}
	return -ENOENT;
}

void share_client_gone(struct client *c)
{
	for (uint32_t i = 0; i < c->n_handles; i++) {
		if (c->handles[i]) {
			extent_unref(c->handles[i]);
		}
	}
	free(c->handles);
	c->handles = NULL;
	c->n_handles = 0;
	if (shares.ready) {
		list_each (&shares.tokens, t, struct token, in_all) {
			t->client = t->client == c ? NULL : t->client;
		}
	}
}
