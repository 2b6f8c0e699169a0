/* Descriptions of the stream-ordered entry points, generated from behaviour.def: how to call the
 * real function, and how to copy a call that must be deferred. */
#ifndef GBPF_SHIM_GATED_CALL_H
#define GBPF_SHIM_GATED_CALL_H

#include "cuabi/api.h"
#include "policy/ctx.h"
#include "shim/shim.h"

#define SHIM_MAX_ARGS 12
#define SHIM_ORDER 255u /* kind of a call that is stream-ordered but no launch */

enum shim_copy_rule {
	SHIM_COPY_WAIT,	 /* cannot be copied: drain the stream, then run it */
	SHIM_COPY_EARLY, /* may overtake deferred calls */
	SHIM_COPY_PLAIN,
	SHIM_COPY_SRC,
	SHIM_COPY_DST,
	SHIM_COPY_UVA,
	SHIM_COPY_DEVICE,
	SHIM_COPY_COPY2D,
	SHIM_COPY_COPY3D,
	SHIM_COPY_ARRAY,
	SHIM_COPY_BATCH,
	SHIM_COPY_RECORD,
	SHIM_COPY_AWAIT,
	SHIM_COPY_KERNEL,
	SHIM_COPY_KERNELEX,
};

struct shim_call {
	CUresult (*run)(const uint64_t *a); /* calls the real function */
	uint16_t index;			    /* CUABI_IDX_* */
	uint8_t nargs;
	int8_t stream;	    /* index of the stream argument; -1: the default stream */
	uint8_t per_thread; /* the default stream is the per-thread one */
	uint8_t blocking;   /* returns when its work is done (sync:*) */
	uint8_t drains;	    /* returns when everything before it in the stream is done, too */
	uint8_t kind;	    /* GBPF_KIND_* or SHIM_ORDER */
	uint8_t copy_rule;  /* enum shim_copy_rule */
	uint8_t copy_arg[2];
};

#endif
