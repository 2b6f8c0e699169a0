/* What running code reaches: maps and helpers of one policy version in one process. Both engines
 * get it as a hidden argument, so that one copy of the machine code serves every process. */
#ifndef GBPF_BPF_RUN_ENV_H
#define GBPF_BPF_RUN_ENV_H

#include <stdint.h>

#include "bpf/run/insn.h"
#include "bpf/run/map/map.h"

struct ebpf_env;

/* A helper: the five arguments of the program (unused ones hold anything) and the environment. */
typedef uint64_t (*ebpf_helper_fn)(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5,
				   struct ebpf_env *env);

/* Helpers have dense slots: the order of the GBPF_HELPER lines in hooks.def. */
enum ebpf_helper_slot {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	EBPF_SLOT_##name,
#include "gbpf/hooks.def"
	EBPF_HELPER_SLOTS
};

#define EBPF_NOTES 16

/* A function of the program as a value in a register (EBPF_PSEUDO_FUNC). Compiled: the address of a
 * function that C may call as ebpf_helper_fn; its low bit is 0. Interpreted: the address of its
 * first instruction with bit 0 set. Helpers call it through ebpf_call_back alone. */
uint64_t ebpf_call_back(uint64_t fn, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
			struct ebpf_env *env);

/* gbpfd's view of tenants, for the helpers of its side. Optional callbacks, called on the thread
 * that runs the program. */
struct ebpf_tenant_ops {
	/* Base of the tenant's TENANT region of this version, or NULL. */
	void *(*region)(void *ctx, uint32_t tenant);
	int (*class_id)(void *ctx, uint32_t tenant);		     /* or -ENOENT */
	int (*weight)(void *ctx, uint32_t tenant);		     /* or -ENOENT */
	uint64_t (*stat)(void *ctx, uint32_t tenant, uint32_t what); /* GBPF_STAT_*; 0: none */
	/* Both only note what is wanted; it is done soon. 0 or -errno. */
	int (*slice_set)(void *ctx, uint32_t tenant, uint32_t slice_us);
	int (*preempt_now)(void *ctx, uint32_t tenant, uint32_t level);
	void *ctx;
};

/* The JIT knows the offsets of maps and helpers (they come first). */
struct ebpf_env {
	struct ebpf_map maps[EBPF_MAX_MAPS];
	ebpf_helper_fn helpers[EBPF_HELPER_SLOTS];
	uint64_t notes[EBPF_NOTES]; /* gbpf_note(): relaxed atomic adds */
	uint64_t helper_errors;	    /* helpers that returned an error: relaxed */
	uint64_t random_state;
	uint32_t n_maps;
	const struct ebpf_tenant_ops *tenants; /* borrowed; NULL outside gbpfd */
};

/* Fills the helper table (all slots) and seeds the random state. maps are the caller's to fill. */
void ebpf_env_init(struct ebpf_env *env);

/* Slot of a helper id, or -ENOENT. */
int ebpf_helper_slot(int32_t id);

#endif
