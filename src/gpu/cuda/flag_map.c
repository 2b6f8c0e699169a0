/* Maps flag pages of other processes. A foreign descriptor is checked before it is mapped, and
 * mapped only if it is either device memory, of which only NVIDIA's driver makes descriptors, or
 * shared memory that cannot be truncated under our stores. */
#include <errno.h>
#include <sys/mman.h>

#include "base/compiler.h"
#include "base/shm.h"
#include "gpu/flag.h"
#include "gpu/rm.h"
#include "ptx/block.h"

#define MAX_PAGE_BYTES (64u << 10)

static int check(int fd)
{
	long bytes;

	if (gpu_rm_os.is(fd, GPU_RM_ANY_GPU)) {
		return 0;
	}
	bytes = shm_checked_size(fd, MAX_PAGE_BYTES);
	if (bytes < 0) {
		return (int)bytes;
	}
	return bytes < (long)GPU_FLAG_BYTES ? -EINVAL : 0;
}

int gpu_lease_map(struct gpu_lease_page *p, int fd)
{
	int err = check(fd);
	void *at;

	p->word = NULL;
	p->bytes = 0;
	if (err) {
		return err;
	}
	at = mmap(NULL, GPU_FLAG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		return -errno;
	}
	p->word = at;
	p->bytes = GPU_FLAG_BYTES;
	return 0;
}

void gpu_lease_unmap(struct gpu_lease_page *p)
{
	if (p->word) {
		(void)munmap(unqual(p->word), p->bytes);
	}
	p->word = NULL;
	p->bytes = 0;
}

/* Rounds up: a lease is never shorter than requested. */
uint32_t gpu_lease_word(int64_t offset_ns, uint64_t until_ns)
{
	uint64_t unit = UINT64_C(1) << PTX_LEASE_SHIFT;
	uint32_t word = (uint32_t)((until_ns + (uint64_t)offset_ns + unit - 1) >> PTX_LEASE_SHIFT);

	return word ? word : 1;
}
