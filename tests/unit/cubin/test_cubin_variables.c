/* Copies that use the variables of the program's module: what bank 4, instructions and their
 * relocations become, which calls are the driver's, and what is refused. */
#include "cubin_files.h"

#include <errno.h>
#include <stdio.h>

#include "base/strmap.h"
#include "cubin/cubin_check_int.h"
#include "cubin/cubin_insn_int.h"

#define ADDRESS UINT64_C(0x7f4200000000)

static struct cubin_stub *open_programs(unsigned arch)
{
	struct cubin_stub *s = NULL;
	struct buf a, b;
	char path[64];

	snprintf(path, sizeof(path), "probe_64.sm_%u", arch);
	a = read_cubin(path);
	snprintf(path, sizeof(path), "probe_1024.sm_%u", arch);
	b = read_cubin(path);
	assert_int_equal(
		cubin_stub_open(&s, a.data, a.len, 64, b.data, b.len, 1024, "gbpf_stub", 64, NULL),
		0);
	buf_finish(&a);
	buf_finish(&b);
	return s;
}

/* A variable's address has its name's hash in it. */
static uint64_t address_for(const char *name)
{
	return ADDRESS + (hash_bytes(name, strlen(name)) & 0xffff) * 16;
}

static int address_of(void *arg, const char *variable, uint64_t *ret)
{
	const char *without = arg;

	if (without && strcmp(without, variable) == 0) {
		return -ENOENT;
	}
	*ret = address_for(variable);
	return 0;
}

/* Returns what cubin_patch_copy does; a refusal must have this text. */
static int copy(struct cubin_patched **ret, const struct buf *b, const char *kernel,
		const struct cubin_stub *s, cubin_address_fn *address, const char *text)
{
	struct cubin_patched *p = NULL;
	struct report r;
	int err;

	report_init(&r);
	err = cubin_patch_copy(&p, b->data, b->len, kernel, s, address, NULL, &r);
	if (err && (p || !strstr(buf_text(&r.message), text))) {
		fail_msg("%s: '%s' is not in '%s'", kernel, text, buf_text(&r.message));
	}
	report_finish(&r);
	if (ret) {
		*ret = p;
	} else {
		cubin_patched_close(p);
	}
	return err;
}

static uint32_t relocs_of(const struct cubin_elf *e, uint32_t section)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (cubin_elf_is_reloc(e, i) && e->sections[i].sh_info == section) {
			return i;
		}
	}
	fail_msg("no relocations of section %u", section);
	return 0;
}

/* Each entry of the bank has its variable's address, or its relocation. */
static void check_bank(const struct buf *b, const void *image, size_t bytes)
{
	struct cubin_elf was, is;
	uint32_t bank, relocs;
	size_t functions = 0;

	assert_int_equal(cubin_elf_open(&was, b->data, b->len, NULL), 0);
	assert_int_equal(cubin_elf_open(&is, image, bytes, NULL), 0);
	bank = section_named(&was, ".nv.constant4");
	relocs = relocs_of(&was, bank);
	for (size_t q = 0; q < cubin_elf_relocs(&was, relocs); q++) {
		struct cubin_reloc l = cubin_elf_reloc(&was, relocs, q);
		Elf64_Sym y = cubin_elf_symbol(&was, l.symbol);
		const char *name = cubin_elf_symbol_name(&was, &y);
		uint64_t word;

		memcpy(&word, cubin_elf_data(&is, bank) + l.offset, sizeof(word));
		if (ELF64_ST_TYPE(y.st_info) == STT_FUNC) {
			struct cubin_reloc kept = cubin_elf_reloc(&is, relocs, functions++);

			assert_int_equal(kept.offset, l.offset);
			assert_int_equal(kept.symbol, l.symbol);
			assert_int_equal(word, 0);
		} else {
			assert_int_equal(word, address_for(name));
		}
	}
	assert_int_equal(functions, 4); /* assert, printf, malloc, free */
	assert_int_equal(cubin_elf_relocs(&is, relocs), functions);
	cubin_elf_finish(&was);
	cubin_elf_finish(&is);
}

