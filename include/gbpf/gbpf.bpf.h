/* Declarations for gBPF policies: contexts, verdicts, map macros, helpers. Include it first in a
 * .bpf.c and build with
 *	gbpf policy build x.bpf.c
 * or	clang-19 -target bpf -mcpu=v4 -g -O2 -c x.bpf.c -o x.bpf.o
 * The contexts, constants and helpers come from hooks.def, which also documents every field. */
/* clang-format off */
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

#ifndef NULL
#define NULL ((void *)0)
#endif

#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX_BEGIN(hook) struct gbpf_##hook##_ctx {
#define GBPF_CTX(hook, type, name, access, doc) type name;
#define GBPF_CTX_END(hook) };
#include "hooks.def"

/* The numbers, as named enums, so that CO-RE can query what the running gBPF supports:
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
#define GBPF_DEVICE_HOOK(id, name, budget, doc) GBPF_HOOK_##name = id,
#include "hooks.def"
};
enum gbpf_helper_id {
#define GBPF_HELPER(id, name, ...) GBPF_HELPER_##name = id,
#include "hooks.def"
};

/* Flags of bpf_map_update_elem: create or replace; create (-EEXIST, -17, if it exists); replace
 * (-ENOENT, -2, if it does not). */
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

/* SEC("gbpf/submit") int GBPF_PROG(my_submit, submit) { return ctx->lc_open ? GBPF_HOLD : GBPF_GO; }
 * SEC("gdev/block_enter") int GBPF_PROG(count, gdev_block_enter) { ... return 0; }
 * A program inside kernels is in a section gdev/<hook>[/<kernel>[/<site>]], or gdev.lane/... if each
 * active lane is to run it; <kernel> is a pattern with * and ? for kernels' names. */
#define GBPF_PROG(name, hook) name(struct gbpf_##hook##_ctx *ctx)

/* Global variables: .rodata (const volatile: set by the operator at load, known to the verifier),
 * .data/.bss (written by programs in gbpfd, read by local ones). GBPF_TENANT declares a variable
 * with one instance per tenant. */
#define GBPF_TENANT SEC(".bss.tenant")
/* A variable of programs inside kernels, with one instance per tenant in memory of the GPU. */
#define GBPF_DEVICE SEC(".bss.device")

/* Guards the other members of a value in a GBPF_F_DAEMON map. */
struct bpf_spin_lock {
	u32 val;
};

/* State of bpf_for. */
struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

/* The helpers, with the Linux kernel's names where it has them. With GBPF_EXTERN_HELPERS defined
 * they are weak externs, resolved by name when the policy is loaded: one that the running gBPF
 * lacks has address 0, and if (bpf_loop) { ... } keeps the policy loadable there. */
#ifdef GBPF_EXTERN_HELPERS
#define GBPF_HELPER(id, name, type, params, ...) extern type name params __ksym __weak;
#else
#define GBPF_HELPER(id, name, type, params, ...) static type(*const name) params __attribute__((unused)) = (void *)id;
#endif
#include "hooks.def"

/* bpf_for (i, 0, n) { ... }: i from 0 to n-1. The verifier walks the body once or twice, however
 * large n is; its cost counts for each round, so n must be bounded. break and continue work. */
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

/* Returns the GPU time in ns that the launches have used: their durations, in which time that they
 * share with other launches of the process counts once. */
static __always_inline u64 gbpf_used_ns(const struct gbpf_retire_ctx *ctx)
{
	return ctx->duration_ns - ctx->overlap_ns;
}

/* bpf_printk("held %llu ns", ctx->held_ns): a line for the output of gbpf policy test and for gbpf
 * events, as in Linux. Conversions: %d %i %u %x %X %o %c %p %%, with -, 0, a width and l, ll, h, hh,
 * z; %s is not possible. At most 119 characters. Lines beyond the budget (16 in a second for each
 * process) are counted and left out. Returns the length, or -EAGAIN.
 * Inside kernels: a line for gbpf probe log, with at most 8 values, and returns 0; the newest 64 lines of
 * each multiprocessor are kept until they are overwritten. */
#define bpf_printk(fmt, ...)                                                                                                \
	({                                                                                                                  \
		static const char ___fmt[] = fmt;                                                                           \
		u64 ___args[] = { __VA_ARGS__ __VA_OPT__(, ) 0 }; /* C has no empty arrays */                               \
		(void)sizeof(__builtin_printf(fmt __VA_OPT__(, ) __VA_ARGS__)); /* warns of wrong conversions */            \
		bpf_trace_vprintk(___fmt, sizeof(___fmt), ___args, sizeof(___args));                                        \
	})

