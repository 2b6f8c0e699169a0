/* The checker finds every changed bit of a patched image, and what a wrong patcher could write. */
#include "cubin_files.h"

#include <errno.h>

#include "cubin/cubin_insn_int.h"

struct pair {
	struct buf original;
	struct buf result; /* patched, and then changed */
	struct cubin_stub *stub;
	struct cubin_elf elf; /* of the result before it is changed */
};

static struct pair open_pair(const char *name, unsigned arch)
{
	struct pair p = { .original = read_cubin(name), .stub = open_stub(arch) };
	struct cubin_patched *patched;
	const void *image;
	size_t bytes;

	assert_int_equal(patch(&patched, &p.original, p.stub, NULL), 0);
	image = cubin_patched_image(patched, &bytes);
	buf_init(&p.result);
	buf_add(&p.result, image, bytes);
	cubin_patched_close(patched);
	assert_int_equal(cubin_elf_open(&p.elf, p.result.data, p.result.len, NULL), 0);
	return p;
}

static void close_pair(struct pair *p)
{
	cubin_elf_finish(&p->elf);
	cubin_stub_close(p->stub);
	buf_finish(&p->original);
	buf_finish(&p->result);
}

static int check(const struct pair *p, struct buf *message)
{
	struct report r;
	int err;

	report_init(&r);
	err = cubin_check(p->original.data, p->original.len, p->result.data, p->result.len, p->stub,
			  &r);
	if (message) {
		buf_clear(message);
		buf_puts(message, buf_text(&r.message));
	}
	report_finish(&r);
	return err;
}

static bool all_zero(const struct pair *p, uint32_t section)
{
	for (uint64_t i = 0; i < p->elf.sections[section].sh_size; i++) {
		if (cubin_elf_data(&p->elf, section)[i]) {
			return false;
		}
	}
	return true;
}

/* Bytes without a meaning: where sections and segments without bytes begin, and banks of zeros that
 * have zeros for neighbours. */
static bool is_free(const struct pair *p, size_t at)
{
	uint64_t table = p->elf.head.e_shoff;

	for (uint32_t i = 1; i < p->elf.n_sections; i++) {
		uint64_t offset = table + i * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_offset);

		if ((!cubin_elf_in_file(&p->elf, i) || all_zero(p, i)) && at >= offset &&
		    at < offset + 8) {
			return true;
		}
	}
	for (uint32_t i = 0; i < p->elf.n_segments; i++) {
		uint64_t offset = p->elf.head.e_phoff + i * sizeof(Elf64_Phdr) +
				  offsetof(Elf64_Phdr, p_offset);

		if (!p->elf.segments[i].p_filesz && at >= offset && at < offset + 8) {
			return true;
		}
	}
	return false;
}

/* Whether bit `bit` at `at` is one of a stall count in a patched kernel. */
static bool is_stall(const struct pair *p, size_t at, unsigned bit)
{
	for (uint32_t i = 1; i < p->elf.n_sections; i++) {
		const Elf64_Shdr *s = &p->elf.sections[i];

		if (cubin_elf_suffix(&p->elf, i, ".text.") && at >= s->sh_offset &&
		    at < s->sh_offset + s->sh_size) {
			size_t byte = (at - s->sh_offset) % 16;

			/* bits 105-108 */
			return byte == 13 && bit >= 1 && bit <= 4;
		}
	}
	return false;
}

static void finds_changed_bits(const char *name, unsigned arch)
{
	struct pair p = open_pair(name, arch);
	size_t free_bytes = 0, free_stalls = 0;

	assert_int_equal(check(&p, NULL), 0);
	for (size_t at = 0; at < p.result.len; at++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			p.result.data[at] = (char)(p.result.data[at] ^ 1 << bit);
			if (check(&p, NULL) == 0) {
				free_bytes += is_free(&p, at);
				free_stalls += is_stall(&p, at, bit);
				if (!is_free(&p, at) && !is_stall(&p, at, bit)) {
					fail_msg("%s: bit %u at 0x%zx is not checked", name, bit,
						 at);
				}
			}
			p.result.data[at] = (char)(p.result.data[at] ^ 1 << bit);
		}
	}
	print_message("%s: %zu bytes, free: %zu bits of places, %zu of stall counts\n", name,
		      p.result.len, free_bytes, free_stalls);
	/* three instructions of each kernel: branch, displaced instruction, branch back */
	assert_true(free_stalls <= 2 * 3 * 4);
	close_pair(&p);
}