static void kernels_use_the_variables_of_the_module(void **state)
{
	static const char *const names[] = { "uses_variables", "uses_static", "checks",
					     "prints",	       "allocates",   "by_number" };
	static const unsigned archs[] = { 75, 80, 90 };

	(void)state;
	for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
		struct cubin_stub *s = open_programs(archs[a]);
		char file[64];
		struct buf b;

		snprintf(file, sizeof(file), "variables.sm_%u", archs[a]);
		b = read_cubin(file);
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			struct cubin_patched *p;
			const void *image;
			size_t bytes;

			print_message("%s %s\n", file, names[i]);
			assert_int_equal(copy(&p, &b, names[i], s, address_of, ""), 0);
			assert_int_equal(cubin_patched_count(p), 1);
			image = cubin_patched_image(p, &bytes);
			check_bank(&b, image, bytes);
			cubin_patched_close(p);
		}
		cubin_stub_close(s);
		buf_finish(&b);
	}
}

static void what_a_copy_cannot_have_is_refused(void **state)
{
	static const unsigned archs[] = { 75, 80, 90, 100, 120 };

	(void)state;
	for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
		struct cubin_stub *s = open_programs(archs[a]);
		char file[64];
		struct buf b;

		snprintf(file, sizeof(file), "variables.sm_%u", archs[a]);
		print_message("%s\n", file);
		b = read_cubin(file);
		assert_int_equal(copy(NULL, &b, "by_constant", s, address_of, "constants"),
				 -ENOTSUP);
		assert_int_equal(copy(NULL, &b, "uses_addresses", s, address_of, "constants"),
				 -ENOTSUP);
		assert_int_equal(copy(NULL, &b, "uses_static", s, NULL, "own variables"), -ENOTSUP);
		if (archs[a] >= 100) {
			assert_int_equal(copy(NULL, &b, "uses_static", s, address_of,
					      "several architectures"),
					 -ENOTSUP);
		}
		cubin_stub_close(s);
		buf_finish(&b);
	}
}

/* Compares the code of a copy, and its relocations, with the original's: each half of a variable's
 * address is in its instruction, and its relocation was removed. Returns the number of halves. */
static size_t check_code(const struct buf *b, const void *image, size_t bytes, const char *kernel)
{
	struct cubin_elf was, is;
	uint32_t text, relocs;
	size_t kept = 0, n;
	char name[64];

	snprintf(name, sizeof(name), ".text.%s", kernel);
	assert_int_equal(cubin_elf_open(&was, b->data, b->len, NULL), 0);
	assert_int_equal(cubin_elf_open(&is, image, bytes, NULL), 0);
	text = section_named(&was, name);
	relocs = relocs_of(&was, text);
	n = cubin_elf_relocs(&was, relocs);
	for (size_t q = 0; q < n; q++) {
		struct cubin_reloc l = cubin_elf_reloc(&was, relocs, q);
		Elf64_Sym y = cubin_elf_symbol(&was, l.symbol);
		uint64_t at = address_for(cubin_elf_symbol_name(&was, &y)) + (uint64_t)l.addend;
		uint32_t word = cubin_u32(cubin_elf_data(&is, text) + l.offset + 4);

		if (ELF64_ST_TYPE(y.st_info) == STT_OBJECT) {
			assert_int_equal(word, (uint32_t)(l.type == 0x39 ? at >> 32 : at));
		} else {
			struct cubin_reloc same = cubin_elf_reloc(&is, relocs, kept++);

			assert_int_equal(same.offset, l.offset);
			assert_int_equal(same.symbol, l.symbol);
			assert_int_equal(same.type, l.type);
			assert_int_equal(same.addend, l.addend);
			assert_int_equal(word, 0);
		}
	}
	assert_int_equal(cubin_elf_relocs(&is, relocs), kept);
	cubin_elf_finish(&was);
	cubin_elf_finish(&is);
	return n - kept;
}

