/* What the probes ask for: their programs, parsed and checked against ptx/probe.h. The later stages
 * change none of it. */
#ifndef GBPF_PTX_PROBE_READ_PROBE_READ_H
#define GBPF_PTX_PROBE_READ_PROBE_READ_H

#include "ptx/probe.h"

enum {
#define GBPF_DEVICE_HOOK(id, name, budget, doc) PTX_PROBE_##name = id,
#include "gbpf/hooks.def"
	PTX_PROBE_HOOK_FIRST = 32,
	PTX_PROBE_HOOK_LAST = 63,
};
#define PTX_PROBE_HOOK_BIT(id) (UINT32_C(1) << ((id)-PTX_PROBE_HOOK_FIRST))

/* A field of a hook's context. emit/probe_field.c computes its value. */
struct ptx_probe_field {
	uint32_t hook;
	const char *name;
	uint32_t bytes;
};

#define PTX_PROBE_ANY UINT32_MAX

/* Properties that a filter requires of a site. */
struct ptx_probe_filter {
	uint32_t number, op, space, bytes, scope, after, kind; /* PTX_PROBE_ANY: any */
	const char *file;				       /* NULL: any; file_len bytes */
	size_t file_len;
	uint32_t line;
	const char *function; /* pattern; NULL: any */
};

enum ptx_probe_arg_kind {
	PTX_PROBE_ARG,	       /* by its offset in the parameters */
	PTX_PROBE_PARAM,       /* a parameter by its number; the value is 0 if there is none */
	PTX_PROBE_PARAM_BYTES, /* size of a parameter, by its number */
};

/* An argument of the kernel. */
struct ptx_probe_arg {
	enum ptx_probe_arg_kind kind;
	uint32_t offset; /* or number */
	uint32_t bytes;	 /* 1, 2, 4 or 8 */
};

#define PTX_PROBE_ARGS_MAX 32u				   /* of a program */
#define PTX_PROBE_ARG_WIDTH(bytes) ((bytes) < 8 ? 4u : 8u) /* of the program's parameter */

struct ptx_probe_program {
	const struct ptx_probe *probe;
	const struct ptx_probe_field *fields; /* all fields of its hook; n_fields of them */
	uint32_t n_fields;
	uint32_t place;		   /* its number, and table entry of its environment */
	struct ptx_module *module; /* its functions; owned */
	const struct ptx_function *root;
	bool control;	  /* the root has the parameter `control` */
	uint64_t maps;	  /* maps whose addresses are parameters of the root, as bits */
	uint64_t owns;	  /* those of them that are ownN */
	uint32_t scratch; /* where its tool's maps begin among a warp's bytes */
	bool sums;	  /* there are such parameters, and all are sumN */
	struct ptx_probe_filter filter;
	struct ptx_probe_arg args[PTX_PROBE_ARGS_MAX];
	uint32_t n_args;
};

struct ptx_probe_read {
	struct report *report;
	struct ptx_probe_program programs[PTX_PROBES_MAX];
	uint32_t n_programs;
	uint32_t hooks;	     /* bit id - 32: some probe has this hook */
	uint32_t warp_bytes; /* in shared memory, of the maps of all tools for a warp */
};

#define ptx_probe_each(r, g)                                                                       \
	for (const struct ptx_probe_program *g = (r)->programs;                                    \
	     g < (r)->programs + (r)->n_programs; g++)

/* Reads the probes' texts and checks them. Returns 0 or a negative error, with a report. Finish in
 * both cases. */
int ptx_probe_programs(struct ptx_probe_read *p, const struct ptx_probe *probes, uint32_t n);
void ptx_probe_programs_finish(struct ptx_probe_read *p);
/* Gives each tool whose programs use maps in shared memory its part of a warp's bytes. Returns 0 or
 * a negative error. */
int ptx_probe_scratch_find(struct ptx_probe_read *p);

static inline bool ptx_probe_has_hook(const struct ptx_probe_read *p, uint32_t hook)
{
	return p->hooks & PTX_PROBE_HOOK_BIT(hook);
}
static inline bool ptx_probe_reads(const struct ptx_probe_program *g, uint32_t field)
{
	return g->probe->fields >> field & 1;
}
/* Returns whether the program reads the field of that name. */
bool ptx_probe_reads_name(const struct ptx_probe_program *g, const char *name);
/* Returns whether a program of the hook reads the field. */
bool ptx_probe_reads_field(const struct ptx_probe_read *p, uint32_t hook, const char *name);
/* Returns the number of addresses, of control words and maps, that the root takes behind its
 * environment. */
static inline uint32_t ptx_probe_n_addresses(const struct ptx_probe_program *g)
{
	return g->control + (uint32_t)__builtin_popcountll(g->maps);
}

/* probe_filter.c: reads the filter of a probe. Returns 0 or -EINVAL. */
int ptx_probe_filter(struct ptx_probe_read *p, struct ptx_probe_program *g);
/* probe_args.c: reads the arguments that a root has as parameters from number `first` on. Returns 0
 * or -EINVAL. */
int ptx_probe_read_args(struct ptx_probe_program *g, const struct ptx_function *root,
			uint32_t first);

/* probe_hooks.c: fields of a hook, from hooks.def. NULL: no such hook inside kernels. */
const struct ptx_probe_field *ptx_probe_fields(uint32_t hook, uint32_t *ret_n);
/* Returns true if it is a time, which is read last. */
bool ptx_probe_field_is_time(const char *name);
/* Returns true for the number of the launch. */
bool ptx_probe_field_is_number(const char *name);

#endif
