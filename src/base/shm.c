/* memfd pages. Sealing needs MFD_ALLOW_SEALING; see memfd_create(2), fcntl(2). */
#include "base/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/compiler.h"

#ifndef MFD_EXEC
#define MFD_NOEXEC_SEAL 0x0008U
#define MFD_EXEC 0x0010U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define HUGE_BYTES (2u << 20) /* memfds may consist of pages of this size */

int shm_create(const char *name, size_t bytes, enum shm_exec exec)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd, err;

	fd = memfd_create(name, flags | (exec ? MFD_EXEC : MFD_NOEXEC_SEAL));
	if (fd < 0 && errno == EINVAL) {
		fd = memfd_create(name, flags); /* kernels before 6.3 have neither flag */
	}
	if (fd < 0) {
		return -errno;
	}
	if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, SIZE_SEALS) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

int shm_seal_future_write(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 ? -errno : 0;
}

long shm_checked_size(int fd, size_t max)
{
	struct statfs fs;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SIZE_SEALS) != SIZE_SEALS) {
		return -EBADF;
	}
	if (fstat(fd, &st) < 0 || st.st_size <= 0) {
		return -EINVAL;
	}
	/* Huge pages come from a pool. If their owner gives one back while it is mapped here, and
	 * the pool is empty at the next access, the access raises SIGBUS. */
	if (fstatfs(fd, &fs) < 0 || fs.f_type == HUGETLBFS_MAGIC) {
		return -EINVAL;
	}
	/* Rejects memory beyond the end, which fallocate(2) can add before the seals: the last
	 * process to close the memfd would have to free it, which takes seconds for some GiB. */
	if ((uint64_t)st.st_blocks * 512 > ROUND_UP((uint64_t)st.st_size, HUGE_BYTES)) {
		return -EINVAL;
	}
	return (size_t)st.st_size > max ? -EFBIG : (long)st.st_size;
}

int shm_check(int fd, size_t bytes)
{
	long n = shm_checked_size(fd, bytes);

	if (n < 0) {
		return (int)n;
	}
	return (size_t)n == bytes ? 0 : -EINVAL;
}

void *shm_map(int fd, size_t bytes, int writable)
{
	void *p = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

void *shm_map_own(int fd, size_t bytes, off_t offset)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);

	if (p == MAP_FAILED) {
		return NULL;
	}
	if (madvise(p, bytes, MADV_DONTFORK) < 0) {
		munmap(p, bytes);
		return NULL;
	}
	return p;
}

void shm_unmap(void *p, size_t bytes)
{
	if (p) {
		munmap(p, bytes);
	}
}
