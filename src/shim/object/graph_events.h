/* Executable graphs with nodes that record or await events. */
#ifndef GBPF_SHIM_OBJECT_GRAPH_EVENTS_H
#define GBPF_SHIM_OBJECT_GRAPH_EVENTS_H

#include <stdbool.h>

#include "cuabi/types.h"
#include "shim/part.h"

/* Inspects the nodes of a newly instantiated graph. */
void shim_graph_instantiated(CUgraphExec exec, CUgraph g);
/* The graph is about to be destroyed. */
void shim_graph_destroyed(CUgraphExec exec);
/* Returns true if the graph has nodes that record or await events. Its launch may record an event
 * that deferred calls mean in its previous state, or await one whose record is deferred. Such a
 * launch must not be deferred itself either, since programs query its events. */
bool shim_graph_has_events(CUgraphExec exec);
extern const struct shim_part shim_graph_part;

#endif
