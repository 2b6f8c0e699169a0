/* An NVML that the test controls, in a folder of the test's own. */
#ifndef GBPF_TESTS_DAEMON_NVML_RIG_H
#define GBPF_TESTS_DAEMON_NVML_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/idle/gpu_use.h"
#include "fake_nvml.h"

static char dir[64];
static struct fake_nvml *nvml;
static struct daemon_gpu_use use;

static inline void reset(void)
{
	memset(nvml, 0, sizeof(*nvml));
	memset(&use, 0, sizeof(use));
}

static inline int make_library(void **state)
{
	char path[200];

	snprintf(dir, sizeof(dir), "/tmp/gbpfd-judge-XXXXXX");
	if (!mkdtemp(dir)) {
		return -1;
	}
	snprintf(path, sizeof(path), "%s/soft", dir);
	if (mkdir(path, 0755) < 0) {
		return -1;
	}
	snprintf(path, sizeof(path), "%s/soft/libnvidia-ml.so.1", dir);
	if (symlink(getenv("FAKE_NVML"), path) < 0 || setenv("GBPF_LIBDIR", dir, 1) < 0) {
		return -1;
	}
	nvml = dlsym(dlopen(path, RTLD_NOW), "fake_nvml");
	return nvml ? 0 : -1;
}

static inline int remove_library(void **state)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

#endif
