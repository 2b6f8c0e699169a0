/* A map in private shared memory, for the tests of maps. */
#ifndef GBPF_TESTS_MAP_ENV_H
#define GBPF_TESTS_MAP_ENV_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>

#include <cmocka.h>

#include "bpf/run/map/map.h"

#define GBPF_MAP_TYPE(id, name, ops, doc) enum { GBPF_MAP_##name = id };
#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

enum { TENANT = GBPF_F_TENANT, DAEMON = GBPF_F_DAEMON, EPOCH = GBPF_F_EPOCH };

struct one_map {
	struct ebpf_map m;
	uint8_t *base;
	size_t bytes;
};

static inline struct ebpf_map_def map_def(uint32_t type, uint32_t key, uint32_t value,
					  uint32_t entries, uint32_t flags)
{
	return (struct ebpf_map_def){ .name = "m",
				      .type = type,
				      .key_bytes = key,
				      .value_bytes = value,
				      .max_entries = entries,
				      .flags = flags };
}

static inline void map_make(struct one_map *o, struct ebpf_map_def d)
{
	size_t bytes[EBPF_REGIONS];

	assert_int_equal(ebpf_maps_layout(&d, 1, &o->m, bytes), 0);
	o->bytes = bytes[o->m.region];
	o->base = mmap(NULL, o->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(o->base, MAP_FAILED);
	ebpf_maps_bind(&o->m, 1, (enum ebpf_region)o->m.region, o->base);
}

static inline void map_drop(struct one_map *o)
{
	munmap(o->base, o->bytes);
}

static inline uint64_t test_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

#endif
