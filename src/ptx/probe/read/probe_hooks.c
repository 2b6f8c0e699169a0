/* The hooks inside kernels and the fields of their contexts, from hooks.def. */
#include <string.h>

#include "ptx/probe/read/probe_read.h"
#include "ptx/probe_bracket.h"

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

bool ptx_probe_is_bracket(uint32_t hook)
{
	return hook == PTX_PROBE_gdev_begin || hook == PTX_PROBE_gdev_end;
}

bool ptx_probe_is_late(uint32_t hook)
{
	return hook == PTX_PROBE_gdev_block_exit;
}

bool ptx_probe_field_is_time(const char *name)
{
	static const char *const times[] = { "clock", "time_ns", "end_ns", NULL };

	return ptx_is_one_of(name, times);
}

bool ptx_probe_field_is_number(const char *field)
{
	return strcmp(field, "launch") == 0;
}

bool ptx_probe_reads_launch(uint32_t hook, uint64_t mask)
{
	uint32_t n = 0;
	const struct ptx_probe_field *f = ptx_probe_fields(hook, &n);

	for (uint32_t k = 0; k < n && k < 64; k++) {
		if (mask >> k & 1 && ptx_probe_field_is_number(f[k].name)) {
			return true;
		}
	}
	return false;
}

bool ptx_probe_reads_name(const struct ptx_probe_program *g, const char *name)
{
	for (uint32_t k = 0; k < g->n_fields; k++) {
		if (ptx_probe_reads(g, k) && strcmp(g->fields[k].name, name) == 0) {
			return true;
		}
	}
	return false;
}

bool ptx_probe_reads_field(const struct ptx_probe_read *p, uint32_t hook, const char *name)
{
	ptx_probe_each (p, g) {
		if (g->probe->hook == hook && ptx_probe_reads_name(g, name)) {
			return true;
		}
	}
	return false;
}