/* Linkers write the addresses of functions into calls, and those of variables into moves. */
static void linked_kernels_have_addresses_in_code(void **state)
{
	static const struct {
		const char *kernel;
		size_t halves;
	} cases[] = { { "uses_variables", 6 },
		      { "uses_static", 2 },
		      { "checks", 6 },
		      { "prints", 4 },
		      { "allocates", 0 } };
	struct cubin_stub *s = open_programs(90);
	struct buf b = read_cubin("linked_variables.sm_90");
	struct cubin_patched *p = NULL;
	const void *image;
	size_t bytes;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		print_message("%s\n", cases[i].kernel);
		assert_int_equal(copy(&p, &b, cases[i].kernel, s, address_of, ""), 0);
		image = cubin_patched_image(p, &bytes);
		assert_int_equal(check_code(&b, image, bytes, cases[i].kernel), cases[i].halves);
		cubin_patched_close(p);
		p = NULL;
	}
	assert_int_equal(copy(NULL, &b, "by_number", s, address_of, "would have its own"),
			 -ENOTSUP);
	assert_int_equal(copy(NULL, &b, "uses_static", s, NULL, "own variables"), -ENOTSUP);
	for (char *at = b.data; (at = memmem(at, b.len - (size_t)(at - b.data), "\0malloc", 8));) {
		at[1] = 'M'; /* a function of another module */
	}
	assert_int_equal(copy(NULL, &b, "allocates", s, address_of, "unknown form"), -ENOTSUP);
	cubin_stub_close(s);
	buf_finish(&b);
}

static void a_variable_without_an_address_is_named(void **state)
{
	static char without[] = "table";
	struct cubin_stub *s = open_programs(90);
	struct buf b = read_cubin("variables.sm_90");
	struct cubin_patched *p = NULL;
	struct report r;

	(void)state;
	report_init(&r);
	assert_int_equal(
		cubin_patch_copy(&p, b.data, b.len, "uses_variables", s, address_of, without, &r),
		-ENOTSUP);
	assert_string_equal(buf_text(&r.message),
			    "the driver has no address of the variable 'table'");
	report_finish(&r);
	cubin_stub_close(s);
	buf_finish(&b);
}

/* ---- entries of the bank ---- */

/* Changes the first relocation, and expects a refusal. */
static void refuse_reloc(uint64_t offset, const char *symbol, uint32_t type, const char *text)
{
	struct cubin_stub *s = open_programs(90);
	struct changed c = open_changed("variables.sm_90");
	uint64_t info = (uint64_t)symbol_named(&c.elf, symbol) << 32 | type;
	uint8_t *l = content(&c, ".rela.nv.constant4");

	memcpy(l + offsetof(Elf64_Rela, r_offset), &offset, sizeof(offset));
	memcpy(l + offsetof(Elf64_Rela, r_info), &info, sizeof(info));
	assert_int_equal(copy(NULL, &c.image, "uses_static", s, address_of, text), -ENOTSUP);
	close_changed(&c);
	cubin_stub_close(s);
}

static void unknown_entries_are_refused(void **state)
{
	(void)state;
	refuse_reloc(4, "counter", 2, "unknown form");
	refuse_reloc(0x64, "counter", 2, "unknown form"); /* exceeds the end */
	refuse_reloc(0, "counter", 3, "functions, whose addresses");
	refuse_reloc(0, "prints", 2, "functions, whose addresses");
}

/* Changes the first relocation of code, or its instruction, and expects a refusal. */
static void refuse_half(uint64_t offset, uint32_t type, const char *symbol, uint64_t op)
{
	struct cubin_stub *s = open_programs(90);
	struct changed c = open_changed("linked_variables.sm_90");
	uint8_t *l = content(&c, ".rela.text.uses_static");
	uint8_t *code = content(&c, ".text.uses_static");
	uint64_t info = (uint64_t)symbol_named(&c.elf, symbol) << 32 | type, at;

	memcpy(&at, l, sizeof(at));
	if (op) {
		struct cubin_insn i = cubin_insn_at(code + at);

		i.lo = (i.lo & ~UINT64_C(0xfff)) | op;
		cubin_insn_put(code + at, i);
	}
	at = offset ? offset : at;
	memcpy(l + offsetof(Elf64_Rela, r_offset), &at, sizeof(at));
	memcpy(l + offsetof(Elf64_Rela, r_info), &info, sizeof(info));
	assert_int_equal(copy(NULL, &c.image, "uses_static", s, address_of, "would have its own"),
			 -ENOTSUP);
	close_changed(&c);
	cubin_stub_close(s);
}

