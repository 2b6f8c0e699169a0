/* What the parts of the shim do when the program's modules and contexts end, and in a forked child.
 */
#include "fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include "shim/entry/parts.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/kernel_int.h"
#include "shim/kernel/loaded_image.h"

#define MODULE ((CUmodule)0x4000)
#define LIBRARY ((const void *)0x5000)
#define HUNG_S 20u

static const char name[] = "kernel";
static CUfunction const noted = (CUfunction)0x41000;
static pid_t child;
static int refuses;
static uint64_t id_before, id_meanwhile;

/* The driver is asked for a kernel's name under the lock of the table of kernels. */
static CUresult forks(const char **ret, CUfunction f)
{
	*ret = name;
	child = fork();
	if (child == 0) {
		alarm(HUNG_S); /* ends it if it hangs */
		shim.attached = 0;
		shim_parts_child();
		_exit(cuModuleUnload(MODULE) == CUDA_SUCCESS ? 0 : 1);
	}
	return CUDA_SUCCESS;
}

static void a_forked_child_unloads(void **state)
{
	struct shim_thread *t = shim_thread_self();
	CUresult (*before)(const char **, CUfunction);
	CUcontext ctx;
	int status = -1;

	assert_non_null(t);
	assert_int_equal(shim_real.cuCtxGetCurrent(&ctx), CUDA_SUCCESS); /* loads the driver */
	before = shim_real.cuFuncGetName;
	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
	shim_real.cuFuncGetName = forks;
	assert_non_null(shim_kernel_of(t, noted)->counted);
	shim_real.cuFuncGetName = before;
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* Returns whether the handle's record was forgotten. */
static bool is_forgotten(CUfunction f)
{
	return shim_kernel_noted(NULL, f) == NULL;
}

static bool forgotten_before;

static CUresult unload(CUmodule m)
{
	forgotten_before = is_forgotten(noted);
	return refuses ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

/* Its handles may be reused at once, so they are forgotten before the driver is called, and also if
 * it refuses. */
static void handles_end_with_their_module(void **state)
{
	CUresult (*before)(CUmodule) = shim_real.cuModuleUnload;

	shim_real.cuModuleUnload = unload;
	for (refuses = 0; refuses < 2; refuses++) {
		shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
		assert_false(is_forgotten(noted));
		assert_int_equal(cuModuleUnload(MODULE),
				 refuses ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS);
		assert_true(forgotten_before);
	}
	shim_real.cuModuleUnload = before;
}

/* The driver gives the error. A library's kernel, which has no context, stays known. */
static void no_context_ends(void **state)
{
	const void *kernel = (const void *)0x42000;
	struct shim_end e = shim_parts_context_ending(NULL);
	uint64_t id;

	shim_kernel_note(kernel, name, (const void *)0x5000, SHIM_KERNEL_OF_LIBRARY);
	assert_non_null(shim_clone_get(kernel));
	id = shim_clone_get(kernel)->id;
	shim_parts_context_ended(&e, true);
	assert_int_equal(cuCtxDestroy_v2(NULL), CUDA_SUCCESS);
	assert_true(fixture_find(CUABI_IDX_cuCtxDestroy_v2) >= 0);
	assert_true(shim_clone_get(kernel)->id == id);
}

static CUresult destroy(CUcontext ctx)
{
	/* The records before are forgotten; another thread looks the kernel up meanwhile. */
	assert_true(shim_clone_get(noted)->id > id_before);
	id_meanwhile = shim_clone_get(noted)->id;
	return refuses ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

/* Its functions' handles may be reused with another meaning, also those that are looked up while
 * the driver ends it. */
static void clones_end_with_their_context(void **state)
{
	CUresult (*before)(CUcontext) = shim_real.cuCtxDestroy_v2;
	CUcontext ctx;

	assert_int_equal(shim_real.cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	assert_non_null(ctx);
	shim_real.cuCtxDestroy_v2 = destroy;
	for (refuses = 1; refuses >= 0; refuses--) {
		shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
		id_before = shim_clone_get(noted)->id;
		assert_int_equal(cuCtxDestroy_v2(ctx),
				 refuses ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS);
		assert_int_equal(shim_clone_get(noted)->id == id_meanwhile, refuses);
	}
	shim_real.cuCtxDestroy_v2 = before;
}

static CUfunction asked;

static CUresult is_asked(const char **ret, CUfunction f)
{
	*ret = name;
	asked = f;
	return CUDA_SUCCESS;
}

/* The driver may give it to another kernel, of which the program need not ask for the name. */
static void names_end_with_their_context(void **state)
{
	CUresult (*before)(const char **, CUfunction) = shim_real.cuFuncGetName;
	struct shim_thread *t = shim_thread_self();
	CUcontext ctx;

	assert_int_equal(shim_real.cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
	shim_real.cuFuncGetName = is_asked;
	(void)shim_kernel_of(t, noted);
	asked = NULL;
	(void)shim_kernel_of(t, noted);
	add_acqrel(&shim.kernel_generation, 1u); /* another handle has changed its meaning */
	(void)shim_kernel_of(t, noted);
	assert_null(asked);
	assert_int_equal(cuCtxDestroy_v2(ctx), CUDA_SUCCESS);
	assert_non_null(shim_kernel_of(t, noted)->counted);
	assert_ptr_equal(asked, noted);
	shim_real.cuFuncGetName = before;
}

/* Lazily loaded kernels are asked for while others are launched. */
static void a_new_handle_changes_no_other(void **state)
{
	struct shim_thread *t = shim_thread_self();

	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
	(void)shim_kernel_of(t, noted);
	shim_kernel_note((void *)0x44000, "new", MODULE, SHIM_KERNEL_OF_MODULE);
	assert_non_null(shim_thread_find(t, (uintptr_t)noted));
	(void)shim_kernel_of(t, (void *)0x45000); /* launched before it is asked for */
	shim_kernel_note((void *)0x45000, "late", MODULE, SHIM_KERNEL_OF_MODULE);
	assert_null(shim_thread_find(t, (uintptr_t)0x45000));
	assert_non_null(shim_kernel_of(t, (void *)0x45000)->clone);
}

/* A kernel's record ends with its module. */
static void records_end_with_their_module(void **state)
{
	size_t before;

	(void)cuModuleUnload(MODULE);
	before = shim_kernels.live;
	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
	assert_non_null(shim_clone_get(noted));
	assert_int_equal(shim_kernels.live, before + 1);
	(void)cuModuleUnload(MODULE);
	assert_int_equal(shim_kernels.live, before);
}

static void note_load(const void *owner)
{
	shim_image_note(owner, NULL, NULL, 0, PROTO_BLOCK_NO_PTX);
}

/* The program gets the same handle for another kernel, after an end that was not seen. */
static void a_reused_handle_is_looked_up(void **state)
{
	struct shim_thread *t = shim_thread_self();
	struct shim_clone *old;
	uint64_t id;

	note_load(MODULE);
	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
	(void)shim_kernel_of(t, noted);
	id = shim_clone_get(noted)->id;
	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE); /* asked for again */
	assert_non_null(shim_thread_find(t, (uintptr_t)noted));
	assert_true(shim_clone_get(noted)->id == id);
	assert_false(shim_clone_get(noted)->excluded);
	for (unsigned i = 0; i < 2; i++) { /* of a later load; of another name */
		old = shim_kernel_of(t, noted)->clone;
		note_load(MODULE);
		shim_kernel_note(noted, i ? "other" : name, MODULE, SHIM_KERNEL_OF_MODULE);
		/* a thread that has it yet does not launch it */
		assert_int_equal(old->excluded, SHIM_CLONE_FORMER);
		assert_null(shim_thread_find(t, (uintptr_t)noted));
		assert_true(shim_clone_get(noted)->id > id);
		id = shim_clone_get(noted)->id;
	}
	(void)cuModuleUnload(MODULE);
}

/* The program launches a function of an ended context, which is another one of a new module. */
static void no_clone_is_found_by_the_name_of_an_ended_load(void **state)
{
	CUcontext ctx;

	assert_int_equal(shim_real.cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
	shim_image_note(MODULE, ctx, NULL, 0, PROTO_BLOCK_NO_PTX);
	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
	assert_non_null(shim_clone_get(noted));
	assert_int_equal(cuCtxDestroy_v2(ctx), CUDA_SUCCESS);
	note_load(MODULE);
	assert_null(shim_clone_get(noted));
	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
	assert_non_null(shim_clone_get(noted));
	(void)cuModuleUnload(MODULE);
}

static CUresult (*current)(CUcontext *);
static const void *owner_meanwhile;

/* Another thread gets the handle while a clone is made, which asks for the context. */
static CUresult noted_meanwhile(CUcontext *ret)
{
	shim_real.cuCtxGetCurrent = current;
	if (owner_meanwhile == MODULE) {
		note_load(MODULE);
	}
	shim_kernel_note(noted, name, owner_meanwhile, SHIM_KERNEL_FUNCTION);
	return current(ret);
}

static struct shim_clone *get_while_noted(const void *owner)
{
	owner_meanwhile = owner;
	shim_real.cuCtxGetCurrent = noted_meanwhile;
	return shim_clone_get(noted);
}

/* A function of a library is noted as that of the library and as that of its module. */
static void a_clone_is_of_the_load_it_was_made_for(void **state)
{
	CUcontext ctx;

	assert_int_equal(shim_real.cuCtxGetCurrent(&ctx), CUDA_SUCCESS); /* loads the driver */
	current = shim_real.cuCtxGetCurrent;
	note_load(MODULE);
	note_load(LIBRARY);
	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
	assert_null(get_while_noted(MODULE));
	assert_ptr_equal(shim_real.cuCtxGetCurrent, current);
	assert_non_null(get_while_noted(LIBRARY));
	assert_ptr_equal(shim_real.cuCtxGetCurrent, current);
	(void)cuModuleUnload(MODULE);
	(void)cuLibraryUnload((CUlibrary)(uintptr_t)LIBRARY);
}

static struct shim_clone *of_library;

/* Another thread gets the module, and launches its kernel, while this one gets it. */
static CUresult module_meanwhile(CUcontext *ret)
{
	shim_real.cuCtxGetCurrent = current;
	shim_image_note_module(MODULE, LIBRARY);
	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
	of_library = shim_clone_get(noted);
	return current(ret);
}

/* The module's handle was that of another load, whose end was not seen. */
static void a_former_load_ends_once(void **state)
{
	struct shim_clone *former;
	CUcontext ctx;

	assert_int_equal(shim_real.cuCtxGetCurrent(&ctx), CUDA_SUCCESS); /* loads the driver */
	current = shim_real.cuCtxGetCurrent;
	note_load(LIBRARY);
	note_load(MODULE);
	shim_kernel_note(noted, name, MODULE, SHIM_KERNEL_OF_MODULE);
	former = shim_clone_get(noted);
	shim_real.cuCtxGetCurrent = module_meanwhile;
	shim_image_note_module(MODULE, LIBRARY);
	assert_int_equal(former->excluded, SHIM_CLONE_FORMER);
	assert_non_null(of_library);
	assert_int_equal(of_library->excluded, 0);
	assert_ptr_equal(shim_clone_get(noted), of_library);
	(void)cuLibraryUnload((CUlibrary)(uintptr_t)LIBRARY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_forked_child_unloads, fixture_before),
		cmocka_unit_test_setup(handles_end_with_their_module, fixture_before),
		cmocka_unit_test_setup(no_context_ends, fixture_before),
		cmocka_unit_test_setup(clones_end_with_their_context, fixture_before),
		cmocka_unit_test_setup(names_end_with_their_context, fixture_before),
		cmocka_unit_test_setup(a_new_handle_changes_no_other, fixture_before),
		cmocka_unit_test_setup(records_end_with_their_module, fixture_before),
		cmocka_unit_test_setup(a_reused_handle_is_looked_up, fixture_before),
		cmocka_unit_test_setup(no_clone_is_found_by_the_name_of_an_ended_load,
				       fixture_before),
		cmocka_unit_test_setup(a_clone_is_of_the_load_it_was_made_for, fixture_before),
		cmocka_unit_test_setup(a_former_load_ends_once, fixture_before),
	};

	return cmocka_run_group_tests(tests, fixture_setup, NULL);
}
