/* The process's vGPU, of which the shim in the same process knows: it is preloaded by `gbpf run`,
 * or lies in the folder of this library. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "nvml/nvml_calls.h"

#define SHIM "libcuda.so.1"
#define UUID_TEXT 96 /* the longest that NVML returns */

static void *find_in_own_folder(void)
{
	char path[PATH_MAX];
	const char *slash;
	Dl_info info;
	void *shim;
	int n;

	if (!dladdr(__extension__(void *) nvml_scope_of, &info) || !info.dli_fname) {
		return NULL;
	}
	slash = strrchr(info.dli_fname, '/');
	n = snprintf(path, sizeof(path), "%.*s" SHIM, slash ? (int)(slash + 1 - info.dli_fname) : 0,
		     info.dli_fname);
	if (!slash || n < 0 || n >= (int)sizeof(path)) {
		return NULL;
	}
	shim = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	return shim ? dlsym(shim, PROTO_VGPU_VIEW) : NULL;
}

/* Returns the shim's function, NULL if there is no shim. */
static proto_vgpu_view_fn *view_function(void)
{
	static void *found; /* [atomic] */
	union {
		void *symbol;
		proto_vgpu_view_fn *call;
	} f = { .symbol = load_acquire(&found) };

	if (!f.symbol) {
		f.symbol = dlsym(RTLD_DEFAULT, PROTO_VGPU_VIEW);
		f.symbol = f.symbol ? f.symbol : find_in_own_folder();
		store_release(&found, f.symbol);
	}
	return f.call;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parses "GPU-67425046-2d73-...", or the same with "MIG-". Returns false if it is none. */
static bool parse_uuid(const char *text, uint8_t ret[16])
{
	unsigned n = 0;

	if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0) {
		return false;
	}
	for (text += 4; *text && n < 32; text++) {
		int v = digit(*text);

		if (*text == '-') {
			continue;
		}
		if (v < 0) {
			return false;
		}
		ret[n / 2] = (uint8_t)(n % 2 ? ret[n / 2] | v : v << 4);
		n++;
	}
	return n == 32 && !*text;
}

enum nvml_scope nvml_scope_of(nvmlDevice_t d, struct proto_vgpu_view *ret)
{
	proto_vgpu_view_fn *view = view_function();
	char text[UUID_TEXT] = "";
	uint8_t uuid[16] = { 0 };
	unsigned device = 0; /* of a part of a divided GPU */
	int err;

	if (!view || NVML_REAL(nvmlDeviceGetUUID)(d, text, sizeof(text)) != NVML_SUCCESS ||
	    !parse_uuid(text, uuid)) {
		return NVML_SCOPE_DEVICE; /* not a device: the call returns the error */
	}
	(void)NVML_REAL(nvmlDeviceGetIndex)(d, &device);
	err = view(uuid, device, sizeof(*ret), ret);
	return err == 0 ? NVML_SCOPE_VGPU : err == -ENOENT ? NVML_SCOPE_DEVICE : NVML_SCOPE_REFUSED;
}

const struct proto_vgpu_process *nvml_vgpu_process(const struct proto_vgpu_view *v, unsigned pid)
{
	for (uint32_t i = 0; i < MIN(v->n, PROTO_ACCOUNT_LINES); i++) {
		if ((unsigned)v->process[i].pid == pid) {
			return &v->process[i];
		}
	}
	return NULL;
}
