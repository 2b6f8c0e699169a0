/* A kernel or an image with one property that rules patching out is left alone, for that reason;
 * everything else in the image is patched. Each case is a change of an accepted image. */
#include "cubin_files.h"

#include <errno.h>

#include "cubin/cubin_insn_int.h"

#define KERNELS 16u /* in kernels.sm_90 */

/* The changed image has all kernels but one patched, which has this reason; with CUBIN_OK, all. */
static void expect(struct changed *c, unsigned arch, const char *kernel, enum cubin_why why)
{
	struct cubin_stub *s = open_stub(arch);
	struct cubin_patched *p;
	struct buf message;

	buf_init(&message);
	if (patch(&p, &c->image, s, &message) != 0) {
		fail_msg("refused: %s", buf_text(&message));
	}
	assert_string_equal(cubin_why_text(cubin_patched_find(p, kernel)->why),
			    cubin_why_text(why));
	assert_int_equal(cubin_patched_count(p), cubin_patched_kernels(p) - (why != CUBIN_OK));
	assert_int_equal(cubin_patched_find(p, kernel)->arg_offset == 0, why != CUBIN_OK);
	cubin_patched_close(p);
	cubin_stub_close(s);
	buf_finish(&message);
	close_changed(c);
}

/* The changed image is refused with a message that has this text. */
static void expect_refusal(struct changed *c, const char *text)
{
	struct cubin_stub *s = open_stub(90);
	struct cubin_patched *p;
	struct buf message;

	buf_init(&message);
	assert_int_equal(patch(&p, &c->image, s, &message), -ENOEXEC);
	assert_null(p);
	if (!strstr(buf_text(&message), text)) {
		fail_msg("'%s' is not in '%s'", text, buf_text(&message));
	}
	cubin_stub_close(s);
	buf_finish(&message);
	close_changed(c);
}

static void leaves_kernels_of_the_device_runtime(void **state)
{
	struct changed c = open_changed("kernels.sm_90");
	Elf64_Sym y = cubin_elf_symbol(&c.elf, symbol_named(&c.elf, "$recursion$recurse"));
	struct cubin_stub *s = open_stub(90);
	struct cubin_patched *p;
	size_t bytes;

	(void)state;
	memcpy(unqual(cubin_elf_symbol_name(&c.elf, &y)), "cnpLaunchDeviceV2_", 18);
	assert_int_equal(patch(&p, &c.image, s, NULL), -ENOENT);
	assert_int_equal(cubin_patched_kernels(p), KERNELS);
	assert_null(cubin_patched_image(p, &bytes));
	for (size_t i = 0; i < KERNELS; i++) {
		assert_int_equal(cubin_patched_kernel(p, i)->why, CUBIN_DEVICE_RUNTIME);
	}
	cubin_patched_close(p);
	cubin_stub_close(s);
	close_changed(&c);
}

/* A table of function pointers with a kernel's address: the device may launch it. */
static void leaves_kernels_whose_address_is_taken(void **state)
{
	struct changed c = open_changed("kernels.sm_90");
	uint64_t symbol = symbol_named(&c.elf, "loops");
	uint8_t *r = content(&c, ".rela.nv.constant4");

	(void)state;
	cubin_put32(r + 12, (uint32_t)symbol);
	memset(r + 16, 0, 8); /* the addend */
	expect(&c, 90, "loops", CUBIN_REFERENCED);
}

/* The unwinding tables name each kernel, too, and do not count: all are patched (test_cubin_patch).
 * An address inside a kernel does not count either. */
static void patches_kernels_that_refer_to_themselves(void **state)
{
	struct changed c = open_changed("kernels.sm_90");
	uint8_t *r = content(&c, ".rela.nv.constant4");
	struct cubin_stub *s = open_stub(90);
	struct cubin_patched *p;

	(void)state;
	cubin_put32(r + 12, symbol_named(&c.elf, "loops"));
	cubin_put32(r + 16, 16);
	assert_int_equal(patch(&p, &c.image, s, NULL), 0);
	assert_int_equal(cubin_patched_count(p), KERNELS);
	cubin_patched_close(p);
	cubin_stub_close(s);
	close_changed(&c);
}

