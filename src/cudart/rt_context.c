/* Devices and their primary contexts. A thread that has no context gets the primary context of its
 * device on its first call; a context that the program made current with the driver API is used as
 * it is. */

#include "base/lock.h"
#include "cudart/rt_api.h"
#include "cudart/rt_int.h"

#define MAX_DEVICES 64
#define KNOWN_FLAGS 0xffu

static struct lock lock = LOCK_INITIALIZER(RT_CONTEXTS);
static struct {
	CUcontext primary; /* NULL: not retained */
	unsigned resets;   /* how often the device was reset */
} devices[MAX_DEVICES] GUARDED_BY(lock);

static _Thread_local struct {
	int device;
	CUcontext bound; /* the primary context that this thread got */
	unsigned resets; /* of its device at that time */
} thread;

cudaError_t cudart_primary(int device, CUcontext *ret)
{
	cudaError_t e = cudaSuccess;

	if (device < 0 || device >= cudart_devices() || device >= MAX_DEVICES) {
		return cudaErrorInvalidDevice;
	}
	lock_take(&lock);
	if (!devices[device].primary) {
		e = cudart_from_driver(
			cudart_driver.cuDevicePrimaryCtxRetain(&devices[device].primary, device));
		if (e) {
			devices[device].primary = NULL;
		}
	}
	*ret = devices[device].primary;
	lock_release(&lock);
	return e;
}

/* Makes the primary context of the thread's device current. */
static cudaError_t bind_thread(void)
{
	CUcontext c;
	cudaError_t e = cudart_primary(thread.device, &c);

	if (e) {
		return e;
	}
	e = cudart_from_driver(cudart_driver.cuCtxSetCurrent(c));
	if (!e) {
		lock_take(&lock);
		thread.bound = c;
		thread.resets = devices[thread.device].resets;
		lock_release(&lock);
	}
	return e;
}

/* Whether the thread's context went away with a reset of its device. */
static bool was_reset(CUcontext c)
{
	bool gone;

	if (c != thread.bound) {
		return false;
	}
	lock_take(&lock);
	gone = thread.resets != devices[thread.device].resets;
	lock_release(&lock);
	return gone;
}

cudaError_t cudart_enter_context(void)
{
	CUcontext c = NULL;
	cudaError_t e = cudart_enter();

	if (e) {
		return e;
	}
	if (cudart_driver.cuCtxGetCurrent(&c) == CUDA_SUCCESS && c && !was_reset(c)) {
		return cudaSuccess;
	}
	return bind_thread();
}

cudaError_t cudart_current_device(int *ret)
{
	CUcontext c = NULL;

	if (cudart_driver.cuCtxGetCurrent(&c) == CUDA_SUCCESS && c && !was_reset(c) &&
	    cudart_driver.cuCtxGetDevice(ret) == CUDA_SUCCESS) {
		return cudaSuccess;
	}
	*ret = thread.device;
	return cudaSuccess;
}

cudaError_t cudart_get_device(int *ret)
{
	return ret ? cudart_current_device(ret) : cudaErrorInvalidValue;
}

cudaError_t cudart_set_device(int device)
{
	if (device < 0 || device >= cudart_devices() || device >= MAX_DEVICES) {
		return cudaErrorInvalidDevice;
	}
	thread.device = device;
	return bind_thread();
}

cudaError_t cudart_set_valid_devices(int *list, int n)
{
	if (n < 0 || (n > 0 && !list)) {
		return cudaErrorInvalidValue;
	}
	for (int i = 0; i < n; i++) {
		if (list[i] < 0 || list[i] >= cudart_devices()) {
			return cudaErrorInvalidDevice;
		}
	}
	if (n > 0) {
		thread.device = list[0];
	}
	return cudaSuccess;
}

cudaError_t cudart_init_device(int device, unsigned int device_flags, unsigned int flags)
{
	CUcontext c;

	if (device < 0 || device >= cudart_devices()) {
		return cudaErrorInvalidDevice;
	}
	if (flags & 1) { /* the device flags are valid */
		CUresult r = cudart_driver.cuDevicePrimaryCtxSetFlags_v2(
			device, device_flags & KNOWN_FLAGS);

		if (r) {
			return cudart_from_driver(r);
		}
	}
	return cudart_primary(device, &c);
}

cudaError_t cudart_set_device_flags(unsigned int flags)
{
	int device;
	cudaError_t e = cudart_current_device(&device);

	if (flags & ~KNOWN_FLAGS) {
		return cudaErrorInvalidValue;
	}
	return e ? e
		 : cudart_from_driver(cudart_driver.cuDevicePrimaryCtxSetFlags_v2(
			   device, flags & ~(unsigned)CU_CTX_MAP_HOST));
}

cudaError_t cudart_get_device_flags(unsigned int *ret)
{
	int device, active;
	cudaError_t e = cudart_current_device(&device);

	if (!ret) {
		return cudaErrorInvalidValue;
	}
	e = e ? e
	      : cudart_from_driver(cudart_driver.cuDevicePrimaryCtxGetState(device, ret, &active));
	if (!e) {
		*ret |= CU_CTX_MAP_HOST;
	}
	return e;
}

cudaError_t cudart_device_reset(void)
{
	int device;
	cudaError_t e = cudart_current_device(&device);

	if (e || device >= MAX_DEVICES) {
		return e;
	}
	lock_take(&lock);
	if (devices[device].primary) {
		e = cudart_from_driver(cudart_driver.cuDevicePrimaryCtxReset_v2(device));
		devices[device].primary = NULL;
		devices[device].resets++;
	}
	lock_release(&lock);
	return e;
}

cudaError_t cudart_device_enable_peer_access(int peer, unsigned int flags)
{
	CUcontext c;
	cudaError_t e = cudart_primary(peer, &c);

	return e ? e : cudart_from_driver(cudart_driver.cuCtxEnablePeerAccess(c, flags));
}

cudaError_t cudart_device_disable_peer_access(int peer)
{
	CUcontext c;
	cudaError_t e = cudart_primary(peer, &c);

	return e ? e : cudart_from_driver(cudart_driver.cuCtxDisablePeerAccess(c));
}
