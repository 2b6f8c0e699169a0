/* A policy version as it travels from gbpfd to the processes: one sealed memfd with a header, map
 * definitions, verified bytecode and position-independent machine code. The receiver checks every
 * offset; it trusts gbpfd for the code itself.
 *
 *	[struct ebpf_image_header][struct ebpf_map_def x n_maps][struct ebpf_insn x n_insns]
 *	[struct ebpf_image_device x n_devices][struct ebpf_tail_at x n_tails][PTX of the devices]
 *	pad to page [machine code]
 *
 * Data sections' initial contents are not in the image: gbpfd writes them into the regions before
 * it passes them. */
#ifndef GBPF_BPF_RUN_POLICY_IMAGE_H
#define GBPF_BPF_RUN_POLICY_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "bpf/run/env.h"

#define EBPF_IMAGE_MAGIC 0x35696762u /* "bgi5" */
#define EBPF_MAX_IMAGE_BYTES (64u << 20)
#define EBPF_MAX_TAILS 4096u /* maximum for all programs together */

struct ebpf_image_prog {
	uint32_t insn_first; /* index into the bytecode; n_insns 0: the policy does not use the hook
			      */
	uint32_t n_insns;    /* including its subprograms */
	uint32_t code_offset; /* offset in the machine code; UINT32_MAX: interpreted */
	uint32_t cost;	      /* proved worst-case cost */
	uint32_t tail_first;  /* index into the tail table */
	uint32_t n_tails;
};

/* A program inside kernels: functions in PTX without a module header, see jit_ptx.h. */
struct ebpf_image_device {
	uint64_t fields; /* bits of the context fields that it reads, by their order in hooks.def */
	uint32_t hook;	 /* id */
	uint32_t lane;	 /* 1: each active lane runs it */
	uint32_t cost;	 /* proved worst-case cost */
	uint32_t text_offset, text_bytes; /* in the PTX of all; without a terminating zero */
	uint32_t reserved;
	char prefix[EBPF_NAME_BYTES]; /* of its functions' names */
	char name[64];
	char kernel[EBPF_PATTERN_BYTES]; /* pattern of kernels' names */
	char site[EBPF_PATTERN_BYTES];	 /* "": all places of the hook */
};

#define EBPF_MAX_DEVICE_PROGS 32u
#define EBPF_MAX_DEVICE_TEXT (8u << 20) /* bytes of all programs of an image */

struct ebpf_image_header {
	uint32_t magic;
	uint32_t header_bytes; /* sizeof(struct ebpf_image_header) */
	uint64_t version;
	char name[EBPF_NAME_BYTES];
	uint32_t n_maps;
	uint32_t n_insns;
	uint32_t code_offset; /* from the start of the image, page aligned; code_bytes 0: none */
	uint32_t code_bytes;
	uint32_t arch; /* EM_X86_64 or 0 */
	uint32_t n_tails;
	uint32_t n_devices, device_text_bytes;
	struct ebpf_image_prog progs[EBPF_MAX_HOOKS]; /* by hook id of hooks.def */
};

/* A function of machine code: r1 = ctx, hidden argument env; returns r0. */
typedef uint64_t (*ebpf_entry)(void *ctx, struct ebpf_env *env);

/* One policy version, mapped in one process. */
struct ebpf_policy {
	uint64_t version;
	char name[EBPF_NAME_BYTES];
	ebpf_entry entry[EBPF_MAX_HOOKS]; /* NULL: hook not used, or interpreted (see insns) */
	const struct ebpf_insn
		*insns[EBPF_MAX_HOOKS]; /* borrowed from the mapping; NULL: hook not used */
	uint32_t n_insns[EBPF_MAX_HOOKS];
	const struct ebpf_tail_at *tails[EBPF_MAX_HOOKS]; /* borrowed from the mapping */
	uint32_t n_tails[EBPF_MAX_HOOKS];
	const struct ebpf_image_device *devices; /* borrowed from the mapping; n_devices */
	uint32_t n_devices;
	const char *device_text;		 /* borrowed likewise */
	struct ebpf_map_def defs[EBPF_MAX_MAPS]; /* private copies */
	size_t region_bytes[EBPF_REGIONS];
	void *region[EBPF_REGIONS]; /* owned mappings or NULL */
	void *code;		    /* owned mapping, read and execute, or NULL */
	size_t code_bytes;
	void *image; /* owned mapping, read only */
	size_t image_bytes;
	const uint64_t *epoch; /* borrowed from the GLOBAL region; NULL: no epoch arrays */
	uint32_t epoch_ahead;  /* 1 in gbpfd, whose programs write the next epoch; else 0 */
	uint64_t outlived; /* number of runs that took longer than three publications: relaxed */
	struct ebpf_env env;
};

