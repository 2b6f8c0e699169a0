/* State that the parts of the object loader share while one object is read. */
#ifndef GBPF_BPF_LOAD_ELF_OBJECT_INT_H
#define GBPF_BPF_LOAD_ELF_OBJECT_INT_H

#include <elf.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "bpf/load/elf/object.h"
#include "bpf/run/map/map_type.h"

struct btf;
struct btf_type;

#define OBJ_MAX_BYTES (16u << 20)
#define OBJ_MAX_BTF_BYTES (8u << 20)
#define OBJ_MAX_SECTIONS 4096u
#define OBJ_MAX_SYMBOLS 65536u
#define OBJ_MAX_FUNCS 512u
#define OBJ_MAX_NAME 8192u	  /* length of names of sections and symbols, with the terminator */
#define OBJ_MAX_NAMES (16u << 20) /* bytes of all names of symbols */
#define OBJ_MAX_LINES 131072u	  /* per object, and for all its programs together */
#define OBJ_MAX_GROUPS 1024u
#define OBJ_MAX_CORE 16384u
#define OBJ_MAX_EXTERNS 256u
#define OBJ_MAX_DATASECS 256u
#define OBJ_MAX_TAILS 4096u /* entries of program arrays for all programs together */
#define OBJ_MAX_POISONS 1024u

enum { OBJ_R_64_64 = 1, OBJ_R_64_ABS64 = 2, OBJ_R_64_32 = 10 };

enum ebpf_obj_role { OBJ_OTHER, OBJ_CODE, OBJ_DATA, OBJ_MAPS, OBJ_OPS };

/* Kind of a code section, by its name. */
enum ebpf_obj_code {
	OBJ_TEXT,    /* .text: functions that programs call */
	OBJ_HOOK,    /* gbpf/<hook>: the program of the hook */
	OBJ_DEVICE,  /* gdev/<hook>...: programs inside kernels */
	OBJ_OF_HOOK, /* ?gbpf/<hook>: programs of that hook for structs and program arrays */
	OBJ_MEMBER,  /* struct_ops: programs that a struct refers to */
	OBJ_FOREIGN, /* any other name: allowed for functions that a program calls */
};

struct ebpf_obj_line {
	uint32_t off; /* byte offset in the section */
	uint32_t file_off, text_off, line_col;
};

struct ebpf_obj_func_info {
	uint32_t off, type;
};

/* A CO-RE relocation. Its result does not depend on where the instruction is copied to. */
struct ebpf_obj_core {
	uint32_t off, type, access, kind;
	uint8_t solved;
	uint8_t poisoned;
	uint8_t checked;     /* 1: the instruction must hold from */
	uint8_t size_from_1; /* access width in the object + 1 if it may change, else 0 */
	uint8_t moved;	     /* 1: a bitfield at another position in its word */
	uint8_t size_to;     /* access width here; 0: cannot be adjusted */
	uint64_t from, to;   /* value in the object and value to write */
	const char *why;     /* reason if poisoned; lives as long as the object */
};

struct ebpf_obj_section {
	const char *name;
	uint32_t type, link, info;
	uint64_t flags;
	const uint8_t *data; /* NULL for .bss; borrowed from the caller's bytes */
	size_t size;
	enum ebpf_obj_role role;
	enum ebpf_obj_code code;
	int map;	  /* map of a data section, or -1 */
	uint32_t datasec; /* BTF id of its DATASEC, or 0 */
	int hook;	  /* hook of gbpf/<hook>, ?gbpf/<hook> and gdev/<hook>, or -1 */
	uint8_t lane;	  /* gdev.lane/<hook> */
	char kernel[EBPF_PATTERN_BYTES], site[EBPF_PATTERN_BYTES]; /* of gdev/<hook> */
	Elf64_Rel *rels;					   /* owned, sorted by offset */
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
	uint32_t start, n; /* first instruction and count */
	uint32_t btf;	   /* its BTF type, or 0 */
	uint8_t global;
	uint8_t used; /* 1: part of a program */
};

