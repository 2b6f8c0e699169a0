/* The environment of a program under the shim, and the choice of the libcuda behind it. */
#ifndef GBPF_CLI_RUN_ENV_H
#define GBPF_CLI_RUN_ENV_H

#include "cli/cli.h"
#include "proto/vgpu_text.h"

#define CLI_RUN_PATH 4096

struct cli_run_device {
	bool soft;
	char libcuda[CLI_RUN_PATH]; /* driver library that the shim opens */
};

/* Finds the real libcuda.so.1: in $LD_LIBRARY_PATH (without gBPF's own folders) and the usual
 * places. Returns 0 or -ENOENT. */
int cli_run_find_real(char out[CLI_RUN_PATH]);
/* Finds the soft GPU's client. Returns 0, or -ENOENT with the path where it should be in out. */
int cli_run_find_soft(char out[CLI_RUN_PATH]);
/* Finds the shim, or gBPF's libnvidia-ml, likewise. */
int cli_run_find_shim(char out[CLI_RUN_PATH]);
int cli_run_find_own_nvml(char out[CLI_RUN_PATH]);

/* Chooses a device. name: "soft", "nvidia", "auto" or NULL (auto; $GBPF_REAL_CUDA decides if it is
 * set). Returns 0, or -ENOENT with hint and message in r. */
int cli_run_choose_device(const char *name, struct cli_run_device *d, struct report *r);
/* Sets where the soft GPU has its socket, if that is not the runtime directory: another user's
 * gbpfd has a directory that this user can only read, and the socket is then in this user's.
 * Returns 0 or -errno. */
int cli_run_place_soft_gpu(void);
/* Finds the driver's libnvidia-ml: in the folder of its libcuda, or else in the usual places.
 * Returns 0 or -ENOENT. */
int cli_run_find_nvml(const struct cli_run_device *d, char out[CLI_RUN_PATH]);

struct cli_run_settings {
	const char *class_name, *name, *weight; /* NULL: not set */
	const char *group;			/* NULL: of its own */
	const char *lane, *hint;		/* NULL: from the environment */
	struct proto_vgpu vgpu;			/* to join, or to make; else from the environment */
	bool probes, strict, off;
};

/* Sets the variables in this process, just before the program is started. Returns 0, or -errno with
 * r. */
int cli_run_set_environment(const struct cli_run_settings *s, const struct cli_run_device *d,
			    const char *shim, struct report *r);

#endif
