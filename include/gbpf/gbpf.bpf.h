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
#define GBPF_CONST(name, value, doc) enum { name = value };
#define GBPF_MAP_TYPE(id, name, ops, doc) enum { GBPF_MAP_##name = id };
#include "hooks.def"

/* Flags of bpf_map_update_elem: create or replace; create (-EEXIST, -17, when it is there); replace (-ENOENT, -2, when
 * it is not). */
enum { BPF_ANY, BPF_NOEXIST, BPF_EXIST };

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define __always_inline inline __attribute__((always_inline))

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

/* The helpers, with the kernel's names where the kernel has them, so that what one knows carries over. */
#define GBPF_HELPER(id, name, type, params, ...) static type(*const name) params __attribute__((unused)) = (void *)id;
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

#endif
