/* Sizes of the variables in a PTX text that take device memory when it is loaded: .global and
 * .const, wherever they are declared. Reads the text once, without building a module. */
#ifndef GBPF_PTX_DATA_BYTES_H
#define GBPF_PTX_DATA_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Called for each variable with its size in bytes, not 0; UINT64_MAX if it exceeds 64 bits. */
typedef void ptx_data_fn(void *arg, uint64_t bytes);

/* Reports the variables of a text. A declaration with .extern counts if it states a size: the
 * driver allocates it unless another module is linked. A declaration that is not understood is left
 * out: the driver refuses such a text, or its variable is found when it is measured. Returns 0 or
 * -ENOMEM: some may be missing. */
int ptx_data_bytes(const char *text, size_t len, ptx_data_fn *fn, void *arg);

#endif
