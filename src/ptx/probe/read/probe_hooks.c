/* The hooks inside kernels and the fields of their contexts, from hooks.def. */
#include "ptx/probe/probe_int.h"

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;

enum {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) HOOK_##name = id,
#define GBPF_DEVICE_HOOK(id, name, budget, doc) HOOK_##name = id,
#include "gbpf/hooks.def"
};

static const struct ptx_probe_field fields[] = {
#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX(hook, type, name, access, doc) { HOOK_##hook, #name, sizeof(type) },
#include "gbpf/hooks.def"
};

const struct ptx_probe_field *ptx_probe_fields(uint32_t hook, uint32_t *ret_n)
{
	uint32_t from = 0, n = 0;

	if (hook < PTX_PROBE_HOOK_FIRST || hook > PTX_PROBE_HOOK_LAST) {
		return NULL;
	}
	while (from < ARRAY_SIZE(fields) && fields[from].hook != hook) {
		from++;
	}
	while (from + n < ARRAY_SIZE(fields) && fields[from + n].hook == hook) {
		n++;
	}
	*ret_n = n;
	return n ? &fields[from] : NULL;
}
