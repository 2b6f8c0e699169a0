/* The memory that the driver of script.h gives out. */
#ifndef GBPF_TESTS_GPU_SCRIPT_INT_H
#define GBPF_TESTS_GPU_SCRIPT_INT_H

#include "script.h"

void *script_allocate(size_t bytes);
CUresult script_release(void *p); /* fails the test if p is not allocated */
void script_release_all(void);

#endif
