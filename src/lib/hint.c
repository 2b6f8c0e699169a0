/* gbpf_hint: finds the shim in this process, because launches go through it; sends nothing to
 * gbpfd. A program that runs without gBPF pays for the search only. */
#include <dlfcn.h>
#include <errno.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "gbpf/gbpf.h"

typedef int (*hint_fn)(uint64_t in_us, uint64_t deadline_us, int device);

static hint_fn known; /* the shim is never unloaded */

static hint_fn look_in(void *library)
{
	void *at = dlsym(library, "gbpf_shim_hint");
	hint_fn f;

	__builtin_memcpy(&f, &at, sizeof(f)); /* the conversion that POSIX prescribes for dlsym */
	return f;
}

/* Searches the shim as preloaded or linked, and as a libcuda.so.1 that the program opened itself.
 */
static hint_fn find(void)
{
	hint_fn f = look_in(RTLD_DEFAULT);
	void *cuda = f ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

	if (cuda) {
		f = look_in(cuda);
		dlclose(cuda);
	}
	return f;
}

EXPORT int gbpf_hint(uint64_t in_us, uint64_t deadline_us, int device)
{
	hint_fn f = load_acquire(&known);

	if (!f) {
		f = find();
		if (!f) {
			return -ENOENT;
		}
		store_release(&known, f);
	}
	return f(in_us, deadline_us, device);
}
