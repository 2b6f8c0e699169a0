/* Runs any sequence of operations on a map with any definition and any memory: a definition that
 * ebpf_map_check() accepts can be laid out, nothing outside the map is accessed, and every
 * operation terminates. In undisturbed memory a hash table equals its model. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/run/insn.h"
#include "bpf/run/map/map.h"
#include "bpf/run/map/ring.h"

#define MAX_BYTES (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *p;
	size_t left;
};

static uint32_t take(struct input *in, unsigned bytes)
{
	uint32_t v = 0;

	for (unsigned i = 0; i < bytes && in->left; i++, in->left--) {
		v = v << 8 | *in->p++;
	}
	return v;
}

static void definition(struct input *in, struct ebpf_map_def *d)
{
	static const uint16_t types[] = { 1, 2, 3, 6, 9, 11, 12, 22, 23, 27, 1000, 4 };
	static const uint32_t flags[] = { 0, 0x10000, 0x20000, 0x40000, 0x80000, 0x30000 };
	static const uint32_t keys[] = { 4, 8, 0, 1, 5, 16, 260, 512, 513 };
	static const uint32_t values[] = { 8, 4, 1, 512, 0, 16, 100, 65536 };

	memset(d, 0, sizeof(*d));
	d->name[0] = 'm';
	d->type = types[take(in, 1) % ARRAY_SIZE(types)];
	d->key_bytes = keys[take(in, 1) % ARRAY_SIZE(keys)];
	d->value_bytes = values[take(in, 1) % ARRAY_SIZE(values)];
	d->max_entries = d->type == 27 ? 4096u << take(in, 1) % 4 : take(in, 1) * (take(in, 1) + 1);
	d->flags = flags[take(in, 1) % ARRAY_SIZE(flags)];
	d->lock_1 = take(in, 1) % 8 ? 0 : take(in, 1);
	d->inner_1 = d->type == 12;
}

/* The model: 256 keys, each absent or present with its last value. */
struct model {
	uint8_t present[256], value[256];
	uint32_t n;
};

static void check(int ok)
{
	if (!ok) {
		abort();
	}
}

static void model_step(struct model *md, const struct ebpf_map *m, unsigned op, uint8_t k,
		       uint8_t v, int err)
{
	if (!md || m->type != 1) {
		return;
	}
	if (op == 0) {
		check(err == (md->present[k] || md->n < m->max_entries ? 0 : -E2BIG));
		if (!err) {
			md->n += !md->present[k];
			md->present[k] = 1;
			md->value[k] = v;
		}
	} else if (op == 1) {
		check(err == (md->present[k] ? 0 : -ENOENT));
		md->n -= md->present[k];
		md->present[k] = 0;
	} else {
		check(err == md->present[k]);
	}
}

static uint8_t key[512], value[EBPF_MAX_VALUE_BYTES], record[512];

static void operation(struct input *in, const struct ebpf_map *m, struct ebpf_ring_reader *r,
		      struct model *md)
{
	unsigned op = take(in, 1) % 10;
	uint8_t k = (uint8_t)take(in, 1), v = (uint8_t)take(in, 1);
	uint8_t *at;

	memset(key, 0, sizeof(key));
	key[0] = k;
	memset(value, v, m->value_bytes);
	switch (op) {
	case 0:
		model_step(md, m, 0, k, v, ebpf_map_update(m, key, value, 0));
		break;
	case 1:
		model_step(md, m, 1, k, v, ebpf_map_delete(m, key));
		break;
	case 2:
		at = ebpf_map_lookup(m, key);
		model_step(md, m, 2, k, v, at != NULL);
		if (at && m->type != 12) {
			check(at >= m->data && at + m->value_bytes <= m->data + m->bytes);
			check(!md || m->type != 1 || m->lock_1 || *at == md->value[k]);
		}
		break;
	case 3:
		(void)ebpf_map_push(m, value, k % 4);
		break;
	case 4:
		(void)(k % 2 ? ebpf_map_pop(m, value) : ebpf_map_peek(m, value));
		break;
	case 5:
		(void)ebpf_map_hist_add(m, k, (uint64_t)v << (k % 64));
		break;
	case 6:
		(void)ebpf_map_slot(m, k, key, value);
		(void)ebpf_map_read(m, key, value);
		break;
	case 7:
		if (m->type == 27) {
			at = ebpf_ring_reserve(m, 1u + k * 8u);
			(void)(at ? ebpf_ring_finish(m, at, v % 2) : 0);
			(void)ebpf_ring_output(m, record, v);
		}
		break;
	case 8:
		if (m->type == 27) {
			(void)ebpf_ring_read(m, r, record, sizeof(record), (uint64_t)k << 28,
					     v % 2);
		}
		break;
	default:
		if (k == 0) {
			(void)ebpf_map_clear(m);
			if (md) {
				memset(md, 0, sizeof(*md));
			}
		}
		check(!md || m->type != 1 || ebpf_map_count(m) == md->n);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct ebpf_ring_reader reader = { 0 };
	struct model model = { 0 };
	struct ebpf_map_def d[2];
	struct ebpf_map m[EBPF_MAX_MAPS];
	size_t bytes[EBPF_REGIONS];
	int clean = take(&in, 1) % 2, n = 1;
	uint8_t *base;

	memset(m, 0, sizeof(m));
	definition(&in, &d[0]);
	if (d[0].inner_1) {
		d[0].inner_1 = 2;
		n = 2;
		definition(&in, &d[1]);
	}
	if (ebpf_map_check(&d[0]) != 0 || (n == 2 && ebpf_map_check(&d[1]) != 0)) {
		check(ebpf_maps_layout(d, (unsigned)n, m, bytes) != 0);
		return 0;
	}
	if (ebpf_maps_layout(d, (unsigned)n, m, bytes) != 0 || m[0].bytes > MAX_BYTES) {
		return 0;
	}
	/* The memory ends where the map ends; before the map is the epoch word. */
	base = aligned_alloc(64, ROUND_UP(m[0].region_offset + m[0].bytes + 1, 64u));
	check(base != NULL);
	memset(base, 0, m[0].region_offset + m[0].bytes);
	m[0].data = base + m[0].region_offset;
	for (unsigned i = clean ? 0 : take(&in, 1); i > 0; i--) {
		uint32_t at = take(&in, 3) % (m[0].bytes / 8 + 1) * 8;
		uint64_t word = (uint64_t)take(&in, 4) << take(&in, 1) % 33;

		if (at + 8 <= m[0].bytes) {
			memcpy(m[0].data + at, &word, 8);
		}
	}
	ebpf_map_at(&m[0], &m[0], base); /* takes the seed of a hash table */
	while (in.left) {
		operation(&in, &m[0], &reader, clean ? &model : NULL);
	}
	(void)ebpf_maps_publish(m, (unsigned)n);
	free(base);
	return 0;
}
