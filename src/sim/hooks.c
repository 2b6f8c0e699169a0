/* Tables generated from hooks.def: scenarios can use every name that policies can use. */
#include "sim/hooks.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/compiler.h"
#include "bpf/run/ctx_bound.h"

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;

#define GBPF_CTX_BEGIN(hook) struct gbpf_##hook##_ctx {
#define GBPF_CTX(hook, type, name, access, doc) type name;
#define GBPF_CTX_END(hook)                                                                         \
	}                                                                                          \
	;                                                                                          \
	_Static_assert(sizeof(struct gbpf_##hook##_ctx) <= SIM_CTX_BYTES, "SIM_CTX_BYTES");
#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

enum {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) HOOK_##name = id,
#include "gbpf/hooks.def"
};
enum { SIDE_LOCAL = false, SIDE_DAEMON = true };

const struct sim_hook sim_hooks[] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc)                                         \
	{ id, #name, SIDE_##side, sizeof(struct gbpf_##name##_ctx) },
#include "gbpf/hooks.def"
	{ -1, NULL, false, 0 },
};

#define R false
#define RW true
#define SIGNED(type) ((type)-1 < (type)1)
const struct sim_field sim_fields[] = {
#define GBPF_CTX(hook, type, name, access, doc)                                                    \
	{ HOOK_##hook,	#name,	      offsetof(struct gbpf_##hook##_ctx, name),                    \
	  sizeof(type), SIGNED(type), access },
#include "gbpf/hooks.def"
	{ -1, NULL, 0, 0, false, false },
};

static const struct {
	int hook;
	const char *name;
	int verdict;
} verdicts[] = {
#define GBPF_VERDICT(hook, short, name, value, doc) { HOOK_##hook, #short, value },
#include "gbpf/hooks.def"
};

static const struct {
	const char *name;
	uint64_t value;
} constants[] = {
#define GBPF_CONST(name, value, doc) { #name, value },
#include "gbpf/hooks.def"
};

/* Prefixes of the constants of each field. */
static const struct {
	const char *field, *prefix;
} prefixes[] = { { "class_id", "CLASS_" }, { "class", "CLASS_" }, { "kind", "KIND_" },
		 { "level", "LEVEL_" },	   { "flags", "F_" },	  { "reason", "EXIT_" },
		 { "tried", "LEVEL_" },	   { "lane", "LANE_" },	  { "stat", "STAT_" },
		 { "stop", "STOP_" },	   { "gate", "GATE_" },	  { "phase", "PHASE_" } };

static bool same(const char *known, const char *name, size_t len)
{
	return strlen(known) == len && memcmp(known, name, len) == 0;
}

const struct sim_hook *sim_hook_named(const char *name, size_t len)
{
	for (const struct sim_hook *h = sim_hooks; h->name; h++) {
		if (same(h->name, name, len)) {
			return h;
		}
	}
	return NULL;
}

const struct sim_field *sim_field_named(int hook, const char *name, size_t len)
{
	for (const struct sim_field *f = sim_fields; f->name; f++) {
		if (f->hook == hook && same(f->name, name, len)) {
			return f;
		}
	}
	return NULL;
}

uint64_t sim_field_get(const struct sim_field *f, const void *ctx)
{
	uint64_t v = 0;
	uint32_t narrow;

	if (f->bytes == 8) {
		memcpy(&v, (const char *)ctx + f->offset, 8);
		return v;
	}
	memcpy(&narrow, (const char *)ctx + f->offset, 4);
	return f->is_signed ? (uint64_t)(int64_t)(int32_t)narrow : narrow;
}

bool sim_field_set(const struct sim_field *f, void *ctx, uint64_t value)
{
	uint32_t narrow = (uint32_t)value;
	int64_t wide = (int64_t)value;

	if (f->bytes == 8) {
		memcpy((char *)ctx + f->offset, &value, 8);
		return true;
	}
	if (narrow > ebpf_ctx_max((unsigned)f->hook, (uint32_t)f->offset)) {
		return false;
	}
	memcpy((char *)ctx + f->offset, &narrow, 4);
	return f->is_signed ? wide >= INT32_MIN && wide <= INT32_MAX
			    : wide >= -1 && (wide == -1 || value <= UINT32_MAX);
}

const char *sim_verdict_name(int hook, int64_t verdict)
{
	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		if (verdicts[i].hook == hook && verdicts[i].verdict == verdict) {
			return verdicts[i].name;
		}
	}
	return NULL;
}

bool sim_verdict_named(int hook, const char *name, size_t len, int64_t *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		if ((hook < 0 || verdicts[i].hook == hook) && same(verdicts[i].name, name, len)) {
			*ret = verdicts[i].verdict;
			return true;
		}
	}
	return false;
}

void sim_verdict_each(int hook, void (*fn)(void *arg, const char *name), void *arg)
{
	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		if (verdicts[i].hook == hook) {
			fn(arg, verdicts[i].name);
		}
	}
}

static const char *prefix_of(const char *field)
{
	for (size_t i = 0; field && i < ARRAY_SIZE(prefixes); i++) {
		if (strcmp(prefixes[i].field, field) == 0) {
			return prefixes[i].prefix;
		}
	}
	return NULL;
}

void sim_constant_each(const char *field, void (*fn)(void *arg, const char *name), void *arg)
{
	const char *prefix = prefix_of(field);

	for (size_t i = 0; prefix && i < ARRAY_SIZE(constants); i++) {
		const char *bare = constants[i].name + strlen("GBPF_");

		if (strncmp(bare, prefix, strlen(prefix)) == 0) {
			fn(arg, bare + strlen(prefix));
		}
	}
}

static bool same_in_any_case(const char *known, const char *name, size_t len)
{
	return strlen(known) == len && strncasecmp(known, name, len) == 0;
}

bool sim_constant(const char *field, const char *name, size_t len, uint64_t *ret)
{
	const char *prefix = prefix_of(field);

	for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
		const char *bare = constants[i].name + strlen("GBPF_");

		if (same(constants[i].name, name, len) || same(bare, name, len) ||
		    (prefix && strncmp(bare, prefix, strlen(prefix)) == 0 &&
		     same_in_any_case(bare + strlen(prefix), name, len))) {
			*ret = constants[i].value;
			return true;
		}
	}
	return false;
}
