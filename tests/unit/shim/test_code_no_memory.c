/* Machine code without memory: each allocation of a program's calls fails in turn, from loading to
 * unloading, in a process of its own, whose first image this is. A call returns the driver's
 * "out of memory", or does what it should: an image is loaded patched or as it is, and a launch
 * passes the stub's argument exactly if the image is patched. With memory again all goes, and what
 * was allocated is freed. */
#include "code_rig.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "shim/code/shim_code.h"

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *p);
void __wrap_free(void *p);

static int left = -1; /* allocations that succeed; -1: all */
static bool all;      /* all behind that one fail, too */
static int live;      /* allocations that were not freed */
static int *failed;   /* shared: whether an allocation has failed */

static bool fails(void)
{
	bool now = left == 0;

	left -= left > 0 || (now && !all);
	*failed |= now;
	return now;
}

static void *counted(void *p)
{
	live += p != NULL;
	return p;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : counted(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *p, size_t bytes)
{
	if (fails()) {
		return NULL;
	}
	return p ? __real_realloc(p, bytes) : counted(__real_realloc(p, bytes));
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : counted(__real_strdup(s));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
	return fails() ? NULL : counted(__real_aligned_alloc(alignment, bytes));
}

void __wrap_free(void *p)
{
	live -= p != NULL;
	__real_free(p);
}

/* ---- the program ---- */

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);  \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static int loaded;	     /* modules and libraries that the driver has */
static bool keep_patched[2]; /* the module, the library: loaded from a patched image */

static CUresult count_load(bool library, const void *image)
{
	keep_patched[library] = image != rig_image;
	loaded++;
	return CUDA_SUCCESS;
}

static CUresult load_module(CUmodule *ret, const void *image, unsigned n, CUjit_option *options,
			    void **values)
{
	*ret = RIG_MODULE;
	return count_load(false, image);
}

static CUresult load_plain(CUmodule *ret, const void *image)
{
	return load_module(ret, image, 0, NULL, NULL);
}

static CUresult load_library(CUlibrary *ret, const void *image, CUjit_option *jit, void **values,
			     unsigned n, CUlibraryOption *options, void **option_values,
			     unsigned n_options)
{
	*ret = RIG_LIBRARY;
	return count_load(true, image);
}

static CUresult unload_module(CUmodule m)
{
	loaded--;
	return CUDA_SUCCESS;
}

static CUresult unload_library(CUlibrary l)
{
	loaded--;
	return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *ret, CUmodule m, const char *name)
{
	*ret = strcmp(name, "many") == 0 ? RIG_MANY : RIG_TWO;
	return CUDA_SUCCESS;
}

static CUresult get_kernel(CUkernel *ret, CUlibrary l, const char *name)
{
	*ret = RIG_KERNEL;
	return CUDA_SUCCESS;
}

static CUresult get_module(CUmodule *ret, CUlibrary l)
{
	*ret = RIG_OTHER_MODULE;
	return CUDA_SUCCESS;
}

static void lead(struct cuabi_table *t)
{
	t->cuModuleLoadData = load_plain;
	t->cuModuleLoadDataEx = load_module;
	t->cuLibraryLoadData = load_library;
	t->cuModuleUnload = unload_module;
	t->cuLibraryUnload = unload_library;
	t->cuModuleGetFunction = get_function;
	t->cuLibraryGetKernel = get_kernel;
	t->cuLibraryGetModule = get_module;
}

/* Returns whether the call was made; else it must have been for want of memory. */
static bool went(CUresult r)
{
	CHECK(r == CUDA_SUCCESS || (*failed && r == CUDA_ERROR_OUT_OF_MEMORY));
	return r == CUDA_SUCCESS;
}

/* With room behind them: the rig reads the 64 bytes of the stub's argument also where none is
 * passed.
 */
static uint32_t values[152 + 16];
static void *params[152];

static void check_launch(CUresult r, unsigned before, bool with_stub)
{
	if (went(r)) {
		CHECK(rig_seen.calls == before + 1);
		CHECK(rig_seen.zero == with_stub);
	} else {
		CHECK(rig_seen.calls == before);
	}
}

static void launch(CUfunction f, bool with_stub)
{
	unsigned before = rig_seen.calls;

	check_launch(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), before, with_stub);
}

static void add_node(CUfunction f, bool with_stub)
{
	CUDA_KERNEL_NODE_PARAMS p = { .func = f, .kernelParams = params };
	unsigned before = rig_seen.calls;
	CUgraphNode node;

	p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
	check_launch(cuGraphAddKernelNode_v2(&node, (CUgraph)&node, NULL, 0, &p), before,
		     with_stub);
}

/* A buffer of more bytes than a launch has room for. */
static void launch_from_buffer(CUfunction f, bool with_stub)
{
	static unsigned char bytes[8192];
	size_t n = sizeof(bytes);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
			  CU_LAUNCH_PARAM_END };
	unsigned before = rig_seen.calls;

	if (went(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra))) {
		CHECK(rig_seen.extra_bytes == n + (with_stub ? 64 : 0));
	} else {
		CHECK(rig_seen.calls == before);
	}
}

