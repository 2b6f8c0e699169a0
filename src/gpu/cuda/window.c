/* Windows: which back end, and what the CPU may touch. */
#include "gpu/window.h"

#include "base/compiler.h"
#include "gpu/control_int.h"
#include "gpu/copy_device.h"
#include "gpu/flag_int.h"
#include "gpu/ranges.h"
#include "gpu/window_int.h"

static const struct cuabi_soft_table *soft; /* NULL: NVIDIA's driver */

static int open_window(void *dev, uint64_t address, struct mem_window *ret)
{
	(void)dev;
	return soft ? gpu_window_soft_open(address, ret) : gpu_window_nvidia_open(address, ret);
}

static void close_window(void *dev, struct mem_window *w)
{
	(void)dev;
	if (soft) {
		gpu_window_soft_close(w);
	} else {
		gpu_window_nvidia_close(w);
	}
}

const struct mem_window_ops gpu_window_ops = { open_window, close_window };

static uint64_t largest_memory(const struct cuabi_table *real)
{
	uint64_t most = 0;
	size_t bytes;
	int n = 0;

	if (real->cuDeviceGetCount(&n) != CUDA_SUCCESS) {
		return UINT64_MAX;
	}
	for (CUdevice d = 0; d < n; d++) {
		if (real->cuDeviceTotalMem_v2(&bytes, d) == CUDA_SUCCESS) {
			most = MAX(most, bytes);
		}
	}
	return most;
}

bool gpu_windows_begin(const struct cuabi_table *real, struct mem_direct *d)
{
	if (!mem_direct_is_possible()) {
		return false;
	}
	soft = gpu_soft_table(real);
	if (soft) {
		return gpu_windows_soft_begin(soft, d);
	}
	if (!gpu_learn_installed()) {
		return false;
	}
	gpu_windows_nvidia_begin(largest_memory(real), d);
	return true;
}

/* Returns true if the program has the byte at this address, in memory that the driver knows. */
static bool is_of_program(const struct cuabi_table *real, CUdeviceptr p)
{
	CUdeviceptr host = 0;

	return real->cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p) ==
		       CUDA_SUCCESS &&
	       host == p;
}

bool gpu_windows_is_host(const struct cuabi_table *real, const void *p, size_t bytes)
{
	unsigned type = 0;

	if (!soft) {
		return !gpu_ranges_touch((uintptr_t)p, bytes) ||
		       gpu_copy_is_host(real, (uintptr_t)p, bytes);
	}
	return real->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)p) !=
		       CUDA_SUCCESS ||
	       (type != CU_MEMORYTYPE_DEVICE && is_of_program(real, (uintptr_t)p) &&
		is_of_program(real, (uintptr_t)p + (bytes - 1)));
}
