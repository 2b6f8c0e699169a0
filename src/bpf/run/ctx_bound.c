/* The maxima of context fields. The table is hooks.def's, in its order: those of one hook are
 * neighbours. */
#include "bpf/run/ctx_bound.h"

#include <stddef.h>

#include "base/compiler.h"

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;

#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX_BEGIN(hook) struct ctx_##hook {
#define GBPF_CTX(hook, type, name, access, doc) type name;
#define GBPF_CTX_END(hook)                                                                         \
	}                                                                                          \
	;
#include "gbpf/hooks.def"

/* FIRST_x and END_x: the indices of a hook's maxima. The LAST_ constants set the next index back.
 */
enum {
#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX_BEGIN(hook) FIRST_##hook, LAST_BEFORE_##hook = FIRST_##hook - 1,
#define GBPF_CTX_MAX(hook, name, max) MAX_OF_##hook##_##name,
#define GBPF_CTX_END(hook) END_##hook, LAST_OF_##hook = END_##hook - 1,
#include "gbpf/hooks.def"
};

static const struct {
	uint32_t offset, max;
} maxima[] = {
#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX_MAX(hook, name, max) { offsetof(struct ctx_##hook, name), max },
#include "gbpf/hooks.def"
};

#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX_MAX(hook, name, max)                                                              \
	_Static_assert(sizeof(((struct ctx_##hook *)0)->name) == 4, "a u32 field");
#include "gbpf/hooks.def"

static const struct {
	uint8_t first, end;
} hooks[] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) [id] = { FIRST_##name, END_##name },
#define GBPF_DEVICE_HOOK(id, name, budget, doc) [id] = { FIRST_##name, END_##name },
#include "gbpf/hooks.def"
};

void ebpf_ctx_bound(unsigned hook, void *ctx)
{
	for (unsigned i = hooks[hook].first; i < hooks[hook].end; i++) {
		uint32_t *field = (uint32_t *)((char *)ctx + maxima[i].offset);

		*field = MIN(*field, maxima[i].max);
	}
}

uint32_t ebpf_ctx_max(unsigned hook, uint32_t offset)
{
	for (unsigned i = hooks[hook].first; i < hooks[hook].end; i++) {
		if (maxima[i].offset == offset) {
			return maxima[i].max;
		}
	}
	return UINT32_MAX;
}
