/* Images that were damaged or made to harm: each is refused or patched, without reading outside of
 * it, hanging, or taking memory without bound. Run it under a sanitizer to see more. */
#include "cubin_files.h"

#include <errno.h>
#include <sys/resource.h>

/* Patches a copy that ends where its memory ends, so that sanitizers see what is read behind it. */
static int patch_exact(const void *data, size_t bytes, const struct cubin_stub *s)
{
	void *copy = malloc(bytes ? bytes : 1);
	struct cubin_patched *p = NULL;
	struct report r;
	int err;

	assert_non_null(copy);
	memcpy(copy, data, bytes);
	report_init(&r);
	err = cubin_patch(&p, copy, bytes, s, &r);
	if (err == -ENOEXEC) {
		assert_true(r.message.len > 0);
		if (!strncmp(buf_text(&r.message), "check:", 6)) {
			fail_msg("%s", buf_text(&r.message));
		}
	}
	assert_true(err == 0 || err == -ENOEXEC || err == -ENOENT);
	cubin_patched_close(p);
	report_finish(&r);
	free(copy);
	return err;
}

static void survives_truncation_at_each_byte(void **state)
{
	static const char *const names[] = { "linked.sm_90", "lineinfo.sm_120", "lineinfo.sm_75" };
	static const unsigned archs[] = { 90, 120, 75 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct buf b = read_cubin(names[i]);
		struct cubin_stub *s = open_stub(archs[i]);
		size_t bytes;

		for (size_t n = 0; n < b.len; n++) {
			assert_int_equal(patch_exact(b.data, n, s), -ENOEXEC);
			if (n < b.len && cubin_bytes(b.data, n, &bytes) == 0) {
				assert_true(bytes <= n);
			}
		}
		assert_int_equal(patch_exact(b.data, b.len, s), 0);
		cubin_stub_close(s);
		buf_finish(&b);
	}
}

/* Each number of 16, 32 and 64 bits becomes an extreme. */
static void survives_extreme_numbers(void **state)
{
	static const uint64_t extremes[] = { 0,
					     1,
					     0x7fffffff,
					     0x80000000,
					     0xffffffff,
					     0x7fffffffffffffff,
					     0x8000000000000000,
					     0xffffffffffffffff,
					     0xfffffffffffffff0 };
	struct buf b = read_cubin("linked.sm_90");
	struct cubin_stub *s = open_stub(90);

	(void)state;
	for (size_t bytes = 2; bytes <= 8; bytes *= 2) {
		for (size_t at = 0; at + bytes <= b.len; at += bytes) {
			char kept[8];

			memcpy(kept, b.data + at, bytes);
			for (size_t i = 0; i < ARRAY_SIZE(extremes); i++) {
				memcpy(b.data + at, &extremes[i], bytes);
				patch_exact(b.data, b.len, s);
			}
			memcpy(b.data + at, kept, bytes);
		}
	}
	cubin_stub_close(s);
	buf_finish(&b);
}

/* Appends one section header and returns the image's new count of them. */
static void add_header(struct buf *b, const Elf64_Shdr *s)
{
	buf_add(b, s, sizeof(*s));
}

/* Many sections with the same bytes, names or attributes: the work must not be their product. */
static void build_many(struct buf *b, uint32_t type, size_t shared_bytes, size_t name_bytes,
		       size_t n)
{
	Elf64_Ehdr h = { 0 };
	Elf64_Shdr null = { 0 }, s = { 0 };
	size_t names_at = sizeof(h), data_at = ROUND_UP(names_at + name_bytes + 1, 16u);

	memcpy(h.e_ident, ELFMAG, SELFMAG);
	h.e_ident[EI_CLASS] = ELFCLASS64;
	h.e_ident[EI_DATA] = ELFDATA2LSB;
	h.e_ident[EI_VERSION] = EV_CURRENT;
	h.e_ident[EI_OSABI] = 0x41;
	h.e_ident[EI_ABIVERSION] = CUBIN_ABI_NEW;
	h.e_type = ET_EXEC;
	h.e_machine = CUBIN_MACHINE;
	h.e_flags = 0x6005a04;
	h.e_ehsize = sizeof(h);
	h.e_shentsize = sizeof(s);
	h.e_shnum = (uint16_t)(n + 3);
	h.e_shstrndx = 1;
	h.e_shoff = ROUND_UP(data_at + shared_bytes, 16u);
	buf_init(b);
	buf_add(b, &h, sizeof(h));
	buf_puts(b, ".text.");
	while (b->len < names_at + name_bytes) {
		buf_puts(b, "x");
	}
	while (b->len < h.e_shoff) {
		buf_add(b, "", 1);
	}
	add_header(b, &null);
	s.sh_type = SHT_STRTAB;
	s.sh_offset = names_at;
	s.sh_size = name_bytes + 1;
	add_header(b, &s);
	s.sh_type = SHT_SYMTAB;
	s.sh_entsize = sizeof(Elf64_Sym);
	s.sh_link = 1;
	s.sh_offset = data_at;
	s.sh_size = shared_bytes / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
	add_header(b, &s);
	s.sh_type = type;
	s.sh_size = shared_bytes;
	for (size_t i = 0; i < n; i++) {
		add_header(b, &s);
	}
}

