/* Launches of the test engine on a GPU of the driver API, in the place of the soft GPU's engine. */
#ifndef GBPF_TESTS_BPF_GPU_ENGINE_H
#define GBPF_TESTS_BPF_GPU_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../exec/engine.h"

/* Returns whether launches are to run on a GPU: GBPF_TEST_GPU names a libcuda.so.1. The library is
 * loaded and a context created by the first call; the test program ends if that fails. */
bool gpu_engine(void);

/* Returns the device address of the window, which is as large as the engine's. */
uint64_t gpu_engine_base(void);

/* Loads PTX text, which ends with a NUL. Returns a module; fails the test with the driver's log. */
void *gpu_engine_load(const char *text);

/* Copies the window of e to the GPU, runs the kernel to its end and copies the window back. params
 * has param_bytes bytes. Fails the test if the driver reports an error. */
void gpu_engine_launch(struct engine *e, void *module, const struct engine_launch *l,
		       size_t param_bytes);

void gpu_engine_unload(void *module);

#endif
