/* Modules: loading, and lookup of functions and variables. */
#ifndef GBPF_SOFT_CLIENT_MODULE_MODULE_LOAD_H
#define GBPF_SOFT_CLIENT_MODULE_MODULE_LOAD_H

#include "soft/client/process.h"

struct soft_image;
struct soft_jit;

/* On failure the log gives the reason. */
CUresult soft_module_load(CUcontext ctx, const char *name, const struct soft_image *i,
			  struct soft_jit *j, CUmodule *ret);
CUresult soft_module_unload(CUmodule m);
CUresult soft_module_function(CUmodule m, const char *name, CUfunction *ret);
/* *ret_name: that of the function at index, which the caller frees, or NULL if there is none;
 * *ret_n: number of functions. */
CUresult soft_module_function_at(CUmodule m, uint32_t index, uint32_t *ret_n, char **ret_name);
CUresult soft_module_global(CUmodule m, const char *name, CUdeviceptr *ret, size_t *ret_bytes);

#endif
