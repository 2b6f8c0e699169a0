/* Flag pages: 4 KiB of device memory that kernels of one process read and other processes write.
 * Word i (32 bits) is the lease of the latency tenant whose board lies at slot i (ptx/block.h says
 * what a lease is); nothing else is in it. The process whose kernels read it makes it, and gives
 * its descriptor to gbpfd, which hands it to the latency tenants of that GPU. Whoever holds the
 * descriptor can write leases and nothing else: at worst the page's owner is held until they run
 * out or gbpfd clears them. */
#ifndef GBPF_GPU_FLAG_H
#define GBPF_GPU_FLAG_H

#include "base/atomic.h"
#include "gpu/gpu.h"

#define GPU_FLAG_BYTES 4096u
#define GPU_FLAG_SLOTS 64u

struct gpu_flag; /* the owner's */

/* Makes a page for kernels of that context, which is made current meanwhile. 0; -ENOTSUP: the
 * device or a permission refuses (gpu_flag_why says what); -ENOMEM; -EIO. */
int gpu_flag_create(struct gpu_device *d, CUcontext ctx, struct gpu_flag **ret);
const char *gpu_flag_why(const struct gpu_device *d);	/* "" or the reason of the last failure */
CUdeviceptr gpu_flag_address(const struct gpu_flag *f); /* as kernels of the context see it */
int gpu_flag_fd(const struct gpu_flag *f); /* borrowed; may be passed on; -1: only stream writes */
/* Writes a word by stream order of a stream of its own, where no descriptor can be passed. ~5 us.
 */
int gpu_flag_write(struct gpu_flag *f, uint32_t slot, uint32_t word);
void gpu_flag_destroy(struct gpu_flag *f); /* before its context ends; NULL allowed */

/* A page of another process, mapped for writing. gbpfd uses it too, to clear words of the dead. */
struct gpu_lease_page {
	volatile uint32_t *word; /* write-combining memory: reads cost a microsecond */
	size_t bytes;
};
/* fd is borrowed. 0 or -errno; no driver is called. */
int gpu_lease_map(struct gpu_lease_page *p, int fd);
void gpu_lease_unmap(struct gpu_lease_page *p);
/* Stores; gpu_lease_fence makes stores to any number of pages visible to the GPU. */
static inline void gpu_lease_store(const struct gpu_lease_page *p, uint32_t slot, uint32_t word)
{
	store_relaxed(&p->word[slot], word);
}
static inline void gpu_lease_fence(void)
{
#ifdef __x86_64__
	__builtin_ia32_sfence();
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* %globaltimer of the GPU minus CLOCK_MONOTONIC, nanoseconds; measured with a kernel of that
 * context, to some microseconds. To be repeated every 30 s: the clocks drift. 0 or -EIO. */
int gpu_clock_offset(struct gpu_device *d, CUcontext ctx, int64_t *ret_ns);
/* The lease word for a lease until that monotonic time; never 0. */
uint32_t gpu_lease_word(int64_t offset_ns, uint64_t until_ns);

#endif
