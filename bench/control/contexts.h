/* The contexts of hooks as C structs, from hooks.def. */
#ifndef GBPF_BENCH_CONTROL_CONTEXTS_H
#define GBPF_BENCH_CONTROL_CONTEXTS_H

#include <stdint.h>

typedef uint64_t bench_u64;
typedef int64_t bench_s64;
typedef uint32_t bench_u32;
typedef int32_t bench_s32;

#define GBPF_CTX_BEGIN(hook) struct gbpf_##hook##_ctx {
#define GBPF_CTX(hook, type, name, access, doc) bench_##type name;
#define GBPF_CTX_END(hook)                                                                         \
	}                                                                                          \
	;
#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

enum {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) HOOK_##name = id,
#include "gbpf/hooks.def"
};

#endif
