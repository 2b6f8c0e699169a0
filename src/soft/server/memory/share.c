/* Memory shared by several contexts, and the descriptors (tokens) that represent it. A token is the
 * write end of a pipe whose read end stays here: the kernel passes it between processes, fstat
 * identifies it, and EPOLLHUP reports that the last holder closed it. No data passes through it.
 * Guarded by the machine's lock. */
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
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/memory/device_memory.h"

#define TOKENS_MAX 4096u
#define TOKENS_OF_CLIENT 1024u
#define LARGE_BYTES (4u << 20)

struct softd_token {
	struct softd_list in_all;
	struct softd_client *client; /* the creator; NULL after its exit */
	int fd;
	dev_t device;
	ino_t inode;
	struct softd_extent *extent; /* a reference, or NULL */
	uint64_t pool;
	struct softd_gpu *gpu;
};

/* Guarded by the machine's lock. */
static struct {
	bool ready;
	struct softd_list tokens;
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

uint64_t softd_share_server_id(void)
{
	if (!shares.server) {
		random_fill(&shares.server, sizeof(shares.server));
		shares.server |= 1;
	}
	return shares.server;
}

uint64_t softd_share_count(void)
{
	return shares.n_extents + shares.n_tokens;
}

/* Returns true if stores use half of the descriptors that this process may have; the rest is for
 * clients. */
static bool many_stores(void)
{
	struct rlimit r;

	return getrlimit(RLIMIT_NOFILE, &r) == 0 && shares.n_stores >= r.rlim_cur / 2;
}

struct softd_store *softd_store_create(uint64_t bytes)
{
	struct softd_store *s = many_stores() ? NULL : calloc(1, sizeof(*s));

