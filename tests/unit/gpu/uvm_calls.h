/* Calls of the unified memory driver and of the resource manager that map and free memory, as a
 * driver library makes them. */
#ifndef GBPF_TESTS_GPU_UVM_CALLS_H
#define GBPF_TESTS_GPU_UVM_CALLS_H

#include <stdint.h>

#define UVM_MAP 33u
#define UVM_FREE 34u
#define UVM_UNMAP 66u

struct uvm_map {
	uint64_t base, bytes, offset;
	uint8_t attributes[256][36];
	uint64_t n_attributes;
	int32_t fd;
	uint32_t client, memory, status;
};

struct uvm_unmap { /* a free has no `bytes` */
	uint64_t base, bytes;
	uint8_t rest[24];
};

/* Maps an object for the GPU. Returns what the call returns. */
int uvm_map(int uvm, uint64_t base, uint64_t bytes, int control, uint32_t client, uint32_t memory);
int uvm_free(int uvm, uint64_t base);
int uvm_unmap(int uvm, uint64_t base, uint64_t bytes);
/* Frees an object of the resource manager, which must exist. */
void rm_free(int control, uint32_t client, uint32_t object);

#endif
