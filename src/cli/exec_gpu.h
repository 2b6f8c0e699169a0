/* Runs a raw program's PTX on a GPU, for `gbpf policy exec --ptx`. */
#ifndef GBPF_CLI_EXEC_GPU_H
#define GBPF_CLI_EXEC_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

/* Compiles the program and runs it with one thread through this libcuda, in a child process with a
 * timeout. Changes to mem are kept if the program succeeds. Returns 0 with *ret_r0, or -errno with
 * the report, as ebpf_exec_raw(); -ENODEV: the GPU or its library cannot be used. */
int cli_exec_gpu(const char *libcuda, const struct buf *insns, struct buf *mem, uint64_t *ret_r0,
		 struct report *r);

#endif
