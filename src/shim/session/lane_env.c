/* NVIDIA's driver connects to the MPS control daemon whose pipes lie in CUDA_MPS_PIPE_DIRECTORY,
 * and takes its priority and its share of the multiprocessors from two more variables (MPS manual,
 * "Environment variables"); the soft GPU reads the same ones. Children inherit them, though their
 * own hello may put them into the process lane: GBPF_MPS_PIPE marks a folder that came from gbpfd,
 * which alone is ever taken away; the user's own MPS stays. setenv() in a process with threads:
 * another thread that reads the environment at that moment may read freed memory (setenv(3)). It is
 * done once, in the first cuInit, before the driver has threads, under the attach lock, and only
 * for variables whose value changes. */
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
