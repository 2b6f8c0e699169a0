/* Charges for the variables of modules and libraries, whose sizes are known before the driver is
 * called (shim/mem/image_data.h). */
#ifndef GBPF_SHIM_MEM_IMAGE_CHARGE_H
#define GBPF_SHIM_MEM_IMAGE_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"

/* Charges the variables of one image in one context. Of all images on a row together, whole units
 * are charged: the rest of less than a unit is part of what is measured. Waits for memory as
 * shim_mem_charge(), with may_wait false not at all; the caller may hold mutexes then. Returns
 * false if the limit is exceeded: nothing is charged. *ret_charged: what was added to the account,
 * may be NULL. */
bool shim_mem_image_charge(int row, uint64_t bytes, const char *call, bool may_wait,
			   uint64_t *ret_charged);
void shim_mem_image_release(int row, uint64_t bytes);

/* The slots of modules.c. */
void shim_mem_install_modules(void);
void shim_mem_modules_context_ended(CUcontext ctx, uint64_t epoch);

#endif
