/* Graphs that take memory (docs/MEMORY.md). In a process that is in no vGPU these cost a load. */
#ifndef GBPF_SHIM_MEM_GRAPHS_H
#define GBPF_SHIM_MEM_GRAPHS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"

void shim_mem_graph_instantiated(CUgraphExec exec, CUgraph g);
void shim_mem_graph_exec_destroyed(CUgraphExec exec);
/* Surround the making of an allocation node. _end(): it was made on the device; negative: it was
 * not made. Returns false if its memory exceeds the limit: it is charged nevertheless, until a
 * measurement shows that it was freed. */
void shim_mem_graph_node_begin(void);
bool shim_mem_graph_node_end(CUdevice device);
/* Returns the number of nodes that are being made, plus 2^32 for each that is made. While there are
 * any, the driver may have taken memory that is not charged yet. */
uint64_t shim_mem_graphs_late(void);
/* Charges what the process's graphs hold. trim: after they have given back what they can. */
void shim_mem_graphs_measure(bool trim);

#endif
