/* Assembles: writes a module's PTX and the machine code of its entries as a cubin. */
#include "soft/code/code.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/strmap.h"
#include "ptx/module.h"
#include "soft/code/code_elf.h"
#include "soft/code/code_entry.h"
#include "soft/code/code_file.h"
#include "soft/code/code_insn.h"
#include "soft/code/code_variables.h"
#include "soft/protocol.h"

_Static_assert((SOFT_FILE_FLAGS >> 8 & 0xff) == SOFT_ARCH, "the flags name the architecture");

/* An entry and where its parts are. */
struct written {
	struct soft_entry entry;
	uint32_t text, info, constants; /* sections */
	uint32_t symbol, constants_symbol;
	struct written *next;
};

struct writer {
	struct ptx_module *m;
	struct soft_elf elf;
	struct written *entries, **end; /* in the module's arena */
	uint32_t n_entries;
	struct strmap names;				  /* of the entries */
	uint32_t info, initialized, zeroed, bank, relocs; /* sections; 0 without variables */
	struct report *report;
};

/* ---- attributes ---- */

static void add_half(struct buf *b, enum soft_file_format format, unsigned attribute,
		     uint16_t value)
{
	uint8_t head[2] = { (uint8_t)format, (uint8_t)attribute };

	buf_add(b, head, sizeof(head));
	buf_add(b, &value, sizeof(value));
}

static void add_words(struct buf *b, unsigned attribute, const uint32_t *words, size_t n)
{
	add_half(b, SOFT_FORMAT_DATA, attribute, (uint16_t)(n * sizeof(*words)));
	buf_add(b, words, n * sizeof(*words));
}

/* Attributes of all kernels, the last kernel first, as ptxas orders them. */
static void add_sizes(struct buf *b, const struct written *w)
{
	add_words(b, SOFT_ATTR_REGCOUNT, (uint32_t[]){ w->symbol, w->entry.registers }, 2);
	add_words(b, SOFT_ATTR_FRAME_SIZE, (uint32_t[]){ w->symbol, 0 }, 2);
	add_words(b, SOFT_ATTR_MIN_STACK_SIZE, (uint32_t[]){ w->symbol, 0 }, 2);
}

static void add_params(struct buf *b, const struct written *w)
{
	const struct soft_entry *e = &w->entry;

	if (!e->n_params) {
		return;
	}
	add_words(b, SOFT_ATTR_PARAM_CBANK,
		  (uint32_t[]){ w->constants_symbol, SOFT_INSN_PARAM_BASE | e->param_bytes << 16 },
		  2);
	add_half(b, SOFT_FORMAT_HALF, SOFT_ATTR_CBANK_PARAM_SIZE, (uint16_t)e->param_bytes);
	for (uint32_t i = e->n_params; i-- > 0;) {
		add_words(
			b, SOFT_ATTR_KPARAM_INFO,
			(uint32_t[]){ 0, i | e->params[i].offset << 16,
				      SOFT_KPARAM_FLAGS | e->params[i].bytes << SOFT_KPARAM_BYTES },
			3);
	}
}

static void add_exits(struct buf *b, const struct buf *code)
{
	struct buf list;

	buf_init(&list);
	for (uint32_t at = 0; at < code->len; at += SOFT_INSN_BYTES) {
		if (soft_insn_kind(soft_insn_read(code->data + at)) == SOFT_INSN_EXIT) {
			buf_add(&list, &at, sizeof(at));
		}
	}
	add_half(b, SOFT_FORMAT_DATA, SOFT_ATTR_EXIT_OFFSETS, (uint16_t)list.len);
	buf_add(b, list.data, list.len);
	b->failed = b->failed ? b->failed : list.failed;
	buf_finish(&list);
}

