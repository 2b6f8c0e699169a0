/* A loaded module of brackets; for probe_brackets.c and probe_around.c. */
#ifndef GBPF_SHIM_PROBE_PROBE_BRACKETS_H
#define GBPF_SHIM_PROBE_PROBE_BRACKETS_H

#include "base/buf.h"
#include "cuabi/types.h"
#include "ptx/probe_bracket.h"

struct shim_probe_bracket {
	struct shim_probe_bracket *next;
	uint32_t refs; /* forms that have it, or will; shim_probe_build_mutex */
	CUcontext ctx;
	struct buf text;
	uint32_t n; /* programs */
	uint64_t envs[PTX_PROBES_MAX];
	struct ptx_bracket_parts parts;
	void *image; /* owned; machine code */
	size_t image_bytes;
	CUmodule module;       /* NULL: not loaded yet */
	CUfunction begin, end; /* NULL: it has none */
};

#endif