static void bounds_the_work_for_shared_bytes(void **state)
{
	static const uint32_t types[] = { SHT_PROGBITS, CUBIN_TYPE_INFO, SHT_RELA,
					  SHT_REL,	SHT_NOBITS,	 SHT_STRTAB };
	struct cubin_stub *s = open_stub(90);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		struct rusage from, to;
		struct buf b;

		build_many(&b, types[i], 1u << 20, 1u << 20, 60000);
		getrusage(RUSAGE_SELF, &from);
		patch_exact(b.data, b.len, s);
		getrusage(RUSAGE_SELF, &to);
		/* the product would take minutes; sanitizers are slow */
		assert_true(to.ru_utime.tv_sec - from.ru_utime.tv_sec < 20);
		buf_finish(&b);
	}
	cubin_stub_close(s);
}

/* Tables that lie upon each other, links that form a circle. */
static void survives_overlaps_and_circles(void **state)
{
	struct buf b = read_cubin("linked.sm_90");
	struct cubin_stub *s = open_stub(90);
	Elf64_Ehdr h;

	(void)state;
	memcpy(&h, b.data, sizeof(h));
	for (unsigned i = 1; i < h.e_shnum; i++) {
		for (unsigned q = 0; q < h.e_shnum; q++) {
			char *at = b.data + h.e_shoff + i * sizeof(Elf64_Shdr);
			const char *from = b.data + h.e_shoff + q * sizeof(Elf64_Shdr);
			Elf64_Shdr kept, x, y;

			memcpy(&kept, at, sizeof(kept));
			memcpy(&y, from, sizeof(y));
			x = kept;
			x.sh_offset = y.sh_offset;
			memcpy(at, &x, sizeof(x));
			patch_exact(b.data, b.len, s);
			x.sh_size = y.sh_size;
			memcpy(at, &x, sizeof(x));
			patch_exact(b.data, b.len, s);
			x = kept;
			x.sh_link = q;
			x.sh_info = i;
			memcpy(at, &x, sizeof(x));
			patch_exact(b.data, b.len, s);
			x = kept;
			x.sh_name = y.sh_name;
			memcpy(at, &x, sizeof(x));
			patch_exact(b.data, b.len, s);
			memcpy(at, &kept, sizeof(kept));
		}
	}
	cubin_stub_close(s);
	buf_finish(&b);
}

/* A stub's compilation that was cut off or changed is refused with a reason. */
static void survives_damaged_stubs(void **state)
{
	struct buf a = read_cubin("gate_64.sm_90"), b = read_cubin("gate_1024.sm_90");

	(void)state;
	for (size_t at = 0; at < a.len; at++) {
		struct cubin_stub *s = NULL;
		struct report r;

		report_init(&r);
		a.data[at] = (char)~a.data[at];
		if (cubin_stub_open(&s, a.data, a.len, 64, b.data, b.len, 1024, "gbpf_stub", 64,
				    &r) < 0) {
			assert_true(r.message.len > 0);
		}
		a.data[at] = (char)~a.data[at];
		cubin_stub_close(s);
		report_finish(&r);
		s = NULL;
		assert_int_equal(cubin_stub_open(&s, a.data, at, 64, b.data, b.len, 1024,
						 "gbpf_stub", 64, NULL),
				 -ENOEXEC);
	}
	buf_finish(&a);
	buf_finish(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survives_truncation_at_each_byte),
		cmocka_unit_test(survives_extreme_numbers),
		cmocka_unit_test(bounds_the_work_for_shared_bytes),
		cmocka_unit_test(survives_overlaps_and_circles),
		cmocka_unit_test(survives_damaged_stubs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
