/* Work sections around the driver calls that submit work which may use device memory, or that ask
 * about memory, in a process whose memory can leave the device (policy/read.h has the sections).
 * All calls of that kind are in one, the program's and the shim's own, since they are the functions
 * of shim_driver; except those that are made through shim_work_driver. */
#ifndef GBPF_SHIM_MEM_WORK_H
#define GBPF_SHIM_MEM_WORK_H

#include "cuabi/table.h"

/* The driver's functions, none in a section. Constant after shim_work_install(). */
extern struct cuabi_table shim_work_driver;

/* Generated: those functions of the driver, and what is called in their place. */
struct shim_work {
	unsigned index;
	void *entry;
};
extern const struct shim_work shim_work[];
extern const unsigned shim_work_count;

/* Called once, before cuInit returns. */
void shim_work_install(void);

#endif
