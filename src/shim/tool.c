/* How tools are recognized: by what NVIDIA documents, and by the variables that its tools set for
 * the programs that they start. A debugger that attaches later finds the images that were loaded
 * before as they are. */
#include "shim/tool.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "shim/real_driver.h"

extern char **environ;

/* Variables of libcuda that a debugger (cuda-gdb, or any client of cudadebugger.h) sets in the
 * process: it is ready to attach; its process id; its engine runs. */
static bool is_debugged(void)
{
	static const char *const names[] = { "cudbgIpcFlag", "cudbgApiClientPid",
					     "cudbgDebuggerInitialized" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const volatile unsigned char *flag = shim_real_symbol(names[i]);

		if (flag && *flag) {
			return true;
		}
	}
	return false;
}

/* The driver loads this library in cuInit: compute-sanitizer, Nsight Compute, NVBit and others. A
 * path that names no file, such as "none", is ignored by it. */
static bool is_injected(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	void *h;

	if (!path || !*path) {
		return false;
	}
	if (access(path, R_OK) == 0) {
		return true;
	}
	h = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	if (h) {
		dlclose(h);
	}
	return h != NULL;
}

/* An error of the device stops for a debugger, or leaves a core for one. */
static bool keeps_errors(void)
{
	static const char *const names[] = { "CUDA_DEVICE_WAITS_ON_EXCEPTION",
					     "CUDA_ENABLE_COREDUMP_ON_EXCEPTION" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *v = getenv(names[i]);

		if (v && *v && strcmp(v, "0") != 0) {
			return true;
		}
	}
	return false;
}

/* Beginnings of variables that compute-sanitizer and Nsight Compute set for their targets. */
static bool has_variable(void)
{
	static const char *const begins[] = { "NV_SANITIZER_INJECTION_", "NV_NSIGHT_INJECTION_",
					      "NV_COMPUTE_PROFILER_" };

	for (char **e = environ; e && *e; e++) {
		for (size_t i = 0; i < ARRAY_SIZE(begins); i++) {
			if (strncmp(*e, begins[i], strlen(begins[i])) == 0) {
				return true;
			}
		}
	}
	return false;
}

bool shim_tool_attached(void)
{
	return is_debugged() || is_injected() || keeps_errors() || has_variable();
}
