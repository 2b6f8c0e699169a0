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
#define GBPF_MAP_TYPE(id, name, doc) enum { GBPF_MAP_##name = id };
#include "hooks.def"

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define __always_inline inline __attribute__((always_inline))

/* SEC("gbpf/submit") int GBPF_PROG(my_submit, submit) { return ctx->lc_open ? GBPF_HOLD : GBPF_GO; } */
#define GBPF_PROG(name, hook) name(struct gbpf_##hook##_ctx *ctx)

/* Global variables: .rodata (const volatile: set by the operator at load, known to the verifier), .data/.bss (written
 * by programs in gbpfd, read by local ones). GBPF_TENANT makes a variable of which each tenant has its own. */
#define GBPF_TENANT SEC(".bss.tenant")

/* The kernel's names, so that what one knows carries over. */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static void *(*const gbpf_tenant_lookup)(void *map, u64 tenant, const void *key) = (void *)1000;
static long (*const gbpf_tenant_class)(u64 tenant) = (void *)1001;
static long (*const gbpf_tenant_weight)(u64 tenant) = (void *)1002;
static void (*const gbpf_note)(u64 counter, u64 add) = (void *)1003;

#define GBPF_LICENSE(text) char gbpf_license[] SEC("license") = text

#endif
