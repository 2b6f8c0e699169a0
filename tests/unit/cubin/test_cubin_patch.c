/* Kernels of all forms and architectures are patched, and the facts about them are right. Figures
 * were read from the compiler's listings, not from the program that is tested. */
#include "cubin_files.h"

#include <errno.h>

#include "cubin/cubin_insn_int.h"

static const struct {
	const char *name;
	unsigned arch;
	size_t kernels;
} files[] = {
	{ "kernels.sm_75", 75, 16 },   { "kernels.sm_80", 80, 16 },   { "kernels.sm_90", 90, 16 },
	{ "kernels.sm_100", 100, 16 }, { "kernels.sm_120", 120, 16 }, { "hopper.sm_90a", 90, 5 },
	{ "hopper.sm_100a", 100, 5 },  { "debug.sm_90", 90, 2 },      { "debug.sm_120", 120, 2 },
	{ "lineinfo.sm_75", 75, 2 },   { "lineinfo.sm_80", 80, 2 },   { "lineinfo.sm_86", 86, 2 },
	{ "lineinfo.sm_89", 89, 2 },   { "lineinfo.sm_90", 90, 2 },   { "lineinfo.sm_100", 100, 2 },
	{ "lineinfo.sm_103", 103, 2 }, { "lineinfo.sm_120", 120, 2 }, { "linked.sm_90", 90, 2 },
};

static void patches_all_files(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct cubin_stub *s = open_stub(files[i].arch);
		struct buf b = read_cubin(files[i].name);
		struct cubin_patched *p;
		size_t bytes, again;

		print_message("%s\n", files[i].name);
		assert_int_equal(cubin_arch(b.data, b.len), files[i].arch);
		assert_int_equal(patch(&p, &b, s, NULL), 0);
		assert_int_equal(cubin_patched_kernels(p), files[i].kernels);
		assert_int_equal(cubin_patched_count(p), files[i].kernels);
		assert_non_null(cubin_patched_image(p, &bytes));
		assert_int_equal(cubin_bytes(cubin_patched_image(p, &bytes), 1u << 20, &again), 0);
		assert_int_equal(again, bytes);
		cubin_patched_close(p);
		cubin_stub_close(s);
		buf_finish(&b);
	}
}

/* The older conventions, at which registers and barriers are in other places. */
static void patches_the_older_abi(void **state)
{
	static const char *const names[] = { "kernels.sm_75", "kernels.sm_80", "kernels.sm_90" };
	static const unsigned archs[] = { 75, 80, 90 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct changed c = open_changed(names[i]);
		struct cubin_stub *s = open_stub(archs[i]);
		struct cubin_patched *p;
		struct cubin_elf e;
		const void *image;
		uint32_t text;
		size_t bytes;

		make_old_abi(&c);
		assert_int_equal(cubin_arch(c.image.data, c.image.len), archs[i]);
		assert_int_equal(patch(&p, &c.image, s, NULL), 0);
		assert_int_equal(cubin_patched_count(p), 16);
		assert_int_equal(cubin_patched_find(p, "shared_memory")->barriers, 1);
		assert_int_equal(cubin_patched_find(p, "loops")->barriers, 0);
		image = cubin_patched_image(p, &bytes);
		assert_int_equal(cubin_elf_open(&e, image, bytes, NULL), 0);
		text = section_named(&e, ".text.loops");
		assert_int_equal(e.sections[text].sh_flags >> 20 & 0x7f, 1);
		assert_int_equal(e.sections[text].sh_info >> 24,
				 cubin_patched_find(p, "loops")->patched_registers);
		text = section_named(&e, ".text.named_barriers");
		assert_int_equal(e.sections[text].sh_flags >> 20 & 0x7f, 6);
		cubin_elf_finish(&e);
		cubin_patched_close(p);
		cubin_stub_close(s);
		close_changed(&c);
	}
}

