/* The soft GPU's entries as a driver table. */
#include "table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void table_fill(struct cuabi_table *t)
{
	void *lib = dlopen(getenv("SOFTCUDA"), RTLD_NOW | RTLD_LOCAL);
	void **entry = (void **)t;

	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		_Exit(99);
	}
	for (int i = 0; i < CUABI_COUNT; i++) {
		entry[i] = dlsym(lib, cuabi_names[i]);
	}
}
