/* What a patched image depends on besides the original: the room's sources and the stub. */
#include <string.h>

#include "base/strmap.h"
#include "cubin/cubin.h"
#include "cubin/cubin_insn_int.h"
#include "cubin/cubin_stub_int.h"
#include "cubin_sources.h"

uint64_t cubin_version(void)
{
	return CUBIN_SOURCES;
}

static uint64_t join(uint64_t h, const void *data, size_t bytes)
{
	uint64_t both[2] = { h, hash_bytes(data, bytes) };

	return hash_bytes(both, sizeof(both));
}

uint64_t cubin_stub_hash(const struct cubin_stub *s)
{
	const uint64_t facts[] = { s->bytes, s->arg_at,	   s->arg_bytes, s->base,
				   s->arch,  s->registers, s->barriers,	 s->uses_ctaid_z };
	uint64_t h = hash_bytes(facts, sizeof(facts));

	h = join(h, s->code, s->bytes);
	h = join(h, s->field, s->bytes / CUBIN_INSN_BYTES);
	for (unsigned i = 0; i < s->n_lists; i++) {
		h = join(h, &s->lists[i].id, sizeof(s->lists[i].id));
		h = join(h, s->lists[i].at, s->lists[i].n * sizeof(s->lists[i].at[0]));
	}
	return h;
}
