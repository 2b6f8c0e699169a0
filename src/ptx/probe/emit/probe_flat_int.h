/* Shared by the files of short programs without branches. */
#ifndef GBPF_PTX_PROBE_EMIT_PROBE_FLAT_INT_H
#define GBPF_PTX_PROBE_EMIT_PROBE_FLAT_INT_H

#include "ptx/probe/emit/probe_emit.h"

#define PTX_FLAT_ITEMS_MAX 96u
#define PTX_FLAT_REGISTERS_MAX 64u
#define PTX_FLAT_NOWHERE UINT32_MAX

struct ptx_flat_item {
	const struct ptx_insn *insn; /* NULL: a label */
	const char *label;
	uint64_t reads, writes; /* registers */
	uint64_t live;		/* a label: live there */
	uint32_t target;	/* a branch: of its label, or n_items; else PTX_FLAT_NOWHERE */
	int param;		/* a load of this parameter of the root; -1 */
	bool effect;		/* it accesses memory */
	bool dead;
	bool joined; /* a label that lanes have jumped to under a predicate */
};

struct ptx_flat {
	struct ptx_probe_work *p;
	const struct ptx_probe_program *g;
	struct ptx_flat_item items[PTX_FLAT_ITEMS_MAX];
	const char *registers[PTX_FLAT_REGISTERS_MAX];
	uint32_t n_items, n_registers, n_branches, n_alive;
	uint32_t end; /* behind the last access */
	bool elected; /* one lane runs it: predicate %~on */
	char now[48]; /* the predicate of the path; "": all lanes are on it */
	bool impossible;
};

/* Appends an item of a root. Sets f->impossible if it does not compute, store, add or jump. */
void ptx_flat_read_item(struct ptx_flat *f, const struct ptx_item *from);
/* Prints the root's declarations. */
void ptx_flat_declare(const struct ptx_flat *f);
/* Returns true for an instruction that only computes registers and faults for no values. */
bool ptx_flat_is_computation(const struct ptx_insn *insn);
/* Reads a root. Returns true if it can be written so. */
bool ptx_flat_read(struct ptx_flat *f, struct ptx_probe_work *p, const struct ptx_probe_program *g);
/* Returns true if lanes that are not on the path of item `at` must not execute it. */
bool ptx_flat_on_path_only(const struct ptx_flat *f, uint32_t at);

#endif