/* gbpf_explain(tenant, "held for %llu us", held_us): what gbpf ps --why shows of a tenant until the next call for
 * it or the end of the policy's version; as bpf_printk, in hooks of gbpfd. Returns 0 or -ENOENT. */
#define gbpf_explain(tenant, fmt, ...)                                                                                      \
	({                                                                                                                  \
		static const char ___fmt[] = fmt;                                                                           \
		u64 ___args[] = { __VA_ARGS__ __VA_OPT__(, ) 0 };                                                           \
		(void)sizeof(__builtin_printf(fmt __VA_OPT__(, ) __VA_ARGS__));                                             \
		gbpf_tenant_explain(tenant, ___fmt, sizeof(___fmt), ___args, sizeof(___args));                              \
	})

/* A row of a GBPF_MAP_HISTOGRAM, and a declaration of such a map with one instance per tenant:
 * GBPF_HISTOGRAM(waits, 3); and then gbpf_hist_add(&waits, ctx->class_id, ctx->held_ns). */
struct gbpf_hist {
	u64 count[64]; /* [0]: zeros; [i]: values from 2^(i-1) on; [63]: the rest */
};
#define GBPF_HISTOGRAM(name, rows)                \
	struct {                                  \
		__uint(type, GBPF_MAP_HISTOGRAM); \
		__uint(map_flags, GBPF_F_TENANT); \
		__uint(max_entries, rows);        \
		__type(key, u32);                 \
		__type(value, struct gbpf_hist);  \
	} name SEC(".maps")

/* ---- the standard maps ----
 *
 * Seven arrays with the same meaning in every policy, on the host and (later) on the GPU, so that
 * tools and other policies can read them. gbpfd's programs write them; when init, admit or tick
 * ends, all its writes become the next epoch, and a local hook call sees one epoch from its
 * beginning to its end. The four about vGPUs are indexed by a vGPU's place (0..GBPF_VGPUS-1, the
 * field vgpu of contexts). gbpfd fills their fields marked "gbpfd" before init and whenever a vGPU
 * changes, all of them in one epoch, and overwrites what programs store there; the fields marked
 * "policy" are the program's own, zero when the vGPU of that place is new. Declare the ones in use:
 *	GBPF_STANDARD_MAP(TENANT_CREDITS);
 *	u32 tenant = ctx->tenant;
 *	struct gbpf_tenant_credits *c = bpf_map_lookup_elem(&TENANT_CREDITS, &tenant);
 * Elements are initially zero; zero means "no limit, default behaviour" everywhere. */
#define GBPF_TENANTS 1024   /* tenant numbers are below */
#define GBPF_SCOPE_GPU 1024 /* OBS_CTRL: the whole GPU; lower indices: one tenant */

/* By tenant: its budget of GPU time. */
struct gbpf_tenant_credits {
	u64 tokens_ns; /* remaining device time in this epoch */
	u64 burst_ns;  /* maximum unused time that is carried over */
	u32 weight;    /* relative share, 1-10000 */
	u32 vslice;    /* place of its vGPU, the index in VSLICE_SET */
};

/* By tenant: properties of its work. */
struct gbpf_job_meta {
	u64 job;	 /* job number of the cluster's scheduler, 0 none */
	u64 deadline_ns; /* monotonic; 0 none */
	u64 work_ns;	 /* device time that it still needs, if known */
	u32 gang;	 /* tenants of one gang run together; 0 none */
	u32 phase;	 /* defined by the policy; by convention 0 computing, 1 collective, 2 checkpoint */
};

/* The maps about vGPUs: struct gbpf_vslice_set, gbpf_mempool, gbpf_io_budgets, gbpf_placement; their
 * fields are in hooks.def. */
#define GBPF_MAP_BEGIN(map) struct gbpf_##map {
#define GBPF_MAP_FIELD(map, type, name, writer, doc) type name;
#define GBPF_MAP_END(map) };
#include "hooks.def"

/* By scope, a tenant or GBPF_SCOPE_GPU: level and budget of observation. */
struct gbpf_obs_ctrl {
	u64 budget_ns;	  /* per epoch */
	u32 sample_every; /* sampling interval; 0: no sampling */
	u32 level;	  /* defined by the policy; 0 off */
};

