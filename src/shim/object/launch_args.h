/* The parameters of a launch: those that the program passes in a buffer, and all of them with one
 * more behind, the argument of an entry stub or the launch's number. */
#ifndef GBPF_SHIM_OBJECT_LAUNCH_ARGS_H
#define GBPF_SHIM_OBJECT_LAUNCH_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "cuabi/types.h"

#define SHIM_EXTRA_LIST 5u /* entries of a list with a buffer */

/* A buffer of parameters, the program's. */
struct shim_param_buffer {
	const void *at; /* NULL: there is none */
	size_t bytes;
};

/* Finds the buffer in a launch's `extra`, which is not NULL. Returns false for a list that the
 * driver should judge: one with unknown entries, with more than it has a use for, or with a size
 * and no buffer. *ret then has what precedes that. */
bool shim_param_buffer(void **extra, struct shim_param_buffer *ret);
/* Fills the list with a buffer; the list refers to *bytes. */
void shim_param_buffer_list(void *list[SHIM_EXTRA_LIST], const void *at, size_t *bytes);

/* The added parameter, and where the program's own lie. */
struct shim_added_arg {
	uint32_t n_params; /* the program's own; it follows them */
	uint32_t end;	   /* bytes of these in the buffer */
	uint32_t offset;   /* of it in the buffer */
	uint32_t bytes;
	const void *value; /* borrowed */
};

struct shim_launch_args {
	void **params, **extra; /* for the driver */
	void *heap;		/* owned; NULL: the room below suffices */
	void *list[SHIM_EXTRA_LIST];
	size_t bytes;
	void *pointers[129];
	unsigned char buffer[4096 + 64] ALIGNED(16);
};

/* Fills a with the program's parameters, and the added one. CUDA_SUCCESS, or what the launch must
 * return. Takes no lock and does not allocate, except for kernels with more parameters than there
 * is room for. */
CUresult shim_launch_args_open(struct shim_launch_args *a, const struct shim_added_arg *added,
			       void **params, void **extra);
void shim_launch_args_close(struct shim_launch_args *a);

#endif
