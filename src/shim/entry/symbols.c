/* cuGetProcAddress: the real one decides which variant a program means (version, flags, the
 * thread's default stream); its answer is the address of an exported function, and where that
 * function is ours to handle the program gets ours. */
#include <string.h>

#include "cuabi/api.h"
#include "cuabi/lookup.h"
#include "shim/real_driver.h"
#include "shim/shim.h"

/* True when the exported name is a variant of the name that was asked for: the same, or with _v2,
 * _ptsz ... behind it. */
static bool is_variant(const char *exported, const char *asked)
{
	size_t len = strlen(asked);

	return strncmp(exported, asked, len) == 0 && (exported[len] == 0 || exported[len] == '_');
}

/* Where several exported names share one address (a driver that does not tell its variants apart,
 * or answers what it lacks by one function), the name that was asked for decides, then the version:
 * the arguments differ between names. */
static void *entry_for(void *real, const char *asked, int version, uint64_t flags)
{
	unsigned same[SHIM_REAL_ALIASES_MAX], n = shim_real_entries_at(real, same), fits = 0;
	int exact = cuabi_resolve(asked, version, flags), last = -1;

	for (unsigned i = 0; i < n; i++) {
		if ((int)same[i] == exact) {
			return shim_exports[exact];
		}
		if (is_variant(cuabi_names[same[i]], asked)) {
			last = (int)same[i];
			fits++;
		}
	}
	return fits == 1 ? shim_exports[last] : real;
}

CUresult cuGetProcAddress(const char *name, void **ret, int version, uint64_t flags)
{
	CUresult r = shim_real.cuGetProcAddress(name, ret, version, flags);

	if (r == CUDA_SUCCESS && name && ret && *ret) {
		*ret = entry_for(*ret, name, version, flags);
	}
	return r;
}

CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	CUresult r = shim_real.cuGetProcAddress_v2(name, ret, version, flags, status);

	if (r == CUDA_SUCCESS && name && ret && *ret) {
		*ret = entry_for(*ret, name, version, flags);
	}
	return r;
}