enum { EBPF_OPEN_NO_JIT = 1, EBPF_OPEN_DAEMON = 2 };

/* Maps and checks an image. region_fds[r] is the memfd of region r or -1 (GLOBAL is mapped writable
 * only with EBPF_OPEN_DAEMON, TENANT always writable; gbpfd passes -1 for TENANT and uses
 * ops->region; DAEMON and ALL_GPUS get memory of their own in gbpfd where the descriptor is -1).
 * The caller keeps the descriptors. Where executable mappings are refused, the policy is
 * interpreted. Everything is prefaulted. Hooks whose programs could reach absent memory stay
 * unused: those of gbpfd without EBPF_OPEN_DAEMON, and local ones if a map needs TENANT and it is
 * not given. Returns 0, -EINVAL (inconsistent image or region), -ENOMEM, or the -errno of mmap().
 */
int ebpf_policy_open(struct ebpf_policy *p, int image_fd, const int region_fds[EBPF_REGIONS],
		     unsigned flags);
void ebpf_policy_close(struct ebpf_policy *p);

/* Builds an image of header, definitions, bytecode and machine code (may be NULL). Sets magic,
 * sizes and offsets of the header; the caller sets name, version, n_maps, n_insns and progs, with
 * the code_offset of each prog relative to code. Returns a fully sealed memfd, or -errno. */
int ebpf_image_build(struct ebpf_image_header *h, const struct ebpf_map_def *defs,
		     const struct ebpf_insn *insns, const void *code, size_t code_bytes);

/* The parts of an image behind its header; counts are the header's. */
struct ebpf_image_parts {
	const struct ebpf_map_def *defs;
	const struct ebpf_insn *insns;
	const struct ebpf_tail_at *tails;	 /* of the programs */
	const struct ebpf_image_device *devices; /* programs inside kernels */
	const char *device_text;
	const void *code; /* may be NULL */
	size_t code_bytes;
};

/* Like ebpf_image_build(), with all parts. */
int ebpf_image_build_parts(struct ebpf_image_header *h, const struct ebpf_image_parts *p);

/* Writes a copy of an image that ebpf_image_build_parts() made, with another version number.
 * Returns as that. */
int ebpf_image_renumber(const void *image, size_t bytes, uint64_t version);

/* Runs the program of a hook. Requires insns[hook] != NULL. Never blocks; no allocation and no
 * system call, except for the first call on a stack, which measures the remaining stack. If the
 * stack does not suffice, counts a helper error and returns 0, the built-in verdict. */
static inline uint64_t ebpf_policy_run(struct ebpf_policy *p, unsigned hook, void *ctx);

/* Like ebpf_policy_run(), for policies with epoch arrays: the program sees one epoch from begin to
 * end. Sets ebpf_latch.outlived if the data was overwritten during the run. */
uint64_t ebpf_policy_run_latched(struct ebpf_policy *p, unsigned hook, void *ctx);

#include "base/atomic.h"
#include "bpf/run/headroom.h"
#include "bpf/run/interp/interp.h"

static inline uint64_t ebpf_policy_run_now(struct ebpf_policy *p, unsigned hook, void *ctx)
{
	if (unlikely(!ebpf_headroom())) {
		(void)add_relaxed(&p->env.helper_errors, 1u);
		return 0;
	}
	if (p->entry[hook]) {
		return p->entry[hook](ctx, &p->env);
	}
	return ebpf_interp_code(&(struct ebpf_code){ p->insns[hook], p->n_insns[hook],
						     p->tails[hook], p->n_tails[hook] },
				ctx, &p->env);
}

static inline uint64_t ebpf_policy_run(struct ebpf_policy *p, unsigned hook, void *ctx)
{
	return unlikely(p->epoch) ? ebpf_policy_run_latched(p, hook, ctx)
				  : ebpf_policy_run_now(p, hook, ctx);
}

#endif