static void add_attributes(struct buf *b, const struct written *w)
{
	const struct soft_entry *e = &w->entry;

	add_words(b, SOFT_ATTR_API_VERSION, (uint32_t[]){ 130 }, 1);
	add_params(b, w);
	add_half(b, SOFT_FORMAT_HALF, SOFT_ATTR_MAXREG_COUNT, SOFT_ENTRY_REGISTERS_MAX);
	if (e->barriers) {
		add_half(b, SOFT_FORMAT_BYTE, SOFT_ATTR_NUM_BARRIERS, 1);
	}
	add_exits(b, &e->code);
	if (e->threads[0]) {
		add_words(b, e->required ? SOFT_ATTR_REQ_THREADS : SOFT_ATTR_MAX_THREADS,
			  e->threads, 3);
	}
}

/* ---- variables ---- */

static bool add_bytes(struct buf *b, const struct ptx_operand *o, unsigned bytes)
{
	if (o->kind == PTX_VECTOR) {
		for (uint32_t i = 0; i < o->n_args; i++) {
			if (!add_bytes(b, &o->args[i], bytes)) {
				return false;
			}
		}
		return true;
	}
	return (o->kind == PTX_INT || o->kind == PTX_F32 || o->kind == PTX_F64) &&
	       buf_add(b, &o->value, bytes) == 0;
}

/* Adds the initial value to a section, if it consists of numbers; returns its offset. */
static bool add_value(struct soft_elf_section *s, const struct ptx_variable *v, uint64_t bytes,
		      uint64_t *at)
{
	unsigned size = ptx_type_bytes(v->type);
	struct buf value;
	bool is;

	buf_init(&value);
	is = size && size <= sizeof(uint64_t) && add_bytes(&value, v->init, size) &&
	     value.len <= bytes;
	while (is && value.len < bytes && !value.failed) {
		buf_add(&value, "", 1);
	}
	while (is && s->data.len % ptx_variable_align(v) && !s->data.failed) {
		buf_add(&s->data, "", 1);
	}
	*at = s->data.len;
	is = is && !value.failed && buf_add(&s->data, value.data, value.len) == 0;
	buf_finish(&value);
	return is;
}

/* The word of bank 4 that a loader fills with a variable's address. */
static void add_word(struct writer *w, uint32_t symbol)
{
	struct buf *words = &soft_elf_at(&w->elf, w->bank)->data;
	Elf64_Rela l = { .r_offset = words->len,
			 .r_info = (uint64_t)symbol << 32 | SOFT_RELOC_ADDRESS };
	static const uint64_t zero;

	buf_add(words, &zero, sizeof(zero));
	buf_add(&soft_elf_at(&w->elf, w->relocs)->data, &l, sizeof(l));
}

/* Variables whose value is not made of numbers, and zeroed ones, have a place and a size only. */
static void add_variable(struct writer *w, const struct ptx_variable *v, uint64_t bytes,
			 bool global)
{
	uint32_t align = MAX(ptx_variable_align(v), 1u);
	Elf64_Sym y = { .st_size = bytes,
			.st_info = (uint8_t)ELF64_ST_INFO(global ? STB_GLOBAL : STB_LOCAL,
							  STT_OBJECT) };
	struct soft_elf_section *s;
	uint64_t at = 0;
	uint32_t in = 0;

	if (v->init) {
		s = soft_elf_at(&w->elf, w->initialized);
		in = add_value(s, v, bytes, &at) ? w->initialized : 0;
	}
	if (!in) {
		in = w->zeroed;
		s = soft_elf_at(&w->elf, in);
		at = ROUND_UP(s->head.sh_size, (uint64_t)align);
		s->head.sh_size = at + bytes;
	}
	s = soft_elf_at(&w->elf, in);
	s->head.sh_addralign = MAX(s->head.sh_addralign, (uint64_t)align);
	y.st_value = at;
	y.st_shndx = (uint16_t)in;
	add_word(w, soft_elf_symbol(&w->elf, v->name, y));
}

static void add_local(void *arg, const struct ptx_variable *v, uint64_t bytes, bool global)
{
	if (!global) {
		add_variable(arg, v, bytes, false);
	}
}

/* Local symbols precede all global ones. */
static void add_global(void *arg, const struct ptx_variable *v, uint64_t bytes, bool global)
{
	if (global) {
		add_variable(arg, v, bytes, true);
	}
}

