/* Executable graphs with nodes that record or await events. */
#ifndef GBPF_SHIM_OBJECT_GRAPH_EVENTS_H
#define GBPF_SHIM_OBJECT_GRAPH_EVENTS_H

#include <stdbool.h>

#include "cuabi/types.h"
#include "shim/shim.h"

/* The graph has such nodes: launched, it may record an event that kept calls mean as it was, or
 * wait for one whose record is kept; and it must not be kept itself, since programs ask for its
 * events. */
bool shim_graph_has_events(CUgraphExec exec);
/* The graph is about to be destroyed. */
void graph_forget(void);

/* Something is kept: waits until no launch of that graph is, which is about to be changed. */
void shim_graph_drain(CUgraphExec exec);

#endif
