/* Replaces <gbpf/gbpf.bpf.h> when a policy is compiled for the machine itself, to compare the code
 * of gBPF's compiler with clang's: the same contexts, constants and map macros; helpers are the
 * same C functions, called through the same table, except that lookups in arrays and gbpf_note are
 * inlined, as in gBPF's compiler. The benchmark sets gbpf_native, and writes a handle and the
 * address of the memory into the first two words of each map's struct. */
#ifndef GBPF_BENCH_NATIVE_H
#define GBPF_BENCH_NATIVE_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

#define GBPF_CTX_BEGIN(hook) struct gbpf_##hook##_ctx {
#define GBPF_CTX(hook, type, name, access, doc) type name;
#define GBPF_CTX_END(hook) };
#define GBPF_CONST(name, value, doc) enum { name = value };
#define GBPF_MAP_TYPE(id, name, ops, doc) enum { GBPF_MAP_##name = id };
#include <gbpf/hooks.def>

enum { BPF_ANY, BPF_NOEXIST, BPF_EXIST };

#define SEC(name) __attribute__((section(name), used, visibility("protected")))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define GBPF_PROG(name, hook) name(struct gbpf_##hook##_ctx *ctx)

static __always_inline u64 gbpf_used_ns(const struct gbpf_retire_ctx *ctx)
{
	return ctx->duration_ns - ctx->overlap_ns;
}

#define GBPF_TENANT
#define GBPF_LICENSE(text) char gbpf_license[] = text

enum gbpf_native_slot {
#define GBPF_HELPER(id, name, ...) GBPF_SLOT_##name,
#include <gbpf/hooks.def>
	GBPF_SLOTS
};

typedef u64 (*gbpf_native_fn)(u64, u64, u64, u64, u64, void *);

__attribute__((visibility("protected"))) struct {
	const gbpf_native_fn *helpers;
	void *env;
	u64 *notes, *errors;
} gbpf_native;

#define GBPF_CALL(name, a, b, c, d, e)                                                                                      \
	gbpf_native.helpers[GBPF_SLOT_##name]((u64)(a), (u64)(b), (u64)(c), (u64)(d), (u64)(e), gbpf_native.env)

#define GBPF_HANDLE(map) (((void **)(map))[0])
#define GBPF_NUMBER(map, field) (sizeof(*(map)->field) / sizeof(int))

static __always_inline void *gbpf_native_element(void *map, const void *key, u32 entries, u64 stride)
{
	u32 index = *(const u32 *)key;

	return index < entries ? ((char **)map)[1] + index * stride : 0;
}

#define bpf_map_lookup_elem(map, key)                                                                                       \
	(GBPF_NUMBER(map, type) == GBPF_MAP_ARRAY ?                                                                         \
		 gbpf_native_element(map, key, GBPF_NUMBER(map, max_entries), (sizeof(*(map)->value) + 7) / 8 * 8) :        \
		 (void *)GBPF_CALL(bpf_map_lookup_elem, GBPF_HANDLE(map), key, 0, 0, 0))
#define bpf_map_update_elem(map, key, value, flags)                                                                         \
	((long)GBPF_CALL(bpf_map_update_elem, GBPF_HANDLE(map), key, value, flags, 0))
#define bpf_map_delete_elem(map, key) ((long)GBPF_CALL(bpf_map_delete_elem, GBPF_HANDLE(map), key, 0, 0, 0))
#define gbpf_tenant_lookup(map, tenant, key)                                                                                \
	((void *)GBPF_CALL(gbpf_tenant_lookup, GBPF_HANDLE(map), tenant, key, 0, 0))
#define gbpf_tenant_class(tenant) ((long)GBPF_CALL(gbpf_tenant_class, tenant, 0, 0, 0, 0))
#define gbpf_tenant_weight(tenant) ((long)GBPF_CALL(gbpf_tenant_weight, tenant, 0, 0, 0, 0))
#define gbpf_tenant_stat(tenant, what) GBPF_CALL(gbpf_tenant_stat, tenant, what, 0, 0, 0)
#define gbpf_slice_set(tenant, slice_us) ((long)GBPF_CALL(gbpf_slice_set, tenant, slice_us, 0, 0, 0))
#define gbpf_preempt_now(tenant, level) ((long)GBPF_CALL(gbpf_preempt_now, tenant, level, 0, 0, 0))
#define gbpf_note(counter, add)                                                                                             \
	((void)((u64)(counter) < 16 ?                                                                                       \
			__atomic_fetch_add(&gbpf_native.notes[counter], (u64)(add), __ATOMIC_RELAXED) :                     \
			__atomic_fetch_add(gbpf_native.errors, 1, __ATOMIC_RELAXED)))
#define gbpf_hist_add(map, row, value) ((long)GBPF_CALL(gbpf_hist_add, GBPF_HANDLE(map), row, value, 0, 0))
#define bpf_ktime_get_ns() GBPF_CALL(bpf_ktime_get_ns, 0, 0, 0, 0, 0)
#define bpf_get_prandom_u32() ((u32)GBPF_CALL(bpf_get_prandom_u32, 0, 0, 0, 0, 0))
#define bpf_loop(n, callback, ctx, flags) ((long)GBPF_CALL(bpf_loop, n, callback, ctx, flags, 0))
#define bpf_for(i, start, end) for ((i) = (start); (i) < (end); (i)++)

#endif
