/* What the parts of the object loader share while one object is being read. */
#ifndef GBPF_BPF_LOAD_ELF_OBJECT_INT_H
#define GBPF_BPF_LOAD_ELF_OBJECT_INT_H

#include <elf.h>

#include "base/compiler.h"
#include "bpf/load/elf/object.h"

struct btf;
struct btf_type;

#define OBJ_MAX_BYTES (16u << 20)
#define OBJ_MAX_BTF_BYTES (8u << 20)
#define OBJ_MAX_SECTIONS 4096u
#define OBJ_MAX_SYMBOLS 65536u
#define OBJ_MAX_FUNCS 512u
#define OBJ_MAX_NAME 256u     /* of sections and symbols, with the zero */
#define OBJ_MAX_LINES 131072u /* of an object, and of all its programs together */
#define OBJ_MAX_GROUPS 1024u
#define OBJ_MAX_CORE 16384u
#define OBJ_MAX_EXTERNS 256u
#define OBJ_MAX_DATASECS 256u
#define OBJ_MAX_TAILS 4096u /* entries of program arrays; of all programs together */
#define OBJ_MAX_POISONS 1024u

enum { OBJ_R_64_64 = 1, OBJ_R_64_ABS64 = 2, OBJ_R_64_32 = 10 };

enum ebpf_obj_role { OBJ_OTHER, OBJ_CODE, OBJ_DATA, OBJ_MAPS, OBJ_OPS };

/* What the name of a code section says of the functions in it. */
enum ebpf_obj_code {
	OBJ_TEXT,    /* .text: functions that others call */
	OBJ_HOOK,    /* gbpf/<hook>: the hook's program */
	OBJ_OF_HOOK, /* ?gbpf/<hook>: programs of that hook for structs and program arrays */
	OBJ_MEMBER,  /* struct_ops: programs that a struct names */
	OBJ_FOREIGN, /* anything else: allowed for functions that a program calls */
};

struct ebpf_obj_line {
	uint32_t off; /* bytes from the section's start */
	uint32_t file_off, text_off, line_col;
};

struct ebpf_obj_func_info {
	uint32_t off, type;
};

/* A CO-RE relocation. Its result is the same wherever the instruction is copied to. */
struct ebpf_obj_core {
	uint32_t off, type, access, kind;
	uint8_t solved;
	uint8_t poisoned;
	uint8_t checked;     /* the instruction must hold from */
	uint8_t size_from_1; /* access width in the object + 1, when it may change; else 0 */
	uint8_t moved;	     /* a bitfield that lies elsewhere in its word */
	uint8_t size_to;     /* its width here; 0: it cannot be adjusted */
	uint64_t from, to;   /* what the instruction holds, and what it is to hold */
	const char *why;     /* of a poisoned one; kept with the object */
};

struct ebpf_obj_section {
	const char *name;
	uint32_t type, link, info;
	uint64_t flags;
	const uint8_t *data; /* NULL for .bss; borrowed from the caller's bytes */
	size_t size;
	enum ebpf_obj_role role;
	enum ebpf_obj_code code;
	int map;	  /* of a data section, or -1 */
	uint32_t datasec; /* BTF id of its description, or 0 */
	int hook;	  /* of gbpf/<hook> and ?gbpf/<hook>, or -1 */
	Elf64_Rel *rels;  /* owned, sorted by offset */
	uint32_t n_rels;
	struct ebpf_obj_line *lines; /* owned, sorted by offset */
	uint32_t n_lines, cap_lines;
	struct ebpf_obj_core *core; /* owned, sorted by offset */
	uint32_t n_core, cap_core;
	struct ebpf_obj_func_info *func_info; /* owned, sorted by offset */
	uint32_t n_func_info, cap_func_info;
};

struct ebpf_obj_func {
	const char *name;
	uint32_t section;
	uint32_t start, n; /* instructions */
	uint32_t btf;	   /* its BTF type, or 0 */
	uint8_t global;
	uint8_t used; /* part of a program */
};

struct ebpf_obj_map_at {
	uint32_t offset, bytes; /* in .maps */
	uint32_t map;
	uint32_t values;	    /* where its initialized entries begin; 0: it has none */
	struct ebpf_map_def *inner; /* owned: the shape of an array of maps' members, or NULL */
};