static void reads_parameters(void **state)
{
	struct cubin_stub *s = open_stub(90);
	struct buf b = read_cubin("kernels.sm_90");
	const struct cubin_kernel *k;
	struct cubin_patched *p;

	(void)state;
	assert_int_equal(patch(&p, &b, s, NULL), 0);
	k = cubin_patched_find(p, "odd_params"); /* char, short, char, long long, char */
	assert_int_equal(k->n_params, 5);
	assert_int_equal(k->params[1].offset, 2);
	assert_int_equal(k->params[1].bytes, 2);
	assert_int_equal(k->params[3].offset, 8);
	assert_int_equal(k->params[3].bytes, 8);
	assert_int_equal(k->params[4].offset, 16);
	assert_int_equal(k->params[4].bytes, 1);
	assert_int_equal(k->param_bytes, 17);
	assert_int_equal(k->arg_offset, 24);
	k = cubin_patched_find(p, "no_params");
	assert_int_equal(k->n_params, 0);
	assert_int_equal(k->arg_offset, 0);
	k = cubin_patched_find(p, "large_param");
	assert_int_equal(k->params[0].bytes, 3600);
	assert_int_equal(k->arg_offset, 3608);
	k = cubin_patched_find(p, "many_params");
	assert_int_equal(k->n_params, 33);
	assert_int_equal(k->params[32].offset, 128);
	k = cubin_patched_find(p, "many_registers");
	assert_int_equal(k->registers, 254);
	assert_int_equal(k->patched_registers, 254);
	assert_int_equal(k->max_threads, 128);
	k = cubin_patched_find(p, "loops");
	assert_int_equal(k->registers, 6);
	assert_int_equal(k->patched_registers, 22); /* the stub's */
	assert_int_equal(cubin_patched_find(p, "named_barriers")->barriers, 6);
	assert_true(cubin_patched_find(p, "prints")->system_calls);
	assert_false(cubin_patched_find(p, "loops")->system_calls);
	assert_true(cubin_patched_find(p, "function_pointers")->indirect);
	assert_true(cubin_patched_find(p, "votes")->group_insns);
	assert_false(cubin_patched_find(p, "two_params")->indirect);
	assert_null(cubin_patched_find(p, "missing"));
	cubin_patched_close(p);
	cubin_stub_close(s);
	buf_finish(&b);
}

static void reads_facts_of_hopper(void **state)
{
	struct cubin_stub *s = open_stub(90);
	struct buf b = read_cubin("hopper.sm_90a");
	const struct cubin_kernel *k;
	struct cubin_patched *p;

	(void)state;
	assert_int_equal(patch(&p, &b, s, NULL), 0);
	k = cubin_patched_find(p, "cluster");
	assert_true(k->explicit_cluster);
	assert_int_equal(k->cluster[0], 2);
	assert_int_equal(k->cluster[1], 1);
	assert_int_equal(k->cluster[2], 1);
	k = cubin_patched_find(p, "cluster_limit");
	assert_int_equal(k->max_cluster_rank, 4);
	assert_int_equal(k->cluster[0], 0);
	assert_int_equal(k->max_threads, 256);
	k = cubin_patched_find(p, "sets_registers");
	assert_true(k->sets_registers);
	assert_int_equal(k->registers, 168);
	assert_true(cubin_patched_find(p, "waits_for_launch")->waits_for_launch);
	assert_false(cubin_patched_find(p, "waits_for_launch")->triggers_launch);
	assert_true(cubin_patched_find(p, "triggers_launch")->triggers_launch);
	assert_false(cubin_patched_find(p, "cluster")->waits_for_launch);
	cubin_patched_close(p);
	cubin_stub_close(s);
	buf_finish(&b);
}

/* The same code in images of different tools has one hash; the name counts, too. */
static void hashes_code(void **state)
{
	struct cubin_stub *s = open_stub(90);
	struct buf a = read_cubin("lineinfo.sm_90"), b = read_cubin("linked.sm_90");
	struct cubin_patched *p, *q;

	(void)state;
	assert_int_equal(patch(&p, &a, s, NULL), 0);
	assert_int_equal(patch(&q, &b, s, NULL), 0);
	assert_true(cubin_patched_find(p, "copies")->code_hash ==
		    cubin_patched_find(q, "copies")->code_hash);
	assert_true(cubin_patched_find(p, "copies")->code_hash != 0);
	assert_true(cubin_patched_find(p, "steps")->code_hash !=
		    cubin_patched_find(q, "steps")->code_hash);
	cubin_patched_close(p);
	cubin_patched_close(q);
	cubin_stub_close(s);
	buf_finish(&a);
	buf_finish(&b);
}

