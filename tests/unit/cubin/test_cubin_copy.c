/* Copies of an image that run one kernel with a stub: which kernels may, and that only the chosen
 * one is patched. */
#include "cubin_files.h"

#include <errno.h>
#include <stdio.h>

#include "cubin/cubin_insn_int.h"

static const unsigned archs[] = { 75, 80, 90, 100, 120 };

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

/* Returns what cubin_patch_copy does; a refusal must have this text. */
static int copy(struct cubin_patched **ret, const struct buf *b, const char *kernel,
		const struct cubin_stub *s, const char *text)
{
	struct report r;
	int err;

	*ret = NULL;
	report_init(&r);
	err = cubin_patch_copy(ret, b->data, b->len, kernel, s, NULL, NULL, &r);
	if (err && (*ret || !strstr(buf_text(&r.message), text))) {
		fail_msg("%s: '%s' is not in '%s'", kernel, text, buf_text(&r.message));
	}
	report_finish(&r);
	return err;
}

static void kernels_that_use_nothing_of_the_module_are_copied(void **state)
{
	static const char *const names[] = { "own_plain", "own_shared", "own_calls", "own_jumps",
					     "module_pointer" };

	(void)state;
	for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
		struct cubin_stub *s = open_programs(archs[a]);
		char file[64];
		struct buf b;

		snprintf(file, sizeof(file), "copies.sm_%u", archs[a]);
		b = read_cubin(file);
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			struct cubin_patched *p;

			print_message("%s %s\n", file, names[i]);
			assert_int_equal(copy(&p, &b, names[i], s, ""), 0);
			assert_int_equal(cubin_patched_count(p), 1);
			assert_int_equal(cubin_patched_kernels(p), 10);
			assert_int_equal(cubin_patched_find(p, names[i])->why, CUBIN_OK);
			assert_int_equal(cubin_patched_find(p, names[(i + 1) % 5])->why,
					 CUBIN_NOT_CHOSEN);
			cubin_patched_close(p);
		}
		cubin_stub_close(s);
		buf_finish(&b);
	}
}

static void kernels_that_use_the_module_are_refused(void **state)
{
	static const struct {
		const char *name, *why;
	} cases[] = {
		{ "module_variable", "variables" }, { "module_table", "variables" },
		{ "module_constant", "constants" }, { "module_constant_index", "constants" },
		{ "module_print", "own " },
	};

	(void)state;
	for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
		struct cubin_stub *s = open_programs(archs[a]);
		char file[64];
		struct buf b;

		snprintf(file, sizeof(file), "copies.sm_%u", archs[a]);
		b = read_cubin(file);
		for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
			struct cubin_patched *p;

			print_message("%s %s\n", file, cases[i].name);
			assert_int_equal(copy(&p, &b, cases[i].name, s, cases[i].why), -ENOTSUP);
		}
		cubin_stub_close(s);
		buf_finish(&b);
	}
}

/* The other kernels' sections stay as they are. */
static void only_the_chosen_kernel_changes(void **state)
{
	struct cubin_stub *s = open_programs(90);
	struct buf b = read_cubin("copies.sm_90");
	struct cubin_elf was, is;
	struct cubin_patched *p;
	const void *image;
	size_t bytes;

	(void)state;
	assert_int_equal(copy(&p, &b, "own_shared", s, ""), 0);
	image = cubin_patched_image(p, &bytes);
	assert_int_equal(cubin_elf_open(&was, b.data, b.len, NULL), 0);
	assert_int_equal(cubin_elf_open(&is, image, bytes, NULL), 0);
	for (uint32_t i = 1; i < was.n_sections; i++) {
		const char *name = cubin_elf_name(&was, i);
		const char *dot = strrchr(name, '.');
		bool chosen = dot && !strcmp(dot, ".own_shared");

		if (!strncmp(name, ".text.", 6)) {
			assert_int_equal(was.sections[i].sh_size != is.sections[i].sh_size, chosen);
		}
		if (!chosen && cubin_elf_in_file(&was, i) && i != was.symtab &&
		    strcmp(name, ".nv.info") != 0) {
			assert_int_equal(was.sections[i].sh_size, is.sections[i].sh_size);
			assert_memory_equal(cubin_elf_data(&was, i), cubin_elf_data(&is, i),
					    was.sections[i].sh_size);
		}
	}
	cubin_elf_finish(&was);
	cubin_elf_finish(&is);
	cubin_patched_close(p);
	cubin_stub_close(s);
	buf_finish(&b);
}

static void unknown_and_unpatchable_kernels_are_refused(void **state)
{
	struct cubin_stub *s = open_programs(90), *old = open_programs(80);
	struct changed c = open_changed("copies.sm_90");
	struct cubin_patched *p;

	(void)state;
	assert_int_equal(copy(&p, &c.image, "none", s, "no kernel 'none'"), -ENOENT);
	assert_int_equal(copy(&p, &c.image, "own_plain", old, "sm_90 with a stub for sm_80"),
			 -ENOEXEC);
	content(&c, ".text.own_plain")[0] ^= 1; /* another first instruction */
	assert_int_equal(copy(&p, &c.image, "own_plain", s, "first instruction"), -ENOENT);
	assert_int_equal(copy(&p, &c.image, "own_shared", s, ""), 0);
	cubin_patched_close(p);
	close_changed(&c);
	cubin_stub_close(s);
	cubin_stub_close(old);
}

