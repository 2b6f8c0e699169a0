/* The soft GPU's entries as a driver table. */
#ifndef GBPF_TESTS_GPU_TABLE_H
#define GBPF_TESTS_GPU_TABLE_H

#include "cuabi/table.h"

void table_fill(struct cuabi_table *t);

#endif