static void keeps_kernels_without_the_image(void **state)
{
	struct cubin_stub *s = open_stub(80);
	struct buf b = read_cubin("kernels.sm_80");
	struct cubin_patched *p;
	size_t bytes;

	(void)state;
	assert_int_equal(patch(&p, &b, s, NULL), 0);
	buf_finish(&b);
	cubin_stub_close(s);
	cubin_patched_drop_image(p);
	assert_null(cubin_patched_image(p, &bytes));
	assert_int_equal(bytes, 0);
	assert_true(cubin_patched_find(p, cubin_patched_kernel(p, 15)->name) ==
		    cubin_patched_kernel(p, 15));
	assert_int_equal(cubin_patched_find(p, "two_params")->params[1].offset, 8);
	assert_null(cubin_patched_kernel(p, 16));
	cubin_patched_close(p);
}

/* What a tool that removed sections from cuBLAS' images left behind: relocations that concern no
 * code and name another symbol table, empty ones, and sections at odd offsets. */
static void patches_pruned_images(void **state)
{
	struct changed c = open_changed("kernels.sm_90");
	struct cubin_stub *s = open_stub(90);
	uint32_t moved = section_named(&c.elf, ".text.loops"), stale = 0;
	struct cubin_patched *p;
	Elf64_Shdr h;

	(void)state;
	for (uint32_t i = 1; i < c.elf.n_sections; i++) {
		uint8_t *at = (uint8_t *)c.image.data + c.elf.head.e_shoff + i * sizeof(h);

		memcpy(&h, at, sizeof(h));
		if (cubin_elf_is_reloc(&c.elf, i) && strstr(cubin_elf_name(&c.elf, i), "debug")) {
			h.sh_link = 1;
			stale++;
		} else if (i == moved) {
			h.sh_addralign = 4096; /* its offset is no multiple of that */
			assert_int_not_equal(h.sh_offset % 4096, 0);
		}
		memcpy(at, &h, sizeof(h));
	}
	assert_int_not_equal(stale, 0);
	assert_int_equal(patch(&p, &c.image, s, NULL), 0);
	assert_int_equal(cubin_patched_count(p), cubin_patched_kernels(p));
	cubin_patched_close(p);
	cubin_stub_close(s);
	close_changed(&c);
}

static void patches_only_once(void **state)
{
	struct cubin_stub *s = open_stub(90);
	struct buf b = read_cubin("kernels.sm_90"), again = { 0 };
	struct cubin_patched *p, *q;
	const void *image;
	size_t bytes;

	(void)state;
	assert_int_equal(patch(&p, &b, s, NULL), 0);
	image = cubin_patched_image(p, &bytes);
	buf_add(&again, image, bytes);
	assert_int_equal(patch(&q, &again, s, NULL), -ENOENT);
	assert_int_equal(cubin_patched_count(q), 0);
	assert_int_equal(cubin_patched_find(q, "loops")->why, CUBIN_FIRST_INSN);
	assert_null(cubin_patched_image(q, &bytes));
	cubin_patched_close(p);
	cubin_patched_close(q);
	cubin_stub_close(s);
	buf_finish(&b);
	buf_finish(&again);
}

/* As ptxas encodes them: forward and back, in both encodings. */
static void encodes_branches(void **state)
{
	struct cubin_insn i;

	(void)state;
	i = cubin_insn_bra(75, 0x360);
	assert_true(i.lo == 0x0000036000007947);
	assert_true((i.hi & 0xffffffff) == 0x03800000);
	i = cubin_insn_bra(86, -16);
	assert_true(i.lo == 0xfffffff000007947);
	assert_true((i.hi & 0xffffffff) == 0x0383ffff);
	i = cubin_insn_bra(90, 0x1f0);
	assert_true(i.lo == 0x00000000007c7947);
	i = cubin_insn_bra(90, 0x5c0);
	assert_true(i.lo == 0x0000000400707947);
	i = cubin_insn_bra(120, -16);
	assert_true(i.lo == 0xfffffffc00fc7947);
	assert_true((i.hi & 0xffffffff) == 0x0383ffff);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patches_all_files),
		cmocka_unit_test(patches_the_older_abi),
		cmocka_unit_test(reads_parameters),
		cmocka_unit_test(reads_facts_of_hopper),
		cmocka_unit_test(hashes_code),
		cmocka_unit_test(keeps_kernels_without_the_image),
		cmocka_unit_test(patches_pruned_images),
		cmocka_unit_test(patches_only_once),
		cmocka_unit_test(encodes_branches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
