/* What the parts of the object loader share while one object is being read. */
#ifndef GBPF_BPF_LOAD_OBJECT_INT_H
#define GBPF_BPF_LOAD_OBJECT_INT_H

#include <libelf.h>

#include "bpf/load/object.h"

struct btf;

#define OBJ_MAX_BYTES (16u << 20)
#define OBJ_MAX_BTF_BYTES (8u << 20)
#define OBJ_MAX_SECTIONS 4096u
#define OBJ_MAX_SYMBOLS 65536u
#define OBJ_MAX_FUNCS 512u
#define OBJ_MAX_LINES 131072u

enum obj_role { OBJ_OTHER, OBJ_CODE, OBJ_DATA, OBJ_MAPS };

struct obj_line {
	uint32_t off; /* bytes from the section's start */
	uint32_t file_off, text_off, line_col;
};

struct obj_section {
	const char *name;
	uint32_t type, link, info;
	uint64_t flags;
	const uint8_t *data; /* NULL for .bss */
	size_t size;
	enum obj_role role;
	int map;	       /* of a data section, or -1 */
	int hook;	       /* of a section gbpf/<hook>, or -1 */
	const Elf64_Rel *rels; /* owned, sorted by offset */
	uint32_t n_rels;
	struct obj_line *lines; /* owned, sorted by offset */
	uint32_t n_lines, cap_lines;
};

struct obj_func {
	const char *name;
	uint32_t section;
	uint32_t start, n; /* instructions */
	int global;
};

struct obj_map_at {
	uint32_t offset; /* in .maps */
	uint32_t map;
};

struct obj_parse {
	struct ebpf_object *o;
	struct report *r;
	uint8_t *copy;		  /* owned: the bytes that libelf reads */
	Elf *elf;		  /* owned */
	struct obj_section *secs; /* owned */
	uint32_t n_secs;
	Elf64_Sym *syms; /* owned */
	uint32_t n_syms;
	uint32_t symtab, strtab; /* section numbers; 0: none */
	struct btf *btf;	 /* owned; goes to the object */
	struct obj_func *funcs;	 /* owned, sorted by section and start */
	uint32_t n_funcs;
	struct obj_map_at map_at[EBPF_MAX_MAPS];
	uint32_t n_map_at;
};

/* Sets message and (when section is not NULL) place; returns err. */
int obj_refuse(struct obj_parse *p, int err, const char *section, uint64_t offset, const char *fmt,
	       ...) PRINTF_LIKE(5, 6);

/* Whether a name is not empty, shorter than bytes, and can be printed anywhere. */
int obj_name_ok(const char *name, size_t bytes);

/* object_elf.c: sections, symbols and relocations as tables whose every index was checked. */
int obj_read_elf(struct obj_parse *p, const void *elf, size_t bytes);
const char *obj_symbol_name(const struct obj_parse *p, const Elf64_Sym *sym);
/* NULL when no relocation lies at offset. */
const Elf64_Rel *obj_reloc_at(const struct obj_section *s, uint64_t offset);

/* object_btf.c: BTF, maps and data sections. */
int obj_read_btf(struct obj_parse *p);
int obj_read_maps(struct obj_parse *p);

/* object_line.c */
int obj_read_lines(struct obj_parse *p);
int obj_add_lines(struct obj_parse *p, struct ebpf_prog *prog, const struct obj_func *f,
		  uint32_t at);

/* object_prog.c: functions become programs. */
int obj_read_programs(struct obj_parse *p);

/* object.c: the tables of hooks.def. */
int obj_hook_by_name(const char *name);
const char *obj_hook_name(int hook);
void obj_hook_names(struct buf *out);

#endif