/* An initialized entry of a program array. */
struct ebpf_obj_tail {
	uint32_t map, index;
	struct ebpf_obj_func *func;
};

enum ebpf_obj_extern_kind { OBJ_EXTERN_HELPER, OBJ_EXTERN_ABSENT, OBJ_EXTERN_WRONG };

struct ebpf_obj_extern {
	uint32_t symbol;
	const char *name;
	uint8_t weak;
	uint8_t kind;
	uint8_t in_btf, is_var;
	int params; /* of a function; -1: not known */
	int32_t helper;
	const char *section; /* .ksyms, .kconfig or "" */
};

/* One more text that lives as long as the object. */
struct ebpf_obj_text {
	struct ebpf_obj_text *next;
	char text[];
};

struct ebpf_obj_slot { /* a struct's member: this function fills the hook */
	struct ebpf_obj_func *func;
};

struct ebpf_obj_parse {
	struct ebpf_object *o;
	struct report *r;
	const uint8_t *elf;	       /* borrowed: the caller's bytes */
	struct ebpf_obj_section *secs; /* owned */
	uint32_t n_secs;
	Elf64_Sym *syms; /* owned */
	uint32_t n_syms;
	uint32_t symtab, strtab; /* section numbers; 0: none */
	uint32_t *vars;		 /* owned: symbols of data and maps, by section and name */
	uint32_t n_vars;
	uint32_t n_placed, n_lines; /* counted against their limits */
	struct btf *btf;	    /* owned; goes to the object */
	uint32_t n_types;
	struct ebpf_obj_func *funcs; /* owned, sorted by section and start */
	uint32_t n_funcs;
	struct ebpf_obj_map_at map_at[EBPF_MAX_MAPS];
	uint32_t n_map_at;
	struct ebpf_obj_tail *tails; /* owned, sorted by map and index */
	uint32_t n_tails, cap_tails;
	uint32_t all_tails;		 /* of the programs together */
	struct ebpf_obj_extern *externs; /* owned, sorted by symbol */
	uint32_t n_externs;
	struct ebpf_obj_slot slots[EBPF_MAX_HOOKS]; /* by hook; func NULL: no struct fills it */
	char ops_name[EBPF_NAME_BYTES];		    /* what structs of programs say */
	char ops_version[sizeof(((struct ebpf_object *)0)->version)];
	int special;		     /* has types that need care: 1, -1; 0: not known yet */
	struct btf *here;	     /* owned: this gBPF's own types, once needed */
	struct ebpf_obj_text *texts; /* owned; go to the object */
	uint32_t n_texts;
};

/* Sets message and (when section is not NULL) place; returns err. */
int ebpf_obj_refuse(struct ebpf_obj_parse *p, int err, const char *section, uint64_t offset,
		    const char *fmt, ...) PRINTF_LIKE(5, 6);

/* object.c: frees what the parse owns, not the object. */
void ebpf_obj_finish_parse(struct ebpf_obj_parse *p);

/* Whether a name is not empty, shorter than bytes, and can be printed anywhere. */
int ebpf_obj_name_ok(const char *name, size_t bytes);