static void note_variable(void *arg, const struct ptx_variable *v, uint64_t bytes, bool global)
{
	(void)v;
	(void)bytes;
	(void)global;
	*(bool *)arg = true;
}

static bool has_variables(const struct ptx_module *m)
{
	bool has = false;

	soft_variables_each(m, note_variable, &has);
	return has;
}

/* ---- entries ---- */

static int compile(struct writer *w, struct ptx_function *f)
{
	struct written *e = ptx_arena_alloc(&w->m->arena, sizeof(*e));
	int err;

	if (!e) {
		return -ENOMEM;
	}
	if (w->n_entries == SOFT_FILE_ENTRIES_MAX) {
		return report_set(w->report, -EFBIG, "cubin",
				  "a cubin has at most %u kernels; link fewer modules",
				  SOFT_FILE_ENTRIES_MAX);
	}
	err = strmap_add(&w->names, f->name, e);
	if (err) {
		return err == -EEXIST ? report_set(w->report, err, "cubin",
						   "entry %s is defined twice", f->name)
				      : err;
	}
	err = soft_entry_compile(&e->entry, w->m, f);
	if (err) {
		soft_entry_finish(&e->entry);
		return err == -ENOTSUP ? 0 : err;
	}
	*w->end = e;
	w->end = &e->next;
	w->n_entries++;
	return 0;
}

static int compile_all(struct writer *w)
{
	int err = 0;

	ptx_each (&w->m->items, it) {
		struct ptx_function *f = (struct ptx_function *)it;

		if (it->kind == PTX_FUNCTION && f->is_entry && f->has_body) {
			err = compile(w, f);
		}
		if (err) {
			return err;
		}
	}
	return 0;
}

static void add_section_symbol(struct soft_elf *e, uint32_t section, uint32_t *ret)
{
	*ret = soft_elf_symbol(
		e, "",
		(Elf64_Sym){ .st_info = (uint8_t)ELF64_ST_INFO(STB_LOCAL, STT_SECTION),
			     .st_shndx = (uint16_t)section });
}

/* Bank 4 has a word for each variable; bank 3, which nothing reads, shows that there are constants.
 */
static void add_banks(struct writer *w)
{
	struct soft_elf_section *s;

	if (has_variables(w->m)) {
		w->relocs = soft_elf_section(&w->elf, SOFT_VARIABLES_RELOCS, NULL, SHT_RELA,
					     SHF_INFO_LINK, 8);
		w->bank = soft_elf_section(&w->elf, SOFT_VARIABLES_BANK, NULL, SHT_PROGBITS,
					   SHF_ALLOC, 8);
		s = soft_elf_at(&w->elf, w->relocs);
		s->head.sh_link = SOFT_ELF_SYMTAB;
		s->head.sh_info = w->bank;
		s->head.sh_entsize = sizeof(Elf64_Rela);
	}
	if (soft_variables_constants(w->m)) {
		uint32_t bank = soft_elf_section(&w->elf, SOFT_CONSTANTS_BANK, NULL, SHT_PROGBITS,
						 SHF_ALLOC, 8);

		buf_add(&soft_elf_at(&w->elf, bank)->data, "\0\0\0\0\0\0\0", 8);
	}
}

/* Adds all sections of the entries, kind by kind, and their local symbols. */
static void add_sections(struct writer *w)
{
	uint32_t unused;

	w->info = soft_elf_section(&w->elf, ".nv.info", NULL, SOFT_FILE_INFO, 0, 4);
	soft_elf_at(&w->elf, w->info)->head.sh_link = SOFT_ELF_SYMTAB;
	for (struct written *e = w->entries; e; e = e->next) {
		e->info = soft_elf_section(&w->elf, ".nv.info", e->entry.name, SOFT_FILE_INFO,
					   SHF_INFO_LINK, 4);
	}
	add_banks(w);
	for (struct written *e = w->entries; e; e = e->next) {
		e->constants = soft_elf_section(&w->elf, ".nv.constant0", e->entry.name,
						SHT_PROGBITS, SHF_ALLOC | SHF_INFO_LINK, 4);
		add_section_symbol(&w->elf, e->constants, &e->constants_symbol);
	}
	for (struct written *e = w->entries; e; e = e->next) {
		e->text = soft_elf_section(&w->elf, ".text", e->entry.name, SHT_PROGBITS,
					   SHF_ALLOC | SHF_EXECINSTR, SOFT_INSN_ALIGN);
		add_section_symbol(&w->elf, e->text, &unused);
	}
	if (has_variables(w->m)) {
		w->initialized = soft_elf_section(&w->elf, ".nv.global.init", NULL, SHT_PROGBITS,
						  SHF_ALLOC | SHF_WRITE, 1);
		w->zeroed = soft_elf_section(&w->elf, ".nv.global", NULL, SHT_NOBITS,
					     SHF_ALLOC | SHF_WRITE, 1);
	}
	soft_variables_each(w->m, add_local, w);
}

