/* Which of an image's PTX gets clones, and is kept for probes: that which the driver executes. */
#include "code_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ptx/fatbin_make.h"
#include "shim/kernel/loaded_image.h"

/* A kernel named after its target. */
static void add_ptx(struct buf *b, unsigned arch, const char *suffix)
{
	char text[256];

	snprintf(text, sizeof(text),
		 ".version 8.0\n.target sm_%u%s\n.address_size 64\n"
		 ".visible .entry on_sm_%u%s(.param .u64 p)\n{\n\tret;\n}\n",
		 arch, suffix, arch, suffix);
	make_entry(b, PTX_FATBIN_PTX, arch, text, strlen(text), 0);
}

/* ---- what is kept ---- */

/* Machine code for sm_90, or sm_90a with flags, and PTX. */
static void code_and(struct buf *b, uint64_t flags, unsigned arch, const char *suffix)
{
	size_t at = make_begin(b), entry;

	entry = make_entry(b, PTX_FATBIN_CUBIN, 90, rig_image, rig_image_bytes, 0);
	make_put(b, entry + 40, &flags, sizeof(flags));
	add_ptx(b, arch, suffix);
	make_end(b, at);
}

/* Machine code for the device, 9.0, and PTX. */
static void native_and(struct buf *b, unsigned arch)
{
	code_and(b, 0, arch, "");
}

/* Loads the image and asserts that PTX is kept, or for which reason it is not. */
static void assert_kept(const struct buf *b, const char *reason)
{
	struct shim_kept_reason why;
	struct shim_kept_image *k;
	struct shim_code_kept *code;
	CUmodule m = RIG_MODULE;
	struct buf text;

	assert_int_equal(cuModuleLoadData(&m, b->data), CUDA_SUCCESS);
	k = shim_image_kept(m, &why);
	code = shim_image_code(m);
	if (reason) {
		buf_init(&text);
		shim_kept_why_print(&why, &text);
		assert_null(k);
		assert_non_null(code);
		assert_string_equal(buf_text(&text), reason);
		buf_finish(&text);
	} else {
		assert_non_null(k);
		assert_null(code);
	}
	shim_kept_unref(k);
	shim_image_code_unref(code);
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
}

#define OLDER "its machine code for sm_90 runs, and its PTX is for sm_80"

static void older_ptx_is_not_kept_where_machine_code_runs(void **state)
{
	struct buf b = { 0 };

	native_and(&b, 80);
	assert_kept(&b, OLDER);
	double_block_wanted = false;
	assert_kept(&b, OLDER);
	buf_finish(&b);
}

/* Of sm_90a and sm_90 only one executes what is for 9.0 alone. Loads with and without clones. */
static void ptx_of_other_features_is_not_kept_where_machine_code_runs(void **state)
{
	static const struct {
		uint64_t flags;
		const char *suffix, *reason;
	} cases[] = {
		{ PTX_FATBIN_ARCH_SPECIFIC, "",
		  "its machine code for sm_90a runs, and its PTX is for sm_90" },
		{ 0, "a", "its machine code for sm_90 runs, and its PTX is for sm_90a" },
		{ PTX_FATBIN_ARCH_SPECIFIC, "a", NULL },
	};

	for (unsigned i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
		struct buf b = { 0 };

		double_block_wanted = i % 2 == 0;
		code_and(&b, cases[i / 2].flags, 90, cases[i / 2].suffix);
		assert_kept(&b, cases[i / 2].reason);
		buf_finish(&b);
	}
}

/* The text has something to prepare: a variable that a body declares. It takes the place of code
 * only if it may not be of other source. */
