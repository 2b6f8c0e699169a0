/* Turns an ELF object made by clang into programs that are ready for verification: sections,
 * relocations, maps from BTF, data sections, appended subprograms, line info. The input is not
 * trusted; refusals name the place. */
#ifndef GBPF_BPF_LOAD_ELF_OBJECT_H
#define GBPF_BPF_LOAD_ELF_OBJECT_H

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"
#include "bpf/run/insn.h"
#include "bpf/run/map/map.h"
#include "bpf/run/printk.h"

struct ebpf_line {
	uint32_t insn; /* first instruction of the line */
	uint32_t line; /* 1-based; 0: unknown */
	uint32_t column;
	const char *file; /* borrowed from the object */
	const char *text; /* borrowed source line, or "" */
};

/* An entry of a program array that this program uses. It maps an index to one of the program's
 * functions, which gets r1 = ctx and an empty stack. */
struct ebpf_tail {
	uint32_t map;
	uint32_t index;
	uint32_t subprog;
};

/* An instruction that could not be resolved because this gBPF lacks the field or function that it
 * refers to. It is replaced by a harmless instruction; a program that can reach it is refused with
 * this text. */
struct ebpf_poison {
	uint32_t insn;
	const char *why; /* borrowed from the object */
};

#define EBPF_MAX_PROGS 32u

struct ebpf_prog {
	char name[64];
	int hook; /* hook id from hooks.def */
	/* Programs inside kernels: */
	uint8_t lane;			 /* 1: each active lane runs it; 0: one lane of each warp */
	char kernel[EBPF_PATTERN_BYTES]; /* pattern of kernels' names; "*": all */
	char site[EBPF_PATTERN_BYTES];	 /* which places of a kernel; "": all of the hook */
	struct ebpf_insn *insns;	 /* owned; relocated, subprograms appended */
	uint32_t n_insns;
	uint32_t subprog[64]; /* first instruction of each function; [0] == 0 */
	char subprog_name[64][64];
	uint32_t n_subprogs;
	struct ebpf_tail *tails; /* owned, ordered by map and index */
	uint32_t n_tails;
	struct ebpf_poison *poisons; /* owned, ordered by insn */
	uint32_t n_poisons;
	struct ebpf_line *lines; /* owned, ordered by insn */
	uint32_t n_lines;
	/* Contents of the data maps by map index, which the verifier treats as constants if the map
	 * is GBPF_F_RDONLY; NULL: unknown. Borrowed from the object. Changed contents require a new
	 * verification. */
	const void *const *init;
	/* Owned. Receives the formats on the program's stack when it is verified; NULL: they are
	 * not kept. */
	struct ebpf_stack_texts *texts;
};

struct ebpf_object {
	char name[EBPF_NAME_BYTES]; /* policy name */
	char license[64];
	char version[32]; /* policy version from SEC("version") or the struct of programs, or "" */
	struct ebpf_prog progs[EBPF_MAX_PROGS];
	uint32_t n_progs;
	struct ebpf_map_def maps[EBPF_MAX_MAPS];
	/* Owned. Data map: its initial value_bytes bytes. Array of maps: max_entries u32, each 1 +
	 * map index or 0 if empty. Other maps: NULL. */
	void *init[EBPF_MAX_MAPS];
	/* BTF types of keys and values, for tools that print them; 0: unknown */
	uint32_t key_type[EBPF_MAX_MAPS], value_type[EBPF_MAX_MAPS];
	uint32_t n_maps;
	void *priv; /* owned: strings, BTF */
};

struct btf;
/* Returns the BTF of the object; borrowed. */
const struct btf *ebpf_object_btf(const struct ebpf_object *o);

/* Parses and relocates an object in memory. name is used in messages and, without .bpf.o, as the
 * name of the policy. Returns 0, -EINVAL (unusable object; r has the reason), -E2BIG (a limit) or
 * -ENOMEM. After a failure, o needs no finish. */
int ebpf_object_open(struct ebpf_object *o, const void *elf, size_t bytes, const char *name,
		     struct report *r);
void ebpf_object_finish(struct ebpf_object *o);

#endif