/* A printable text that lives as long as the object; NULL: out of memory, or too many. */
const char *ebpf_obj_keep_text(struct ebpf_obj_parse *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* object_elf.c: sections, symbols and relocations as tables whose every index was checked. */
int ebpf_obj_read_elf(struct ebpf_obj_parse *p, const void *elf, size_t bytes);
const char *ebpf_obj_symbol_name(const struct ebpf_obj_parse *p, const Elf64_Sym *sym);
static inline int ebpf_obj_symbol_defined(const Elf64_Sym *sym)
{
	return sym->st_shndx != SHN_UNDEF && sym->st_shndx < SHN_LORESERVE;
}
/* The first relocation at or behind offset: an index into s->rels, or s->n_rels. */
uint32_t ebpf_obj_reloc_from(const struct ebpf_obj_section *s, uint64_t offset);
/* The 64-bit number that lies in a section, 0 outside and in .bss. */
uint64_t ebpf_obj_word_at(const struct ebpf_obj_section *s, uint64_t offset);

/* object_class.c: what each section is for; those that have no place here are refused by name. */
int ebpf_obj_classify(struct ebpf_obj_parse *p);
/* Id of a hook, or -ENOENT. */
int ebpf_obj_hook_by_name(const char *name);
const char *ebpf_obj_hook_name(int hook);

/* object_btf.c */
int ebpf_obj_read_btf(struct ebpf_obj_parse *p);
const char *ebpf_obj_btf_name(const struct ebpf_obj_parse *p, uint32_t off);
/* The type behind typedefs and qualifiers; NULL for void, broken ids and chains without end. */
const struct btf_type *ebpf_obj_btf_resolve(const struct ebpf_obj_parse *p, uint32_t id);
/* A name without ___flavour: its length. */
size_t ebpf_core_essential(const char *name);
/* Makes the variables' places in sections those of the symbols (clang leaves them zero). */
int ebpf_obj_place_variables(struct ebpf_obj_parse *p);
/* A symbol of a data or map section by name, or NULL. */
const Elf64_Sym *ebpf_obj_variable(const struct ebpf_obj_parse *p, uint32_t section,
				   const char *name);

/* object_map.c, object_data.c: a map for each declaration and data section. */
int ebpf_obj_read_maps(struct ebpf_obj_parse *p);
int ebpf_obj_read_data(struct ebpf_obj_parse *p);
struct ebpf_map_def *ebpf_obj_new_map(struct ebpf_obj_parse *p, const char *name, int *err);
int ebpf_obj_check_map(struct ebpf_obj_parse *p, const struct ebpf_map_def *d);
/* The map that begins at an offset of .maps, or NULL. */
const struct ebpf_obj_map_at *ebpf_obj_map_at(const struct ebpf_obj_parse *p, uint64_t offset);
/* Finds the lock in a value type (1 + offset), refuses misplaced ones and structs that only Linux
 * has. */
int ebpf_obj_find_lock(struct ebpf_obj_parse *p, const struct ebpf_map_def *d, uint32_t type,
		       uint32_t *ret_lock_1);

/* object_entries.c: initialized entries of arrays of maps and program arrays. */
int ebpf_obj_read_entries(struct ebpf_obj_parse *p);

/* object_ext.c: .BTF.ext. */
int ebpf_obj_read_ext(struct ebpf_obj_parse *p);
int ebpf_obj_add_lines(struct ebpf_obj_parse *p, struct ebpf_prog *prog,
		       const struct ebpf_obj_func *f, uint32_t at);

/* object_func.c: functions, and what an address in a code section means. */
int ebpf_obj_read_funcs(struct ebpf_obj_parse *p);
struct ebpf_obj_func *ebpf_obj_func_at(const struct ebpf_obj_parse *p, uint32_t section,
				       uint64_t start);
/* That its first parameter is the hook's context. */
int ebpf_obj_check_context(struct ebpf_obj_parse *p, const struct ebpf_obj_func *f, int hook);

/* object_extern.c */
int ebpf_obj_read_externs(struct ebpf_obj_parse *p);
/* The extern behind a symbol, or NULL with the report set. */
const struct ebpf_obj_extern *ebpf_obj_extern_of(struct ebpf_obj_parse *p, const char *section,
						 uint64_t off, const Elf64_Sym *sym);

/* object_ops.c: structs of programs. */
int ebpf_obj_read_ops(struct ebpf_obj_parse *p);

/* object_prog.c: functions become programs. */
int ebpf_obj_read_programs(struct ebpf_obj_parse *p);

/* core_relo.c: p->here becomes this gBPF's own types. 0 or -ENOMEM. */
int ebpf_obj_core_types(struct ebpf_obj_parse *p);

/* core_relo.c: makes the instruction what it has to be here. A poisoned one (*ret_why is set) stays
 * as it is. */
int ebpf_obj_core_apply(struct ebpf_obj_parse *p, struct ebpf_obj_core *c, const char *section,
			struct ebpf_insn *in, uint32_t left, const char **ret_why);

#endif
