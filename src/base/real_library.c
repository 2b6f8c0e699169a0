/* Searching for a library behind gBPF's own (base/real_library.h). */
#include "base/real_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/compiler.h"
#include "base/ldcache.h"

struct search {
	const char *soname;
	const void *own;
};

static bool is_own(const struct search *s, const char *path)
{
	struct stat own, other;
	Dl_info info;

	return dladdr(s->own, &info) && info.dli_fname && stat(info.dli_fname, &own) == 0 &&
	       stat(path, &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

static void *try_path(const struct search *s, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0 || is_own(s, path)) {
		return NULL;
	}
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *try_folder(const struct search *s, const char *folder, size_t len)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%.*s/%s", (int)len, folder, s->soname);

	return len && n > 0 && (size_t)n < sizeof(path) ? try_path(s, path) : NULL;
}

static void *search(const struct search *s)
{
	static const char *const folders[] = {
		"/usr/local/nvidia/lib64",   "/usr/local/nvidia/lib",
		"/usr/lib/x86_64-linux-gnu", "/usr/lib64",
		"/lib/x86_64-linux-gnu",     "/usr/lib/x86_64-linux-gnu/nvidia/current",
		"/run/opengl-driver/lib",    "/usr/lib/wsl/lib"
	};
	const char *p = secure_getenv("LD_LIBRARY_PATH");
	char path[PATH_MAX];
	void *h = NULL;

	while (p && *p && !h) {
		size_t len = strcspn(p, ":;");

		h = try_folder(s, p, len);
		p += len + (p[len] != 0);
	}
	for (unsigned nth = 0; !h && ldcache_find(s->soname, nth, path, sizeof(path)); nth++) {
		h = try_path(s, path);
	}
	for (size_t i = 0; !h && i < ARRAY_SIZE(folders); i++) {
		h = try_folder(s, folders[i], strlen(folders[i]));
	}
	return h;
}

void *real_library_open(const char *soname, const char *variable, const void *own, char *why,
			size_t cap)
{
	const struct search s = { soname, own };
	const char *path = secure_getenv(variable), *error;
	void *h;

	if (!path || !*path) {
		h = search(&s);
		if (!h) {
			snprintf(why, cap,
				 "no library %s of the driver found in LD_LIBRARY_PATH, the "
				 "linker's cache or the usual places; set %s to its path",
				 soname, variable);
		}
		return h;
	}
	if (is_own(&s, path)) {
		snprintf(why, cap, "invalid %s: %s: it is gBPF's own library", variable, path);
		return NULL;
	}
	h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h) {
		error = dlerror();
		snprintf(why, cap, "cannot open %s: %s", variable, error ? error : path);
	}
	return h;
}
