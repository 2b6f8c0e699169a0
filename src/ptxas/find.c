/* Finds the real ptxas. The caller's environment made it start this program; without that, it would
 * have started a ptxas next to its own libraries. */
#include "ptxas/ptxas.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"

#define MAPS_MAX 65536u /* lines */

/* Returns true if out is a program other than this one. */
static bool good(const char *out)
{
	struct stat a, own;

	return stat(out, &a) == 0 && S_ISREG(a.st_mode) && access(out, X_OK) == 0 &&
	       (stat("/proc/self/exe", &own) < 0 || a.st_dev != own.st_dev ||
		a.st_ino != own.st_ino);
}

/* Looks in the folder for that name, then for ptxas. */
static bool try_folder(char out[PTXAS_PATH], const char *dir, size_t len, const char *below,
		       const char *name)
{
	const char *const names[] = { name, "ptxas" };

	for (size_t i = 0; len && i < ARRAY_SIZE(names); i++) {
		int n = snprintf(out, PTXAS_PATH, "%.*s%s/%s", (int)len, dir, below, names[i]);

		if (n > 0 && n < PTXAS_PATH && good(out)) {
			return true;
		}
	}
	return false;
}

/* Paths relative to a library of Triton or XLA, as their packages install it. In a process with
 * both, Triton's is used wherever the two are mapped: gbpf run installs this program for Triton
 * only. */
static const struct {
	const char *part, *below;
} places[] = {
	{ "/triton/_C/libtriton", "/triton/backends/nvidia/bin" },
	{ "/jaxlib/", "/nvidia/cu13/bin" },
	{ "/jaxlib/", "/nvidia/cuda_nvcc/bin" },
	{ "/tensorflow/", "/nvidia/cuda_nvcc/bin" },
};

/* Returns the first of the places before n that this library matches; n: none. */
static size_t try_library(char out[PTXAS_PATH], const char *path, const char *name, size_t n)
{
	char found[PTXAS_PATH];

	for (size_t i = 0; i < n; i++) {
		const char *part = strstr(path, places[i].part);

		if (part && try_folder(found, path, (size_t)(part - path), places[i].below, name)) {
			memcpy(out, found, PTXAS_PATH);
			return i;
		}
	}
	return n;
}

/* Looks at the libraries of the parent process. */
static bool try_parent(char out[PTXAS_PATH], const char *name)
{
	char file[64], line[PTXAS_PATH + 128];
	size_t best = ARRAY_SIZE(places);
	FILE *f;

	snprintf(file, sizeof(file), "/proc/%d/maps", (int)getppid());
	f = fopen(file, "re");
	for (unsigned i = 0; f && i < MAPS_MAX && best && fgets(line, sizeof(line), f); i++) {
		const char *path = strchr(line, '/');

		best = path ? try_library(out, path, name, best) : best;
	}
	if (f) {
		fclose(f);
	}
	return best < ARRAY_SIZE(places);
}

static bool try_path(char out[PTXAS_PATH], const char *name)
{
	for (const char *p = getenv("PATH"); p && *p;) {
		size_t n = strcspn(p, ":");

		if (try_folder(out, p, n, "", name)) {
			return true;
		}
		p += n + (p[n] != 0);
	}
	return false;
}

bool ptxas_find(char out[PTXAS_PATH], const char *name)
{
	static const char *const usual[] = { "/usr/local/cuda/bin", "/opt/cuda/bin",
					     "/usr/lib/cuda/bin",
					     "/usr/lib/nvidia-cuda-toolkit/bin" };
	const char *given = getenv("GBPF_PTXAS"), *home = getenv("CUDA_HOME");

	if (given && given[0]) {
		snprintf(out, PTXAS_PATH, "%s", given);
		return good(out);
	}
	if (try_parent(out, name) || try_path(out, name) ||
	    (home && try_folder(out, home, strlen(home), "/bin", name))) {
		return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(usual); i++) {
		if (try_folder(out, usual[i], strlen(usual[i]), "", name)) {
			return true;
		}
	}
	return false;
}
