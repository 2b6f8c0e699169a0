/* The environment of `gbpf run`: the loader finds the shim first, and the shim finds the driver
 * library. */
#include "cli/run_env.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/paths.h"
#include "base/private_dir.h"

#define LIBCUDA "libcuda.so.1"
#define LIBNVML "libnvidia-ml.so.1"

static int find_own(char out[CLI_RUN_PATH], const char *leaf)
{
	char path[CLI_RUN_PATH], real[PATH_MAX];
	int err = path_lib(path, sizeof(path), leaf);

	if (err) {
		return err;
	}
	if (realpath(path, real)) {
		snprintf(out, CLI_RUN_PATH, "%s", real);
		return access(out, R_OK) == 0 ? 0 : -ENOENT;
	}
	snprintf(out, CLI_RUN_PATH, "%s", path);
	return -ENOENT;
}

int cli_run_find_soft(char out[CLI_RUN_PATH])
{
	return find_own(out, "soft/" LIBCUDA);
}

int cli_run_find_shim(char out[CLI_RUN_PATH])
{
	return find_own(out, "shim/" LIBCUDA);
}

int cli_run_find_own_nvml(char out[CLI_RUN_PATH])
{
	return find_own(out, "shim/" LIBNVML);
}

/* Stores dir/leaf unless it is one of gBPF's own. */
static bool try_dir(char out[CLI_RUN_PATH], const char *dir, size_t len, const char *leaf)
{
	char path[CLI_RUN_PATH], real[PATH_MAX], own[CLI_RUN_PATH], base[PATH_MAX];

	if (len == 0 ||
	    snprintf(path, sizeof(path), "%.*s/%s", (int)len, dir, leaf) >= (int)sizeof(path)) {
		return false;
	}
	if (access(path, R_OK) < 0 || !realpath(path, real)) {
		return false;
	}
	if (path_lib(own, sizeof(own), NULL) == 0 && realpath(own, base) &&
	    strncmp(real, base, strlen(base)) == 0 && real[strlen(base)] == '/') {
		return false;
	}
	snprintf(out, CLI_RUN_PATH, "%s", path);
	return true;
}