static void leaves_kernels_with_a_relocated_entry(void **state)
{
	struct changed c = open_changed("linked.sm_90");

	(void)state;
	memset(content(&c, ".rela.text.steps"), 0, 8); /* its offset */
	expect(&c, 90, "steps", CUBIN_RELOCATED);
}

/* Moves the target of a kernel's branch to its first instruction. */
static void loop_to_entry(const char *name, unsigned arch, unsigned op)
{
	struct changed c = open_changed(name);
	uint8_t *code = content(&c, ".text.for_ever");

	for (size_t at = 16;; at += 16) {
		struct cubin_insn i = cubin_insn_at(code + at);

		if (cubin_insn_op(i) == CUBIN_OP_BRA) {
			i = cubin_insn_bra(arch, -(int64_t)at - 16);
			i.lo = (i.lo & ~0xfffull) | op;
			cubin_insn_put(code + at, i);
			break;
		}
	}
	expect(&c, arch, "for_ever", CUBIN_LOOPS_TO_ENTRY);
}

static void leaves_kernels_that_loop_to_their_entry(void **state)
{
	(void)state;
	loop_to_entry("kernels.sm_75", 75, CUBIN_OP_BRA);
	loop_to_entry("kernels.sm_80", 80, CUBIN_OP_BRA);
	loop_to_entry("kernels.sm_90", 90, CUBIN_OP_BRA);
	loop_to_entry("kernels.sm_120", 120, CUBIN_OP_BRA);
	loop_to_entry("kernels.sm_120", 120, CUBIN_OP_BRA_UNIFORM);
	loop_to_entry("kernels.sm_90", 90, 0x944); /* CALL.REL */
}

static void leaves_kernels_with_another_first_instruction(void **state)
{
	struct changed c = open_changed("kernels.sm_90");

	(void)state;
	content(&c, ".text.loops")[2] = 2; /* the stack pointer is register 1 */
	expect(&c, 90, "loops", CUBIN_FIRST_INSN);
	c = open_changed("kernels.sm_80");
	content(&c, ".text.loops")[1] = 0x0a; /* predicate 0 instead of "true" */
	expect(&c, 80, "loops", CUBIN_FIRST_INSN);
	c = open_changed("kernels.sm_120");
	content(&c, ".text.loops")[6] |= 0x40; /* bank 1 */
	expect(&c, 120, "loops", CUBIN_FIRST_INSN);
}

static void leaves_kernels_with_other_parameters(void **state)
{
	static const char info[] = ".nv.info.two_params";
	struct changed c;

	(void)state;
	c = open_changed("kernels.sm_90");
	attribute(&c, info, CUBIN_ATTR_KPARAM_INFO)[8] = 2; /* ordinal */
	expect(&c, 90, "two_params", CUBIN_PARAM_LAYOUT);
	c = open_changed("kernels.sm_90");
	attribute(&c, info, CUBIN_ATTR_KPARAM_INFO)[10] = 4; /* offset: inside the pointer */
	expect(&c, 90, "two_params", CUBIN_PARAM_LAYOUT);
	c = open_changed("kernels.sm_90");
	attribute(&c, info, CUBIN_ATTR_KPARAM_INFO)[13] = 0; /* not in the bank */
	expect(&c, 90, "two_params", CUBIN_PARAM_LAYOUT);
	c = open_changed("kernels.sm_90");
	attribute(&c, info, CUBIN_ATTR_KPARAM_INFO)[1] = CUBIN_ATTR_KPARAM_INFO_V2;
	expect(&c, 90, "two_params", CUBIN_PARAM_LAYOUT);
	c = open_changed("kernels.sm_90");
	attribute(&c, info, CUBIN_ATTR_PARAM_CBANK)[8] = 0x20; /* base */
	expect(&c, 90, "two_params", CUBIN_PARAM_LAYOUT);
	c = open_changed("kernels.sm_90");
	attribute(&c, info, CUBIN_ATTR_CBANK_PARAM_SIZE)[2] = 16;
	expect(&c, 90, "two_params", CUBIN_PARAM_LAYOUT);
	c = open_changed("kernels.sm_90");
	attribute(&c, info, CUBIN_ATTR_CBANK_PARAM_SIZE)[2] = 16;
	attribute(&c, info, CUBIN_ATTR_PARAM_CBANK)[10] = 16;
	expect(&c, 90, "two_params", CUBIN_NO_BANK); /* of another size */
}