static void finds_each_changed_bit(void **state)
{
	(void)state;
	finds_changed_bits("linked.sm_90", 90);
	finds_changed_bits("lineinfo.sm_75", 75);
	finds_changed_bits("lineinfo.sm_89", 89);
}

static void finds_missing_bytes(void **state)
{
	struct pair p = open_pair("linked.sm_90", 90);

	(void)state;
	while (p.result.len) {
		p.result.len--;
		assert_int_equal(check(&p, NULL), -ENOEXEC);
	}
	close_pair(&p);
}

/* The checker is not satisfied with an unpatched image of another kernel, or the stub's absence. */
static void finds_other_images(void **state)
{
	struct pair p = open_pair("linked.sm_90", 90);
	struct buf other = read_cubin("lineinfo.sm_90");

	(void)state;
	assert_int_equal(
		cubin_check(p.original.data, p.original.len, other.data, other.len, p.stub, NULL),
		-ENOEXEC);
	/* an image without any patched kernel equals its original */
	assert_int_equal(cubin_check(other.data, other.len, other.data, other.len, p.stub, NULL),
			 0);
	close_pair(&p);
	buf_finish(&other);
}

/* One kernel of two is not patched: nothing of it may differ. */
static void checks_kernels_that_were_left_alone(void **state)
{
	struct changed c = open_changed("linked.sm_90");
	struct cubin_stub *s = open_stub(90);
	struct cubin_patched *p;
	struct buf result;
	struct cubin_elf e;
	const void *image;
	uint32_t text;
	size_t bytes;

	(void)state;
	content(&c, ".text.copies")[2] = 2; /* its first instruction is another */
	assert_int_equal(patch(&p, &c.image, s, NULL), 0);
	assert_int_equal(cubin_patched_count(p), 1);
	image = cubin_patched_image(p, &bytes);
	buf_init(&result);
	buf_add(&result, image, bytes);
	assert_int_equal(cubin_elf_open(&e, result.data, result.len, NULL), 0);
	text = section_named(&e, ".text.copies");
	for (size_t at = 0; at < e.sections[text].sh_size; at++) {
		char *byte = result.data + e.sections[text].sh_offset + at;

		*byte = (char)(*byte ^ 1);
		assert_int_equal(
			cubin_check(c.image.data, c.image.len, result.data, result.len, s, NULL),
			-ENOEXEC);
		*byte = (char)(*byte ^ 1);
	}
	cubin_elf_finish(&e);
	cubin_patched_close(p);
	cubin_stub_close(s);
	buf_finish(&result);
	close_changed(&c);
}

/* A stub for another argument or from another compilation is not the one in the image. */
static void finds_another_stub(void **state)
{
	struct pair p = open_pair("lineinfo.sm_80", 80);
	struct cubin_stub *other = open_stub(86);
	struct report r;

	(void)state;
	report_init(&r);
	/* sm_80 and sm_86 differ in no instruction of the gate but its issue counts */
	if (cubin_check(p.original.data, p.original.len, p.result.data, p.result.len, other, &r) <
	    0) {
		assert_non_null(strstr(buf_text(&r.message), "the stub"));
	}
	report_finish(&r);
	cubin_stub_close(other);
	close_pair(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_each_changed_bit),
		cmocka_unit_test(finds_missing_bytes),
		cmocka_unit_test(finds_other_images),
		cmocka_unit_test(checks_kernels_that_were_left_alone),
		cmocka_unit_test(finds_another_stub),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
