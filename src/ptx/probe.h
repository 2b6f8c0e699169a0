/* The probe pass: slices an entry f out of its module, with everything that f needs, and inserts
 * calls of eBPF programs that were compiled to PTX (bpf/load/jit/ptx). The result is the text of a
 * module of its own, whose entry f computes what the original f computes. docs/DEVICE-ARGUMENT.md
 * has the argument, docs/DEVICE.md says what is refused.
 *
 * Addresses that are known only when the new module is loaded are in a table in constant memory,
 *
 *	.visible .const .align 8 .b64 gbpf$table[N];
 *
 * which the caller fills before the first launch: first the generic address of the environment of
 * each probe, in their order, then the address of each of `variables` in the module that the
 * program has loaded, then the address of the data of each of `maps`. An environment begins with
 *the addresses of all maps, from which those of other probes are read. The original's variables are
 *used in place: the new module defines none. */
#ifndef GBPF_PTX_PROBE_H
#define GBPF_PTX_PROBE_H

#include "ptx/module.h"

#define PTX_PROBE_TABLE "gbpf$table"
#define PTX_PROBES_MAX 64u

/* A filter selects sites of the program's hook:
 *
 *	""		all
 *	WORD.WORD...	those that have all properties. Words of every hook: #N, site number N. Of
 *			access: generic, global, shared, local, constant; load, store, atomic,
 *			async, bulk, matrix; a number, the bytes of a lane. Of fence: block,
 *			cluster, gpu, system. Of barrier: before, after.
 *	FILE:LINE	those whose line information names that line; FILE is the end of a path,
 *			from a name of it on: add.cu or src/add.cu
 *	PATTERN		of probe and retprobe: functions by name, as in the PTX; * and ? are
 *			wildcards
 *
 * Numbers count the sites of the hook in what f reaches, in the order of the text. A barrier is one
 * site before and after it. Sites of line are places at which a line begins: a .loc of another line
 * than the one before, or the first behind a label. */
/* Whether short programs are written under predicates instead of branches. */
enum ptx_probe_branches {
	PTX_PROBE_EITHER, /* under predicates if addresses are in the text and the program does not
			     begin with a test of the block that ends it */
	PTX_PROBE_BRANCHES,
	PTX_PROBE_PREDICATES,
};

/* A place of a kernel: the sites of a hook on one line or, where no line is known, one site. */
struct ptx_probe_place {
	const char *kernel; /* name */
	uint32_t hook, site;
	const char *file; /* file_len characters; NULL: not known */
	size_t file_len;
	uint32_t line; /* 0: not known */
};

#define PTX_PROBE_NO_NUMBER UINT32_MAX

struct ptx_probe {
	uint32_t hook;	    /* id of a GBPF_DEVICE_HOOK in hooks.def */
	bool lanes;	    /* each active lane runs it, instead of one per warp */
	uint64_t fields;    /* fields that it reads; bit i: the i-th GBPF_CTX line of its hook */
	const char *sites;  /* filter of sites; NULL: all */
	const char *name;   /* prefix of its functions; the root is NAME_f0 */
	const char *text;   /* its functions, without a module header */
	bool maps_in_table; /* the caller fills in the addresses of its maps, too */
	/* Addresses of the data of its maps, at PTX_PROBE_CONTROL that of its control words if it
	 * reads them, and of its environment (env_at). They become constants of the text if the
	 * slice has at most text_max bytes, instead of entries of the table. NULL: always the table
	 */
	const uint64_t *map_at;
	uint64_t env_at;
	uint32_t text_max;
	enum ptx_probe_branches branches;
	/* Of a program with parameters ownN: the place of each of its maps among the bytes that all
	 * of its tool take for a warp in shared memory, and their number; multiples of 16. Programs
	 * with the same scratch_at are of one tool. NULL: it has no such map. */
	const uint32_t *scratch_at;
	uint32_t scratch_bytes;
	/* Entry stubs only: address of the data of map i, or of the control words, minus that of
	 * the environment. NULL, or 0: the stub reads a map's address from the environment. */
	const uint64_t *map_offsets;
	/* Returns the field `place` for a place of the form, the same whenever it is asked. NULL:
	 * that is PTX_PROBE_NO_NUMBER. */
	uint32_t (*place)(void *arg, const struct ptx_probe_place *place);
	void *place_arg;
};

