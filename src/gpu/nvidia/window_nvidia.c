/* Windows on NVIDIA's driver. An allocation of cuMemAlloc is one memory object, mapped as a whole,
 * of which any part can be mapped into the CPU, write-combining (H200, 580.159.04). The mapping
 * must go before the object: its place in the card's address space may be given to another process
 * afterwards, and the pages of this one would still lead there. */
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/shm.h"
#include "gpu/ranges.h"
#include "gpu/rm.h"
#include "gpu/window_int.h"

static struct mem_direct *direct; /* constant once there are windows */
static uint64_t memory_bytes;	  /* of the largest device; constant, too */

static void gone(uint64_t base, uint64_t bytes)
{
	mem_direct_gone(direct, base, bytes);
}

/* The handles of a window, in its `own`. */
static struct gpu_rm_part part_of(const struct mem_window *w, int *ret_fd)
{
	*ret_fd = (int)(w->own[0] >> 32);
	return (struct gpu_rm_part){ .client = (uint32_t)w->own[0],
				     .device = (uint32_t)(w->own[1] >> 32),
				     .memory = (uint32_t)w->own[1],
				     .cookie = w->own[2] };
}

static void keep_part(struct mem_window *w, int fd, const struct gpu_rm_part *p)
{
	w->own[0] = (uint64_t)(uint32_t)fd << 32 | p->client;
	w->own[1] = (uint64_t)p->device << 32 | p->memory;
	w->own[2] = p->cookie;
}

struct freed {
	uint32_t client, object;
};

/* Freeing an object frees what is below it. */
static bool is_freed(const struct mem_window *w, void *arg)
{
	const struct freed *f = arg;
	int fd;
	struct gpu_rm_part p = part_of(w, &fd);

	return p.client == f->client &&
	       (p.memory == f->object || p.device == f->object || p.client == f->object);
}

static void freed(uint32_t client, uint32_t object)
{
	struct freed f = { client, object };

	mem_direct_gone_if(direct, is_freed, &f);
}

/* Returns the number of the range's GPU, or -errno. The card must show the CPU all of its memory:
 * small cards show 256 MiB, for all processes together. */
static int number_of(const struct gpu_range *r)
{
	struct gpu_learn_object device = { .root = r->client, .object = r->device, .fd = r->fd };
	struct gpu_rm_card card;
	int err = gpu_learn_card(&device, &card);

	if (err) {
		return err;
	}
	return card.memory_bytes < memory_bytes ? -ENOTSUP
	       : card.minor <= GPU_RM_LAST_GPU	? (int)card.minor
						: -EPROTO;
}

static void *map_part(int number, const struct gpu_range *r, struct gpu_rm_part *p)
{
	int fd = gpu_rm_open_part(number, r->fd, p);
	void *at;

	if (fd < 0) {
		return NULL;
	}
	at = shm_map_own(fd, p->bytes, 0);
	close(fd); /* the mapping keeps it */
	if (!at) {
		(void)gpu_rm_unmap_memory(r->fd, p);
	}
	return at;
}

int gpu_window_nvidia_open(uint64_t address, struct mem_window *ret)
{
	struct gpu_rm_part part;
	struct gpu_range r;
	uint64_t begin, end;
	int number;
	void *at;

	if (!gpu_ranges_find(address, &r)) {
		return -ENOENT;
	}
	number = number_of(&r);
	if (number < 0) {
		return number;
	}
	begin = MAX(r.base, address - address % MEM_WINDOW_BYTES);
	end = MIN(r.base + r.bytes, address - address % MEM_WINDOW_BYTES + MEM_WINDOW_BYTES);
	part = (struct gpu_rm_part){ r.client, r.device, r.memory, begin - r.base, end - begin, 0 };
	at = map_part(number, &r, &part);
	if (!at) {
		return -EIO;
	}
	*ret = (struct mem_window){ .base = begin, .bytes = end - begin, .at = at };
	keep_part(ret, r.fd, &part);
	return 0;
}

void gpu_window_nvidia_close(struct mem_window *w)
{
	int fd;
	struct gpu_rm_part p = part_of(w, &fd);

	(void)munmap(w->at, w->bytes);
	(void)gpu_rm_unmap_memory(fd, &p);
}

void gpu_windows_nvidia_begin(uint64_t bytes, struct mem_direct *d)
{
	static const struct gpu_ranges_watch watch = { gone, freed };

	memory_bytes = bytes;
	direct = d;
	gpu_ranges_begin(&watch);
}
