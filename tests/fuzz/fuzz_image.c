/* Opens sealed policy images: opening must not crash, and the result must lie within the image. The
 * first byte selects a valid image, in which the following edits (32-bit offset, value) change
 * bytes; for larger values, the bytes are the image. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shm.h"
#include "bpf/run/exec_mem.h"
#include "bpf/load/policy.h"
#include "bpf/run/policy_image.h"
#include "fuzz_images.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#define GBPF_MAP_TYPE(id, name, ops, doc) enum { GBPF_MAP_##name = id };
#include "gbpf/hooks.def"

#define MAX_REGION (1u << 20)
#define MAX_IMAGE (256u << 10)
#define EDIT 5u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Creates regions of the sizes that the image needs, so that opening gets further. */
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
		/* other types use this range differently */
		uint64_t size =
			m->type == GBPF_MAP_ARRAY ? (uint64_t)m->stride * m->max_entries : 0;
		uint64_t end = m->region_offset + size;

		if (end > p->region_bytes[m->region] ||
		    (m->data && size && !(m->flags & GBPF_F_EPOCH) &&
		     m->data != (uint8_t *)p->region[m->region] + m->region_offset)) {
			abort();
		}
	}
}

struct image {
	uint8_t *data; /* owned; NULL: not built yet */
	size_t bytes;
};

static const struct image *built(unsigned i)
{
	static struct image images[ARRAY_SIZE(objects)];
	struct image *m = &images[i];
	struct ebpf_built b;
	struct report r;
	ssize_t n;

	if (m->data) {
		return m;
	}
	report_init(&r);
	if (ebpf_policy_build(&b, objects[i].data, objects[i].bytes, "fuzz.bpf.o", 1, 0, &r)) {
		abort(); /* the build failed: use another object */
	}
	m->data = malloc(MAX_IMAGE);
	n = m->data ? pread(b.image_fd, m->data, MAX_IMAGE, 0) : -1;
	if (n <= 0 || n == MAX_IMAGE) {
		abort();
	}
	m->bytes = (size_t)n;
	ebpf_built_finish(&b);
	report_finish(&r);
	return m;
}

/* Header and tables come first, so most edits go there. */
static size_t edited(const uint8_t *data, size_t size, uint8_t *out)
{
	const struct image *m = built(data[0]);

	memcpy(out, m->data, m->bytes);
	for (size_t i = 1; i + EDIT <= size && i < 64 * EDIT; i += EDIT) {
		uint32_t at;

		memcpy(&at, data + i, sizeof(at));
		out[at % (at & 1u << 31 ? m->bytes : MIN(m->bytes, (size_t)4096))] ^= data[i + 4];
	}
	return m->bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t image[MAX_IMAGE];
	static struct ebpf_policy p;
	struct ebpf_exec_part part = { data, 0, size };
	int fds[EBPF_REGIONS] = EBPF_NO_REGIONS;
	int fd;

	if (!size) {
		return 0;
	}
	if (data[0] < ARRAY_SIZE(objects)) {
		part = (struct ebpf_exec_part){ image, 0, edited(data, size, image) };
	}
	fd = ebpf_exec_create("fuzz", part.bytes, &part, 1);
	make_regions(part.data, part.bytes, fds);
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
