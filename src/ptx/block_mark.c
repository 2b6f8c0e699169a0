/* The list is an array of 32-bit words, so that it can be written as a PTX initializer: a head,
 * then for each entry a head, the places of its parameters, and its name, padded with zeros. */
#include "ptx/block_mark.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/strmap.h"

#define MAGIC 0x74776e73u /* "snwt" */
#define ENTRIES_MAX 65536u
#define WORDS_MAX (1u << 22)
#define ARG_MOST (32764u - (uint32_t)sizeof(struct ptx_block_arg))
#define MACHINE_CUDA 190u
#define CODE_MOST ((uint64_t)1 << 30)

enum { H_MAGIC, H_ABI, H_WORDS, H_CHECK, H_ENTRIES, HEAD };
enum { E_WHY, E_LINE, E_PARAMS, E_ARG, E_THREADS, E_NAME_BYTES, ENTRY };

/* A change of what a twin expects is a change of PTX_BLOCK_ABI. */
_Static_assert(PTX_BLOCK_ABI == 1 && sizeof(struct ptx_block_arg) == 56, "PTX_BLOCK_ABI");

/* ---- writing ---- */

static int add_word(struct buf *b, uint32_t word)
{
	return buf_add(b, &word, sizeof(word));
}

static void add_entry(struct buf *b, const struct ptx_block_entry *e)
{
	static const char zeros[4];
	uint32_t n_params = e->why == PTX_BLOCK_OK ? e->n_params : 0;
	size_t len = strlen(e->name);

	add_word(b, e->why);
	add_word(b, e->line);
	add_word(b, n_params);
	add_word(b, e->why == PTX_BLOCK_OK ? e->arg_offset : 0);
	add_word(b, e->max_threads);
	add_word(b, (uint32_t)len);
	for (uint32_t i = 0; i < n_params; i++) {
		add_word(b, e->param_offset[i]);
		add_word(b, e->param_bytes[i]);
	}
	buf_add(b, e->name, len);
	buf_add(b, zeros, ROUND_UP(len, (size_t)4) - len);
}

static uint32_t check_of(const void *list, size_t bytes)
{
	uint64_t h = hash_bytes(list, bytes);

	return (uint32_t)(h ^ h >> 32);
}

int block_mark_print(struct buf *out, const struct ptx_block_entry *entries, uint32_t n,
		     uint64_t id)
{
	struct buf list;
	uint32_t *words;
	int err;

	buf_init(&list);
	for (uint32_t i = 0; i < n; i++) {
		add_entry(&list, &entries[i]);
	}
	err = list.failed;
	if (err == 0 && n <= ENTRIES_MAX && list.len / 4 <= WORDS_MAX - HEAD) {
		words = (uint32_t *)(void *)list.data;
		buf_printf(out,
			   "\n.visible .global .align 4 .u32 " PTX_BLOCK_MARK
			   "%016llx[%zu] = {%u, %u, %zu, %u, %u",
			   (unsigned long long)id, HEAD + list.len / 4, MAGIC, PTX_BLOCK_ABI,
			   HEAD + list.len / 4, check_of(list.data, list.len), n);
		for (size_t i = 0; i < list.len / 4; i++) {
			buf_printf(out, i % 16 ? ", %u" : ",\n%u", words[i]);
		}
		buf_puts(out, "};\n");
		err = out->failed;
	}
	buf_finish(&list);
	return err;
}

/* ---- reading ---- */

/* A list whose words are not aligned. */
struct reader {
	const uint8_t *at, *end;
	bool failed;
};

static uint32_t word(struct reader *r)
{
	uint32_t v = 0;

	if (r->end - r->at < (ptrdiff_t)sizeof(v)) {
		r->failed = true;
		return 0;
	}
	memcpy(&v, r->at, sizeof(v));
	r->at += sizeof(v);
	return v;
}

