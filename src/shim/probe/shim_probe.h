/* Probes: programs inside kernels. A kernel that a tool matches gets a probed form: a kernel of a
 * module of the shim's own, made from the PTX that the program loaded, which computes what the
 * kernel does and runs the programs of all tools that match it. Later launches take the form; the
 * program's kernel is never changed. docs/DEVICE-ARGUMENT.md has the argument. */
#ifndef GBPF_SHIM_PROBE_SHIM_PROBE_H
#define GBPF_SHIM_PROBE_SHIM_PROBE_H

#include "cuabi/types.h"
#include "proto/wire.h"
#include "shim/object/form_choice.h"
#include "shim/object/kernel_call.h"
#include "shim/part.h"

/* Connects the room with the session. Before cuInit says hello. */
void shim_probe_setup(void);

struct shim_probe_form;
struct shim_probe_exec;
struct shim_clone;

/* ---- any thread ---- */

extern const struct shim_part shim_probe_part;
/* An attribute of a function has changed. */
void shim_probe_refresh(const void *handle);

/* Makes a launch of a kernel, of which tools may be attached: of its form where it has one that the
 * launch takes and the driver accepts. */
CUresult shim_probe_launch(struct shim_kernel_call *c);
/* Returns the probed form that a launch in that context is to take, and which stays until it is
 * released; NULL: none. The choice is stored in the call. While launches are paused, for some
 * milliseconds at most, the caller waits. */
struct shim_probe_form *shim_probe_hold(struct shim_kernel_call *c, CUcontext ctx);
/* Returns the dynamic shared memory of a launch as one of the form. */
uint32_t shim_probe_smem(const struct shim_probe_form *f, const struct shim_kernel_call *c);
void shim_probe_release(struct shim_probe_form *f);
/* The driver has taken a launch of the form's clone, which was handed to it at that time. */
void shim_probe_submitted(const struct shim_probe_form *f, const struct shim_kernel_call *c,
			  uint64_t now_ns);
/* Returns the number of a launch of a form's clone that is about to be made. */
uint64_t shim_probe_number_next(void);
/* Returns what the form adds to its kernel, SHIM_HAS_*: no clone as long as it is compared with the
 * kernel. */
unsigned shim_probe_has(const struct shim_probe_form *f);
/* Returns the form's preemptible clone, which it has. */
struct shim_clone *shim_probe_clone(struct shim_probe_form *f);
/* Excludes a form's clone as shim_clone_exclude(). */
void shim_probe_exclude(CUfunction clone);
/* ---- graphs; any thread, which holds no lock ---- */

/* From now on executable graphs are known. Once, before the process is attached. */
void shim_probe_graphs_setup(void);
/* flags: CUDA_GRAPH_INSTANTIATE_FLAG_*. */
void shim_probe_graph_instantiated(CUgraphExec exec, CUgraph g, uint64_t flags);
/* The program destroys a graph. Returns true if the driver must not yet, with what the program
 * gets: executable graphs were made from it. */
bool shim_probe_graph_kept(CUgraph g, CUresult *ret);
/* The program is about to change a node of a graph, or to destroy it. */
void shim_probe_graph_node_changing(CUgraphNode node, bool ends);
/* Surround a call of the driver that names an executable graph: the probe thread does not change it
 * meanwhile. NULL: its kernels are of no interest. The second is for calls that change it, but by
 * cuGraphExecUpdate. */
struct shim_probe_exec *shim_probe_exec_begin(CUgraphExec exec);
struct shim_probe_exec *shim_probe_exec_begin_change(CUgraphExec exec);
void shim_probe_exec_end(struct shim_probe_exec *x); /* accepts NULL, as do the following */
/* Between these, after the driver's success. */
void shim_probe_exec_was_set(struct shim_probe_exec *x, CUgraphNode node,
			     const CUDA_KERNEL_NODE_PARAMS *p);
void shim_probe_exec_child_was_set(struct shim_probe_exec *x, CUgraphNode node, CUgraph child);
void shim_probe_exec_was_updated(struct shim_probe_exec *x, CUgraph from);

/* The process exits: the maps are copied a last time. */
void shim_probe_exit(void);

#endif
