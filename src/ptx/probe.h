/* The probe pass: slices an entry f out of its module, with everything that f needs, and inserts
 * calls of eBPF programs that were compiled to PTX (bpf/load/jit/ptx). The result is the text of a
 * module of its own, whose entry f computes what the original f computes. docs/DEVICE.md has the
 * argument, and says what is refused.
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
/* Dynamic shared memory of a launch of a probed form with needs_shared: f's, rounded up to 16, and
 * 16 bytes more, in which a block counts the threads that have not left. The launch of a
 * preemptible clone of it takes PTX_BLOCK_SMEM of this. */
#define PTX_PROBE_SMEM(bytes) ((((bytes) + 15u) & ~15u) + 16u)

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

struct ptx_probe {
	uint32_t hook;	    /* id of a GBPF_DEVICE_HOOK in hooks.def */
	bool lanes;	    /* each active lane runs it, instead of one per warp */
	uint64_t fields;    /* that the program reads; bit i: the i-th GBPF_CTX line of its hook */
	const char *sites;  /* filter; NULL: "" */
	const char *name;   /* prefix of its functions; the root is NAME_f0 */
	const char *text;   /* its functions, without a module header */
	bool maps_in_table; /* the caller fills in the addresses of its maps, too */
	/* Instead: the text has the addresses of the data of its maps, and env_at, that of its
	 * environment, as constants if the slice has at most text_max bytes. NULL: the table */
	const uint64_t *map_at;
	uint64_t env_at;
	uint32_t text_max;
	enum ptx_probe_branches branches;
	/* Of entry stubs: the address of the data of map i, less that of the environment; NULL: the
	 * stub reads the addresses from there. */
	const uint64_t *map_offsets;
};

/* A root may take addresses of maps as parameters mapN, N being a number below this; sumN: what it
 * adds there may be added later (GBPF_F_DEFER). */
#define PTX_PROBE_MAPS_MAX 64u

/* Map number `map` of a probe. */
struct ptx_probe_map {
	uint32_t probe, map;
};

/* All zero before ptx_probe_rewrite and after ptx_probed_finish. */
struct ptx_probed {
	struct buf text; /* of the new module */
	struct ptx_arena arena;
	const char *const *variables; /* of the original module, in the table behind the probes */
	uint32_t n_variables;
	const struct ptx_probe_map *maps; /* in the table behind the variables */
	uint32_t n_maps;
	uint32_t sites[PTX_PROBES_MAX]; /* number of sites at which probe i was inserted */
	/* With a program of gdev_access: instructions that access memory, or may do so, and are no
	 * sites of it, and the line of the first one. */
	uint32_t unseen, unseen_line;
	/* Instructions that this version does not know, and the line of the first one. They are
	 * kept, and no sites of any hook. */
	uint32_t unknown, unknown_line;
	bool needs_shared;   /* launches take PTX_PROBE_SMEM */
	bool version_raised; /* .version is 6.2, because of activemask */
	bool has_addresses;  /* the text has addresses of maps, so it is of use to one process */
};

/* Probes the entry of m with that name. m is not changed and must outlive the call only. A probe
 * may have no site in f. Returns 0; -ENOENT: no such entry, or no probe has a site; -ENOTSUP: f
 * cannot be sliced or lacks what a probe needs; -EINVAL: a probe is not as stated above; -EFBIG:
 * the result would exceed PTX_TEXT_MAX; -ENOMEM. The report has place, reason and remedy. */
int ptx_probe_rewrite(const struct ptx_module *m, const char *entry, const struct ptx_probe *probes,
		      uint32_t n_probes, struct ptx_probed *ret, struct report *r);
void ptx_probed_finish(struct ptx_probed *p);

#endif
