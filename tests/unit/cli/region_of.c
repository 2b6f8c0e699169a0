/* tracers/regions.h for the host. */
#include <stddef.h>
#include <stdint.h>
#include <sys/cdefs.h>

#include "base/compiler.h"

typedef uint32_t u32;
typedef uint64_t u64;

#define __uint(name, val) int(*name)[val]
#define __type(name, val) __typeof__(val) *name
#define SEC(name)
enum { GBPF_MAP_ARRAY = 2, GBPF_F_DEVICE = 0x100000 };

struct region {
	u64 count, mixed, owner, owners, squares, spread;
};

static void *bpf_map_lookup_elem(void *map, const u32 *key);

#include "../../../tracers/regions.h"

REGION_MAP(struct region)

extern struct region region_table[REGIONS];
struct region region_table[REGIONS];

extern u32 region_place;
u32 region_place;

static void *bpf_map_lookup_elem(UNUSED void *map, const u32 *key)
{
	region_place = *key;
	return *key < REGIONS ? &region_table[*key] : NULL;
}

u64 *region_of_address(u64 low, u64 high, u32 shift);
u64 *region_of_address(u64 low, u64 high, u32 shift)
{
	struct region *r = region_of(low, high, shift);

	return r ? &r->count : NULL;
}
