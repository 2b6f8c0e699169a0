/* The only file that makes memory executable. Machine code is written through the descriptor, the
 * memfd is sealed against writes, and only then mapped for reading and execution: no page of any
 * process is ever both writable and executable. A private mapping of a write-sealed memfd also
 * works on kernels that refuse shared ones (before 6.7). */
#include "bpf/run/exec_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/shm.h"

#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

static int write_all(int fd, const struct ebpf_exec_part *part)
{
	size_t done = 0;

	while (done < part->bytes) {
		ssize_t n = pwrite(fd, (const char *)part->data + done, part->bytes - done,
				   (off_t)(part->offset + done));

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			return n < 0 ? -errno : -EIO;
		}
		done += (size_t)n;
	}
	return 0;
}

int ebpf_exec_create(const char *name, size_t bytes, const struct ebpf_exec_part *parts, unsigned n)
{
	int fd = shm_create(name, bytes, SHM_EXEC), err = 0;

	if (fd == -EACCES) {
		fd = shm_create(name, bytes, SHM_NOEXEC); /* vm.memfd_noexec=2 */
	}
	if (fd < 0) {
		return fd;
	}
	for (unsigned i = 0; i < n && !err; i++) {
		err = write_all(fd, &parts[i]);
	}
	if (!err && fcntl(fd, F_ADD_SEALS, ALL_SEALS) < 0) {
		err = -errno;
	}
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

int ebpf_exec_check(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & ALL_SEALS) == ALL_SEALS ? 0 : -EBADF;
}

int ebpf_exec_map(int fd, size_t offset, size_t bytes, void **ret)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_POPULATE, fd,
		       (off_t)offset);

	if (p == MAP_FAILED) {
		return -errno;
	}
	*ret = p;
	return 0;
}
