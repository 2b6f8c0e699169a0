/* Waiting for what is kept back. */
#ifndef GBPF_SHIM_DEFER_WAIT_H
#define GBPF_SHIM_DEFER_WAIT_H

#include "shim/entry/gate.h"
#include "shim/object/stream_queue.h"

/* Issues what a queue keeps back. */
void shim_wait_drain(struct shim_queue *q);
/* A kept call has failed: the next synchronization says so, if it is the first. */
void shim_error_note(CUresult r);
/* What must be issued before anything new on q: what is ordered with it through the legacy default
 * stream. */
void shim_wait_drain_siblings(struct shim_queue *q);
/* Takes the remembered error: what a synchronization returns when the driver itself is content. */
CUresult shim_error_take(CUresult r);

#endif