struct ebpf_obj_map_at {
	uint32_t offset, bytes; /* in .maps */
	uint32_t map;
	uint32_t values;	    /* offset of its initialized entries; 0: none */
	struct ebpf_map_def *inner; /* owned: shape of the members of an array of maps, or NULL */
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
	int params; /* number of parameters of a function; -1: unknown */
	int32_t helper;
	const char *section; /* .ksyms, .kconfig or "" */
};

/* A text that lives as long as the object. */
struct ebpf_obj_text {
	struct ebpf_obj_text *next;
	char text[];
};

struct ebpf_obj_slot { /* a member of a struct: this function fills the hook */
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
	size_t name_bytes;	 /* of names of symbols */
	uint32_t *vars;		 /* owned: symbols of data and maps, sorted by section and name */
	uint32_t n_vars;
	uint32_t n_placed, n_lines; /* totals that are checked against limits */
	struct btf *btf;	    /* owned; passed to the object */
	uint32_t n_types;
	struct ebpf_obj_func *funcs; /* owned, sorted by section and start */
	uint32_t n_funcs;
	struct ebpf_obj_map_at map_at[EBPF_MAX_MAPS];
	uint32_t n_map_at;
	struct ebpf_obj_tail *tails; /* owned, sorted by map and index */
	uint32_t n_tails, cap_tails;
	uint32_t all_tails;		 /* entries of all programs together */
	struct ebpf_obj_extern *externs; /* owned, sorted by symbol */
	uint32_t n_externs;
	struct ebpf_obj_slot slots[EBPF_MAX_HOOKS]; /* by hook; func NULL: not filled by a struct */
	char ops_name[EBPF_NAME_BYTES];		    /* name and version from structs of programs */
	char ops_version[sizeof(((struct ebpf_object *)0)->version)];
	int special;		     /* 1: has types that need checks; -1: has none; 0: unknown */
	struct btf *here;	     /* owned: types of this gBPF, loaded on first use */
	struct ebpf_obj_text *texts; /* owned; passed to the object */
	uint32_t n_texts;
};

/* Refuses the object: sets the message and, if section is not NULL, the place. Returns err. */
int ebpf_obj_refuse(struct ebpf_obj_parse *p, int err, const char *section, uint64_t offset,
		    const char *fmt, ...) PRINTF_LIKE(5, 6);

/* object.c: frees what the parse owns, not the object. */
void ebpf_obj_finish_parse(struct ebpf_obj_parse *p);

/* Returns whether a name is not empty, shorter than bytes, and printable. */
int ebpf_obj_name_ok(const char *name, size_t bytes);

/* Returns a formatted, printable text that lives as long as the object, or NULL if memory or the
 * limit is exhausted. */