/* Appends bytes to the last section of the file, a bank in a segment of banks. */
static void grow_last_bank(struct changed *c, const char *bank, uint64_t more)
{
	Elf64_Shdr *s = (Elf64_Shdr *)(void *)header(c, bank);
	Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)c->image.data;
	Elf64_Phdr *p = (Elf64_Phdr *)(void *)(c->image.data + h->e_phoff);
	uint64_t end = s->sh_offset + s->sh_size;
	struct buf image;

	assert_true(end <= h->e_shoff && h->e_shoff < h->e_phoff);
	for (unsigned i = 0; i < h->e_phnum; i++) {
		if (p[i].p_offset == h->e_phoff) {
			p[i].p_offset += more;
		} else if (p[i].p_filesz && p[i].p_offset + p[i].p_filesz == end) {
			p[i].p_filesz += more;
			p[i].p_memsz += more;
		}
	}
	s->sh_size += more;
	h->e_shoff += more;
	h->e_phoff += more;
	buf_init(&image);
	buf_add(&image, c->image.data, end);
	for (uint64_t i = 0; i < more; i++) {
		buf_add(&image, "", 1);
	}
	buf_add(&image, c->image.data + end, c->image.len - end);
	buf_finish(&c->image);
	c->image = image;
}

/* The parameters may take 32764 bytes, the stub's argument included. */
static void leaves_kernels_with_too_many_parameters(void **state)
{
	static const struct {
		uint32_t bytes;
		enum cubin_why why;
	} cases[] = { { 32696, CUBIN_OK }, { 32704, CUBIN_NO_PARAM_ROOM } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct changed c = open_changed("lineinfo.sm_90");
		struct cubin_stub *s = open_stub(90);
		struct cubin_patched *p;

		cubin_put16(attribute(&c, ".nv.info.steps", CUBIN_ATTR_CBANK_PARAM_SIZE) + 2,
			    (uint16_t)cases[i].bytes);
		cubin_put16(attribute(&c, ".nv.info.steps", CUBIN_ATTR_PARAM_CBANK) + 10,
			    (uint16_t)cases[i].bytes);
		grow_last_bank(&c, ".nv.constant0.steps", cases[i].bytes - 12);
		assert_int_equal(patch(&p, &c.image, s, NULL), 0);
		assert_int_equal(cubin_patched_find(p, "steps")->why, cases[i].why);
		assert_int_equal(cubin_patched_find(p, "copies")->why, CUBIN_OK);
		cubin_patched_close(p);
		cubin_stub_close(s);
		close_changed(&c);
	}
}

static void leaves_kernels_without_registers_to_spare(void **state)
{
	struct changed c = open_changed("hopper.sm_90a");
	uint8_t *info = content(&c, ".nv.info");

	(void)state;
	while (info[1] != CUBIN_ATTR_REGCOUNT ||
	       cubin_u32(info + 4) != symbol_named(&c.elf, "sets_registers")) {
		info += 12;
	}
	info[8] = 16; /* setmaxnreg counts on the registers of the launch */
	expect(&c, 90, "sets_registers", CUBIN_REGISTERS);
	c = open_changed("kernels.sm_90");
	attribute(&c, ".nv.info.loops", CUBIN_ATTR_MAXREG_COUNT)[2] = 16; /* -maxrregcount */
	expect(&c, 90, "loops", CUBIN_REGISTERS);
}

