/* What the driver says of a GPU, by NVML: which processes it has seen at work there, and how much
 * memory there is, so that a process cannot claim anything else. Runs on the control thread,
 * because a call may take milliseconds. */
#ifndef GBPF_DAEMON_IDLE_GPU_USE_H
#define GBPF_DAEMON_IDLE_GPU_USE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/job_thread.h"
#include "proto/pages.h"

#define DAEMON_GPU_USE_PROCESSES 256u /* of one GPU that are looked at */

struct daemon_gpu_use_process {
	unsigned pid;	 /* in gbpfd's namespace */
	bool has_worked; /* its utilization since the last look is not zero */
};

struct daemon_gpu_use_gpu {
	char uuid[48]; /* input: as NVML names it; empty: not asked for */
	/* output */
	bool measured; /* NVML knows the GPU */
	unsigned n;
	struct daemon_gpu_use_process process[DAEMON_GPU_USE_PROCESSES]; /* that have a context */
};

/* A job: the caller sets job.done, job.drop, library and the UUIDs. */
struct daemon_gpu_use {
	struct daemon_job job; /* first */
	void *arg;	       /* the caller's */
	char library[4096];    /* NVML's path or name */
	struct daemon_gpu_use_gpu gpu[PROTO_MAX_GPUS];
};

/* A job: the caller sets job.done, job.drop, library and uuid. */
struct daemon_gpu_size {
	struct daemon_job job; /* first */
	void *arg;	       /* the caller's */
	char library[4096];    /* NVML's path or name */
	char uuid[48];	       /* as NVML names the GPU */
	uint64_t bytes;	       /* output: memory that programs can have; 0: not known */
};

/* Stores the path or name of the NVML for GPUs of that kind: "soft" or "nvidia". */
void daemon_gpu_use_library(const char *kind, char out[4096]);
/* The work functions of the jobs. */
void daemon_gpu_use_measure(struct daemon_job *j);
void daemon_gpu_size_measure(struct daemon_job *j);
/* Returns the process's entry, or NULL if it has no context on that GPU. */
const struct daemon_gpu_use_process *daemon_gpu_use_find(const struct daemon_gpu_use_gpu *g,
							 int pid);

#endif
