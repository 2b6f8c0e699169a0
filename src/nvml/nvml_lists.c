/* Reducing lists (nvml/nvml_lists.h): the driver's whole list is fetched into a buffer of this
 * library, because the caller's room is meant for the vGPU's processes alone. */
#include "nvml/nvml_lists.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 256u
#define ROOM_MAX 65536u
#define TRIES 5 /* processes may start while the list is fetched */

static enum nvml_return fetch_all(nvmlDevice_t d, const struct nvml_entry *e, nvml_fetch *fetch,
				  const void *arg, unsigned char **ret, unsigned *ret_n)
{
	enum nvml_return r = NVML_ERROR_INSUFFICIENT_SIZE;
	unsigned room = FIRST_ROOM;

	for (int i = 0; i < TRIES && r == NVML_ERROR_INSUFFICIENT_SIZE; i++) {
		unsigned char *list = calloc(room, e->size);
		unsigned n = room;

		if (!list) {
			return NVML_ERROR_MEMORY;
		}
		r = fetch(d, list, &n, arg);
		if (r == NVML_SUCCESS) {
			*ret = list;
			*ret_n = MIN(n, room);
			return r;
		}
		free(list);
		room = MIN(MAX(n, room) * 2, ROOM_MAX);
	}
	return r;
}

/* Moves the entries of the vGPU's processes to the front. Returns their number. */
static unsigned keep(const struct proto_vgpu_view *v, const struct nvml_entry *e,
		     unsigned char *list, unsigned n)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n; i++) {
		unsigned char *entry = list + i * e->size;
		const struct proto_vgpu_process *p;
		unsigned long long used;
		unsigned pid;

		memcpy(&pid, entry + e->pid_at, sizeof(pid));
		p = nvml_vgpu_process(v, pid);
		if (!p) {
			continue;
		}
		if (e->used_at != SIZE_MAX) {
			used = p->used;
			memcpy(entry + e->used_at, &used, sizeof(used));
		}
		memmove(list + kept++ * e->size, entry, e->size);
	}
	return kept;
}

enum nvml_return nvml_list_fetch(nvmlDevice_t d, const struct proto_vgpu_view *v,
				 const struct nvml_entry *e, nvml_fetch *fetch, const void *arg,
				 void **ret, unsigned *ret_n)
{
	unsigned char *list;
	unsigned n;
	enum nvml_return r = fetch_all(d, e, fetch, arg, &list, &n);

	if (r == NVML_SUCCESS) {
		*ret_n = keep(v, e, list, n);
		*ret = list;
	}
	return r;
}

enum nvml_return nvml_list_deliver(const struct nvml_entry *e, void *list, unsigned n, void *out,
				   unsigned *room)
{
	enum nvml_return r = n > *room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;

	if (r == NVML_SUCCESS && n) {
		memcpy(out, list, n * e->size);
	}
	*room = n;
	free(list);
	return r;
}
