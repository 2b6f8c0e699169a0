/* Registered host memory. The server does not reach the program's own memory, so registration
 * replaces the pages: it moves their contents to shared memory and maps that at the same addresses.
 * Only private memory qualifies; files, shared memory and stacks are refused. Kernels use the
 * device pointer. Unregistering makes the pages private again. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "soft/client/graph/capture.h"
#include "soft/client/memory/memory.h"
#include "soft/client/memory/page_replace.h"
#include "soft/client/stream/stream.h"

struct registration {
	struct registration *next;
	CUcontext ctx;
	uint64_t ctx_id;
	uint64_t given, length; /* the range that the program gave */
	uint64_t begin, bytes;	/* in whole pages */
	uint64_t device;	/* device address of begin */
	unsigned flags;
	int fd;
};

static struct lock lock = LOCK_INITIALIZER(SOFT_HOST);
static struct registration *all GUARDED_BY(lock);
static unsigned n_all GUARDED_BY(lock); /* [atomic to read]; usually 0 */

static bool alive(const struct registration *r)
{
	return soft_object_is(r->ctx, SOFT_OBJECT_CONTEXT) && r->ctx->id == r->ctx_id;
}

static void forget(struct registration **at) REQUIRES(lock)
{
	struct registration *r = *at;

	*at = r->next;
	soft_pages_restore(r->begin, r->bytes, r->fd);
	close(r->fd);
	free(r);
	store_release(&n_all, n_all - 1);
}

/* Removes registrations whose context has been destroyed. */
static void purge(void) REQUIRES(lock)
{
	struct registration **at = &all;

	while (*at) {
		if (alive(*at)) {
			at = &(*at)->next;
		} else {
			forget(at);
		}
	}
}

static struct registration *at_address(uint64_t host) REQUIRES(lock)
{
	for (struct registration *r = all; r; r = r->next) {
		if (host >= r->given && host - r->given < r->length) {
			return r;
		}
	}
	return NULL;
}

uint64_t soft_register_device_address(uint64_t host, uint64_t bytes)
{
	struct registration *r;
	uint64_t device = 0;

	if (!load_acquire(&n_all) || soft_memory_in_window(host)) {
		return 0;
	}
	lock_take(&lock);
	r = at_address(host);
	if (r && alive(r) && bytes <= r->given + r->length - host) {
		device = r->device + (host - r->begin);
	}
	lock_release(&lock);
	return device;
}

bool soft_register_range(uint64_t host, uint64_t *ret_begin, uint64_t *ret_bytes)
{
	struct registration *r;

	if (!load_acquire(&n_all)) {
		return false;
	}
	lock_take(&lock);
	r = at_address(host);
	if (r) {
		*ret_begin = r->given;
		*ret_bytes = r->length;
	}
	lock_release(&lock);
	return r != NULL;
}

/* Two registrations cannot share a page, since each has pages of its own behind it. */
static CUresult check_others(uint64_t begin, uint64_t bytes, uint64_t given, uint64_t length)
	REQUIRES(lock)
{
	CUresult e = CUDA_SUCCESS;

	for (struct registration *r = all; r; r = r->next) {
		if (given < r->given + r->length && r->given < given + length) {
			return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
		}
		if (begin < r->begin + r->bytes && r->begin < begin + bytes) {
			e = CUDA_ERROR_NOT_SUPPORTED;
		}
	}
	return e;
}

static CUresult check(uint64_t begin, uint64_t bytes, uint64_t given, uint64_t length,
		      unsigned flags) REQUIRES(lock)
{
	CUresult e;

	if (soft_memory_in_window(begin) || soft_memory_in_window(begin + bytes - 1)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = check_others(begin, bytes, given, length);
	if (e) {
		return e;
	}
	switch (soft_pages_check(begin, bytes, flags & CU_MEMHOSTREGISTER_READ_ONLY)) {
	case 0:
		break;
	case -EFAULT:
		e = CUDA_ERROR_INVALID_VALUE;
		break;
	default:
		e = CUDA_ERROR_NOT_SUPPORTED;
	}
	return e;
}

static CUresult replace(CUcontext ctx, struct registration *r)
{
	struct soft_range like = { .kind = SOFT_RANGE_HOST, .flags = r->flags, .host = r->begin };
	CUresult e = soft_memory_create(ctx, r->bytes, &like, &r->device, &r->fd);

	if (e) {
		return e;
	}
	if (soft_pages_replace(r->begin, r->bytes, r->device, r->fd) < 0) {
		soft_memory_delete(ctx, r->device, true);
		close(r->fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

static CUresult add(CUcontext ctx, uint64_t given, uint64_t bytes, unsigned flags) REQUIRES(lock)
{
	uint64_t begin = given / SOFT_PAGE * SOFT_PAGE, end = given + bytes;
	struct registration *r;
	CUresult e;

	end = ROUND_UP(end, SOFT_PAGE);
	purge();
	e = check(begin, end - begin, given, bytes, flags);
	if (e) {
		return e;
	}
	r = calloc(1, sizeof(*r));
	if (!r) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r->ctx = ctx;
	r->ctx_id = ctx->id;
	r->given = given;
	r->length = bytes;
	r->begin = begin;
	r->bytes = end - begin;
	r->flags = flags;
	e = replace(ctx, r);
	if (e) {
		free(r);
		return e;
	}
	r->next = all;
	all = r;
	store_release(&n_all, n_all + 1);
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	CUcontext ctx;
	uint64_t end;
	CUresult e = soft_context_current(&ctx);

	e = e ? e : soft_capture_unsafe();
	if (e) {
		return e;
	}
	if (!p || !bytes || (flags & ~0xfu) || checked_add(bytes, (size_t)(uintptr_t)p, &end) ||
	    end > UINT64_MAX - SOFT_PAGE) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	lock_take(&lock);
	e = add(ctx, (uint64_t)(uintptr_t)p, bytes, flags);
	lock_release(&lock);
	return e;
}

CUresult cuMemHostRegister(void *p, size_t bytes, unsigned int flags)
{
	return cuMemHostRegister_v2(p, bytes, flags);
}

CUresult cuMemHostUnregister(void *p)
{
	struct registration **at = &all, *r;
	CUresult e = soft_check();

	e = e ? e : soft_capture_unsafe();
	if (e) {
		return e;
	}
	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&lock);
	purge();
	while (*at && (*at)->given != (uint64_t)(uintptr_t)p) {
		at = &(*at)->next;
	}
	r = *at;
	if (r) {
		soft_context_drain(r->ctx); /* kernels and copies may still use it */
		soft_memory_delete(r->ctx, r->device, true);
		forget(at);
	} else if (at_address((uint64_t)(uintptr_t)p) ||
		   soft_memory_in_window((uint64_t)(uintptr_t)p)) {
		e = CUDA_ERROR_INVALID_VALUE; /* registered, but not at this address */
	} else {
		e = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	}
	lock_release(&lock);
	return e;
}