/* Finds a library of the driver in $LD_LIBRARY_PATH and the usual places. Returns 0 or -ENOENT. */
static int find_real(char out[CLI_RUN_PATH], const char *leaf)
{
	static const char *const places[] = {
		"/usr/lib/x86_64-linux-gnu",
		"/usr/lib/x86_64-linux-gnu/nvidia/current",
		"/usr/lib64",
		"/usr/lib64/nvidia",
		"/usr/lib/nvidia",
		"/usr/lib",
		"/lib/x86_64-linux-gnu",
		"/usr/lib/aarch64-linux-gnu",
		"/usr/local/nvidia/lib64",
		"/usr/local/nvidia/lib",
		"/run/opengl-driver/lib",
		"/usr/lib/wsl/lib",
	};
	const char *env = getenv("LD_LIBRARY_PATH");

	for (const char *p = env; p && *p;) {
		size_t n = strcspn(p, ":;");

		if (try_dir(out, p, n, leaf)) {
			return 0;
		}
		p += n + (p[n] != 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (try_dir(out, places[i], strlen(places[i]), leaf)) {
			return 0;
		}
	}
	return -ENOENT;
}

int cli_run_find_real(char out[CLI_RUN_PATH])
{
	return find_real(out, LIBCUDA);
}

static int choose_soft(struct cli_run_device *d, struct report *r)
{
	d->soft = true;
	if (cli_run_find_soft(d->libcuda) == 0) {
		return 0;
	}
	report_hint(r, "Is gBPF installed whole? GBPF_LIBDIR can say where its libraries are");
	return report_set(r, -ENOENT, "install", "the soft GPU's library is missing: %s",
			  d->libcuda);
}

int cli_run_choose_device(const char *name, struct cli_run_device *d, struct report *r)
{
	const char *given = getenv("GBPF_REAL_CUDA");

	memset(d, 0, sizeof(*d));
	if (!name && given && given[0]) {
		char soft[CLI_RUN_PATH];

		if (strchr(given, '/') && access(given, R_OK) < 0) {
			report_hint(r, "Unset it, or set it to NVIDIA's " LIBCUDA);
			return report_set(r, -ENOENT, "no-driver", "GBPF_REAL_CUDA: %s: %s", given,
					  strerror(errno));
		}
		snprintf(d->libcuda, sizeof(d->libcuda), "%s", given);
		d->soft = cli_run_find_soft(soft) == 0 && strcmp(soft, given) == 0;
		return 0;
	}
	if (name && strcmp(name, "soft") == 0) {
		return choose_soft(d, r);
	}
	if (cli_run_find_real(d->libcuda) == 0) {
		if ((name && strcmp(name, "nvidia") == 0) || access("/dev/nvidiactl", F_OK) == 0) {
			return 0;
		}
	} else if (name && strcmp(name, "nvidia") == 0) {
		report_hint(r, "Install NVIDIA's driver, set GBPF_REAL_CUDA to its " LIBCUDA
			       ", or use --device soft");
		return report_set(r, -ENOENT, "no-driver",
				  "no NVIDIA " LIBCUDA " found on this machine");
	}
	return choose_soft(d, r);
}

/* Prepends value to a list variable unless it is there already. */
static int prepend(const char *variable, const char *value)
{
	const char *old = getenv(variable);
	size_t n = strlen(value);
	struct buf b = { 0 };
	int rc;

	if (old && strncmp(old, value, n) == 0 && (old[n] == 0 || old[n] == ':')) {
		return 0;
	}
	rc = buf_printf(&b, "%s%s%s", value, old && old[0] ? ":" : "", old ? old : "");
	rc = rc == 0 && setenv(variable, buf_text(&b), 1) == 0 ? 0 : -ENOMEM;
	buf_finish(&b);
	return rc;
}

static bool has_element(const char *list, const char *value)
{
	size_t n = strlen(value);

	for (const char *p = list; p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
		if (strncmp(p, value, n) == 0 && (p[n] == 0 || p[n] == ':')) {
			return true;
		}
	}
	return false;
}

/* Prepends the folder of a file, likewise. */
static int prepend_folder(const char *variable, const char *file)
{
	char dir[CLI_RUN_PATH];
	char *slash;

	snprintf(dir, sizeof(dir), "%s", file);
	slash = strrchr(dir, '/');
	if (!slash) {
		return 0;
	}
	*slash = 0;
	return has_element(getenv(variable), dir) ? 0 : prepend(variable, dir);
}

static bool is_or_unset(const char *variable, const char *value)
{
	const char *v = getenv(variable);

	return !v || strcmp(v, value) == 0;
}

int cli_run_find_nvml(const struct cli_run_device *d, char out[CLI_RUN_PATH])
{
	const char *slash = strrchr(d->libcuda, '/');

	if (slash &&
	    snprintf(out, CLI_RUN_PATH, "%.*s/%s", (int)(slash - d->libcuda), d->libcuda, LIBNVML) <
		    CLI_RUN_PATH &&
	    access(out, R_OK) == 0) {
		return 0;
	}
	return !d->soft && find_real(out, LIBNVML) == 0 ? 0 : -ENOENT;
}

/* Sets GBPF_REAL_NVML to the driver's libnvidia-ml; clears it if there is none, and the library
 * behind which it is to be then searches in its turn. One that was set for the same libcuda, or by
 * the user, is kept. */
static int set_nvml(const struct cli_run_device *d)
{
	char path[CLI_RUN_PATH];

	if (getenv("GBPF_REAL_NVML") && is_or_unset("GBPF_REAL_CUDA", d->libcuda)) {
		return 0;
	}
	if (cli_run_find_nvml(d, path) == 0) {
		return setenv("GBPF_REAL_NVML", path, 1) == 0 ? 0 : -errno;
	}
	return unsetenv("GBPF_REAL_NVML") == 0 ? 0 : -errno;
}

static int set_or_clear(const char *variable, const char *value)
{
	if (!value) {
		return unsetenv(variable) == 0 ? 0 : -errno;
	}
	return setenv(variable, value, 1) == 0 ? 0 : -errno;
}

int cli_run_place_soft_gpu(void)
{
	const char *given = getenv("GBPF_RUNTIME_DIR");
	char dir[CLI_RUN_PATH], shared[CLI_RUN_PATH];
	int err;

	if (getenv("GBPF_SOFTGPU_SOCKET") || path_runtime(shared, sizeof(shared), NULL) < 0 ||
	    access(shared, W_OK) == 0 || errno != EACCES || !given) {
		return 0;
	}
	snprintf(shared, sizeof(shared), "%s", given);
	unsetenv("GBPF_RUNTIME_DIR");
	err = path_runtime(dir, sizeof(dir) - sizeof("/softgpu.sock"), NULL);
	setenv("GBPF_RUNTIME_DIR", shared, 1);
	err = err ? err : private_dir_make(dir, 0700, false, NULL);
	if (err) {
		return err;
	}
	snprintf(dir + strlen(dir), sizeof("/softgpu.sock"), "/softgpu.sock");
	return setenv("GBPF_SOFTGPU_SOCKET", dir, 1) == 0 ? 0 : -errno;
}

/* Makes frameworks that compile PTX themselves use gBPF's ptxas, so that their kernels get
 * preemptible clones. Keeps the user's own setting. */
static int set_ptxas(const struct cli_run_settings *s)
{
	static const struct {
		const char *variable, *suffix;
	} list[] = { { "TRITON_PTXAS_PATH", "" }, { "TRITON_PTXAS_BLACKWELL_PATH", "-blackwell" } };
	const char *block = getenv("GBPF_BLOCK");
	char own[CLI_RUN_PATH], path[CLI_RUN_PATH + 16];
	int bad = 0;

	if (s->off || (block && (strcmp(block, "0") == 0 || strcmp(block, "off") == 0)) ||
	    (s->class_name && strcmp(s->class_name, "latency") == 0) ||
	    find_own(own, "cuda/bin/ptxas") < 0) {
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		snprintf(path, sizeof(path), "%s%s", own, list[i].suffix);
		bad |= access(path, X_OK) == 0 ? setenv(list[i].variable, path, 0) : 0;
	}
	return bad;
}

/* A new virtual GPU has a number, which only the user's processes need to tell from others of
 * theirs. */
static int set_vgpu(const struct proto_vgpu *given)
{
	struct proto_vgpu v = *given;
	char text[PROTO_VGPU_TEXT];

	v.made_ns = clock_now_ns();
	while (!v.name[0] && !v.number) {
		if (getrandom(&v.number, sizeof(v.number), 0) != (ssize_t)sizeof(v.number)) {
			return -errno;
		}
	}
	return proto_vgpu_print(&v, text, sizeof(text)) || setenv("GBPF_VGPU", text, 1);
}

/* A number distinguishes the group of a command from others. */
static int set_group(const char *name)
{
	char own[24];
	uint64_t number;

	if (!name) {
		if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
			return -errno;
		}
		snprintf(own, sizeof(own), "%016llx", (unsigned long long)number);
	}
	return setenv("GBPF_GROUP", name ? name : own, 1);
}

