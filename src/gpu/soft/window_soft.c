/* Windows on the soft GPU. */
#include <errno.h>
#include <sys/mman.h>

#include "gpu/window_int.h"

static const struct cuabi_soft_table *soft; /* constant once there are windows */
static struct mem_direct *direct;

static void gone(CUdeviceptr address, uint64_t bytes)
{
	mem_direct_gone(direct, address, bytes);
}

int gpu_window_soft_open(uint64_t address, struct mem_window *ret)
{
	CUdeviceptr base = 0;
	uint64_t bytes = 0;
	void *at = NULL;

	if (soft->window_open(address, MEM_WINDOW_BYTES, &base, &bytes, &at) != CUDA_SUCCESS) {
		return -ENOENT;
	}
	*ret = (struct mem_window){ .base = base, .bytes = bytes, .at = at };
	return 0;
}

void gpu_window_soft_close(struct mem_window *w)
{
	(void)munmap(w->at, w->bytes);
}

bool gpu_windows_soft_begin(const struct cuabi_soft_table *table, struct mem_direct *d)
{
	if (table->size <
	    offsetof(struct cuabi_soft_table, windows_watch) + sizeof(table->windows_watch)) {
		return false;
	}
	soft = table;
	direct = d;
	return table->windows_watch(gone) == CUDA_SUCCESS;
}
