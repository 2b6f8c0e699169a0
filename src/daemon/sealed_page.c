/* Creating, adopting and sealing shared pages. Seals: memfd_create(2), fcntl(2) F_ADD_SEALS. */
#include "daemon/sealed_page.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/shm.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

int daemon_page_create(struct daemon_page *p, const char *name, size_t bytes)
{
	*p = (struct daemon_page){ .fd = shm_create(name, bytes, SHM_NOEXEC),
				   .bytes = bytes,
				   .writable = true };
	if (p->fd < 0) {
		int err = p->fd;

		*p = DAEMON_PAGE_NONE;
		return err;
	}
	p->map = shm_map(p->fd, bytes, 1);
	if (!p->map) {
		int err = -errno;

		daemon_page_destroy(p);
		return err;
	}
	return 0;
}

int daemon_page_adopt(struct daemon_page *p, int fd, size_t bytes)
{
	int err = shm_check(fd, bytes);
	bool writable = true;
	void *map;

	if (err) {
		return err;
	}
	map = shm_map(fd, bytes, 1);
	if (!map) { /* sealed by the previous gbpfd */
		writable = false;
		map = shm_map(fd, bytes, 0);
	}
	if (!map) {
		return -errno;
	}
	*p = (struct daemon_page){ .fd = fd, .map = map, .bytes = bytes, .writable = writable };
	return 0;
}

int daemon_page_seal(const struct daemon_page *p)
{
	int seals = fcntl(p->fd, F_GET_SEALS);

	if (seals >= 0 && (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE))) {
		return 0;
	}
	return shm_seal_future_write(p->fd);
}

void daemon_page_close_fd(struct daemon_page *p)
{
	p->fd = fd_close(p->fd);
}

void daemon_page_destroy(struct daemon_page *p)
{
	shm_unmap(p->map, p->bytes);
	fd_close(p->fd);
	*p = DAEMON_PAGE_NONE;
}

void daemon_board_clear(const struct daemon_page *board)
{
	struct proto_board *b = board->map;

	if (!b) {
		return;
	}
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (board->writable) {
			store_seqcst(&b->gpu[i].open, 0u);
			store_relaxed(&b->gpu[i].stop_until_ns, (uint64_t)0);
			store_relaxed(&b->gpu[i].hold_until_ns, (uint64_t)0);
			add_seqcst(&b->gpu[i].seq, 1u);
		}
		futex_wake_shared(&b->gpu[i].seq, INT_MAX);
	}
}
