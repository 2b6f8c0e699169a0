/* The map KERNEL_PLACES of a tool, as gbpf.bpf.h declares it: the loader refuses one of another
 * shape. The process that runs the tool writes it (shim/probe/probe_places.c). */
#ifndef GBPF_BPF_RUN_KERNEL_PLACES_H
#define GBPF_BPF_RUN_KERNEL_PLACES_H

#include <stdint.h>

#define EBPF_KERNEL_PLACES "KERNEL_PLACES"
#define EBPF_KERNEL_PLACES_MAX 16384u /* entries */

struct ebpf_kernel_place {
	uint64_t kernel; /* hash of the kernel's name; 0: the entry is free */
	uint32_t hook, site, line, reserved;
	char name[128];
	char file[232];
};

#endif
