/* The verifier's tables of hooks, fields, helpers and map operations, generated from hooks.def. */
#include "bpf/load/verify/verify_tables_int.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;

#define GBPF_DEVICE_HOOK(id, name, budget, doc) enum { HOOK_##name = id };
#define GBPF_CTX_BEGIN(hook) struct gbpf_##hook##_ctx {
#define GBPF_CTX(hook, type, name, access, doc) type name;
#define GBPF_CTX_END(hook)                                                                         \
	}                                                                                          \
	;
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) enum { HOOK_##name = id };
#include "gbpf/hooks.def"

/* FIRST_x and END_x: the indices of a hook's fields. The BEFORE_ constants set the next index back.
 */
enum {
#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX_BEGIN(hook) FIRST_##hook, BEFORE_##hook = FIRST_##hook - 1,
#define GBPF_CTX(hook, type, name, access, doc) FIELD_##hook##_##name,
#define GBPF_CTX_END(hook) END_##hook, BEFORE_END_##hook = END_##hook - 1,
#include "gbpf/hooks.def"
};

static const struct ebpf_verify_hook hooks[] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc)                                         \
	{ id,                                                                                      \
	  #name,                                                                                   \
	  SIDE_##side,                                                                             \
	  budget,                                                                                  \
	  vmin,                                                                                    \
	  vmax,                                                                                    \
	  sizeof(struct gbpf_##name##_ctx),                                                        \
	  FIRST_##name,                                                                            \
	  END_##name },
#define GBPF_DEVICE_HOOK(id, name, budget, doc)                                                    \
	{ id,		#name,	   SIDE_DEVICE, budget, 0, 0, sizeof(struct gbpf_##name##_ctx),    \
	  FIRST_##name, END_##name },
#include "gbpf/hooks.def"
};

#define ACCESS_R 0
#define ACCESS_RW 1

static const struct ebpf_verify_field fields[] = {
#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX(hook, type, name, access, doc)                                                    \
	{ HOOK_##hook, #name, offsetof(struct gbpf_##hook##_ctx, name), sizeof(type),              \
	  ACCESS_##access },
#include "gbpf/hooks.def"
};

static const struct ebpf_verify_helper helpers[] = {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	{ id,		#name, RET_##ret, { ARG_##a1, ARG_##a2, ARG_##a3, ARG_##a4, ARG_##a5 },    \
	  SIDE_##sides, cost },
#include "gbpf/hooks.def"
};

enum {
	MAP_LOOKUP = 1,
	MAP_UPDATE = 2,
	MAP_DELETE = 4,
	MAP_EACH = 8,
	MAP_TAIL = 16,
	MAP_PUSH = 32,
	MAP_PEEK = 64,
	MAP_RING = 128,
	MAP_HIST = 256,
	MAP_SUM = 512,
	MAP_OUTPUT = 1024
};

static const struct {
	uint32_t id;
	const char *name;
	unsigned ops;
} map_types[] = {
#define GBPF_MAP_TYPE(id, name, ops, doc) { id, #name, ops },
#include "gbpf/hooks.def"
};

static const struct {
	int32_t helper;
	unsigned op;
} map_ops[] = {
#define GBPF_MAP_OP(helper, op) { HELPER_##helper, op },
#include "gbpf/hooks.def"
};

static const struct {
	int hook;
	const char *name;
	int64_t value;
} verdicts[] = {
#define GBPF_VERDICT(hook, short, name, value, doc) { HOOK_##hook, #name, value },
#include "gbpf/hooks.def"
};

const struct ebpf_verify_hook *ebpf_verify_hook(int id)
{
	for (size_t i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (hooks[i].id == id) {
			return &hooks[i];
		}
	}
	return NULL;
}

const struct ebpf_verify_field *ebpf_verify_fields(uint32_t *ret_n)
{
	*ret_n = ARRAY_SIZE(fields);
	return fields;
}

/* Fields without a line vary. */
uint8_t ebpf_verify_field_level(const struct ebpf_verify_field *f)
{
	static const struct {
		const char *name;
		uint8_t level;
	} levels[] = {
#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX_UNIFORM(name, level) { #name, LEVEL_##level },
#include "gbpf/hooks.def"
	};

	for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
		if (strcmp(levels[i].name, f->name) == 0) {
			return levels[i].level;
		}
	}
	return LEVEL_LANE;
}

const struct ebpf_verify_field *ebpf_verify_field_at(const struct ebpf_verify_hook *h, int64_t off)
{
	for (unsigned i = h->first_field; i < h->end_field; i++) {
		if (off >= fields[i].offset && off < (int64_t)fields[i].offset + fields[i].bytes) {
			return &fields[i];
		}
	}
	return NULL;
}

const struct ebpf_verify_helper *ebpf_verify_helper(int32_t id)
{
	for (size_t i = 0; i < ARRAY_SIZE(helpers); i++) {
		if (helpers[i].id == id) {
			return &helpers[i];
		}
	}
	return NULL;
}

int ebpf_verify_warp_wide(int32_t id)
{
	switch (id) {
	case HELPER_gbpf_ballot:
	case HELPER_gbpf_shuffle:
	case HELPER_gbpf_warp_sum:
	case HELPER_gbpf_warp_min:
	case HELPER_gbpf_warp_max:
		return 1;
	default:
		return 0;
	}
}

static unsigned ops_of(uint32_t map_type)
{
	for (size_t i = 0; i < ARRAY_SIZE(map_types); i++) {
		if (map_types[i].id == map_type) {
			return map_types[i].ops;
		}
	}
	return 0;
}

int ebpf_verify_map_can(uint32_t map_type, int32_t helper)
{
	for (size_t i = 0; i < ARRAY_SIZE(map_ops); i++) {
		if (map_ops[i].helper == helper) {
			return (ops_of(map_type) & map_ops[i].op) != 0;
		}
	}
	return 0;
}

const char *ebpf_verify_map_type(uint32_t map_type)
{
	for (size_t i = 0; i < ARRAY_SIZE(map_types); i++) {
		if (map_types[i].id == map_type) {
			return map_types[i].name;
		}
	}
	return "unknown";
}

void ebpf_verify_verdict_names(const struct ebpf_verify_hook *h, struct buf *out)
{
	const char *sep = "";

	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		if (verdicts[i].hook == h->id) {
			buf_printf(out, "%s%s (%lld)", sep, verdicts[i].name,
				   (long long)verdicts[i].value);
			sep = ", ";
		}
	}
	if (!*sep && h->verdict_min == h->verdict_max) {
		buf_printf(out, "%lld", (long long)h->verdict_min);
	} else if (!*sep) {
		buf_printf(out, "%lld to %lld", (long long)h->verdict_min,
			   (long long)h->verdict_max);
	}
}
