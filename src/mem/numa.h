/* NUMA nodes of the host, for copies: a helper of a copy runs on the CPUs of the node next to the
 * device, and pinned pieces are allocated there. Must not change the affinity or the memory policy
 * of the program's threads beyond a call. Not for the launch path: reads files of sysfs. */
#ifndef GBPF_MEM_NUMA_H
#define GBPF_MEM_NUMA_H

#include <sched.h>
#include <stdbool.h>

#include "base/compiler.h"

#define MEM_NUMA_SYSFS "/sys"
#define MEM_NUMA_NODES_MAX 1024u /* Linux's own limit */

/* The node next to a device. */
struct mem_numa {
	int node; /* negative: none, or it makes no difference */
	cpu_set_t cpus;
};

#define MEM_NUMA_NONE ((struct mem_numa){ .node = -1 })

/* Parses a list of numbers as sysfs has them ("0-3,8-11", with or without a newline at its end).
 * Ranges may overlap. Returns false if it is anything else, empty, or has a number of CPU_SETSIZE
 * or more; *ret is unchanged then. */
bool mem_numa_parse(const char *text, cpu_set_t *ret);
/* Returns the node of a PCI device by the sysfs mounted at that folder, negative if it has none. */
int mem_numa_of_pci(const char *sysfs, unsigned domain, unsigned bus, unsigned device);
/* Returns that node with its CPUs by the sysfs mounted at that folder. None, if the machine has a
 * single node, the node is unknown or has no CPU, or the calling thread may run on none of them. */
struct mem_numa mem_numa_find(const char *sysfs, int node);

/* ---- where a helper runs ---- */

struct mem_numa_place {
	int node;	/* of the latest job; negative: none */
	cpu_set_t home; /* the helper's own affinity; set while node is not negative */
};

/* As mem_numa_move(), of another node than the place's. */
void mem_numa_move_far(struct mem_numa_place *place, const struct mem_numa *to);

/* Restricts the calling helper to the CPUs of a node as far as its own affinity contains any of
 * them. NULL or none: gives it back its own affinity. A refusal of the system is ignored. */
static inline void mem_numa_move(struct mem_numa_place *place, const struct mem_numa *to)
{
	if (unlikely((to ? MAX(to->node, -1) : -1) != place->node)) {
		mem_numa_move_far(place, to);
	}
}

/* ---- where memory is allocated ---- */

struct mem_numa_policy {
	bool replaced;
	int mode;
	unsigned long nodes[MEM_NUMA_NODES_MAX / (8 * sizeof(unsigned long))];
};

/* Has the system take the calling thread's memory from that node if it can, until
 * mem_numa_restore(). Does nothing without a node, or if the system refuses. */
void mem_numa_prefer(const struct mem_numa *numa, struct mem_numa_policy *ret_old);
void mem_numa_restore(const struct mem_numa_policy *old);

#endif