static void unknown_places_in_code_are_refused(void **state)
{
	(void)state;
	refuse_half(0, 2, "counter", 0); /* 64 bits */
	refuse_half(0, 0x37, "counter", 0);
	refuse_half(0, 0x38, "checks", 0);	/* a function */
	refuse_half(0, 0x38, "counter", 0x824); /* not a move */
	refuse_half(0x28, 0x38, "counter", 0);	/* amid an instruction */
}

static void addends_are_added(void **state)
{
	struct cubin_stub *s = open_programs(90);
	struct changed c = open_changed("variables.sm_90");
	uint8_t *l = content(&c, ".rela.nv.constant4");
	uint32_t bank = section_named(&c.elf, ".nv.constant4");
	size_t last = cubin_elf_relocs(&c.elf, relocs_of(&c.elf, bank)) - 1;
	struct cubin_patched *p;
	struct cubin_elf e;
	const void *image;
	uint64_t word;
	size_t bytes;

	(void)state; /* the last one is that of `counter`, at 0 */
	memcpy(l + last * sizeof(Elf64_Rela) + offsetof(Elf64_Rela, r_addend), &(int64_t){ 24 }, 8);
	assert_int_equal(copy(&p, &c.image, "uses_static", s, address_of, ""), 0);
	image = cubin_patched_image(p, &bytes);
	assert_int_equal(cubin_elf_open(&e, image, bytes, NULL), 0);
	memcpy(&word, cubin_elf_data(&e, bank), sizeof(word));
	assert_int_equal(word, address_for("counter") + 24);
	cubin_elf_finish(&e);
	cubin_patched_close(p);
	close_changed(&c);
	cubin_stub_close(s);
}

/* Without functions of the driver no relocation is left. */
static void all_relocations_may_go(void **state)
{
	static const unsigned archs[] = { 75, 90 };

	(void)state;
	for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
		const char *name = archs[a] < 90 ? ".rel.nv.constant4" : ".rela.nv.constant4";
		size_t each = archs[a] < 90 ? sizeof(Elf64_Rel) : sizeof(Elf64_Rela);
		struct cubin_stub *s = open_programs(archs[a]);
		struct changed c;
		uint64_t info;
		char file[64];

		snprintf(file, sizeof(file), "variables.sm_%u", archs[a]);
		c = open_changed(file);
		info = (uint64_t)symbol_named(&c.elf, "counter") << 32 | 2;
		for (size_t q = 0; q < 4; q++) {
			memcpy(content(&c, name) + q * each + offsetof(Elf64_Rela, r_info), &info,
			       sizeof(info));
		}
		assert_int_equal(copy(NULL, &c.image, "uses_static", s, address_of, ""), 0);
		close_changed(&c);
		cubin_stub_close(s);
	}
}

/* ---- calls ---- */

static uint8_t *call_in(struct changed *c, const char *text, unsigned base)
{
	uint32_t i = section_named(&c->elf, text);
	uint8_t *code = content(c, text);

	for (size_t at = 0; at < c->elf.sections[i].sh_size; at += 16) {
		struct cubin_insn x = cubin_insn_at(code + at);

		if (cubin_insn_base(x) == base && cubin_insn_op(x) >> 9 == 1) {
			return code + at;
		}
	}
	fail_msg("no instruction 0x%x", base);
	return NULL;
}

/* What may be wrong with a call and the load of its register. */
enum fault {
	NONE,
	OTHER_BANK,
	NOT_ALWAYS,
	OTHER_REGISTER,
	LOADED_AGAIN,
	SECOND_WORD,
	BRANCH_BETWEEN,
	OTHER_FORM,
	FAULTS
};

/* Returns the load of the register that a call names. */
static uint8_t *load_of(uint8_t *call)
{
	unsigned reg = (unsigned)(cubin_insn_at(call).lo >> 24) & 0xff;
	struct cubin_insn i;

	do {
		call -= 16;
		i = cubin_insn_at(call);
	} while (cubin_insn_base(i) != CUBIN_BASE_LDC || ((unsigned)(i.lo >> 16) & 0xff) != reg);
	return call;
}

