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

enum obj_role { OBJ_OTHER, OBJ_CODE, OBJ_DATA, OBJ_MAPS, OBJ_OPS };

/* What the name of a code section says of the functions in it. */
enum obj_code {
	OBJ_TEXT,    /* .text: functions that others call */
	OBJ_HOOK,    /* gbpf/<hook>: the hook's program */
	OBJ_OF_HOOK, /* ?gbpf/<hook>: programs of that hook for structs and program arrays */
	OBJ_MEMBER,  /* struct_ops: programs that a struct names */
	OBJ_FOREIGN, /* anything else: allowed for functions that a program calls */
};

struct obj_line {
	uint32_t off; /* bytes from the section's start */
	uint32_t file_off, text_off, line_col;
};

struct obj_func_info {
	uint32_t off, type;
};

/* A CO-RE relocation. Its result is the same wherever the instruction is copied to. */
struct obj_core {
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

struct obj_section {
	const char *name;
	uint32_t type, link, info;
	uint64_t flags;
	const uint8_t *data; /* NULL for .bss; borrowed from the caller's bytes */
	size_t size;
	enum obj_role role;
	enum obj_code code;
	int map;	  /* of a data section, or -1 */
	uint32_t datasec; /* BTF id of its description, or 0 */
	int hook;	  /* of gbpf/<hook> and ?gbpf/<hook>, or -1 */
	Elf64_Rel *rels;  /* owned, sorted by offset */
	uint32_t n_rels;
	struct obj_line *lines; /* owned, sorted by offset */
	uint32_t n_lines, cap_lines;
	struct obj_core *core; /* owned, sorted by offset */
	uint32_t n_core, cap_core;
	struct obj_func_info *func_info; /* owned, sorted by offset */
	uint32_t n_func_info, cap_func_info;
};

struct obj_func {
	const char *name;
	uint32_t section;
	uint32_t start, n; /* instructions */
	uint32_t btf;	   /* its BTF type, or 0 */
	uint8_t global;
	uint8_t used; /* part of a program */
};

struct obj_map_at {
	uint32_t offset, bytes; /* in .maps */
	uint32_t map;
	uint32_t values;	    /* where its initialized entries begin; 0: it has none */
	struct ebpf_map_def *inner; /* owned: the shape of an array of maps' members, or NULL */
};

/* An initialized entry of a program array. */
struct obj_tail {
	uint32_t map, index;
	struct obj_func *func;
};

enum obj_extern_kind { OBJ_EXTERN_HELPER, OBJ_EXTERN_ABSENT, OBJ_EXTERN_WRONG };

struct obj_extern {
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
struct obj_text {
	struct obj_text *next;
	char text[];
};

struct obj_slot { /* a struct's member: this function fills the hook */
	struct obj_func *func;
};

struct obj_parse {
	struct ebpf_object *o;
	struct report *r;
	const uint8_t *elf;	  /* borrowed: the caller's bytes */
	struct obj_section *secs; /* owned */
	uint32_t n_secs;
	Elf64_Sym *syms; /* owned */
	uint32_t n_syms;
	uint32_t symtab, strtab; /* section numbers; 0: none */
	uint32_t *vars;		 /* owned: symbols of data and maps, by section and name */
	uint32_t n_vars;
	uint32_t n_placed, n_lines; /* counted against their limits */
	struct btf *btf;	    /* owned; goes to the object */
	uint32_t n_types;
	struct obj_func *funcs; /* owned, sorted by section and start */
	uint32_t n_funcs;
	struct obj_map_at map_at[EBPF_MAX_MAPS];
	uint32_t n_map_at;
	struct obj_tail *tails; /* owned, sorted by map and index */
	uint32_t n_tails, cap_tails;
	uint32_t all_tails;	    /* of the programs together */
	struct obj_extern *externs; /* owned, sorted by symbol */
	uint32_t n_externs;
	struct obj_slot slots[EBPF_MAX_HOOKS]; /* by hook; func NULL: no struct fills it */
	char ops_name[EBPF_NAME_BYTES];	       /* what structs of programs say */
	char ops_version[sizeof(((struct ebpf_object *)0)->version)];
	int special;		/* has types that need care: 1, -1; 0: not known yet */
	struct btf *here;	/* owned: this gBPF's own types, once needed */
	struct obj_text *texts; /* owned; go to the object */
	uint32_t n_texts;
};

/* Sets message and (when section is not NULL) place; returns err. */
int obj_refuse(struct obj_parse *p, int err, const char *section, uint64_t offset, const char *fmt,
	       ...) PRINTF_LIKE(5, 6);

/* object.c: frees what the parse owns, not the object. */
void obj_finish_parse(struct obj_parse *p);

/* Whether a name is not empty, shorter than bytes, and can be printed anywhere. */
int obj_name_ok(const char *name, size_t bytes);

/* A printable text that lives as long as the object; NULL: out of memory, or too many. */
const char *obj_keep_text(struct obj_parse *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* object_elf.c: sections, symbols and relocations as tables whose every index was checked. */
int obj_read_elf(struct obj_parse *p, const void *elf, size_t bytes);
const char *obj_symbol_name(const struct obj_parse *p, const Elf64_Sym *sym);
static inline int obj_symbol_defined(const Elf64_Sym *sym)
{
	return sym->st_shndx != SHN_UNDEF && sym->st_shndx < SHN_LORESERVE;
}
/* The first relocation at or behind offset: an index into s->rels, or s->n_rels. */
uint32_t obj_reloc_from(const struct obj_section *s, uint64_t offset);
/* The 64-bit number that lies in a section, 0 outside and in .bss. */
uint64_t obj_word_at(const struct obj_section *s, uint64_t offset);

/* object_class.c: what each section is for; those that have no place here are refused by name. */
int obj_classify(struct obj_parse *p);
/* Id of a hook, or -ENOENT. */
int obj_hook_by_name(const char *name);
const char *obj_hook_name(int hook);

/* object_btf.c */
int obj_read_btf(struct obj_parse *p);
const char *obj_btf_name(const struct obj_parse *p, uint32_t off);
/* The type behind typedefs and qualifiers; NULL for void, broken ids and chains without end. */
const struct btf_type *obj_btf_resolve(const struct obj_parse *p, uint32_t id);
/* A name without ___flavour: its length. */
size_t obj_essential(const char *name);
/* Makes the variables' places in sections those of the symbols (clang leaves them zero). */
int obj_place_variables(struct obj_parse *p);
/* A symbol of a data or map section by name, or NULL. */
const Elf64_Sym *obj_variable(const struct obj_parse *p, uint32_t section, const char *name);

/* object_map.c, object_data.c: a map for each declaration and data section. */
int obj_read_maps(struct obj_parse *p);
int obj_read_data(struct obj_parse *p);
struct ebpf_map_def *obj_new_map(struct obj_parse *p, const char *name, int *err);
int obj_check_map(struct obj_parse *p, const struct ebpf_map_def *d);
/* The map that begins at an offset of .maps, or NULL. */
const struct obj_map_at *obj_map_at(const struct obj_parse *p, uint64_t offset);
/* Finds the lock in a value type (1 + offset), refuses misplaced ones and structs that only Linux
 * has. */
int obj_find_lock(struct obj_parse *p, const struct ebpf_map_def *d, uint32_t type,
		  uint32_t *ret_lock_1);

/* object_entries.c: initialized entries of arrays of maps and program arrays. */
int obj_read_entries(struct obj_parse *p);

/* object_ext.c: .BTF.ext. */
int obj_read_ext(struct obj_parse *p);
int obj_add_lines(struct obj_parse *p, struct ebpf_prog *prog, const struct obj_func *f,
		  uint32_t at);

/* object_func.c: functions, and what an address in a code section means. */
int obj_read_funcs(struct obj_parse *p);
struct obj_func *obj_func_at(const struct obj_parse *p, uint32_t section, uint64_t start);
/* That its first parameter is the hook's context. */
int obj_check_context(struct obj_parse *p, const struct obj_func *f, int hook);

/* object_extern.c */
int obj_read_externs(struct obj_parse *p);
/* The extern behind a symbol, or NULL with the report set. */
const struct obj_extern *obj_extern_of(struct obj_parse *p, const char *section, uint64_t off,
				       const Elf64_Sym *sym);

/* object_ops.c: structs of programs. */
int obj_read_ops(struct obj_parse *p);

/* object_prog.c: functions become programs. */
int obj_read_programs(struct obj_parse *p);

/* core_relo.c: p->here becomes this gBPF's own types. 0 or -ENOMEM. */
int obj_core_types(struct obj_parse *p);

/* core_relo.c: makes the instruction what it has to be here. A poisoned one (*ret_why is set) stays
 * as it is. */
int obj_core_apply(struct obj_parse *p, struct obj_core *c, const char *section,
		   struct ebpf_insn *in, uint32_t left, const char **ret_why);

#endif
