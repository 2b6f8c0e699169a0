/* Graphs that take memory (docs/MEMORY.md). In a process that is in no vGPU these cost a load. */
#ifndef GBPF_SHIM_MEM_GRAPHS_H
#define GBPF_SHIM_MEM_GRAPHS_H

#include <stdbool.h>

#include "cuabi/types.h"

void shim_mem_graph_instantiated(CUgraphExec exec, CUgraph g);
void shim_mem_graph_exec_destroyed(CUgraphExec exec);
/* An allocation node was made on a device. Returns false if its memory exceeds the limit: it is
 * charged nevertheless, until it is measured to be gone. */
bool shim_mem_graph_node_made(CUdevice device);
/* Charges what the process's graphs hold. trim: after they have given back what they can. */
void shim_mem_graphs_measure(bool trim);

#endif
