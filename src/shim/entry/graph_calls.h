/* Changes to executable graphs with deferred launches. */
#ifndef GBPF_SHIM_ENTRY_GRAPH_CALLS_H
#define GBPF_SHIM_ENTRY_GRAPH_CALLS_H

#include "cuabi/types.h"

/* Drains the deferred launches of a graph that is about to be changed. */
void shim_graph_drain(CUgraphExec exec);

#endif