	if (!s) {
		return NULL;
	}
	s->refs = 1;
	s->fd = shm_create("gbpf-soft-memory", bytes, SHM_NOEXEC);
	if (s->fd < 0) {
		free(s);
		return NULL;
	}
	/* Its client may get the memfd. If it could seal it against writing, the pages of freed
	 * memory could not be given back. */
	(void)fcntl(s->fd, F_ADD_SEALS, F_SEAL_SEAL);
	shares.n_stores++;
	return s;
}

void softd_store_discard(struct softd_store *s, uint64_t offset, uint64_t bytes)
{
	fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

int softd_store_unref_take_fd(struct softd_store *s)
{
	int fd = -1;

	if (s && --s->refs == 0) {
		fd = s->fd;
		free(s);
		shares.n_stores--;
	}
	return fd;
}

void softd_store_unref(struct softd_store *s)
{
	fd_close(softd_store_unref_take_fd(s));
}

struct softd_extent *softd_extent_wrap(struct softd_store *s, struct softd_gpu *gpu,
				       uint64_t offset, uint64_t bytes)
{
	struct softd_extent *x = calloc(1, sizeof(*x));

	if (!x) {
		return NULL;
	}
	*x = (struct softd_extent){
		.store = s, .gpu = gpu, .offset = offset, .bytes = bytes, .refs = 1
	};
	random_fill(x->secret, sizeof(x->secret));
	s->refs++;
	shares.n_extents++;
	return x;
}

static bool charge(struct softd_gpu *gpu, uint64_t bytes, bool host) REQUIRES(softd_lock)
{
	struct softd_machine *machine = gpu->machine;

	if (!host) {
		return softd_memory_charge(gpu, bytes);
	}
	if (bytes > machine->pinned_limit - machine->pinned_used) {
		return false;
	}
	machine->pinned_used += bytes;
	return true;
}

static void uncharge(struct softd_gpu *gpu, uint64_t bytes, bool host) REQUIRES(softd_lock)
{
	if (host) {
		gpu->machine->pinned_used -= bytes;
	} else {
		softd_memory_uncharge(gpu, bytes);
	}
}

struct softd_extent *softd_extent_create(struct softd_gpu *gpu, uint64_t bytes, bool host)
{
	struct softd_extent *x = NULL;
	struct softd_store *s;

	if (!charge(gpu, bytes, host)) {
		return NULL;
	}
	s = softd_store_create(bytes);
	if (s) {
		x = softd_extent_wrap(s, gpu, 0, bytes);
		softd_store_unref(s);
	}
	if (!x) {
		uncharge(gpu, bytes, host);
		return NULL;
	}
	x->host = host;
	return x;
}

/* Frees the pages, also those that a process which a client has forked still maps, and closes the
 * descriptor. */
static void discard_and_close(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && st.st_size > 0) {
		(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, st.st_size);
	}
	close(fd);
}

static void *discard_main(void *fd)
{
	discard_and_close((int)(intptr_t)fd);
	return NULL;
}

/* Frees a store by its last descriptor. Freeing many pages takes long, so a thread without the lock
 * does it for large stores. */
static void close_pages(int fd, uint64_t bytes) REQUIRES(softd_lock)
{
	pthread_attr_t attr;
	pthread_t t;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (fd >= 0 && (bytes < LARGE_BYTES ||
			pthread_create(&t, &attr, discard_main, (void *)(intptr_t)fd) != 0)) {
		discard_and_close(fd);
	}
	pthread_attr_destroy(&attr);
}

void softd_extent_unref(struct softd_extent *x)
{
	if (--x->refs) {
		return;
	}
	uncharge(x->gpu, x->bytes, x->host);
	if (x->home) {
		softd_memory_reclaim(x->home, x->home_page);
	}
	if (x->store->refs > 1) {
		softd_store_discard(x->store, x->offset, x->bytes);
	}
	close_pages(softd_store_unref_take_fd(x->store), x->bytes);
	free(x);
	shares.n_extents--;
}

static void token_drop(struct softd_token *t) REQUIRES(softd_lock)
{
	softd_list_remove(&t->in_all);
	close(t->fd); /* removes it from the epoll set as well */
	if (t->extent) {
		softd_extent_unref(t->extent);
	}
	free(t);
	shares.n_tokens--;
}

/* Returns false if epoll reported that the last holder closed the token. */
static bool held(const struct softd_token *t, const struct epoll_event *e, int n)
{
	for (int i = 0; i < n; i++) {
		if (e[i].data.u64 == (uint64_t)t->inode) {
			return false;
		}
	}
	return true;
}

/* The thread that frees tokens after their last holder closed them. */
static void *token_reaper(void *device)
{
	struct softd_machine *machine = device;
	struct epoll_event e[32];

	for (;;) {
		int n = epoll_wait(shares.epoll, e, ARRAY_SIZE(e), -1);

		softd_machine_lock(machine);
		softd_list_each_safe (&shares.tokens, t, struct softd_token, in_all) {
			if (!held(t, e, MAX(n, 0))) {
				token_drop(t);
			}
		}
		softd_machine_unlock(machine);
	}
	return NULL;
}

static int start_token_reaper(struct softd_machine *machine)
{
	pthread_t t;

	if (shares.ready) {
		return 0;
	}
	softd_list_init(&shares.tokens);
	shares.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (shares.epoll < 0) {
		return -errno;
	}
	if (pthread_create(&t, NULL, token_reaper, machine) != 0) {
		shares.epoll = fd_close(shares.epoll);
		return -EAGAIN;
	}
	pthread_detach(t);
	shares.ready = true;
	return 0;
}

static bool many_tokens(const struct softd_client *c)
{
	unsigned own = 0;

	softd_list_each (&shares.tokens, t, struct softd_token, in_all) {
		own += t->client == c;
	}
	return own >= TOKENS_OF_CLIENT || shares.n_tokens >= TOKENS_MAX;
}

static int token_open(struct softd_token *t)
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

int softd_token_create(struct softd_client *c, struct softd_extent *x, uint64_t pool,
		       struct softd_gpu *gpu)
{
	int err = start_token_reaper(c->machine), fd;
	struct softd_token *t;

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
	softd_list_append(&shares.tokens, &t->in_all);
	shares.n_tokens++;
	return fd;
}

int softd_token_find(const struct stat *st, struct softd_extent **ret_extent, uint64_t *ret_pool,
		     struct softd_gpu **ret_gpu)
{
	if (!shares.ready || !S_ISFIFO(st->st_mode)) {
		return -ENOENT;
	}
	softd_list_each (&shares.tokens, t, struct softd_token, in_all) {
		if (t->inode == st->st_ino && t->device == st->st_dev) {
			*ret_extent = t->extent;
			*ret_pool = t->pool;
			*ret_gpu = t->gpu;
			return 0;
		}
	}
	return -ENOENT;
}

void softd_share_client_exit(struct softd_client *c)
{
	for (uint32_t i = 0; i < c->n_handles; i++) {
		if (c->handles[i]) {
			softd_extent_unref(c->handles[i]);
		}
	}
	free(c->handles);
	c->handles = NULL;
	c->n_handles = 0;
	if (shares.ready) {
		softd_list_each (&shares.tokens, t, struct softd_token, in_all) {
			t->client = t->client == c ? NULL : t->client;
		}
	}
}