static void ptx_of_other_features_is_not_prepared(void **state)
{
	for (unsigned arch = 80; arch <= 90; arch += 10) {
		struct buf b = { 0 };
		size_t at = make_begin(&b);
		char text[256];

		snprintf(text, sizeof(text),
			 ".version 8.0\n.target sm_%u\n.address_size 64\n"
			 ".visible .entry k(.param .u64 p)\n{\n\t.global .u32 x;\n"
			 "\tst.global.u32 [x], 1;\n\tret;\n}\n",
			 arch);
		make_entry(&b, PTX_FATBIN_CUBIN, 90, rig_image, rig_image_bytes, 0);
		make_entry(&b, PTX_FATBIN_PTX, arch, text, strlen(text), 0);
		make_end(&b, at);
		setenv("GBPF_PROBES", "1", 1);
		assert_kept(&b, arch == 80 ? OLDER : NULL);
		unsetenv("GBPF_PROBES");
		buf_finish(&b);
	}
}

static void ptx_that_was_loaded_in_place_of_machine_code_is_kept(void **state)
{
	struct buf b = { 0 };

	native_and(&b, 80);
	setenv("GBPF_BLOCK", "1", 1);
	assert_kept(&b, NULL);
	buf_finish(&b);
}

static void ptx_of_the_same_major_architecture_is_kept(void **state)
{
	struct buf b = { 0 };

	native_and(&b, 90);
	double_block_wanted = false;
	assert_kept(&b, NULL);
	buf_finish(&b);
}

/* The source may differ also between minor numbers, for which such PTX is kept all the same. */
static void ptx_is_exact_unless_other_code_runs(void **state)
{
	static const struct {
		unsigned code, text;
		bool exact;
	} cases[] = { { 86, 80, false }, { 86, 86, true }, { 0, 80, true } };
	struct ptx_device device = { .arch = 86 };

	for (unsigned i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
		bool rewritten = i % 2;
		struct shim_kept_reason why;
		struct shim_kept_image *k;
		struct buf b = { 0 };
		size_t at = make_begin(&b);

		if (cases[i / 2].code) {
			make_entry(&b, PTX_FATBIN_CUBIN, cases[i / 2].code, rig_image,
				   rig_image_bytes, 0);
		}
		add_ptx(&b, cases[i / 2].text, "");
		make_end(&b, at);
		k = shim_kept_open(b.data, b.len, device, rewritten, &why);
		assert_non_null(k);
		assert_int_equal(shim_kept_is_exact(k), rewritten || cases[i / 2].exact);
		shim_kept_unref(k);
		buf_finish(&b);
	}
}

/* ---- for which device ---- */

static CUdevice own;			       /* of the current context */
static int majors[] = { 8, 9, 10 }, n_devices; /* compute capabilities */

static CUresult device_count(int *ret)
{
	*ret = n_devices;
	return CUDA_SUCCESS;
}

static CUresult context_device(CUdevice *ret)
{
	*ret = own;
	return CUDA_SUCCESS;
}

static CUresult device_attribute(int *ret, CUdevice_attribute what, CUdevice d)
{
	*ret = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? majors[d] : 0;
	return CUDA_SUCCESS;
}

/* PTX for 8.0 and 9.0. */
static void two_texts(struct buf *b)
{
	size_t at = make_begin(b);

	add_ptx(b, 80, "");
	add_ptx(b, 90, "");
	make_end(b, at);
}

static int on_unlike_devices(void **state)
{
	shim_driver.cuDeviceGetCount = device_count;
	shim_driver.cuCtxGetDevice = context_device;
	shim_driver.cuDeviceGetAttribute = device_attribute;
	n_devices = 2;
	majors[0] = 8;
	majors[1] = 9;
	own = 0;
	return rig_before(state);
}

/* Asserts that what the driver was given by the last load has the kernel's clone. */
static void assert_cloned(const char *kernel)
{
	int at = fixture_find(CUABI_IDX_cuModuleLoadDataEx);
	char name[64];

	snprintf(name, sizeof(name), "%s" PTX_BLOCK_SUFFIX "(", kernel);
	assert_true(at >= 0);
	assert_non_null(strstr((const char *)(uintptr_t)fake->get((unsigned)at).a[1], name));
	fake->reset();
}

static void a_module_is_chosen_for_the_device_of_its_context(void **state)
{
	struct buf b = { 0 };
	CUmodule m = RIG_MODULE;

	two_texts(&b);
	for (own = 1; own >= 0; own--) {
		assert_int_equal(cuModuleLoadData(&m, b.data), CUDA_SUCCESS);
		assert_cloned(own ? "on_sm_90" : "on_sm_80");
		assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
		fake->reset();
	}
	buf_finish(&b);
}

