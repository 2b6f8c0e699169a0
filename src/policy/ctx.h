/* The contexts and constants of hooks.def as C sees them: the layout against which programs were
 * verified. */
#ifndef GBPF_POLICY_CTX_H
#define GBPF_POLICY_CTX_H

#include <stdint.h>

#define POLICY_TYPE_u64 uint64_t
#define POLICY_TYPE_s64 int64_t
#define POLICY_TYPE_u32 uint32_t
#define POLICY_TYPE_s32 int32_t

#define GBPF_CTX_BEGIN(hook) struct gbpf_##hook##_ctx {
#define GBPF_CTX(hook, type, name, access, doc) POLICY_TYPE_##type name;
#define GBPF_CTX_END(hook)                                                                         \
	}                                                                                          \
	;
#ifndef POLICY_CONSTANTS
#define POLICY_CONSTANTS
#define GBPF_CONST(name, value, doc) enum { name = value };
#endif
#include "gbpf/hooks.def"

/* The members are naturally aligned without holes: the verifier's sum of sizes is the compiler's
 * layout. */
#define GBPF_CTX_BEGIN(hook) _Static_assert(sizeof(struct gbpf_##hook##_ctx) == (0
#define GBPF_CTX(hook, type, name, access, doc) +sizeof(POLICY_TYPE_##type)
#define GBPF_CTX_END(hook) +7) / 8 * 8, "no holes in the context of " #hook);
#include "gbpf/hooks.def"

enum policy_hook {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) POLICY_HOOK_##name = id,
#include "gbpf/hooks.def"
};

#endif
