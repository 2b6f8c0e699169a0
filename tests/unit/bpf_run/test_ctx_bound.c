/* The maxima of context fields: enforced before a run, for the fields of that hook only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdint.h>
#include <string.h>

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
	;
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) enum { HOOK_##name = id };
#define GBPF_DEVICE_HOOK(id, name, budget, doc) enum { HOOK_##name = id };
#include "gbpf/hooks.def"

/* What the verifier may assume of a field must hold after ebpf_ctx_bound. */
static void every_field_is_at_most_its_maximum(void **state)
{
	static uint8_t ctx[256];
	const struct {
		unsigned hook;
		uint32_t offset, max;
	} all[] = {
#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX_MAX(hook, name, max)                                                              \
	{ HOOK_##hook, offsetof(struct gbpf_##hook##_ctx, name), max },
#include "gbpf/hooks.def"
	};

	assert_true(all[ARRAY_SIZE(all) - 1].hook >= 32); /* those inside kernels, too */
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		const uint32_t values[] = { 0, all[i].max, all[i].max + 1, UINT32_MAX };

		assert_int_equal(ebpf_ctx_max(all[i].hook, all[i].offset), all[i].max);
		for (size_t k = 0; k < ARRAY_SIZE(values); k++) {
			uint32_t got;

			memcpy(ctx + all[i].offset, &values[k], 4);
			ebpf_ctx_bound(all[i].hook, ctx);
			memcpy(&got, ctx + all[i].offset, 4);
			assert_int_equal(got, MIN(values[k], all[i].max));
		}
	}
}

static void nothing_else_changes(void **state)
{
	struct gbpf_tick_ctx tick;
	struct gbpf_init_ctx init, before;

	memset(&tick, 0xff, sizeof(tick));
	ebpf_ctx_bound(HOOK_tick, &tick);
	assert_int_equal(tick.tenants, 1024);
	assert_int_equal(tick.active, 1024);
	assert_true(tick.now_ns == UINT64_MAX && tick.epoch == UINT64_MAX);
	assert_int_equal(ebpf_ctx_max(HOOK_tick, 0), UINT32_MAX);
	memset(&init, 0xff, sizeof(init));
	before = init;
	ebpf_ctx_bound(HOOK_init, &init);
	assert_memory_equal(&init, &before, sizeof(init));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_field_is_at_most_its_maximum),
		cmocka_unit_test(nothing_else_changes),
	};

	return cmocka_run_group_tests_name("maxima of context fields", tests, NULL, NULL);
}
