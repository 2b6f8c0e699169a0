/* What a gBPF policy sees: contexts, verdicts, map macros, helpers. Include it first in a .bpf.c and build with
 *	clang -target bpf -mcpu=v3 -g -O2 -c x.bpf.c -o x.bpf.o
 * The contexts, constants and helpers come from hooks.def, which also documents every field. */
#ifndef GBPF_BPF_H
#define GBPF_BPF_H

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
#include "hooks.def"

/* The numbers, as enums with names, so that CO-RE can ask what the running gBPF knows:
 * bpf_core_enum_value_exists(enum gbpf_helper_id, GBPF_HELPER_bpf_loop). */
enum gbpf_const {
#define GBPF_CONST(name, value, doc) name = value,
#include "hooks.def"
};
enum gbpf_map_type {
#define GBPF_MAP_TYPE(id, name, ops, doc) GBPF_MAP_##name = id,
#include "hooks.def"
};
enum gbpf_hook_id {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) GBPF_HOOK_##name = id,
#include "hooks.def"
};
enum gbpf_helper_id {
#define GBPF_HELPER(id, name, ...) GBPF_HELPER_##name = id,
#include "hooks.def"
};

/* Flags of bpf_map_update_elem: create or replace; create (-EEXIST, -17, when it is there); replace (-ENOENT, -2, when
 * it is not). */
enum { BPF_ANY, BPF_NOEXIST, BPF_EXIST };

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define __array(name, val) typeof(val) *name[]
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __weak __attribute__((weak))
#define __hidden __attribute__((visibility("hidden")))
#define __ksym __attribute__((section(".ksyms")))

/* SEC("gbpf/submit") int GBPF_PROG(my_submit, submit) { return ctx->lc_open ? GBPF_HOLD : GBPF_GO; } */
#define GBPF_PROG(name, hook) name(struct gbpf_##hook##_ctx *ctx)

/* Global variables: .rodata (const volatile: set by the operator at load, known to the verifier), .data/.bss (written
 * by programs in gbpfd, read by local ones). GBPF_TENANT makes a variable of which each tenant has its own. */
#define GBPF_TENANT SEC(".bss.tenant")

/* Guards the rest of a value in a GBPF_F_DAEMON map. */
struct bpf_spin_lock {
	u32 val;
};

/* What bpf_for walks with. */
struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

/* The helpers, with the kernel's names where the kernel has them, so that what one knows carries over. With
 * GBPF_EXTERN_HELPERS defined they are weak externs, resolved by name when the policy is loaded: one that the running
 * gBPF lacks has address 0, and if (bpf_loop) { ... } keeps the policy loadable there. */
#ifdef GBPF_EXTERN_HELPERS
#define GBPF_HELPER(id, name, type, params, ...) extern type name params __ksym __weak;
#else
#define GBPF_HELPER(id, name, type, params, ...) static type(*const name) params __attribute__((unused)) = (void *)id;
#endif
#include "hooks.def"

/* bpf_for (i, 0, n) { ... }: i from 0 to n-1. The verifier looks at the body once or twice, however large n is; its cost
 * counts for each round, so n must have a bound. break and continue work. */
#define bpf_for(i, start, end)                                                                                              \
	for (struct bpf_iter_num ___it __attribute__((cleanup(gbpf_iter_end))), *___p __attribute__((unused)) =            \
		     (bpf_iter_num_new(&___it, (start), (end)), (void *)0);                                                 \
	     ({                                                                                                             \
		     int *___t = bpf_iter_num_next(&___it);                                                                 \
		     (___t && ((i) = *___t, (i) >= (start) && (i) < (end)));                                                \
	     });)

static __always_inline void gbpf_iter_end(struct bpf_iter_num *it)
{
	bpf_iter_num_destroy(it);
}

#define GBPF_LICENSE(text) char gbpf_license[] SEC("license") = text
#define GBPF_VERSION(text) char gbpf_version[] SEC("version") = text

/* A policy as a struct of programs, equal to programs in sections gbpf/<hook>. A program that a struct names stands in
 * SEC("struct_ops/<anything>") or SEC("?gbpf/<hook>"):
 *	SEC("struct_ops/submit") int GBPF_PROG(my_submit, submit) { return GBPF_GO; }
 *	SEC(".struct_ops") struct gbpf_ops mine = { .submit = my_submit, .name = "mine", .version = "1.0" };
 * Members are known by their names; those that the running gBPF does not know must be zero. No flags exist yet. */
struct gbpf_ops {
#define GBPF_HOOK(id, hook, side, budget, vmin, vmax, doc) int (*hook)(struct gbpf_##hook##_ctx * ctx);
#include "hooks.def"
	u64 flags;
	char name[32];
	char version[32];
};

/* The tables of GPU extensions to drivers, with the same habits: SEC(".struct_ops") struct gdrv_sched_ops. Members whose
 * hook the running gBPF does not offer are refused by name unless they are NULL. */
#define GBPF_OPS_BEGIN(table) struct table {
#define GBPF_OPS(table, member, hook) int (*member)(struct gbpf_##hook##_ctx * ctx);
#define GBPF_OPS_LATER(table, member) int (*member)(void *ctx);
#define GBPF_OPS_END(table) \
	u64 flags;          \
	char name[32];      \
	char version[32];   \
	}                   \
	;
#include "hooks.def"

/* CO-RE: types marked GBPF_CORE, and these questions, are answered when the policy is loaded, against the running
 * gBPF's own types. A local struct gbpf_submit_ctx___any with some of the fields stands for the real one. */
#define GBPF_CORE __attribute__((preserve_access_index))
#ifndef bpf_core_field_exists
#define bpf_core_field_exists(field) __builtin_preserve_field_info(field, 2)
#define bpf_core_field_offset(field) __builtin_preserve_field_info(field, 0)
#define bpf_core_field_size(field) __builtin_preserve_field_info(field, 1)
#define bpf_core_type_exists(type) __builtin_preserve_type_info(*(typeof(type) *)0, 0)
#define bpf_core_type_size(type) __builtin_preserve_type_info(*(typeof(type) *)0, 1)
#define bpf_core_enum_value_exists(type, value) __builtin_preserve_enum_value(*(typeof(type) *)value, 0)
#define bpf_core_enum_value(type, value) __builtin_preserve_enum_value(*(typeof(type) *)value, 1)
#endif

#endif
