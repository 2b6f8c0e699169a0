/* What the entry reaches in its module: functions, and variables with their places in the table.
 * The later stages change none of it. */
#ifndef GBPF_PTX_PROBE_SLICE_PROBE_SLICE_H
#define GBPF_PTX_PROBE_SLICE_PROBE_SLICE_H

#include "base/strmap.h"
#include "ptx/probe/read/probe_read.h"

#define PTX_PROBE_NO_PLACE UINT32_MAX
#define PTX_PROBE_VIA_MAX 64u

/* A name at the module's top level. */
struct ptx_probe_name {
	const char *name;
	struct ptx_function *f; /* function of that name: its definition, or else a declaration */
	struct ptx_variable *v; /* variable of that name, likewise */
	bool alias;		/* ".alias name, other;" */
	bool reached;
	unsigned hidden; /* number of declarations around the current place that hide the name */
	uint32_t place;	 /* entry of the table; PTX_PROBE_NO_PLACE: none */
	uint32_t line;	 /* line of the first use */
	uint32_t listed; /* a function: its index in the list, plus 1; 0: not listed */
	struct ptx_probe_name *work; /* next name in the slice's work list */
};

struct ptx_probe_slice {
	const struct ptx_probe_read *read;
	const struct ptx_module *m;
	struct ptx_arena *arena; /* of the result; borrowed */
	struct report *report;
	struct strmap names; /* struct ptx_probe_name */
	struct strmap files; /* file name of each .file, by its number as text */
	const char *stem;    /* prefix that no name of the module has */
	struct ptx_probe_name *entry;
	struct ptx_probe_name *list; /* the list of functions (ptx/prepare.h); NULL: none */
	const struct ptx_function
		*via[PTX_PROBE_VIA_MAX]; /* prototypes of calls through pointers */
	unsigned n_via;
	const char *const *variables; /* those in the table, n_variables of them */
	uint32_t n_variables;
	struct { /* while functions are scanned */
		const struct ptx_function *in;
		struct ptx_probe_name *work;
		unsigned via_work;
		bool has_constants; /* the slice uses a .const variable */
		uint32_t
			spaces_line; /* line of an isspacep of constant or global memory; 0: none */
	} scan;
};

/* Sets the report's place and reason, with the hint to use another form; late: to load under `gbpf
 * run --probes`. Returns -ENOTSUP. */
int ptx_probe_refuse(const struct ptx_probe_slice *p, uint32_t line, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
int ptx_probe_refuse_late(const struct ptx_probe_slice *p, uint32_t line, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

/* probe_names.c */
int ptx_probe_collect(struct ptx_probe_slice *p);
void ptx_probe_names_finish(struct ptx_probe_slice *p);
/* Returns the top-level meaning of a name here; NULL: none, or the body declares it. */
struct ptx_probe_name *ptx_probe_find(const struct ptx_probe_slice *p, const char *name);
/* Hides the names that a list, or a function's parameters, declare. by: 1 on entry, -1 on exit. */
void ptx_probe_hide_list(const struct ptx_probe_slice *p, const struct ptx_list *list, int by);
void ptx_probe_hide_params(const struct ptx_probe_slice *p, const struct ptx_function *f, int by);
/* Returns the name in the .file of that number, with its length; NULL: there is none. */
const char *ptx_probe_file_name(const struct ptx_probe_slice *p, uint32_t n, size_t *ret_len);

/* probe_slice.c: marks what the entry reaches and gives variables their places in the table. */
int ptx_probe_slice(struct ptx_probe_slice *p);
/* Mark a name as reached from that line. */
int ptx_probe_reach_function(struct ptx_probe_slice *p, struct ptx_probe_name *n, uint32_t line);
int ptx_probe_reach_variable(struct ptx_probe_slice *p, struct ptx_probe_name *n, uint32_t line);

/* probe_via.c: calls through pointers. */
/* Finds the list of functions. */
int ptx_probe_via_open(struct ptx_probe_slice *p);
/* Reaches what a call through a pointer may call. */
int ptx_probe_via_reach(struct ptx_probe_slice *p, const struct ptx_insn *insn);
/* Returns the prototype of a call through a register in the function; NULL: none, or one of a form
 * that is not copied. Adds the number of items looked at to *work. */
const struct ptx_function *ptx_probe_via_prototype(const struct ptx_function *in,
						   const struct ptx_insn *insn, unsigned *work);
/* Returns its place in p->via; n_via: none. */
unsigned ptx_probe_via_of(const struct ptx_probe_slice *p, const struct ptx_function *prototype);
/* Returns function i of the list if it has the prototype; NULL: it has another. */
struct ptx_probe_name *ptx_probe_via_candidate(const struct ptx_probe_slice *p, uint32_t i,
					       const struct ptx_function *prototype);

#endif