/* Returns true if a virtual GPU is to be joined or made. */
static bool has_vgpu(const struct proto_vgpu *v)
{
	static const struct proto_vgpu none;

	return memcmp(v, &none, sizeof(none)) != 0;
}

int cli_run_set_environment(const struct cli_run_settings *s, const struct cli_run_device *d,
			    const char *shim, struct report *r)
{
	char dir[CLI_RUN_PATH];
	char *slash;
	int bad = 0;

	if (strpbrk(shim, ": \t")) {
		report_hint(r, "Install gBPF in a folder whose name has none of them");
		return report_set(r, -EINVAL, "install",
				  "LD_PRELOAD cannot name a path with blanks or colons: %s", shim);
	}
	snprintf(dir, sizeof(dir), "%s", shim);
	slash = strrchr(dir, '/');
	if (slash) {
		*slash = 0;
	}
	bad |= prepend("LD_PRELOAD", shim);
	if (d->soft) { /* behind the shim's folder, whose libnvidia-ml.so.1 searches there, too */
		bad |= prepend_folder("LD_LIBRARY_PATH", d->libcuda);
	}
	bad |= prepend("LD_LIBRARY_PATH", dir);
	bad |= set_nvml(d); /* before GBPF_REAL_CUDA changes */
	bad |= set_or_clear("GBPF_REAL_CUDA", d->libcuda);
	bad |= set_or_clear("GBPF_CLASS", s->class_name ? s->class_name : "normal");
	bad |= set_or_clear("GBPF_NAME", s->name);
	bad |= set_or_clear("GBPF_WEIGHT", s->weight);
	bad |= set_group(s->group);
	bad |= has_vgpu(&s->vgpu) ? set_vgpu(&s->vgpu) : 0;
	if (s->lane) {
		bad |= set_or_clear("GBPF_LANE", s->lane);
	}
	if (s->hint) {
		bad |= set_or_clear("GBPF_HINT", s->hint);
	}
	if (s->probes) {
		bad |= set_or_clear("GBPF_PROBES", "1");
	}
	bad |= set_or_clear("GBPF_STRICT", s->strict ? "1" : NULL);
	bad |= set_or_clear("GBPF_OFF", s->off ? "1" : NULL);
	bad |= set_ptxas(s);
	if (bad) {
		return report_set(r, -ENOMEM, "memory", "the environment cannot be set");
	}
	bad = d->soft ? cli_run_place_soft_gpu() : 0;
	return bad ? report_set(r, bad, "soft-gpu", "there is no folder for a soft GPU: %s",
				strerror(-bad))
		   : 0;
}
