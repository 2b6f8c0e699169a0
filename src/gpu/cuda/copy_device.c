/* Pinned pieces and copies on a driver table (gpu/copy_device.h). */
#include "gpu/copy_device.h"

#include <errno.h>

#include "base/compiler.h"

static int piece_create(void *dev, size_t bytes, struct mem_piece *ret)
{
	const struct cuabi_table *real = dev;
	void *host = NULL;
	CUevent event = NULL;
	CUresult r = real->cuMemHostAlloc(&host, bytes, 0);

	if (r == CUDA_SUCCESS) {
		r = real->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
		if (r != CUDA_SUCCESS) {
			(void)real->cuMemFreeHost(host);
		}
	}
	if (r == CUDA_SUCCESS) {
		ret->host = host;
		ret->event = event;
	}
	return (int)r;
}

static void piece_destroy(void *dev, struct mem_piece *p)
{
	const struct cuabi_table *real = dev;

	(void)real->cuEventDestroy_v2(p->event);
	(void)real->cuMemFreeHost(p->host);
}

static CUresult copy(const struct cuabi_table *real, const struct gpu_copy_queue *q,
		     enum mem_copy_way way, const struct mem_piece *p, CUdeviceptr device,
		     size_t bytes)
{
	if (way == MEM_COPY_UP) {
		return (q->per_thread
				? real->cuMemcpyHtoDAsync_v2_ptsz
				: real->cuMemcpyHtoDAsync_v2)(device, p->host, bytes, q->stream);
	}
	return (q->per_thread ? real->cuMemcpyDtoHAsync_v2_ptsz
			      : real->cuMemcpyDtoHAsync_v2)(p->host, device, bytes, q->stream);
}

static int issue(void *dev, void *queue, enum mem_copy_way way, struct mem_piece *p,
		 uint64_t device, size_t bytes)
{
	const struct cuabi_table *real = dev;
	const struct gpu_copy_queue *q = queue;
	CUresult r = copy(real, q, way, p, device, bytes);

	if (r == CUDA_SUCCESS) {
		r = (q->per_thread ? real->cuEventRecord_ptsz : real->cuEventRecord)(p->event,
										     q->stream);
		p->lost = r != CUDA_SUCCESS;
	}
	return (int)r;
}

static int piece_done(void *dev, const struct mem_piece *p)
{
	const struct cuabi_table *real = dev;
	CUresult r = real->cuEventQuery(p->event);

	return r == CUDA_ERROR_NOT_READY ? -EAGAIN : (int)r;
}

const struct mem_device_ops gpu_copy_ops = {
	.piece_create = piece_create,
	.piece_destroy = piece_destroy,
	.issue = issue,
	.piece_done = piece_done,
};

static bool is_within(CUdeviceptr base, size_t size, CUdeviceptr p, size_t bytes)
{
	return p >= base && p - base <= size && bytes <= size - (p - base);
}

bool gpu_copy_is_host(const struct cuabi_table *real, CUdeviceptr p, size_t bytes)
{
	CUpointer_attribute what[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,	CU_POINTER_ATTRIBUTE_HOST_POINTER,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,	CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE
	};
	CUdeviceptr base = 0, mapping = 0;
	void *host = NULL;
	unsigned type = 0;
	size_t size = 0, mapping_size = 0;
	void *to[] = { &type, &host, &base, &size, &mapping, &mapping_size };

	return real->cuPointerGetAttributes(ARRAY_SIZE(what), what, to, p) == CUDA_SUCCESS &&
	       type == CU_MEMORYTYPE_HOST && (uintptr_t)host == p &&
	       is_within(base, size, p, bytes) && is_within(mapping, mapping_size, p, bytes);
}

static bool ask(const struct cuabi_table *real, CUdevice device, CUdevice_attribute what, int *ret)
{
	*ret = -1;
	return real->cuDeviceGetAttribute(ret, what, device) == CUDA_SUCCESS && *ret >= 0;
}

struct mem_numa gpu_copy_numa(const struct cuabi_table *real, CUdevice device, const char *sysfs)
{
	int node, domain, bus, slot;

	/* Drivers before CUDA 12.2 do not know the attribute. */
	if (!ask(real, device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, &node)) {
		if (!ask(real, device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &domain) ||
		    !ask(real, device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &bus) ||
		    !ask(real, device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &slot)) {
			return MEM_NUMA_NONE;
		}
		node = mem_numa_of_pci(sysfs, (unsigned)domain, (unsigned)bus, (unsigned)slot);
	}
	return mem_numa_find(sysfs, node);
}
