/* One registered fat binary and its library. */
#ifndef GBPF_CUDART_RT_IMAGE_H
#define GBPF_CUDART_RT_IMAGE_H

#include <stdbool.h>

#include "cudart/rt_types.h"

struct cudart_image {
	const void *wrapper;	   /* the program's; its first word identifies it */
	CUlibrary library;	   /* NULL: not loaded */
	cudaError_t error;	   /* why it could not be loaded */
	struct cudart_item *items; /* its kernels and variables; owned */
};

/* A kernel or a variable. The strings are the program's. */
struct cudart_item {
	struct cudart_item *next;
	struct cudart_image *image;
	const void *host;
	const char *name;
	CUkernel kernel; /* of a kernel that was used */
	void **managed;	 /* of a managed variable: the program's pointer to it */
	bool is_kernel;
};

/* Loads the image unless it is. Caller holds the registry's lock, and has called cudart_enter. */
cudaError_t cudart_image_load(struct cudart_image *i);

/* Unloads the library, if any. */
void cudart_image_unload(struct cudart_image *i);

#endif
