/* Replaces pages of the program by shared ones. Other threads may write to the pages while the
 * contents are copied. Where the kernel permits (userfaultfd), such writers are stopped until the
 * new pages are in place, so that no write is lost. */
#include "soft/client/memory/page_replace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define AREAS_MAX 4096u

struct area {
	uint64_t begin, end, offset, inode;
	int prot;
	bool shared, stack, code;
};

static bool parse(const char *line, struct area *a)
{
	char r, w, x, s;
	unsigned major, minor;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %c%c%c%c %" SCNx64 " %x:%x %" SCNu64, &a->begin,
		   &a->end, &r, &w, &x, &s, &a->offset, &major, &minor, &a->inode) != 10) {
		return false;
	}
	a->prot = (r == 'r' ? PROT_READ : 0) | (w == 'w' ? PROT_WRITE : 0);
	a->code = x == 'x';
	a->shared = s == 's';
	a->stack = strstr(line, "[stack") != NULL;
	return true;
}

/* Calls each() for every mapping of this process that overlaps the range, clipped to it, until it
 * returns other than 0. */
static int each_area(uint64_t begin, uint64_t end, int (*each)(const struct area *, void *),
		     void *arg)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	int err = 0;

	if (!f) {
		return -errno;
	}
	while (!err && fgets(line, sizeof(line), f)) {
		struct area a;

		if (!parse(line, &a) || a.end <= begin || a.begin >= end) {
			continue;
		}
		if (a.begin < begin) {
			a.offset += begin - a.begin;
			a.begin = begin;
		}
		a.end = MIN(a.end, end);
		err = each(&a, arg);
	}
	fclose(f);
	return err;
}

struct cover {
	uint64_t next; /* everything below has been accepted */
	bool read_only;
	uint64_t stack; /* an address in the calling thread's stack */
};

static int check_area(const struct area *a, void *arg)
{
	struct cover *c = arg;
	int need = PROT_READ | (c->read_only ? 0 : PROT_WRITE);

	if (a->begin != c->next) {
		return -EFAULT;
	}
	c->next = a->end;
	if (a->shared || a->stack || a->code || (a->prot & need) != need) {
		return -EPERM;
	}
	if (a->inode && !(a->prot & PROT_WRITE)) { /* a file mapped read-only */
		return -EPERM;
	}
	return c->stack >= a->begin && c->stack < a->end ? -EPERM : 0;
}

int soft_pages_check(uint64_t begin, uint64_t bytes, bool read_only)
{
	char here;
	struct cover c = { begin, read_only, (uint64_t)(uintptr_t)&here };
	int err = each_area(begin, begin + bytes, check_area, &c);

	return err ? err : c.next == begin + bytes ? 0 : -EFAULT;
}

/* Write-protects the range: writers block until the descriptor is closed. Returns -1 if that is not
 * possible. */
static int hold_writers(uint64_t begin, uint64_t bytes)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	struct uffdio_register reg = { .range = { begin, bytes }, .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect wp = { .range = { begin, bytes },
					  .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0) {
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	}
	if (fd < 0) {
		return -1;
	}
	if (ioctl(fd, UFFDIO_API, &api) < 0 || ioctl(fd, UFFDIO_REGISTER, &reg) < 0 ||
	    ioctl(fd, UFFDIO_WRITEPROTECT, &wp) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

struct areas {
	struct area *a; /* owned */
	unsigned n, cap;
	bool writable;
};

static int collect(const struct area *a, void *arg)
{
	struct areas *l = arg;

	if (l->n == l->cap) {
		unsigned cap = l->cap ? l->cap * 2 : 16;
		struct area *grown = cap > AREAS_MAX ? NULL : realloc(l->a, cap * sizeof(*grown));

		if (!grown) {
			return -ENOMEM;
		}
		l->a = grown;
		l->cap = cap;
	}
	l->a[l->n++] = *a;
	l->writable = l->writable && (a->prot & PROT_WRITE);
	return 0;
}

static int place(const struct areas *l, uint64_t begin, int fd)
{
	for (unsigned i = 0; i < l->n; i++) {
		const struct area *a = &l->a[i];
		void *at = (void *)(uintptr_t)a->begin;

		if (mmap(at, a->end - a->begin, a->prot, MAP_SHARED | MAP_FIXED, fd,
			 (off_t)(a->begin - begin)) != at) {
			return -errno;
		}
	}
	return 0;
}

/* Faults in pages that were never written, since write protection does not apply to missing pages.
 */
static NO_SANITIZE_ADDRESS void touch(uint64_t begin, uint64_t bytes)
{
	for (uint64_t at = begin; at < begin + bytes; at += SOFT_PAGE) {
		or_relaxed((uint8_t *)(uintptr_t)at, 0);
	}
}

/* Copies pages of the heap including a sanitizer's redzones, which its memcpy would refuse. */
static NO_SANITIZE_ADDRESS void copy_pages(uint64_t to, uint64_t from, uint64_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
	volatile uint64_t *t = (uint64_t *)(uintptr_t)to, *f = (uint64_t *)(uintptr_t)from;

	for (uint64_t i = 0; i < bytes / sizeof(*t); i++) {
		t[i] = f[i];
	}
#else
	memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
#endif
}

/* Allocates nothing while writers are blocked: the pages of the heap may be among these. */
static int replace(const struct areas *l, uint64_t begin, uint64_t bytes, uint64_t to, int fd)
{
	int held = -1, err;

	if (l->writable) {
		touch(begin, bytes);
		held = hold_writers(begin, bytes);
	}
	copy_pages(to, begin, bytes);
	err = place(l, begin, fd);
	fd_close(held); /* writers retry and find the new pages */
	return err;
}

int soft_pages_replace(uint64_t begin, uint64_t bytes, uint64_t to, int fd)
{
	struct areas l = { .writable = true };
	int err = each_area(begin, begin + bytes, collect, &l);

	if (!err) {
		err = replace(&l, begin, bytes, to, fd);
		if (err) {
			soft_pages_restore(begin, bytes, fd);
		}
	}
	free(l.a);
	return err;
}

struct restoring {
	uint64_t begin, inode;
	int fd;
};

/* Restores only mappings that are still the shared memory: the program may have unmapped or
 * replaced others. */
static int restore_area(const struct area *a, void *arg)
{
	const struct restoring *r = arg;

	if (a->shared && a->inode == r->inode && a->offset == a->begin - r->begin) {
		mmap((void *)(uintptr_t)a->begin, a->end - a->begin, a->prot,
		     MAP_PRIVATE | MAP_FIXED, r->fd, (off_t)a->offset);
	}
	return 0;
}

void soft_pages_restore(uint64_t begin, uint64_t bytes, int fd)
{
	struct restoring r = { .begin = begin, .fd = fd };
	struct stat st;

	if (fstat(fd, &st) == 0) {
		r.inode = st.st_ino;
		each_area(begin, begin + bytes, restore_area, &r);
	}
}