/* The driver chooses other PTX for each of them. */
static void a_library_for_unlike_devices_is_loaded_as_it_is(void **state)
{
	const struct ptx_block_entry *e;
	struct shim_kept_reason why;
	CUlibrary l = RIG_LIBRARY;
	struct buf b = { 0 };
	int at;

	two_texts(&b);
	assert_int_equal(cuLibraryLoadData(&l, b.data, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	at = fixture_find(CUABI_IDX_cuLibraryLoadData);
	assert_int_equal(fake->get((unsigned)at).a[1], (uintptr_t)b.data);
	assert_int_equal(shim_image_entry(l, "on_sm_80", &e), PROTO_BLOCK_NO_CONTEXT);
	assert_null(shim_image_kept(l, &why));
	assert_int_equal(why.why, SHIM_KEPT_UNLIKE);
	assert_int_equal(cuLibraryUnload(l), CUDA_SUCCESS);
	fake->reset();
	majors[0] = 9;
	assert_int_equal(cuLibraryLoadData(&l, b.data, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	at = fixture_find(CUABI_IDX_cuLibraryLoadData);
	assert_int_not_equal(fake->get((unsigned)at).a[1], (uintptr_t)b.data);
	assert_int_equal(cuLibraryUnload(l), CUDA_SUCCESS);
	buf_finish(&b);
}

/* Loads a library and returns true if clones were loaded in its place, and the text was kept. */
static bool has_clones(const void *image)
{
	struct shim_kept_reason why;
	struct shim_kept_image *k;
	CUlibrary l = RIG_LIBRARY;
	bool cloned;
	int at;

	fake->reset();
	assert_int_equal(cuLibraryLoadData(&l, image, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	at = fixture_find(CUABI_IDX_cuLibraryLoadData);
	assert_true(at >= 0);
	cloned = fake->get((unsigned)at).a[1] != (uintptr_t)image;
	k = shim_image_kept(l, &why);
	assert_int_equal(k != NULL, cloned);
	shim_kept_unref(k);
	assert_int_equal(cuLibraryUnload(l), CUDA_SUCCESS);
	return cloned;
}

static void a_library_of_which_unlike_devices_execute_the_same_ptx_has_clones(void **state)
{
	struct buf b = { 0 };
	size_t at = make_begin(&b);

	add_ptx(&b, 80, "");
	make_end(&b, at);
	assert_true(has_clones(b.data));
	n_devices = 3;
	assert_true(has_clones(b.data));
	add_ptx(&b, 100, ""); /* of the third device alone */
	make_end(&b, at);
	assert_false(has_clones(b.data));
	n_devices = 2;
	assert_true(has_clones(b.data));
	make_entry(&b, PTX_FATBIN_CUBIN, 90, rig_image, rig_image_bytes, 0);
	make_end(&b, at);
	assert_false(has_clones(b.data));
	majors[0] = 9;
	majors[1] = 8;
	assert_false(has_clones(b.data));
	b.len = at;
	at = make_begin(&b);
	add_ptx(&b, 90, ""); /* one of them executes none */
	make_end(&b, at);
	assert_false(has_clones(b.data));
	buf_finish(&b);
}

static void a_single_text_that_unlike_devices_execute_has_clones(void **state)
{
	static const char all[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
				  ".visible .entry k(.param .u64 p) { ret; }\n";
	static const char one[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
				  ".visible .entry k(.param .u64 p) { ret; }\n";

	assert_true(has_clones(all));
	assert_false(has_clones(one));
}

/* The clone and what is kept for probes are of the PTX that CU_JIT_TARGET asks for. */
static void the_target_that_is_asked_for_counts(void **state)
{
	static const uintptr_t targets[] = { 80, 89, 90, 0x1005a };
	CUjit_option option = CU_JIT_TARGET;
	struct shim_kept_reason why;
	struct buf b = { 0 };
	CUmodule m = RIG_MODULE;

	two_texts(&b);
	own = 1;
	for (unsigned i = 0; i < ARRAY_SIZE(targets); i++) {
		const char *kernel = i < 2 ? "on_sm_80" : "on_sm_90";
		void *value = (void *)targets[i];
		struct shim_kept_image *k;
		size_t bytes;
		char *text;

		assert_int_equal(cuModuleLoadDataEx(&m, b.data, 1, &option, &value), CUDA_SUCCESS);
		assert_cloned(kernel);
		k = shim_image_kept(m, &why);
		text = k ? shim_kept_text(k, &bytes) : NULL;
		assert_non_null(text);
		assert_non_null(strstr(text, kernel));
		free(text);
		shim_kept_unref(k);
		assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
		fake->reset();
	}
	buf_finish(&b);
}

/* Loads a module for the target, 0: without the option. Returns what the driver was given. */
static uintptr_t load_for(CUmodule *m, const void *image, uintptr_t target)
{
	CUjit_option option = CU_JIT_TARGET;
	void *value = (void *)target;
	int at;

	fake->reset();
	assert_int_equal(cuModuleLoadDataEx(m, image, target != 0, &option, &value), CUDA_SUCCESS);
	at = fixture_find(CUABI_IDX_cuModuleLoadDataEx);
	assert_true(at >= 0);
	return (uintptr_t)fake->get((unsigned)at).a[1];
}

/* For an older target the driver may take other parts of the image, such as PTX whose kernels have
 * no clones. */
static void machine_code_is_not_patched_for_an_older_target(void **state)
{
	static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
				   ".entry k() { griddepcontrol.wait; ret; }\n";
	struct buf b = { 0 };
	size_t at = make_begin(&b);
	const struct ptx_block_entry *e;
	CUmodule m = RIG_MODULE;

	own = 1;
	make_entry(&b, PTX_FATBIN_CUBIN, 90, rig_image, rig_image_bytes, 0);
	make_end(&b, at);
	for (unsigned with_ptx = 0; with_ptx < 2; with_ptx++) {
		assert_int_not_equal(load_for(&m, b.data, 0), (uintptr_t)b.data);
		assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
		assert_int_not_equal(load_for(&m, b.data, 90), (uintptr_t)b.data);
		assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
		assert_int_equal(load_for(&m, b.data, 80), (uintptr_t)b.data);
		assert_int_equal(shim_image_entry(m, "k", &e),
				 with_ptx ? PROTO_BLOCK_DEPENDENT : PROTO_BLOCK_CODE);
		assert_null(shim_image_code(m));
		assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
		make_entry(&b, PTX_FATBIN_PTX, 80, text, strlen(text), 0);
		make_end(&b, at);
	}
	buf_finish(&b);
}

#define TEST(f) cmocka_unit_test_setup(f, rig_before)
#define TEST_UNLIKE(f) cmocka_unit_test_setup(f, on_unlike_devices)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(older_ptx_is_not_kept_where_machine_code_runs),
		TEST(ptx_of_other_features_is_not_kept_where_machine_code_runs),
		TEST(ptx_of_other_features_is_not_prepared),
		TEST(ptx_that_was_loaded_in_place_of_machine_code_is_kept),
		TEST(ptx_of_the_same_major_architecture_is_kept),
		TEST(ptx_is_exact_unless_other_code_runs),
		/* from here on with two devices */
		TEST_UNLIKE(a_module_is_chosen_for_the_device_of_its_context),
		TEST_UNLIKE(a_library_for_unlike_devices_is_loaded_as_it_is),
		TEST_UNLIKE(a_library_of_which_unlike_devices_execute_the_same_ptx_has_clones),
		TEST_UNLIKE(a_single_text_that_unlike_devices_execute_has_clones),
		TEST_UNLIKE(the_target_that_is_asked_for_counts),
		TEST_UNLIKE(machine_code_is_not_patched_for_an_older_target),
	};

	return cmocka_run_group_tests_name("choice of images", tests, rig_setup, NULL);
}
