/* From an ELF object made by clang to programs that are ready to be verified: sections,
 * relocations, maps by BTF, data sections, subprograms appended, line info. Nothing of the input is
 * trusted; refusals say where. */
#ifndef GBPF_BPF_LOAD_ELF_OBJECT_H
#define GBPF_BPF_LOAD_ELF_OBJECT_H

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"
#include "bpf/run/insn.h"
#include "bpf/run/map/map.h"

struct ebpf_line {
	uint32_t insn; /* from this instruction on */
	uint32_t line; /* 1-based; 0: unknown */
	uint32_t column;
	const char *file; /* borrowed from the object */
	const char *text; /* borrowed source line, or "" */
};

/* An entry of a program array that this program uses: index -> one of its functions, which gets
 * r1 = ctx and begins with an empty stack. */
struct ebpf_tail {
	uint32_t map;
	uint32_t index;
	uint32_t subprog;
};

/* An instruction that could not be made what its author meant, because this gBPF lacks a field or
 * function that it names. A harmless one stands in its place; a program in which it can be reached
 * is refused with this text. */
struct ebpf_poison {
	uint32_t insn;
	const char *why; /* borrowed from the object */
};

struct ebpf_prog {
	char name[64];
	int hook;		 /* id of hooks.def */
	struct ebpf_insn *insns; /* owned; relocated, subprograms appended */
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
	/* Contents of the object's data maps by map index, which the verifier takes for constants
	 * where the map is GBPF_F_RDONLY; NULL: unknown. Borrowed from the object; verify again
	 * after changing them. */
	const void *const *init;
};

struct ebpf_object {
	char name[EBPF_NAME_BYTES]; /* from the file name */
	char license[64];
	char version[32]; /* the author's, from SEC("version") or the struct of programs; "" */
	struct ebpf_prog progs[32];
	uint32_t n_progs;
	struct ebpf_map_def maps[EBPF_MAX_MAPS];
	/* owned; initial bytes of a data map (value_bytes long); of an array of maps: max_entries
	 * u32: 1 + map index, or 0 where there is none; else NULL */
	void *init[EBPF_MAX_MAPS];
	/* BTF types of keys and values, for those who print them; 0: unknown */
	uint32_t key_type[EBPF_MAX_MAPS], value_type[EBPF_MAX_MAPS];
	uint32_t n_maps;
	void *priv; /* owned: strings, BTF */
};

struct btf;
/* Borrowed from the object. */
const struct btf *ebpf_object_btf(const struct ebpf_object *o);

/* Parses and relocates an object held in memory; name is for messages and the policy's name
 * (without .bpf.o). 0, -EINVAL (not a usable object; r says why), -E2BIG (a limit), -ENOMEM. On
 * failure o needs no finish. */
int ebpf_object_open(struct ebpf_object *o, const void *elf, size_t bytes, const char *name,
		     struct report *r);
void ebpf_object_finish(struct ebpf_object *o);

#endif
