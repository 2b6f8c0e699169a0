/* Finds and opens the real libcuda and fills the table of its functions, at the first call of any
 * function rather than in a constructor: with LD_PRELOAD the shim is in every child process, and a
 * process that never uses CUDA must not load the driver. Prints one line on stderr if there is no
 * driver, and nothing else; never exits. */
#include "shim/real_driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/real_library.h"
#include "cuabi/names.h"
#include "gpu/control.h"
#include "shim/shim.h"

static struct lock load_mutex = LOCK_INITIALIZER(LOAD);
static TLS_FAST int
	loading; /* set while this thread loads: the library's constructors may call back */
static uint32_t loaded;
static void *library; /* the real libcuda, NULL: none. Constant once loaded is set */

/* The names that the real library has at each address, sorted by address. Constant once loaded is
 * set. */
static struct {
	void *address;
	uint32_t index;
} by_address[CUABI_COUNT];
static unsigned n_by_address;

static CUresult answer_missing(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult answer_no_driver(void)
{
	return CUDA_ERROR_NO_DEVICE;
}

static CUresult answer_not_yet(void)
{
	return CUDA_ERROR_NOT_INITIALIZED;
}

static void *open_real(void)
{
	char why[512];
	void *h = real_library_open("libcuda.so.1", "GBPF_REAL_CUDA",
				    __extension__(void *) shim_resolve, why, sizeof(why));

	if (!h) {
		fprintf(stderr, "gbpf: %s\n", why);
	}
	return h;
}

static int compare_addresses(const void *a, const void *b)
{
	const void *x = *(void *const *)a, *y = *(void *const *)b;

	return (x > y) - (x < y);
}

static void fill(void *real)
{
	void **slots = (void **)&shim_real, **driver = (void **)&shim_driver;

	for (unsigned i = 0; i < CUABI_COUNT; i++) {
		void *f = real ? dlsym(real, cuabi_names[i]) : NULL;
		void *to = f	  ? f
			   : real ? __extension__(void *) answer_missing
				  : __extension__(void *) answer_no_driver;

		if (f && shim_exports[i]) {
			by_address[n_by_address].address = f;
			by_address[n_by_address++].index = i;
		}
		store_release(&driver[i], to);
		store_release(&slots[i], to);
	}
	qsort(by_address, n_by_address, sizeof(by_address[0]), compare_addresses);
}

void *shim_resolve(unsigned index)
{
	void **slots = (void **)&shim_real;

	if (loading) {
		return __extension__(void *) answer_not_yet;
	}
	if (!load_acquire(&loaded)) {
		int saved = errno;
		void *real;

		lock_take(&load_mutex);
		if (!load_relaxed(&loaded)) {
			loading = 1;
			real = open_real();
			if (real) { /* does nothing on the soft GPU, which has no resource manager
				       to observe */
				(void)gpu_learn_install(real);
			}
			fill(real);
			library = real;
			loading = 0;
			store_release(&loaded, 1);
		}
		lock_release(&load_mutex);
		errno = saved;
	}
	return load_acquire(&slots[index]);
}

const void *shim_real_symbol(const char *name)
{
	return load_acquire(&loaded) && library ? dlsym(library, name) : NULL;
}

unsigned shim_real_entries_at(const void *address, unsigned ret_index[SHIM_REAL_ALIASES_MAX])
{
	unsigned lo = 0, hi = n_by_address, n = 0;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if (by_address[mid].address < (void *)(uintptr_t)address) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	while (lo < n_by_address && by_address[lo].address == address &&
	       n < SHIM_REAL_ALIASES_MAX) {
		ret_index[n++] = by_address[lo++].index;
	}
	return n;
}