/* Fills the sections of an entry, whose code passes to the file. */
static void fill(struct writer *w, struct written *e)
{
	struct soft_elf_section *s = soft_elf_at(&w->elf, e->text);
	static const char zeros[64];

	e->symbol = soft_elf_symbol(
		&w->elf, e->entry.name,
		(Elf64_Sym){ .st_info = (uint8_t)ELF64_ST_INFO(
				     e->entry.weak ? STB_WEAK : STB_GLOBAL, STT_FUNC),
			     .st_other = SOFT_FILE_ENTRY,
			     .st_shndx = (uint16_t)e->text,
			     .st_size = e->entry.code.len });
	add_attributes(&soft_elf_at(&w->elf, e->info)->data, e);
	soft_elf_at(&w->elf, e->info)->head.sh_link = SOFT_ELF_SYMTAB;
	soft_elf_at(&w->elf, e->info)->head.sh_info = e->text;
	s->head.sh_link = SOFT_ELF_SYMTAB;
	s->head.sh_info = e->symbol | e->entry.registers << 24;
	if (!w->elf.failed) {
		s->data = e->entry.code;
		buf_init(&e->entry.code);
	}
	s = soft_elf_at(&w->elf, e->constants);
	s->head.sh_info = e->text;
	for (uint32_t left = SOFT_INSN_PARAM_BASE + e->entry.param_bytes; left;) {
		uint32_t n = MIN(left, (uint32_t)sizeof(zeros));

		buf_add(&s->data, zeros, n);
		left -= n;
	}
}

static int write_module(struct writer *w, const char *text, size_t bytes)
{
	struct soft_file_head head = { SOFT_FILE_MAGIC, bytes };
	struct buf *ptx;
	int err = compile_all(w);

	if (err) {
		return err;
	}
	ptx = &soft_elf_at(&w->elf,
			   soft_elf_section(&w->elf, SOFT_FILE_PTX, NULL, SHT_PROGBITS, 0, 8))
		       ->data;
	buf_add(ptx, &head, sizeof(head));
	buf_add(ptx, text, bytes);
	buf_add(ptx, "", 1);
	add_sections(w);
	soft_variables_each(w->m, add_global, w);
	for (struct written *e = w->entries; e; e = e->next) {
		fill(w, e);
		add_sizes(&soft_elf_at(&w->elf, w->info)->data, e);
	}
	return w->elf.failed;
}

int soft_code_assemble(struct buf *ret, const char *text, size_t bytes, const char *name,
		       struct report *r)
{
	struct writer w = { .report = r };
	int err = ptx_module_parse(&w.m, text, bytes, name, r);

	if (err) {
		return err;
	}
	w.end = &w.entries;
	soft_elf_init(&w.elf);
	strmap_init(&w.names);
	err = write_module(&w, text, bytes);
	err = err ? err : soft_elf_write(&w.elf, ret);
	if (err == 0 && ret->len > SOFT_CODE_BYTES_MAX) {
		err = report_set(r, -EFBIG, "cubin", "the machine code is too long");
	}
	for (struct written *e = w.entries; e; e = e->next) {
		soft_entry_finish(&e->entry);
	}
	soft_elf_finish(&w.elf);
	strmap_finish(&w.names);
	ptx_module_free(w.m);
	return err;
}