static void plant(enum fault fault, uint8_t *code, uint8_t *call)
{
	uint8_t *load = load_of(call), *last = call - 16;
	struct cubin_insn i = cubin_insn_at(load), c = cubin_insn_at(call);

	switch (fault) {
	case OTHER_BANK:
		i.lo ^= 6ull << 54; /* 2 and 4 */
		break;
	case NOT_ALWAYS:
		i.lo &= ~0xf000ull;
		break;
	case OTHER_REGISTER:
		i.lo ^= 4ull << 16;
		break;
	case LOADED_AGAIN: /* by LDG */
	case SECOND_WORD:
		if (load == last) {
			load -= 16;
			cubin_insn_put(load, i);
		}
		i.lo = (i.lo & ~0xfffull) | 0x981;
		i.lo += fault == SECOND_WORD ? 1ull << 16 : 0;
		cubin_insn_put(last, i);
		return;
	case BRANCH_BETWEEN:
		cubin_insn_put(code + 16, cubin_insn_bra(90, call - code - 32));
		break;
	case OTHER_FORM:
		c.lo ^= 7ull; /* CALL.ABS and CALL.REL */
		break;
	default:
		break;
	}
	cubin_insn_put(load, i);
	cubin_insn_put(call, c);
}

/* Each fault makes it uncertain what is called. */
static void only_known_calls_are_copied(void **state)
{
	static const struct {
		const char *kernel, *text;
		unsigned call;
	} cases[] = { { "prints", ".text.prints", CUBIN_BASE_CALL_ABS },
		      { "by_number", ".text.by_number", CUBIN_BASE_CALL_REL } };
	struct cubin_stub *s = open_programs(90);

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		for (enum fault fault = NONE; fault < FAULTS; fault++) {
			struct changed c = open_changed("variables.sm_90");
			uint8_t *code = content(&c, cases[k].text);

			plant(fault, code, call_in(&c, cases[k].text, cases[k].call));
			print_message("%s, fault %u\n", cases[k].kernel, fault);
			assert_int_equal(copy(NULL, &c.image, cases[k].kernel, s, address_of,
					      "calls in an unknown form"),
					 fault == NONE ? 0 : -ENOTSUP);
			close_changed(&c);
		}
	}
	cubin_stub_close(s);
}

/* Words that the driver fills may differ in a copy. */
static void places_are_constants_of_the_image(void **state)
{
	struct cubin_stub *s = open_programs(90);
	struct changed c = open_changed("variables.sm_90");
	uint32_t bank = section_named(&c.elf, ".nv.constant2.by_number");

	(void)state;
	cubin_put32(header(&c, ".rela.debug_frame") + offsetof(Elf64_Shdr, sh_info), bank);
	for (size_t q = 0; q < cubin_elf_relocs(&c.elf, section_named(&c.elf, ".rela.debug_frame"));
	     q++) { /* they must be places in the bank */
		memset(content(&c, ".rela.debug_frame") + q * sizeof(Elf64_Rela), 0, 8);
	}
	cubin_elf_finish(&c.elf);
	assert_int_equal(cubin_elf_open(&c.elf, c.image.data, c.image.len, NULL), 0);
	assert_int_equal(copy(NULL, &c.image, "by_number", s, address_of, "unknown form"),
			 -ENOTSUP);
	close_changed(&c);
	cubin_stub_close(s);
}

/* ---- the checker ---- */

