/* The constants, hook numbers and hook contexts of hooks.def as C declarations. */
#ifndef GBPF_DAEMON_CONSTS_H
#define GBPF_DAEMON_CONSTS_H

#include <stdint.h>

#include "bpf/run/map/map_type.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) enum { HOOK_##name = id };
#define DAEMON_CTX_TYPE_u64 uint64_t
#define DAEMON_CTX_TYPE_s64 int64_t
#define DAEMON_CTX_TYPE_u32 uint32_t
#define DAEMON_CTX_TYPE_s32 int32_t
#define GBPF_CTX_BEGIN(hook) struct daemon_ctx_##hook {
#define GBPF_CTX(hook, type, name, access, doc) DAEMON_CTX_TYPE_##type name;
#define GBPF_CTX_END(hook)                                                                         \
	}                                                                                          \
	;
#include "gbpf/hooks.def"

#endif