#define GBPF_STD_TENANT_CREDITS struct gbpf_tenant_credits, GBPF_TENANTS
#define GBPF_STD_JOB_META struct gbpf_job_meta, GBPF_TENANTS
#define GBPF_STD_VSLICE_SET struct gbpf_vslice_set, GBPF_VGPUS
#define GBPF_STD_MEMPOOL struct gbpf_mempool, GBPF_VGPUS
#define GBPF_STD_IO_BUDGETS struct gbpf_io_budgets, GBPF_VGPUS
#define GBPF_STD_PLACEMENT struct gbpf_placement, GBPF_VGPUS
#define GBPF_STD_OBS_CTRL struct gbpf_obs_ctrl, (GBPF_SCOPE_GPU + 1)

#define GBPF_STANDARD_MAP(name) GBPF_EPOCH_ARRAY(name, GBPF_STD_##name)
/* A policy's own array that is published in the same way. */
#define GBPF_EPOCH_ARRAY(...) GBPF_EPOCH_ARRAY_(__VA_ARGS__)
#define GBPF_EPOCH_ARRAY_(name, element, entries) \
	struct {                                  \
		__uint(type, GBPF_MAP_ARRAY);     \
		__uint(map_flags, GBPF_F_EPOCH);  \
		__uint(max_entries, entries);     \
		__type(key, u32);                 \
		__type(value, element);           \
	} name SEC(".maps")

/* ---- the places of a tool ----
 *
 * The map KERNEL_PLACES of a tool lists the places of kernels at which its programs run: the sites
 * of a hook on one line of a kernel or, where the kernel has no line information, one site. The
 * field `place` of contexts is the index, which has one meaning in a program as long as the tool is
 * attached; each program that runs the tool has a map of its own. The last entry stays empty: its
 * index stands for all places that have no entry because the map is full. Values of places are in a
 * map of the same size:
 *	GBPF_KERNEL_PLACES(512);
 *	u32 place = ctx->place;
 *	struct value *v = bpf_map_lookup_elem(&values, &place);
 */
#define GBPF_PLACE_NAME_BYTES 128
#define GBPF_PLACE_FILE_BYTES 232

struct gbpf_kernel_place {
	u64 kernel; /* hash of the kernel's name; 0: the entry is free */
	u32 hook;   /* GBPF_HOOK_gdev_* */
	u32 site;   /* number of the first of its sites that was found */
	u32 line;   /* 0: not known; then it is this site alone */
	u32 reserved;
	char name[GBPF_PLACE_NAME_BYTES]; /* of the kernel; its beginning if it is longer */
	char file[GBPF_PLACE_FILE_BYTES]; /* "" if the line is not known; "..." and its end if it is longer */
};

#define GBPF_KERNEL_PLACES(entries)                      \
	struct {                                         \
		__uint(type, GBPF_MAP_ARRAY);            \
		__uint(map_flags, GBPF_F_TENANT);        \
		__uint(max_entries, entries);            \
		__type(key, u32);                        \
		__type(value, struct gbpf_kernel_place); \
	} KERNEL_PLACES SEC(".maps")

#define GBPF_LICENSE(text) char gbpf_license[] SEC("license") = text
#define GBPF_VERSION(text) char gbpf_version[] SEC("version") = text

/* A policy as a struct of programs, equivalent to programs in sections gbpf/<hook>. A program that a
 * struct names is in SEC("struct_ops/<anything>") or SEC("?gbpf/<hook>"):
 *	SEC("struct_ops/submit") int GBPF_PROG(my_submit, submit) { return GBPF_GO; }
 *	SEC(".struct_ops") struct gbpf_ops mine = { .submit = my_submit, .name = "mine", .version = "1.0" };
 * Members are matched by name; those that the running gBPF does not know must be zero. No flags are
 * defined. */
struct gbpf_ops {
#define GBPF_HOOK(id, hook, side, budget, vmin, vmax, doc) int (*hook)(struct gbpf_##hook##_ctx * ctx);
#include "hooks.def"
	u64 flags;
	char name[32];
	char version[32];
};

/* The tables of GPU extensions to drivers, with the same conventions: SEC(".struct_ops") struct
 * gdrv_sched_ops. A non-NULL member whose hook the running gBPF does not offer is refused by name. */
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

/* CO-RE: types marked GBPF_CORE, and these queries, are resolved when the policy is loaded, against
 * the running gBPF's own types. A local struct gbpf_submit_ctx___any with some of the fields stands
 * for the real one. */
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