/* Returns NULL, or what is wrong with a filter of sites of that hook. */
const char *ptx_probe_site_wrong(uint32_t hook, const char *sites);

/* Returns true if a program of that hook reads the launch's number by one of these fields. */
bool ptx_probe_reads_launch(uint32_t hook, uint64_t fields);

/* Where a kernel's parameters lie: parameter i at `offset` bytes behind the first one. */
struct ptx_kernel_param {
	uint32_t offset, bytes;
};
struct ptx_kernel_params {
	const struct ptx_kernel_param *at;
	uint32_t n;
};

/* A root may take the address of map N as a parameter mapN, for N below this. As sumN it is the
 * address of a map whose additions may be deferred (GBPF_F_DEFER), as ownN that of the warp's
 * instance of a map in shared memory. */
#define PTX_PROBE_MAPS_MAX 64u
/* Max bytes of a form for each warp in shared memory. */
#define PTX_PROBE_SCRATCH_MAX 4096u
/* In front of them it may take `control`, the address of its control words (bpf/run/ptx_env.h).
 * Without map_at, map_offsets and maps_in_table that is the environment's. */
#define PTX_PROBE_CONTROL PTX_PROBE_MAPS_MAX
#define PTX_PROBE_ADDRESSES (PTX_PROBE_MAPS_MAX + 1u)

/* Map number `map` of a probe, or PTX_PROBE_CONTROL. */
struct ptx_probe_map {
	uint32_t probe, map;
};

/* The parameter of the form that is the launch's number, of 8 bytes, behind f's. */
struct ptx_probe_number {
	bool passed;	   /* a program reads it; otherwise the form has f's parameters */
	uint32_t n_params; /* of f */
	uint32_t end;	   /* bytes of f's parameters */
	uint32_t offset;   /* of the number */
};

/* All zero before ptx_probe_rewrite and after ptx_probed_finish. */
struct ptx_probed {
	struct buf text; /* of the new module */
	struct ptx_arena arena;
	const char *const *variables; /* variables of the original module that the table holds,
					 behind the environments */
	uint32_t n_variables;
	const struct ptx_probe_map *maps; /* maps that the table holds, behind the variables */
	uint32_t n_maps;
	uint32_t sites[PTX_PROBES_MAX]; /* number of sites at which probe i was inserted */
	/* If a program is of gdev_access: number of instructions that may access memory and are no
	 * sites, and the line of the first one. */
	uint32_t unseen, unseen_line;
	/* Number of instructions that this version does not know, and the line of the first one.
	 * They are copied, and are no sites of any hook. */
	uint32_t unknown, unknown_line;
	struct ptx_probe_number number;
	bool needs_shared;   /* launches take ptx_probe_smem() */
	uint32_t warp_bytes; /* in shared memory, for each warp */
	bool version_raised; /* .version is 6.2, because of activemask */
	bool has_addresses;  /* the text has addresses of maps, so only this process can use it */
};

/* Probes the entry of m with that name. m is not changed and must outlive the call only. A probe
 * may have no site in f. Returns 0; -ENOENT: no such entry, or no probe has a site; -ENOTSUP: f
 * cannot be sliced or lacks what a probe needs; -EINVAL: a probe is not as stated above; -EFBIG:
 * the result would exceed PTX_TEXT_MAX; -ENOMEM. The report has place, reason and remedy. */
int ptx_probe_rewrite(const struct ptx_module *m, const char *entry, const struct ptx_probe *probes,
		      uint32_t n_probes, struct ptx_probed *ret, struct report *r);
void ptx_probed_finish(struct ptx_probed *p);

/* Returns the dynamic shared memory of a launch, with blocks of so many threads, of a form with
 * needs_shared: f's, rounded up to 16, warp_bytes for each warp, the first one's last, and 16 bytes
 * more: the number of threads that have not left the block and, in the last 8, when it began. The
 * launch of a preemptible clone of it takes PTX_BLOCK_SMEM of this. bytes that no GPU has are
 * returned as they are, so that the driver refuses them. */
static inline uint32_t ptx_probe_smem(uint32_t bytes, uint32_t warp_bytes, uint64_t threads)
{
	uint32_t warps = threads < 1024 ? ((uint32_t)threads + 31) / 32 : 32;

	return bytes >= 1u << 24 ? bytes : ((bytes + 15u) & ~15u) + warp_bytes * warps + 16u;
}

#endif
