/* Random seeds for the hash tables of fresh memory. gbpfd calls this; the processes of tenants only
 * read seeds. */
#include <errno.h>
#include <sys/random.h>

#include "bpf/run/map/map_int.h"

int ebpf_maps_seed(const struct ebpf_map *maps, unsigned n, enum ebpf_region region, void *base)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t seed[2];
		struct ebpf_map m;
		ssize_t got;

		if (maps[i].region != region || !(maps[i].ops->traits & EBPF_MAP_HASHED)) {
			continue;
		}
		got = getrandom(seed, sizeof(seed), 0);
		if (got != (ssize_t)sizeof(seed)) { /* up to 256 bytes come whole or not at all */
			return got < 0 ? -errno : -EIO;
		}
		ebpf_map_at(&m, &maps[i], base);
		ebpf_hash_seed(&m, seed);
	}
	return 0;
}
