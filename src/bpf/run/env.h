/* The environment of running code: the maps and helpers of one policy version in one process.
 * Engines pass it as a hidden argument, so that all processes can share one copy of the machine
 * code. */
#ifndef GBPF_BPF_RUN_ENV_H
#define GBPF_BPF_RUN_ENV_H

#include <stdint.h>

#include "bpf/run/insn.h"
#include "bpf/run/map/map.h"
#include "bpf/run/printk.h"

struct ebpf_env;

/* A helper. Arguments: the five of the program (unused ones are undefined) and the environment. */
typedef uint64_t (*ebpf_helper_fn)(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5,
				   struct ebpf_env *env);

/* Slots of helpers, numbered in the order of the GBPF_HELPER lines in hooks.def. */
enum ebpf_helper_slot {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	EBPF_SLOT_##name,
#include "gbpf/hooks.def"
	EBPF_HELPER_SLOTS
};

#define EBPF_NOTES 16

/* Calls a function of the program whose address is in a register (EBPF_PSEUDO_FUNC). Compiled code:
 * the address of a function that C may call as ebpf_helper_fn; bit 0 is 0. Interpreted: the address
 * of its first instruction with bit 0 set. Helpers must call functions only through this. */
uint64_t ebpf_call_back(uint64_t fn, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
			struct ebpf_env *env);

/* Access to the tenants of gbpfd, for the helpers of its side. Optional callbacks, called on the
 * thread that runs the program. */
struct ebpf_tenant_ops {
	/* Returns the base of the TENANT region of the tenant for this version, or NULL. */
	void *(*region)(void *ctx, uint32_t tenant);
	int (*class_id)(void *ctx, uint32_t tenant); /* or -ENOENT */
	int (*weight)(void *ctx, uint32_t tenant);   /* or -ENOENT */
	int (*vgpu)(void *ctx, uint32_t tenant); /* its place, GBPF_VGPUS: in none; or -ENOENT */
	uint64_t (*stat)(void *ctx, uint32_t tenant, uint32_t what); /* GBPF_STAT_*; 0: none */
	/* Both record a request that is carried out asynchronously. Return 0, -EINVAL (the value is
	 * never valid: counted as a helper error), -ENOENT, -ENOTSUP or -errno. */
	int (*slice_set)(void *ctx, uint32_t tenant, uint32_t slice_us);
	int (*preempt_now)(void *ctx, uint32_t tenant, uint32_t level);
	/* Takes a copy of text, which is printable ASCII. 0 or -ENOENT. */
	int (*explain)(void *ctx, uint32_t tenant, const char *text);
	void *ctx;
};

/* Compiled code contains the offsets of maps and helpers, so they come first. */
struct ebpf_env {
	struct ebpf_map maps[EBPF_MAX_MAPS];
	ebpf_helper_fn helpers[EBPF_HELPER_SLOTS];
	uint64_t notes[EBPF_NOTES]; /* gbpf_note(): relaxed atomic adds */
	uint64_t helper_errors;	    /* number of helper errors: relaxed */
	uint64_t random_state;
	uint32_t n_maps;
	const struct ebpf_tenant_ops *tenants; /* borrowed; NULL outside gbpfd */
	struct ebpf_prints prints;
};

/* Fills all slots of the helper table and seeds the random state. The caller sets maps. */
void ebpf_env_init(struct ebpf_env *env);

/* Returns the slot of a helper id, or -ENOENT. */
int ebpf_helper_slot(int32_t id);

#endif
