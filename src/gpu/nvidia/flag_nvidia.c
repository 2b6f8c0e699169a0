/* Device memory that other processes can map, on NVIDIA's driver. A CUDA allocation makes one
 * memory object at the resource manager; its first page is mapped with the driver's ordinary call,
 * and the descriptor used for the mapping can be sent to others.
 *
 * A device descriptor is tied to a control descriptor and keeps it open: everything that the
 * control descriptor's clients own exists until the last process has released the page. So the page
 * gets a client of its own, which owns a duplicate of the memory object and nothing else. A process
 * that holds the page then keeps 2 MiB, not all memory and channels of a program that has exited.
 * The mapping is valid as long as any process has it, so a store never reaches memory that was
 * reused. Through a device descriptor the driver accepts neither controls nor mappings, only new
 * memory and events for the client that it is tied to (escape.c), which is the page's own.
 *
 * If that client is refused, the page is mapped through CUDA's client. Stores work the same, but
 * the page keeps an exited program's memory; flag_why reports it. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "gpu/control_int.h"
#include "gpu/flag_int.h"
#include "gpu/gpu_int.h"
#include "gpu/learn.h"
#include "gpu/rm.h"

/* Creates a client with the device and the memory, mapped through device_fd. */
static int fill_client(int control, int device_fd, const struct gpu_learn_watch *w)
{
	struct gpu_rm_device_params p = { .device_id = w->device_id };
	uint32_t client = 0, device = 0, memory = 0;
	struct gpu_rm_part part;
	int err = gpu_rm_register(device_fd, control);

	err = err ? err : gpu_rm_alloc(control, 0, 0, &client, GPU_RM_CLASS_CLIENT, NULL, 0);
	p.client_share = client;
	err = err ? err
		  : gpu_rm_alloc(control, client, client, &device, GPU_RM_CLASS_DEVICE, &p,
				 sizeof(p));
	err = err ? err
		  : gpu_rm_dup(control, client, device, &memory, w->last.root, w->last.object);
	part = (struct gpu_rm_part){ client, device, memory, 0, GPU_FLAG_BYTES, 0 };
	return err ? err : gpu_rm_map_memory(control, &part, device_fd);
}

/* Returns a descriptor or -errno. */
static int by_own_client(int number, const struct gpu_learn_watch *w)
{
	int control = gpu_rm_os.open("/dev/nvidiactl"), device_fd, err;

	if (control < 0) {
		return control;
	}
	device_fd = gpu_rm_open_gpu(number);
	err = device_fd < 0 ? device_fd : fill_client(control, device_fd, w);
	if (err && device_fd >= 0) {
		close(device_fd);
	}
	close(control); /* the device descriptor keeps it open */
	return err ? err : device_fd;
}

static int by_their_client(int number, const struct gpu_learn_watch *w)
{
	struct gpu_rm_part part = { w->last.root,   w->last.parent,
				    w->last.object, 0,
				    GPU_FLAG_BYTES, 0 };

	return gpu_rm_open_part(number, w->last.fd, &part);
}

static void refused(struct gpu_exported *x, const char *why, int err)
{
	x->why = why;
	x->error = gpu_rm_last_status() ? (int)gpu_rm_last_status() : -err;
}

static void export(const struct cuabi_table *real, CUdevice d, const struct gpu_learn_watch *w,
		   struct gpu_exported *x)
{
	int number;

	if (!gpu_learn_installed()) {
		refused(x, "calls of the driver library are not seen", 0);
		return;
	}
	if (w->n == 0) {
		refused(x, "the driver library made no memory object of its own", 0);
		return;
	}
	number = gpu_learn_minor(real, d, w->last.fd);
	if (number < 0) {
		refused(x, "the device's number is not known: status", number);
		return;
	}
	x->fd = w->device_id == GPU_LEARN_NO_ID ? -ENODEV : by_own_client(number, w);
	if (x->fd >= 0) {
		return;
	}
	refused(x, "the flag page has no client of its own: status", x->fd);
	x->fd = by_their_client(number, w);
	if (x->fd < 0) {
		refused(x, "device memory cannot be mapped: status", x->fd);
		x->fd = -1;
	}
}

CUresult gpu_export_new(struct gpu_device *d, size_t bytes, struct gpu_exported *ret)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location.type = CU_MEM_LOCATION_TYPE_DEVICE };
	struct gpu_learn_watch w = { .class_id = GPU_RM_CLASS_MEMORY };
	CUdevice device = 0;
	CUresult e;

	*ret = (struct gpu_exported){ .fd = -1 };
	e = d->real->cuCtxGetDevice(&device);
	if (e != CUDA_SUCCESS) {
		return e;
	}
	prop.location.id = device;
	gpu_learn_watch_begin(&w);
	e = d->real->cuMemCreate(&ret->memory, bytes, &prop, 0);
	gpu_learn_watch_end();
	if (e == CUDA_SUCCESS) {
		export(d->real, device, &w, ret);
	}
	return e;
}