/* Parameters lie one behind the other, all of them before the argument. */
static int read_params(struct ptx_arena *arena, struct reader *r, struct ptx_block_entry *e)
{
	uint32_t *offsets, *sizes, end = 0;

	if (e->n_params > PTX_BLOCK_MAX_PARAMS || e->arg_offset > ARG_MOST || e->arg_offset % 8) {
		return -ENOENT;
	}
	offsets = ptx_arena_array(arena, 2 * (size_t)e->n_params + 1, sizeof(*offsets));
	if (!offsets) {
		return -ENOMEM;
	}
	sizes = offsets + e->n_params;
	for (uint32_t i = 0; i < e->n_params; i++) {
		offsets[i] = word(r);
		sizes[i] = word(r);
		if (r->failed || offsets[i] < end || offsets[i] > e->arg_offset ||
		    sizes[i] > e->arg_offset - offsets[i]) {
			return -ENOENT;
		}
		end = offsets[i] + sizes[i];
	}
	e->param_offset = offsets;
	e->param_bytes = sizes;
	return 0;
}

static int read_entry(struct ptx_arena *arena, struct reader *r, struct ptx_block_entry *e)
{
	uint32_t why = word(r), len;
	int err;

	e->line = word(r);
	e->n_params = word(r);
	e->arg_offset = word(r);
	e->max_threads = word(r);
	len = word(r);
	if (r->failed || why == PTX_BLOCK_UNKNOWN || why >= PTX_BLOCK_WHYS || !len ||
	    len > PTX_NAME_MAX) {
		return -ENOENT;
	}
	e->why = (enum ptx_block_why)why;
	err = read_params(arena, r, e);
	if (err < 0) {
		return err;
	}
	if ((size_t)(r->end - r->at) < ROUND_UP((size_t)len, (size_t)4) || memchr(r->at, 0, len)) {
		return -ENOENT;
	}
	e->name = ptx_arena_text(arena, (const char *)r->at, len);
	r->at += ROUND_UP((size_t)len, (size_t)4);
	return e->name ? 0 : -ENOMEM;
}

static int read_list(struct ptx_arena *arena, const void *list, size_t bytes,
		     const struct ptx_block_entry **ret, uint32_t *ret_n)
{
	struct reader r = { .at = list, .end = (const uint8_t *)list + bytes };
	struct ptx_block_entry *entries;
	uint32_t head[HEAD];

	for (unsigned i = 0; i < HEAD; i++) {
		head[i] = word(&r);
	}
	if (r.failed || head[H_MAGIC] != MAGIC || head[H_ABI] != PTX_BLOCK_ABI ||
	    head[H_WORDS] != bytes / 4 || bytes % 4 || head[H_ENTRIES] > ENTRIES_MAX ||
	    head[H_ENTRIES] > (bytes / 4 - HEAD) / ENTRY ||
	    head[H_CHECK] != check_of(r.at, (size_t)(r.end - r.at))) {
		return -ENOENT;
	}
	entries = ptx_arena_array(arena, (size_t)head[H_ENTRIES] + 1, sizeof(*entries));
	if (!entries) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < head[H_ENTRIES]; i++) {
		int err = read_entry(arena, &r, &entries[i]);

		if (err < 0) {
			return err;
		}
	}
	*ret = entries;
	*ret_n = head[H_ENTRIES];
	return r.at == r.end ? 0 : -ENOENT;
}

static bool is_mark(const struct ptx_item *it)
{
	const struct ptx_variable *v = (const struct ptx_variable *)it;

	return it->kind == PTX_VARIABLE && v->space == PTX_GLOBAL &&
	       strncmp(v->name, PTX_BLOCK_MARK, strlen(PTX_BLOCK_MARK)) == 0 && v->init &&
	       v->init->kind == PTX_VECTOR;
}

int block_mark_of_module(struct ptx_module *m, const struct ptx_block_entry **ret, uint32_t *ret_n)
{
	ptx_each (&m->items, it) {
		const struct ptx_operand *init;
		uint32_t *words;

		if (!is_mark(it)) {
			continue;
		}
		init = ((const struct ptx_variable *)it)->init;
		words = ptx_arena_array(&m->arena, (size_t)init->n_args + 1, sizeof(*words));
		if (!words) {
			return -ENOMEM;
		}
		for (uint32_t i = 0; i < init->n_args; i++) {
			if (init->args[i].kind != PTX_INT || init->args[i].value > UINT32_MAX) {
				return -ENOENT;
			}
			words[i] = (uint32_t)init->args[i].value;
		}
		return read_list(&m->arena, words, (size_t)init->n_args * 4, ret, ret_n);
	}
	return -ENOENT;
}

