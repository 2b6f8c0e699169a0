/* Graphs that take memory (docs/MEMORY.md). In a process that is in no vGPU these cost a load. */
#ifndef GBPF_SHIM_MEM_GRAPHS_H
#define GBPF_SHIM_MEM_GRAPHS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"

void shim_mem_graph_instantiated(CUgraphExec exec, CUgraph g);
void shim_mem_graph_exec_destroyed(CUgraphExec exec);
/* Surround the making of an allocation node on a device; negative: of none that is charged. The
 * caller has begun a move.
 * _begin(): charges the bytes unless the driver takes them later; *ret_charged: what was charged.
 * Returns false if there is no memory; else the mutex of graphs.c is held until _end(), since
 * another thread that charged the node's memory would hide that it exceeds the limit. _end():
 * corrects the charge; made: the node was made. If the driver took more than the bytes that is
 * charged beyond the limit. */
bool shim_mem_graph_node_begin(CUdevice device, uint64_t bytes, uint64_t *ret_charged);
void shim_mem_graph_node_end(CUdevice device, uint64_t charged, bool made);
/* Returns the number of nodes that are being made, plus 2^32 for each that is made. While there are
 * any, the driver may have taken memory that is not charged yet. */
uint64_t shim_mem_graphs_late(void);
/* Charges what the process's graphs hold. trim: after they have given back what they can. */
void shim_mem_graphs_measure(bool trim);

#endif