/* A relocation of a kernel's code decides by what it names. */
static void relocations_decide(void **state)
{
	static const struct {
		const char *symbol;
		bool copied;
	} cases[] = { { "own_plain", true }, { "counter", false }, { "own_shared", false } };
	struct cubin_stub *s = open_programs(90);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct changed c = open_changed("copies.sm_90");
		uint64_t info = (uint64_t)symbol_named(&c.elf, cases[i].symbol) << 32 | 2;
		uint8_t *h = header(&c, ".rela.nv.constant4"),
			*l = content(&c, ".rela.nv.constant4");
		struct cubin_patched *p;
		uint64_t at = 32;

		cubin_put32(h + offsetof(Elf64_Shdr, sh_info),
			    section_named(&c.elf, ".text.own_plain"));
		memcpy(h + offsetof(Elf64_Shdr, sh_size), &(uint64_t){ sizeof(Elf64_Rela) }, 8);
		memcpy(l + offsetof(Elf64_Rela, r_offset), &at, sizeof(at));
		memcpy(l + offsetof(Elf64_Rela, r_info), &info, sizeof(info));
		memcpy(l + offsetof(Elf64_Rela, r_addend), &(int64_t){ 64 }, 8);
		cubin_elf_finish(&c.elf);
		print_message("%s\n", cases[i].symbol);
		assert_int_equal(cubin_elf_open(&c.elf, c.image.data, c.image.len, NULL), 0);
		/* what is behind the shortened table belongs to no section */
		memset(l + sizeof(Elf64_Rela), 0, 5 * sizeof(Elf64_Rela));
		assert_int_equal(copy(&p, &c.image, "own_plain", s, "variables or functions"),
				 cases[i].copied ? 0 : -ENOTSUP);
		cubin_patched_close(p);
		close_changed(&c);
	}
	cubin_stub_close(s);
}

static void texture_references_are_refused(void **state)
{
	struct cubin_stub *s = open_programs(90);
	struct changed c = open_changed("copies.sm_90");
	uint32_t i = symbol_named(&c.elf, "counter");
	struct cubin_patched *p;

	(void)state;
	content(&c, ".symtab")[i * sizeof(Elf64_Sym) + offsetof(Elf64_Sym, st_info)] |= 10;
	assert_int_equal(copy(&p, &c.image, "own_plain", s, "texture references"), -ENOTSUP);
	close_changed(&c);
	cubin_stub_close(s);
}

struct told {
	unsigned n;
	int err[10];
	char text[10][200];
};

static void take_told(void *arg, size_t i, int err, const struct report *r)
{
	struct told *t = arg;

	t->n++;
	t->err[i] = err;
	snprintf(t->text[i], sizeof(t->text[i]), "%s", buf_text(&r->message));
}

/* The survey says of each kernel what a copy would, without a stub. */
static void survey_says_which_kernels_may_be_copied(void **state)
{
	static const char *const names[] = {
		"own_plain",	   "module_variable", "none",
		"module_constant", "own_calls",	      "module_pointer"
	};

	(void)state;
	for (size_t a = 0; a < ARRAY_SIZE(archs); a++) {
		int variable = archs[a] < 100 ? 0 : -ENOTSUP;
		const int expected[] = { 0, variable, -ENOENT, -ENOTSUP, 0, 0 };
		struct told told = { 0 };
		struct report r;
		char file[64];
		struct buf b;

		snprintf(file, sizeof(file), "copies.sm_%u", archs[a]);
		b = read_cubin(file);
		report_init(&r);
		assert_int_equal(cubin_copy_survey(b.data, b.len, names, ARRAY_SIZE(names),
						   take_told, &told, &r),
				 0);
		assert_int_equal(told.n, ARRAY_SIZE(names));
		assert_memory_equal(told.err, expected, sizeof(expected));
		assert_non_null(strstr(told.text[3], "constants"));
		assert_non_null(strstr(told.text[2], "no kernel 'none'"));
		told.n = 0;
		assert_int_equal(cubin_copy_survey(b.data, 100, names, 1, take_told, &told, &r),
				 -ENOEXEC);
		assert_int_equal(told.n, 0);
		report_finish(&r);
		buf_finish(&b);
	}
}

static void survey_sees_what_rules_patching_out(void **state)
{
	static const char *const name = "own_plain";
	struct changed c = open_changed("copies.sm_90");
	struct told told = { 0 };

	(void)state;
	content(&c, ".text.own_plain")[0] ^= 1; /* another first instruction */
	assert_int_equal(
		cubin_copy_survey(c.image.data, c.image.len, &name, 1, take_told, &told, NULL), 0);
	assert_int_equal(told.err[0], -ENOENT);
	assert_non_null(strstr(told.text[0], "first instruction"));
	close_changed(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_that_use_nothing_of_the_module_are_copied),
		cmocka_unit_test(kernels_that_use_the_module_are_refused),
		cmocka_unit_test(only_the_chosen_kernel_changes),
		cmocka_unit_test(unknown_and_unpatchable_kernels_are_refused),
		cmocka_unit_test(relocations_decide),
		cmocka_unit_test(texture_references_are_refused),
		cmocka_unit_test(survey_says_which_kernels_may_be_copied),
		cmocka_unit_test(survey_sees_what_rules_patching_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
