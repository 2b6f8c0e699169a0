/* Which memory executable graphs name, so that it can come back for their launches. In a process
 * whose memory cannot leave the device these calls cost a load. */
#ifndef GBPF_SHIM_MEM_SWAP_GRAPHS_H
#define GBPF_SHIM_MEM_SWAP_GRAPHS_H

#include "cuabi/types.h"

/* Learns what an executable graph names that was just made or updated from g. It replaces what was
 * known of the handle. */
void shim_swap_graph_learn(CUgraphExec exec, CUgraph g);
/* Learns what a node names now, after a call has given it these parameters in the executable graph
 * alone; of kernel, copy, memset and child graph nodes. node: of the graph that it was made from.
 */
void shim_swap_graph_set_node(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *p);
void shim_swap_graph_forget(CUgraphExec exec);

#endif