static void use_module(void)
{
	CUfunction two = NULL, many = NULL;
	CUmodule m = NULL;

	if (!went(cuModuleLoadData(&m, rig_image))) {
		return;
	}
	CHECK(m == RIG_MODULE);
	CHECK(shim_code_owns(m) == keep_patched[0]);
	CHECK(went(cuModuleGetFunction(&two, m, "two")));
	CHECK(went(cuModuleGetFunction(&many, m, "many")));
	launch(two, keep_patched[0]);
	launch(many, keep_patched[0]);
	add_node(two, keep_patched[0]);
	add_node(many, keep_patched[0]);
	launch_from_buffer(two, keep_patched[0]);
	launch(RIG_NONE, keep_patched[0]); /* its handle is found by its name */
	CHECK(went(cuModuleUnload(m)));
}

static void use_library(void)
{
	CUfunction f = NULL;
	CUlibrary l = NULL;
	CUkernel k = NULL;
	CUmodule m = NULL;

	if (!went(cuLibraryLoadData(&l, rig_image, NULL, NULL, 0, NULL, NULL, 0))) {
		return;
	}
	CHECK(went(cuLibraryGetKernel(&k, l, "two")));
	launch((CUfunction)(void *)k, keep_patched[1]);
	CHECK(went(cuLibraryGetModule(&m, l)));
	if (keep_patched[1] && went(cuKernelGetFunction(&f, k))) {
		launch(f, true);
	}
	CHECK(went(cuLibraryUnload(l)));
}

static void use(void)
{
	use_module();
	use_library();
	CHECK(loaded == 0);
}

static bool fresh; /* each start finds an empty cache */
static char folder[] = "/tmp/gbpf-code-memory-XXXXXX";

static int count_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	CHECK(d);
	while (readdir(d)) {
		n++;
	}
	closedir(d);
	return n;
}

static bool has_mapping(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	bool found = false;
	char line[1024];

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		found |= strstr(line, folder) != NULL;
	}
	fclose(f);
	return found;
}

/* Returns the allocations that remain when nothing is loaded, from the second time on. */
static int rest(void)
{
	int first, files;

	use();
	first = live;
	files = count_files();
	use();
	CHECK(live == first);
	CHECK(count_files() == files);
	CHECK(all || !has_mapping());
	return live;
}

static int *whole_rest; /* shared: what remains of a program that had memory */

/* The nth allocation of the process's first use fails, and then that of a later one. */
static void program(int n)
{
	int now;

	lead(&shim_driver);
	lead((struct cuabi_table *)(void *)&shim_real); /* no other thread runs */
	live = 0;
	*failed = 0;
	left = n;
	use();
	left = -1;
	now = rest();
	if (n < 0) {
		CHECK(keep_patched[0] && keep_patched[1]);
		*whole_rest = now;
		return;
	}
	/* A library stays if its kernels had to be recognized by their parameters. */
	CHECK(all || now <= *whole_rest);
	left = n;
	use();
	left = -1;
	now = rest();
	CHECK(all || now <= *whole_rest);
}

static void empty_folder(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	char name[512];

	assert_non_null(d);
	while ((e = readdir(d)) != NULL) {
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    unlink(name) < 0) {
			empty_folder(name);
			assert_int_equal(rmdir(name), 0);
		}
	}
	closedir(d);
}

/* Returns whether an allocation has failed. */
static bool start(int n)
{
	int status = -1;
	pid_t child;

	if (fresh) {
		empty_folder(folder);
	}
	child = fork();

	if (child == 0) {
		program(n);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (status) {
		fail_msg("allocation %d%s: status %#x", n, all ? " and all behind it" : "", status);
	}
	return *failed;
}

static void each_in_turn(void)
{
	int n = 0;

	*whole_rest = 0;
	(void)start(-1);
	while (start(n)) {
		n++;
	}
	print_message("%d allocations%s\n", n, all ? ", and all behind each" : "");
	assert_true(n > 50);
}

/* ---- */

static void one_allocation_fails(void **state)
{
	all = false;
	each_in_turn();
}

static void no_memory_from_some_point_on(void **state)
{
	all = true;
	each_in_turn();
}

static void with_cache(void)
{
	setenv("GBPF_CACHE_DIR", folder, 1);
	setenv("GBPF_CACHE_MIN_KB", "0", 1);
	setenv("GBPF_CACHE", "on", 1);
	for (int i = 0; i < 2; i++) {
		all = i;
		each_in_turn();
	}
	setenv("GBPF_CACHE", "off", 1);
	empty_folder(folder);
}

/* The first start fills the cache, the others read it. */
static void a_full_cache(void **state)
{
	fresh = false;
	with_cache();
}

/* Each start fills it. */
static void an_empty_cache(void **state)
{
	fresh = true;
	with_cache();
	fresh = false;
}

static int setup(void **state)
{
	int *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (words == MAP_FAILED) {
		return -1;
	}
	failed = &words[0];
	whole_rest = &words[1];
	for (unsigned i = 0; i < ARRAY_SIZE(params); i++) {
		params[i] = &values[MIN(i, ARRAY_SIZE(values) - 1)];
	}
	memset(values, 0xff, sizeof(values));
	return mkdtemp(folder) ? rig_setup(state) : -1;
}

static int teardown(void **state)
{
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(one_allocation_fails, rig_before),
		cmocka_unit_test_setup(no_memory_from_some_point_on, rig_before),
		cmocka_unit_test_setup(a_full_cache, rig_before),
		cmocka_unit_test_setup(an_empty_cache, rig_before),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
