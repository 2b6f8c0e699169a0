/* Flag pages: 4 KiB of device memory that kernels of one process read and other processes write.
 * Word i (32 bits) is the lease of the latency tenant with the board at slot i (ptx/block.h defines
 * leases); the page has no other contents. The process that runs the kernels creates the page and
 * sends its descriptor to gbpfd, which passes it to the latency tenants of that GPU. A process with
 * the descriptor can write leases and nothing else: at worst, the page's owner is held until they
 * expire or gbpfd clears them. */
#ifndef GBPF_GPU_FLAG_H
#define GBPF_GPU_FLAG_H

#include "base/atomic.h"
#include "gpu/gpu.h"

#define GPU_FLAG_BYTES 4096u
#define GPU_FLAG_SLOTS 64u

struct gpu_flag; /* of the page's owner */

/* Creates a page for kernels of the context. Returns 0; -ENOTSUP: the device or a permission
 * refuses (gpu_flag_why has the reason); -ENOMEM; -EIO. */
int gpu_flag_create(struct gpu_device *d, CUcontext ctx, struct gpu_flag **ret);
const char *gpu_flag_why(const struct gpu_device *d);	/* reason of the last failure, or "" */
CUdeviceptr gpu_flag_address(const struct gpu_flag *f); /* as kernels of the context use it */
int gpu_flag_fd(
	const struct gpu_flag *f); /* borrowed; may be sent to others; -1: stream writes only */
/* Writes a word in the order of a stream of its own, where no descriptor is available. About 5 us.
 */
int gpu_flag_write(struct gpu_flag *f, uint32_t slot, uint32_t word);
/* Called before its context ends, for which the driver would wait, too: waits for the context's
 * work, which may read the page. Accepts NULL. */
void gpu_flag_destroy(struct gpu_flag *f);

/* A mapped page of another process. gbpfd maps pages, too, to clear words of processes that have
 * exited. */
struct gpu_lease_page {
	volatile uint32_t *word; /* write-combining memory: a read takes 1 us */
	size_t bytes;
};
/* Maps a page; fd is borrowed. Returns 0 or -errno; calls no driver. */
int gpu_lease_map(struct gpu_lease_page *p, int fd);
void gpu_lease_unmap(struct gpu_lease_page *p);
/* Stores a word. gpu_lease_fence makes stores to any number of pages visible to the GPU. */
static inline void gpu_lease_store(const struct gpu_lease_page *p, uint32_t slot, uint32_t word)
{
	store_relaxed(&p->word[slot], word);
}
static inline void gpu_lease_fence(void)
{
#ifdef __x86_64__
	__builtin_ia32_sfence();
#else
	fence_seqcst();
#endif
}

/* Measures %globaltimer of the GPU minus CLOCK_MONOTONIC, in ns, with a kernel of the context;
 * accurate to some us. Repeat every 30 s, since the clocks drift. Returns 0 or -EIO. */
int gpu_clock_offset(struct gpu_device *d, CUcontext ctx, int64_t *ret_ns);
/* Returns the word of a lease until that CLOCK_MONOTONIC time; never 0. */
uint32_t gpu_lease_word(int64_t offset_ns, uint64_t until_ns);

#endif
