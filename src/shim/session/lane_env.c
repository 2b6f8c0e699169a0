/* The driver's sharing mode, set in the environment. NVIDIA's driver connects to the MPS control
 * daemon whose pipes are in CUDA_MPS_PIPE_DIRECTORY, and takes its priority and its share of the
 * multiprocessors from two more variables (MPS manual, "Environment variables"); the soft GPU reads
 * the same ones.
 *
 * Children inherit the variables, although their own hello may select the process mode.
 * GBPF_MPS_PIPE marks a directory that came from gbpfd; only such a directory is ever removed, the
 * user's own MPS stays.
 *
 * setenv() is unsafe in a process with threads: a thread that reads the environment at that moment
 * may read freed memory (setenv(3)). It is called only in the first cuInit, under the attach lock,
 * before the driver has threads, and only for variables whose value changes. */
#include "shim/session/lane_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/ctx.h"

#define PIPE "CUDA_MPS_PIPE_DIRECTORY"
#define PRIORITY "CUDA_MPS_CLIENT_PRIORITY"
#define PERCENTAGE "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define MARK "GBPF_MPS_PIPE"

static void put(const char *name, const char *value)
{
	const char *before = getenv(name);

	if (value && (!before || strcmp(before, value) != 0)) {
		setenv(name, value, 1);
	} else if (!value && before) {
		unsetenv(name);
	}
}

void shim_lane_leave(void)
{
	const char *mark = getenv(MARK), *pipe = getenv(PIPE);

	if (mark && pipe && strcmp(mark, pipe) == 0) {
		put(PIPE, NULL);
		put(PRIORITY, NULL);
		put(PERCENTAGE, NULL);
	}
	put(MARK, NULL);
}

void shim_lane_enter(const struct proto_welcome *w)
{
	char number[16];

	if (w->lane != GBPF_LANE_SHARED) {
		shim_lane_leave();
		return;
	}
	put(PIPE, w->mps_pipe);
	put(MARK, w->mps_pipe);
	put(PRIORITY, w->priority == 1 ? "1" : "0");
	snprintf(number, sizeof(number), "%u", w->sm_percent);
	put(PERCENTAGE, w->sm_percent >= 1 && w->sm_percent < 100 ? number : NULL);
}
