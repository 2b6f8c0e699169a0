/* Patching a kernel by hand: see code_patcher.h. */
#include "code_patcher.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define INSN 16u
#define PARAM_BASE 0x160u
#define PATCHED_REGISTERS 64u

static const uint64_t nop[2] = { 0x7918, 0x000fc00000000000 };
static const uint64_t waiting_nop[2] = { 0x7918, 0x03ffc00000000000 };

static Elf64_Shdr *sections_of(const void *image)
{
	const Elf64_Ehdr *h = image;

	return unqual((const uint8_t *)image + h->e_shoff);
}

static unsigned find(const void *image, const char *prefix, const char *name)
{
	const Elf64_Ehdr *h = image;
	const Elf64_Shdr *s = sections_of(image);
	const char *names = (const char *)image + s[h->e_shstrndx].sh_offset;
	char wanted[256];

	snprintf(wanted, sizeof(wanted), name ? "%s.%s" : "%s", prefix, name ? name : "");
	for (unsigned i = 1; i < h->e_shnum; i++) {
		if (strcmp(names + s[i].sh_name, wanted) == 0) {
			return i;
		}
	}
	fprintf(stderr, "no section %s\n", wanted);
	abort();
}

const uint8_t *patch_section(const void *image, const char *prefix, const char *name,
			     size_t *ret_bytes)
{
	const Elf64_Shdr *s = &sections_of(image)[find(image, prefix, name)];

	*ret_bytes = (size_t)s->sh_size;
	return (const uint8_t *)image + s->sh_offset;
}

/* ---- code ---- */

/* distance: from the next instruction */
static void add_branch(struct buf *b, int64_t distance)
{
	uint64_t units = (uint64_t)(distance / 4);
	uint64_t i[2] = { units << 34 | 0x7947, 0x000fc00003800000 | (units >> 30 & 0x3ffff) };

	buf_add(b, i, sizeof(i));
}

/* Adds the stub up to its PMTRIG, with the argument moved. */
static void add_stub(struct buf *b, const void *stub, const char *name, uint32_t from, uint32_t to,
		     enum patch_fault fault)
{
	size_t bytes;
	const uint8_t *code = patch_section(stub, ".text", name, &bytes);

	for (size_t at = 0; at < bytes; at += INSN) {
		uint64_t i[2];
		uint32_t offset;

		memcpy(i, code + at, sizeof(i));
		offset = i[0] >> 38 & 0xffff;
		if ((i[0] & 0xfff) == 0x801) {
			return;
		}
		if (at && offset >= PARAM_BASE + from) {
			i[0] &= ~(UINT64_C(0xffff) << 38);
			i[0] |= (uint64_t)(fault == PATCH_ARGUMENT_ELSEWHERE ? PARAM_BASE - 8
									     : offset - from + to)
				<< 38;
		}
		if (at == INSN && fault == PATCH_UNKNOWN_INSN) {
			i[0] ^= 1;
		}
		buf_add(b, i, sizeof(i));
	}
}

static void make_code(struct buf *b, const void *image, const char *kernel, const void *stub,
		      const char *stub_name, uint32_t from, uint32_t to, enum patch_fault fault)
{
	size_t bytes;
	const uint8_t *own = patch_section(image, ".text", kernel, &bytes);

	add_branch(b, (int64_t)bytes - (fault == PATCH_TO_ELSEWHERE ? 0 : (int64_t)INSN));
	buf_add(b, own + INSN, bytes - INSN);
	if (fault == PATCH_BODY_CHANGED) {
		b->data[INSN + 2] ^= 1;
	}
	add_stub(b, stub, stub_name, from, to, fault);
	buf_add(b, fault == PATCH_NO_WAIT ? nop : waiting_nop, INSN);
	if (fault != PATCH_NO_DISPLACED) {
		buf_add(b, own, INSN);
	}
	add_branch(b, -(int64_t)b->len + (fault == PATCH_BACK_ELSEWHERE ? (int64_t)INSN : 0));
	if (fault == PATCH_TAIL) {
		add_branch(b, 0);
	}
	while (b->len % 128) {
		buf_add(b, nop, INSN);
	}
}

/* ---- tables ---- */

static void add_param(struct buf *b, uint32_t ordinal, uint32_t at, uint32_t bytes,
		      enum patch_fault fault)
{
	uint32_t words[] = { 0x000c1704, 0, ordinal | at << 16, 0x1f000 | bytes << 18 };

	words[2] += fault == PATCH_PARAMETER_ELSEWHERE ? 8u << 16 : 0;
	for (int n = fault == PATCH_PARAMETER_TWICE ? 2 : 1; n; n--) {
		buf_add(b, words, sizeof(words));
	}
}

static void add_sizes(struct buf *b, uint32_t bytes, uint32_t bank_symbol, enum patch_fault fault)
{
	uint32_t size = 0x1903 | bytes << 16, wrong = fault == PATCH_BANK_BYTES ? 8 : 0;
	uint32_t bank[] = { 0x00080a04, bank_symbol, PARAM_BASE | (bytes + wrong) << 16 };

	size += fault == PATCH_BANK_SIZE ? 8u << 16 : 0;
	buf_add(b, bank, sizeof(bank));
	buf_add(b, &size, sizeof(size));
}

