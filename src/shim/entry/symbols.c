/* cuGetProcAddress. The real function selects the variant that the program means (version, flags,
 * per-thread default stream) and returns the address of an exported function. If the shim handles
 * that function, the program gets the shim's address. */
#include <string.h>

#include "cuabi/api.h"
#include "cuabi/lookup.h"
#include "shim/real_driver.h"
#include "shim/shim.h"

/* Returns true if the exported name is a variant of the requested one: equal, or followed by _v2,
 * _ptsz ... */
static bool is_variant(const char *exported, const char *asked)
{
	size_t len = strlen(asked);

	return strncmp(exported, asked, len) == 0 && (exported[len] == 0 || exported[len] == '_');
}

/* Returns the shim's entry for a real function. If several exported names share its address (a
 * driver that does not distinguish its variants, or returns one function for whatever it lacks),
 * the requested name decides, then the version, because arguments differ between names. */
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
