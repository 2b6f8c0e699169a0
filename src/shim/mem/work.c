/* Puts driver calls into work sections (shim/mem/work.h). */
#include "shim/mem/work.h"

#include "shim/shim.h"

struct cuabi_table shim_work_driver;

void shim_work_prepare(void)
{
	shim_work_driver = shim_driver;
}

void shim_work_install(void)
{
	void **driver = (void **)&shim_driver, **real = (void **)&shim_real;

	shim_work_prepare();
	for (unsigned i = 0; i < shim_work_count; i++) {
		unsigned k = shim_work[i].index;

		if (load_relaxed(&real[k]) == driver[k]) {
			store_release(&real[k], shim_work[i].entry);
		}
		store_release(&driver[k], shim_work[i].entry);
	}
}