/* ---- machine code ---- */

struct code {
	const uint8_t *data;
	uint64_t bytes, sections; /* offset of the table */
	unsigned n_sections;
};

/* A whole object at that place; false: it is not all there. */
static bool copy_from(const struct code *c, uint64_t at, void *ret, size_t bytes)
{
	if (at > c->bytes || bytes > c->bytes - at) {
		return false;
	}
	memcpy(ret, c->data + at, bytes);
	return true;
}

/* Its contents lie within the image. */
static bool section(const struct code *c, unsigned i, Elf64_Shdr *ret)
{
	return i < c->n_sections &&
	       copy_from(c, c->sections + (uint64_t)i * sizeof(*ret), ret, sizeof(*ret)) &&
	       ret->sh_type != SHT_NOBITS && ret->sh_offset <= c->bytes &&
	       ret->sh_size <= c->bytes - ret->sh_offset;
}

/* What is looked at before it is sure to be there is what says that it is. */
static bool is_code(const uint8_t *image)
{
	uint16_t machine;

	if (memcmp(image, ELFMAG, SELFMAG) != 0 || image[EI_CLASS] != ELFCLASS64 ||
	    image[EI_DATA] != ELFDATA2LSB) {
		return false;
	}
	memcpy(&machine, image + offsetof(Elf64_Ehdr, e_machine), sizeof(machine));
	return machine == MACHINE_CUDA;
}

static bool open_code(struct code *c, const void *image, size_t bytes)
{
	Elf64_Ehdr h;

	if ((bytes && bytes < sizeof(h)) || !is_code(image)) {
		return false;
	}
	memcpy(&h, image, sizeof(h));
	c->data = image;
	c->sections = h.e_shoff;
	c->n_sections = h.e_shnum;
	c->bytes = bytes ? bytes : h.e_shoff + (uint64_t)h.e_shnum * sizeof(Elf64_Shdr);
	return h.e_shentsize == sizeof(Elf64_Shdr) && h.e_shoff < CODE_MOST &&
	       c->bytes <= CODE_MOST;
}

static bool first_of_type(const struct code *c, uint32_t type, Elf64_Shdr *ret)
{
	for (unsigned i = 0; i < c->n_sections; i++) {
		if (section(c, i, ret) && ret->sh_type == type) {
			return true;
		}
	}
	return false;
}

/* Where the variable's contents are. */
static bool find_mark(const struct code *c, uint64_t *ret_at, uint64_t *ret_bytes)
{
	char name[sizeof(PTX_BLOCK_MARK) - 1];
	Elf64_Shdr symbols, names, of;

	if (!first_of_type(c, SHT_SYMTAB, &symbols) || !section(c, symbols.sh_link, &names)) {
		return false;
	}
	for (uint64_t at = 0; symbols.sh_size - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
		Elf64_Sym s;

		if (!copy_from(c, symbols.sh_offset + at, &s, sizeof(s)) ||
		    ELF64_ST_TYPE(s.st_info) != STT_OBJECT || s.st_name > names.sh_size ||
		    names.sh_size - s.st_name < sizeof(name) ||
		    !copy_from(c, names.sh_offset + s.st_name, name, sizeof(name)) ||
		    memcmp(name, PTX_BLOCK_MARK, sizeof(name)) != 0) {
			continue;
		}
		if (section(c, s.st_shndx, &of) && s.st_value <= of.sh_size &&
		    s.st_size <= of.sh_size - s.st_value) {
			*ret_at = of.sh_offset + s.st_value;
			*ret_bytes = s.st_size;
			return true;
		}
	}
	return false;
}

int block_mark_of_code(struct ptx_arena *arena, const void *image, size_t bytes,
		       const struct ptx_block_entry **ret, uint32_t *ret_n)
{
	uint64_t at, n;
	struct code c;

	if (!open_code(&c, image, bytes) || !find_mark(&c, &at, &n) || n > WORDS_MAX * 4ull) {
		return -ENOENT;
	}
	return read_list(arena, c.data + at, (size_t)n, ret, ret_n);
}