const char *ebpf_obj_keep_text(struct ebpf_obj_parse *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* object_elf.c: reads sections, symbols and relocations into tables and checks every index. */
int ebpf_obj_read_elf(struct ebpf_obj_parse *p, const void *elf, size_t bytes);
const char *ebpf_obj_symbol_name(const struct ebpf_obj_parse *p, const Elf64_Sym *sym);
static inline int ebpf_obj_symbol_defined(const Elf64_Sym *sym)
{
	return sym->st_shndx != SHN_UNDEF && sym->st_shndx < SHN_LORESERVE;
}
/* Returns the index in s->rels of the first relocation at or after offset, or s->n_rels. */
uint32_t ebpf_obj_reloc_from(const struct ebpf_obj_section *s, uint64_t offset);
/* Returns the 64-bit number at an offset of a section, or 0 outside of it and in .bss. */
uint64_t ebpf_obj_word_at(const struct ebpf_obj_section *s, uint64_t offset);

/* object_class.c: classifies each section by name and refuses unsupported ones. */
int ebpf_obj_classify(struct ebpf_obj_parse *p);
/* Returns the id of a hook, or -ENOENT. */
int ebpf_obj_hook_by_name(const char *name);
const char *ebpf_obj_hook_name(int hook);

/* object_btf.c */
int ebpf_obj_read_btf(struct ebpf_obj_parse *p);
const char *ebpf_obj_btf_name(const struct ebpf_obj_parse *p, uint32_t off);
/* Returns the type after typedefs and qualifiers; NULL for void, broken ids and cycles. */
const struct btf_type *ebpf_obj_btf_resolve(const struct ebpf_obj_parse *p, uint32_t id);
/* Sets the offsets of variables in their sections from the symbols (clang leaves them zero). */
int ebpf_obj_place_variables(struct ebpf_obj_parse *p);
/* Returns a symbol of a data or map section by name, or NULL. */
const Elf64_Sym *ebpf_obj_variable(const struct ebpf_obj_parse *p, uint32_t section,
				   const char *name);

/* object_map.c, object_data.c: create a map for each declaration and data section. */
int ebpf_obj_read_maps(struct ebpf_obj_parse *p);
int ebpf_obj_read_data(struct ebpf_obj_parse *p);
struct ebpf_map_def *ebpf_obj_new_map(struct ebpf_obj_parse *p, const char *name, int *err);
int ebpf_obj_check_map(struct ebpf_obj_parse *p, const struct ebpf_map_def *d);
/* Returns the map at an offset of .maps, or NULL. */
const struct ebpf_obj_map_at *ebpf_obj_map_at(const struct ebpf_obj_parse *p, uint64_t offset);
/* Finds the lock in a value type (1 + offset); refuses misplaced locks and structs that only Linux
 * defines. */
int ebpf_obj_find_lock(struct ebpf_obj_parse *p, const struct ebpf_map_def *d, uint32_t type,
		       uint32_t *ret_lock_1);

/* object_entries.c: reads the initialized entries of arrays of maps and program arrays. */
int ebpf_obj_read_entries(struct ebpf_obj_parse *p);

/* object_ext.c: reads .BTF.ext. */
int ebpf_obj_read_ext(struct ebpf_obj_parse *p);
int ebpf_obj_add_lines(struct ebpf_obj_parse *p, struct ebpf_prog *prog,
		       const struct ebpf_obj_func *f, uint32_t at);

struct ebpf_source_line;
/* Finds the source line of an offset in a code section. Returns false if it is not known. */
bool ebpf_obj_line_at(const struct ebpf_obj_parse *p, const char *section, uint64_t offset,
		      struct ebpf_source_line *ret);

/* object_func.c: finds functions and resolves addresses in code sections. */
int ebpf_obj_read_funcs(struct ebpf_obj_parse *p);
struct ebpf_obj_func *ebpf_obj_func_at(const struct ebpf_obj_parse *p, uint32_t section,
				       uint64_t start);
/* Checks that the first parameter of the function is the context of the hook. */
int ebpf_obj_check_context(struct ebpf_obj_parse *p, const struct ebpf_obj_func *f, int hook);

/* object_foreign.c: refuses a program in a section of another loader's; returns -EINVAL. */
int ebpf_obj_refuse_foreign(struct ebpf_obj_parse *p, const struct ebpf_obj_func *f);

/* object_extern.c */
int ebpf_obj_read_externs(struct ebpf_obj_parse *p);
/* Returns the extern of a symbol, or NULL after setting the report. */
const struct ebpf_obj_extern *ebpf_obj_extern_of(struct ebpf_obj_parse *p, const char *section,
						 uint64_t off, const Elf64_Sym *sym);

/* object_ops.c: reads structs of programs. */
int ebpf_obj_read_ops(struct ebpf_obj_parse *p);

/* object_prog.c: builds programs from functions. */
int ebpf_obj_read_programs(struct ebpf_obj_parse *p);

/* core_relo.c: sets p->here to the types of this gBPF. Returns 0 or -ENOMEM. */
int ebpf_obj_core_types(struct ebpf_obj_parse *p);

/* core_relo.c: patches the instruction. Leaves a poisoned one unchanged and sets *ret_why. */
int ebpf_obj_core_apply(struct ebpf_obj_parse *p, struct ebpf_obj_core *c, const char *section,
			struct ebpf_insn *in, uint32_t left, const char **ret_why);

#endif