static void the_checker_finds_other_banks(void **state)
{
	struct cubin_stub *s = open_programs(90);
	struct buf b = read_cubin("variables.sm_90");
	struct cubin_redirects d = { 0 };
	struct cubin_patched *p;
	struct cubin_elf was, is;
	const void *made;
	uint8_t *image;
	size_t bytes;

	(void)state;
	assert_int_equal(copy(&p, &b, "uses_static", s, address_of, ""), 0);
	made = cubin_patched_image(p, &bytes);
	image = malloc(bytes);
	assert_non_null(image);
	memcpy(image, made, bytes);
	assert_int_equal(cubin_elf_open(&was, b.data, b.len, NULL), 0);
	assert_int_equal(cubin_elf_open(&is, image, bytes, NULL), 0);
	assert_int_equal(cubin_redirects_make(&d, &was, (struct cubin_uses){ .bank = true },
					      address_of, NULL, NULL),
			 0);
	assert_int_equal(cubin_check_copy(b.data, b.len, image, bytes, s, &d, NULL), 0);
	assert_int_equal(cubin_check(b.data, b.len, image, bytes, s, NULL), -ENOEXEC);
	for (uint64_t at = 0; at < is.sections[d.bank.section].sh_size; at++) {
		uint8_t *byte = image + is.sections[d.bank.section].sh_offset + at;

		*byte ^= 1;
		assert_int_equal(cubin_check_copy(b.data, b.len, image, bytes, s, &d, NULL),
				 -ENOEXEC);
		*byte ^= 1;
	}
	for (uint64_t at = 0; at < is.sections[d.bank.relocs].sh_size; at += 8) {
		uint8_t *byte = image + is.sections[d.bank.relocs].sh_offset + at;

		*byte ^= 1;
		assert_int_equal(cubin_check_copy(b.data, b.len, image, bytes, s, &d, NULL),
				 -ENOEXEC);
		*byte ^= 1;
	}
	d.bank.n--; /* one more was replaced than asked for */
	assert_int_equal(cubin_check_copy(b.data, b.len, image, bytes, s, &d, NULL), -ENOEXEC);
	cubin_redirects_finish(&d);
	cubin_elf_finish(&was);
	cubin_elf_finish(&is);
	cubin_patched_close(p);
	free(image);
	cubin_stub_close(s);
	buf_finish(&b);
}

static void the_checker_finds_other_code(void **state)
{
	const struct cubin_uses uses = { .code = 49 };
	struct cubin_stub *s = open_programs(90);
	struct buf b = read_cubin("linked_variables.sm_90");
	struct cubin_redirects d = { 0 };
	struct cubin_patched *p;
	struct cubin_elf was, is;
	const void *made;
	uint8_t *image, *code;
	size_t bytes;

	(void)state;
	assert_int_equal(copy(&p, &b, "uses_static", s, address_of, ""), 0);
	made = cubin_patched_image(p, &bytes);
	image = malloc(bytes);
	assert_non_null(image);
	memcpy(image, made, bytes);
	assert_int_equal(cubin_elf_open(&was, b.data, b.len, NULL), 0);
	assert_int_equal(cubin_elf_open(&is, image, bytes, NULL), 0);
	assert_int_equal(section_named(&was, ".text.uses_static"), uses.code);
	assert_int_equal(cubin_redirects_make(&d, &was, uses, address_of, NULL, NULL), 0);
	assert_int_equal(d.code.n, 2);
	assert_int_equal(cubin_check_copy(b.data, b.len, image, bytes, s, &d, NULL), 0);
	assert_int_equal(cubin_check(b.data, b.len, image, bytes, s, NULL), -ENOEXEC);
	code = image + is.sections[uses.code].sh_offset;
	for (uint64_t at = 0; at < is.sections[uses.code].sh_size; at++) {
		code[at] ^= 1;
		assert_int_equal(cubin_check_copy(b.data, b.len, image, bytes, s, &d, NULL),
				 -ENOEXEC);
		code[at] ^= 1;
	}
	d.code.n--; /* one more was replaced than asked for */
	assert_int_equal(cubin_check_copy(b.data, b.len, image, bytes, s, &d, NULL), -ENOEXEC);
	cubin_redirects_finish(&d);
	cubin_elf_finish(&was);
	cubin_elf_finish(&is);
	cubin_patched_close(p);
	free(image);
	cubin_stub_close(s);
	buf_finish(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_use_the_variables_of_the_module),
		cmocka_unit_test(what_a_copy_cannot_have_is_refused),
		cmocka_unit_test(linked_kernels_have_addresses_in_code),
		cmocka_unit_test(a_variable_without_an_address_is_named),
		cmocka_unit_test(unknown_entries_are_refused),
		cmocka_unit_test(unknown_places_in_code_are_refused),
		cmocka_unit_test(addends_are_added),
		cmocka_unit_test(all_relocations_may_go),
		cmocka_unit_test(only_known_calls_are_copied),
		cmocka_unit_test(places_are_constants_of_the_image),
		cmocka_unit_test(the_checker_finds_other_banks),
		cmocka_unit_test(the_checker_finds_other_code),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
