/* The environment that puts a program under the shim, and the choice of the libcuda behind it. */
#ifndef GBPF_CLI_RUN_ENV_H
#define GBPF_CLI_RUN_ENV_H

#include "cli/cli.h"

#define RUN_PATH 4096

struct cli_run_device {
	bool soft;
	char libcuda[RUN_PATH]; /* the driver library that the shim is to open */
};

/* The real libcuda.so.1 of this machine: from $LD_LIBRARY_PATH (without gBPF's own folders) and the
 * usual places. 0 or -ENOENT. */
int cli_run_find_real(char out[RUN_PATH]);
/* The soft GPU's client. 0 or -ENOENT (out then has the path where it should be). */
int cli_run_find_soft(char out[RUN_PATH]);
/* The shim; the same. */
int cli_run_find_shim(char out[RUN_PATH]);

/* name: "soft", "nvidia", "auto" or NULL (auto, where $GBPF_REAL_CUDA decides when it is set). 0,
 * or -ENOENT with hint and message in r. */
int cli_run_choose_device(const char *name, struct cli_run_device *d, struct report *r);

struct cli_run_settings {
	const char *class_name, *name, *weight; /* NULL: not set */
	const char *lane, *hint;		/* NULL: as the environment says */
	bool strict, off;
};

/* Sets the variables in this process, just before the program is started. 0 or -errno with r. */
int cli_run_set_environment(const struct cli_run_settings *s, const struct cli_run_device *d,
			    const char *shim, struct report *r);

#endif
