/* Binary search in the sorted names of the driver API. The versions of a function are adjacent:
 * name, name_v2, ... */
#include "cuabi/lookup.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LAST_VERSION_SUFFIX 4

static const struct {
	CUresult value;
	const char *name, *text;
} results[] = {
#define CUABI_RESULT(name, value, text) { name, #name, text },
#include "cuabi/results.def"
#undef CUABI_RESULT
};

static CUresult answer_missing(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

void cuabi_table_load(struct cuabi_table *t, void *library)
{
	void **entry = (void **)t;

	for (unsigned i = 0; i < CUABI_COUNT; i++) {
		void *f = dlsym(library, cuabi_names[i]);

		entry[i] = f ? f : __extension__(void *) answer_missing;
	}
}

int cuabi_index(const char *name)
{
	int lo = 0, hi = CUABI_COUNT - 1;

	while (lo <= hi) {
		int mid = (lo + hi) / 2;
		int c = strcmp(name, cuabi_names[mid]);

		if (c == 0) {
			return mid;
		}
		if (c < 0) {
			hi = mid - 1;
		} else {
			lo = mid + 1;
		}
	}
	return -1;
}

/* Returns the index of the newest variant among name, name_v2, ... with that ending; -1: none, -2:
 * all are too new. */
static int newest(const char *name, const char *ending, uint32_t version)
{
	int best = -1, too_new = 0;
	uint32_t best_since = 0;

	for (int v = 1; v <= LAST_VERSION_SUFFIX; v++) {
		char full[96];
		int i;

		if (v == 1) {
			snprintf(full, sizeof(full), "%s%s", name, ending);
		} else {
			snprintf(full, sizeof(full), "%s_v%d%s", name, v, ending);
		}
		i = cuabi_index(full);
		if (i < 0) {
			continue;
		}
		if (cuabi_gates[i].since > version) {
			too_new = 1;
		} else if (best < 0 || cuabi_gates[i].since >= best_since) {
			best = i;
			best_since = cuabi_gates[i].since;
		}
	}
	return best >= 0 ? best : too_new ? -2 : -1;
}

int cuabi_resolve(const char *name, int version, uint64_t flags)
{
	int i = -1;

	if (strlen(name) > 80 || version < 0) {
		return -1;
	}
	if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
		i = newest(name, "_ptsz", (uint32_t)version);
		if (i < 0) {
			i = newest(name, "_ptds", (uint32_t)version);
		}
	}
	return i >= 0 ? i : newest(name, "", (uint32_t)version);
}

const char *cuabi_result_name(CUresult r)
{
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		if (results[i].value == r) {
			return results[i].name;
		}
	}
	return NULL;
}

const char *cuabi_result_text(CUresult r)
{
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		if (results[i].value == r) {
			return results[i].text;
		}
	}
	return NULL;
}
