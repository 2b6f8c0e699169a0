/* Images as programs pass them, and the options of loading: length, targets, logs. */
#ifndef GBPF_SOFT_CLIENT_MODULE_MODULE_IMAGE_H
#define GBPF_SOFT_CLIENT_MODULE_MODULE_IMAGE_H

#include "soft/client/process.h"

struct soft_image {
	const void *data;
	size_t bytes;
	void *owned;			  /* NULL: data belongs to the program */
	struct soft_registers *registers; /* of kernels from machine code, else NULL; a reference */
};

/* Determines the length of an image that a program passes by pointer, without reading beyond it:
 * text ends with its zero, containers give their size in the header. A list of containers is
 * concatenated. */
CUresult soft_image_open(struct soft_image *ret, const void *p);
CUresult soft_image_read(struct soft_image *ret, const char *path); /* reads a file */
void soft_image_close(struct soft_image *i);

/* Options of loading and linking. Options about code generation have no effect. */
struct soft_jit {
	char *error, *info;
	size_t error_bytes, info_bytes; /* size of the buffers */
	size_t error_len, info_len;	/* bytes written */
	void **error_used, **info_used, **wall_time;
	unsigned target; /* 0: not given */
	bool verbose;
	uint64_t start_ns;
};

CUresult soft_jit_read(struct soft_jit *j, unsigned n, const CUjit_option *options, void **values);
void soft_jit_error(struct soft_jit *j, const char *text); /* appends one line; j may be NULL */
void soft_jit_info(struct soft_jit *j, const char *text);
void soft_jit_finish(
	struct soft_jit *j); /* reports the lengths and the elapsed time to the program */

#endif
