/* Finds and opens the driver's libnvidia-ml and fills nvml_slots, at the first call of any
 * function: a program that loads this library and calls nothing must not load the driver's. Prints
 * nothing, since programs try NVML on machines without it; never exits. */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/lock.h"
#include "base/real_library.h"
#include "nvml/nvml_calls.h"

static const char *const names[NVML_COUNT] = { NVML_NAMES };

static struct lock mutex = LOCK_INITIALIZER(NVML);
static uint32_t loaded;	 /* [atomic] */
static char reason[512]; /* there is no library. Constant once loaded is set */

static enum nvml_return answer_missing(void)
{
	return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static enum nvml_return answer_no_library(void)
{
	return NVML_ERROR_LIBRARY_NOT_FOUND;
}

static void load(void)
{
	void *self = __extension__(void *) nvml_resolve;
	void *real = real_library_open("libnvidia-ml.so.1", "GBPF_REAL_NVML", self, reason,
				       sizeof(reason));

	for (unsigned i = 0; i < NVML_COUNT; i++) {
		void *f = real ? dlsym(real, names[i]) : NULL;

		store_release(&nvml_slots[i], f	     ? f
					      : real ? __extension__(void *) answer_missing
						     : __extension__(void *) answer_no_library);
	}
}

void *nvml_resolve(unsigned index)
{
	if (!load_acquire(&loaded)) {
		int saved = errno;

		lock_take(&mutex);
		if (!load_relaxed(&loaded)) {
			load();
			store_release(&loaded, 1u);
		}
		lock_release(&mutex);
		errno = saved;
	}
	return load_acquire(&nvml_slots[index]);
}

/* The one function that returns a text: where the driver has none, the reason. */
EXPORT const char *nvmlErrorString(enum nvml_return r)
{
	void *f = nvml_resolve(NVML_INDEX_nvmlErrorString);

	if (f != __extension__(void *) answer_missing && f != __extension__(void *)
									 answer_no_library) {
		return NVML_REAL(nvmlErrorString)(r);
	}
	switch (r) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_ERROR_LIBRARY_NOT_FOUND:
		return reason;
	case NVML_ERROR_FUNCTION_NOT_FOUND:
		return "the driver's libnvidia-ml lacks this function";
	default:
		return "Unknown Error";
	}
}