/* The list of exits: those of the kernel, then those of the stub. */
static void add_exits(struct buf *b, const struct buf *code, size_t own, enum patch_fault fault)
{
	size_t head = b->len;
	uint16_t bytes = 0;
	uint32_t word = 0x1c04;

	buf_add(b, &word, sizeof(word));
	for (uint32_t at = 0; at < code->len; at += INSN) {
		uint32_t place = at + (fault == PATCH_EXIT_ELSEWHERE && at > own ? INSN : 0);
		uint64_t low;

		memcpy(&low, code->data + at, sizeof(low));
		if ((low & 0xfff) == 0x94d && (at < own || fault != PATCH_NO_EXITS)) {
			buf_add(b, &place, sizeof(place));
			bytes += 4;
		}
	}
	memcpy(b->data + head + 2, &bytes, sizeof(bytes));
}

/* Copies the attributes that do not change. */
static uint32_t copy_attributes(struct buf *b, const uint8_t *from, size_t bytes)
{
	uint32_t n_params = 0;

	for (size_t at = 0; at < bytes;) {
		uint16_t value;
		size_t size;

		memcpy(&value, from + at + 2, sizeof(value));
		size = 4 + (from[at] == 4 ? value : 0u);
		n_params += from[at + 1] == 0x17;
		if (from[at + 1] != 0x0a && from[at + 1] != 0x19 && from[at + 1] != 0x1c &&
		    from[at + 1] != 0x4c) {
			buf_add(b, from + at, size);
		}
		at += size;
	}
	return n_params;
}

static void make_info(struct buf *b, const void *image, const char *kernel, const struct buf *code,
		      uint32_t at, uint32_t arg_bytes, uint32_t bank_symbol, enum patch_fault fault)
{
	size_t bytes, own;
	const uint8_t *from = patch_section(image, ".nv.info", kernel, &bytes);
	uint32_t barriers = 0x00014c02;
	uint32_t n_params = copy_attributes(b, from, bytes);

	patch_section(image, ".text", kernel, &own);
	if (fault != PATCH_NO_PARAMETER) {
		add_param(b, n_params, at, arg_bytes, fault);
	}
	add_sizes(b, at + arg_bytes, bank_symbol, fault);
	if (fault != PATCH_NO_BARRIER) {
		buf_add(b, &barriers, sizeof(barriers));
	}
	add_exits(b, code, own, fault);
}

/* ---- the file ---- */

static void replace(struct buf *ret, const char *prefix, const char *name, const struct buf *data)
{
	Elf64_Shdr *s;
	size_t at;

	while (ret->len % 128) {
		buf_add(ret, "", 1);
	}
	at = ret->len;
	buf_add(ret, data->data, data->len);
	s = &sections_of(ret->data)[find(ret->data, prefix, name)];
	s->sh_offset = at;
	s->sh_size = data->len;
}

/* Returns the symbol that a filter finds: of type `type` in that section. */
static uint32_t symbol_of(const void *image, unsigned section, unsigned type, Elf64_Sym **ret)
{
	const Elf64_Shdr *s = &sections_of(image)[find(image, ".symtab", NULL)];
	Elf64_Sym *y = unqual((const uint8_t *)image + s->sh_offset);

	for (uint32_t i = 0; i < s->sh_size / sizeof(*y); i++) {
		if (y[i].st_shndx == section && ELF64_ST_TYPE(y[i].st_info) == type) {
			*ret = &y[i];
			return i;
		}
	}
	abort();
}

static uint8_t *find_registers(const void *image, uint32_t symbol)
{
	size_t bytes;
	uint8_t *p = unqual(patch_section(image, ".nv.info", NULL, &bytes));

	for (size_t at = 0; at < bytes; at += 12) { /* all have two words */
		uint32_t is;

		memcpy(&is, p + at + 4, sizeof(is));
		if (p[at + 1] == 0x2f && is == symbol) {
			return p + at + 8;
		}
	}
	abort();
}

uint32_t patch_registers(const void *image, const char *kernel)
{
	uint32_t registers;
	Elf64_Sym *y;
	uint32_t symbol = symbol_of(image, find(image, ".text", kernel), STT_FUNC, &y);

	memcpy(&registers, find_registers(image, symbol), sizeof(registers));
	return registers;
}

static uint32_t param_bytes(const void *image, const char *kernel)
{
	size_t bytes;

	patch_section(image, ".nv.constant0", kernel, &bytes);
	return (uint32_t)bytes - PARAM_BASE;
}

void patch_kernel(struct buf *ret, const void *image, size_t bytes, const char *kernel,
		  const void *stub, const char *stub_name, uint32_t pad_bytes, uint32_t arg_bytes,
		  enum patch_fault fault)
{
	uint32_t at = ROUND_UP(param_bytes(image, kernel), 8u), symbol, registers;
	struct buf code = { 0 }, info = { 0 }, constants = { 0 };
	unsigned text = find(image, ".text", kernel);
	Elf64_Sym *y;

	symbol = symbol_of(image, find(image, ".nv.constant0", kernel), STT_SECTION, &y);
	make_code(&code, image, kernel, stub, stub_name, pad_bytes, at, fault);
	make_info(&info, image, kernel, &code, at, arg_bytes, symbol, fault);
	while (constants.len < PARAM_BASE + at + arg_bytes + (fault == PATCH_CONSTANTS)) {
		buf_add(&constants, "", 1);
	}
	buf_add(ret, image, bytes);
	replace(ret, ".text", kernel, &code);
	replace(ret, ".nv.info", kernel, &info);
	replace(ret, ".nv.constant0", kernel, &constants);
	symbol = symbol_of(ret->data, text, STT_FUNC, &y);
	y->st_size = code.len - (fault == PATCH_SYMBOL_BYTES ? INSN : 0);
	registers = fault == PATCH_REGISTERS ? 1 : PATCHED_REGISTERS;
	memcpy(find_registers(ret->data, symbol), &registers, sizeof(registers));
	buf_finish(&code);
	buf_finish(&info);
	buf_finish(&constants);
}