static void leaves_kernels_of_odd_forms(void **state)
{
	struct changed c;

	(void)state;
	c = open_changed("kernels.sm_90");
	attribute(&c, ".nv.info.shared_memory", CUBIN_ATTR_NUM_BARRIERS)[2] = 17;
	expect(&c, 90, "shared_memory", CUBIN_BARRIERS);
	c = open_changed("kernels.sm_90");
	attribute(&c, ".nv.info.loops", CUBIN_ATTR_MAXREG_COUNT)[1] = CUBIN_ATTR_ENTRY_FRAGMENTS;
	expect(&c, 90, "loops", CUBIN_CODE_FORM);
	c = open_changed("kernels.sm_90");
	attribute(&c, ".nv.info.loops", CUBIN_ATTR_MAXREG_COUNT)[1] =
		0xf0; /* of a later compiler */
	expect(&c, 90, "loops", CUBIN_CODE_FORM);
	for (unsigned value = 2; value <= 4; value++) {
		uint8_t *a;

		c = open_changed("kernels.sm_90");
		a = attribute(&c, ".nv.info.loops", CUBIN_ATTR_SW_WAR);
		a[1] = CUBIN_ATTR_OF_13_2;
		cubin_put32(a + 4, value);
		expect(&c, 90, "loops", value == 3 ? CUBIN_OK : CUBIN_CODE_FORM);
	}
	c = open_changed("kernels.sm_90");
	attribute(&c, ".nv.info.loops", CUBIN_ATTR_MAXREG_COUNT)[1] = CUBIN_ATTR_OF_13_2;
	expect(&c, 90, "loops", CUBIN_CODE_FORM); /* 16 bits */
	c = open_changed("kernels.sm_90");
	attribute(&c, ".nv.info.loops", CUBIN_ATTR_EXITS)[0] = 3; /* no list: the rest is broken */
	expect_refusal(&c, "broken attributes of kernel 'loops'");
	c = open_changed("kernels.sm_90");
	memcpy(unqual(cubin_elf_name(&c.elf, section_named(&c.elf, ".nv.info.loops"))), ".nv.infx",
	       8);
	expect(&c, 90, "loops", CUBIN_NO_INFO);
	c = open_changed("kernels.sm_90");
	memcpy(unqual(cubin_elf_name(&c.elf, section_named(&c.elf, ".nv.constant0.loops"))),
	       ".nv.constant1", 13);
	expect(&c, 90, "loops", CUBIN_NO_BANK);
}

/* Code whose size is no multiple of an instruction's. */
static void leaves_kernels_with_half_an_instruction(void **state)
{
	struct changed c = open_changed("kernels.sm_90");
	Elf64_Shdr *s = (Elf64_Shdr *)(void *)header(&c, ".text.loops");
	uint8_t *symbol =
		content(&c, ".symtab") + symbol_named(&c.elf, "loops") * sizeof(Elf64_Sym);

	(void)state;
	s->sh_size -= 8;
	memset(content(&c, ".text.loops") + s->sh_size, 0, 8);
	memcpy(symbol + offsetof(Elf64_Sym, st_size), &s->sh_size, 8);
	expect(&c, 90, "loops", CUBIN_CODE_FORM);
}

/* A section in the bytes of another one, as Blackwell's cubins have them, but in their middle. */
static void keeps_sections_inside_others(void **state)
{
	struct changed c = open_changed("kernels.sm_120");
	Elf64_Shdr *s = (Elf64_Shdr *)(void *)header(&c, ".nv.merc.nv.constant.user");
	struct cubin_stub *stub = open_stub(120);
	struct cubin_patched *p;

	(void)state;
	s->sh_offset += 16;
	s->sh_size -= 32;
	assert_int_equal(patch(&p, &c.image, stub, NULL), 0);
	assert_int_equal(cubin_patched_count(p), KERNELS);
	cubin_patched_close(p);
	cubin_stub_close(stub);
	close_changed(&c);
}

