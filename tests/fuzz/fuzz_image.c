/* Any bytes as a sealed policy image: opening it must not crash, and what it gives must lie inside
 * the image. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shm.h"
#include "bpf/run/exec_mem.h"
#include "bpf/run/image.h"

#define MAX_REGION (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Regions of the sizes that the image asks for, so that opening gets further. */
static void make_regions(const uint8_t *data, size_t size, int fds[EBPF_REGIONS])
{
	static struct ebpf_map_def defs[EBPF_MAX_MAPS];
	static struct ebpf_map maps[EBPF_MAX_MAPS];
	struct ebpf_image_header h;
	size_t bytes[EBPF_REGIONS];

	if (size < sizeof(h)) {
		return;
	}
	memcpy(&h, data, sizeof(h));
	if (h.n_maps > EBPF_MAX_MAPS || (size - sizeof(h)) / sizeof(defs[0]) < h.n_maps) {
		return;
	}
	memcpy(defs, data + sizeof(h), h.n_maps * sizeof(defs[0]));
	if (ebpf_maps_layout(defs, h.n_maps, maps, bytes)) {
		return;
	}
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (bytes[r] && bytes[r] <= MAX_REGION) {
			fds[r] = shm_create("fuzz", bytes[r], SHM_NOEXEC);
		}
	}
}

static void check(const struct ebpf_policy *p)
{
	const char *image = p->image;

	for (unsigned h = 0; h < EBPF_MAX_HOOKS; h++) {
		const char *first = (const char *)p->insns[h];

		if (first && (first < image ||
			      p->n_insns[h] > (size_t)(image + p->image_bytes - first) / 8)) {
			abort();
		}
		if (p->entry[h] && (uintptr_t)p->entry[h] - (uintptr_t)p->code >= p->code_bytes) {
			abort();
		}
	}
	for (unsigned i = 0; i < p->env.n_maps; i++) {
		const struct ebpf_map *m = &p->env.maps[i];
		uint64_t end = m->region_offset + (uint64_t)m->stride * m->max_entries;

		if (end > p->region_bytes[m->region] ||
		    (m->data && m->data != (uint8_t *)p->region[m->region] + m->region_offset)) {
			abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ebpf_policy p;
	struct ebpf_exec_part part = { data, 0, size };
	int fds[EBPF_REGIONS] = { -1, -1, -1 };
	int fd;

	if (!size) {
		return 0;
	}
	fd = ebpf_exec_create("fuzz", size, &part, 1);
	make_regions(data, size, fds);
	if (fd >= 0 && ebpf_policy_open(&p, fd, fds, size & 1 ? EBPF_OPEN_DAEMON : 0) == 0) {
		check(&p);
		ebpf_policy_close(&p);
	}
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (fds[r] >= 0) {
			close(fds[r]);
		}
	}
	close(fd);
	return 0;
}
