/* Lists of processes as NVML returns them, reduced to those of the vGPU. */
#ifndef GBPF_NVML_NVML_LISTS_H
#define GBPF_NVML_NVML_LISTS_H

#include <stddef.h>

#include "nvml/nvml_calls.h"

/* The layout of an entry, bytes. */
struct nvml_entry {
	size_t size, pid_at;
	size_t used_at; /* unsigned long long, memory of the process; SIZE_MAX: it has none */
};

/* Has the driver fill in at most *n entries. Returns its result, and in *n the number of entries
 * there are. */
typedef enum nvml_return nvml_fetch(nvmlDevice_t d, void *out, unsigned *n, const void *arg);

/* Fetches all entries of the device and keeps those of the vGPU's processes, with the account's
 * figure of their memory. Returns the driver's error, or NVML_SUCCESS with a list (caller frees)
 * and its length. */
enum nvml_return nvml_list_fetch(nvmlDevice_t d, const struct proto_vgpu_view *v,
				 const struct nvml_entry *e, nvml_fetch *fetch, const void *arg,
				 void **ret, unsigned *ret_n);
/* Copies a list of n entries to a caller that has room for *room, and frees it. Returns
 * NVML_SUCCESS, or NVML_ERROR_INSUFFICIENT_SIZE; *room becomes the number of entries. */
enum nvml_return nvml_list_deliver(const struct nvml_entry *e, void *list, unsigned n, void *out,
				   unsigned *room);

#endif