static void refuses_images_that_it_does_not_know(void **state)
{
	struct changed c;

	(void)state;
	c = open_changed("kernels.sm_90");
	c.image.data[EI_ABIVERSION] = 9;
	expect_refusal(&c, "ABI version 9");
	c = open_changed("kernels.sm_90");
	c.image.data[EI_CLASS] = ELFCLASS32;
	expect_refusal(&c, "not a cubin");
	c = open_changed("kernels.sm_90");
	c.image.data[18] = 62; /* e_machine: x86-64 */
	expect_refusal(&c, "not a cubin");
	c = open_changed("kernels.sm_90");
	c.image.data[16] = ET_REL;
	expect_refusal(&c, "relocatable");
	c = open_changed("kernels.sm_80");
	expect_refusal(&c, "code for sm_80 with a stub for sm_90");
	c = open_changed("kernels.sm_90");
	header(&c, ".nv.callgraph")[4] = 0x50; /* sh_type */
	expect_refusal(&c, "unknown type");
	c = open_changed("kernels.sm_90");
	content(&c, ".nv.info")[1] = 0xee;
	expect_refusal(&c, "unknown attribute 0xee");
	c = open_changed("kernels.sm_90");
	memset(content(&c, ".nv.info") + 4, 0xff, 4); /* symbol of a register count */
	expect_refusal(&c, "register count");
	c = open_changed("kernels.sm_90");
	cubin_put32(header(&c, ".nv.info.loops") + 44, 1); /* sh_info */
	expect_refusal(&c, "is not that of its kernel");
	c = open_changed("kernels.sm_90");
	buf_add(&c.image, "x", 1);
	expect_refusal(&c, "behind the last section");
}

/* A segment that ends where a section without bytes begins, and within one that has bytes. */
static void refuses_a_segment_that_ends_within_a_section(void **state)
{
	struct changed c = open_changed("variables.sm_75");
	struct cubin_stub *s = open_stub(75);
	struct cubin_patched *p;
	struct buf message;

	(void)state;
	buf_init(&message);
	cubin_put32(header(&c, ".nv.global.init") + 32, 0x65); /* sh_size */
	assert_int_equal(patch(&p, &c.image, s, &message), -ENOEXEC);
	assert_string_equal(buf_text(&message),
			    "a segment that does not begin and end with sections");
	cubin_stub_close(s);
	buf_finish(&message);
	close_changed(&c);
}

/* An image for another architecture of the family is taken only if the driver cannot recompile it.
 */
static void refuses_images_that_the_driver_recompiles(void **state)
{
	struct cubin_stub *s = open_stub(103), *older = open_stub(80);
	struct buf b = read_cubin("kernels.sm_100"), later = read_cubin("lineinfo.sm_86");
	struct cubin_patched *p;
	struct buf message;

	(void)state;
	buf_init(&message);
	assert_int_equal(patch(&p, &b, s, &message), -ENOEXEC);
	assert_string_equal(buf_text(&message),
			    "code for sm_100 that the driver compiles for sm_103");
	assert_int_equal(patch(&p, &later, older, &message), 0);
	cubin_patched_close(p);
	cubin_stub_close(s);
	cubin_stub_close(older);
	buf_finish(&b);
	buf_finish(&later);
	buf_finish(&message);
}

static void every_reason_has_a_text(void **state)
{
	(void)state;
	for (unsigned i = 0; i < CUBIN_WHY_COUNT; i++) {
		assert_non_null(cubin_why_text((enum cubin_why)i));
	}
	assert_string_equal(cubin_why_text(CUBIN_WHY_COUNT), "unknown reason");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaves_kernels_of_the_device_runtime),
		cmocka_unit_test(leaves_kernels_whose_address_is_taken),
		cmocka_unit_test(patches_kernels_that_refer_to_themselves),
		cmocka_unit_test(leaves_kernels_with_a_relocated_entry),
		cmocka_unit_test(leaves_kernels_that_loop_to_their_entry),
		cmocka_unit_test(leaves_kernels_with_another_first_instruction),
		cmocka_unit_test(leaves_kernels_with_other_parameters),
		cmocka_unit_test(leaves_kernels_with_too_many_parameters),
		cmocka_unit_test(leaves_kernels_without_registers_to_spare),
		cmocka_unit_test(leaves_kernels_of_odd_forms),
		cmocka_unit_test(leaves_kernels_with_half_an_instruction),
		cmocka_unit_test(keeps_sections_inside_others),
		cmocka_unit_test(refuses_images_that_it_does_not_know),
		cmocka_unit_test(refuses_a_segment_that_ends_within_a_section),
		cmocka_unit_test(refuses_images_that_the_driver_recompiles),
		cmocka_unit_test(every_reason_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
