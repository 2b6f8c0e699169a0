/* Environment variables come first, so that tests and containers can use one folder for everything.
 */
#include "base/paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

static int join(char *out, size_t cap, const char *dir, const char *mid, const char *leaf)
{
	int n = snprintf(out, cap, "%s%s%s%s", dir, mid, leaf ? "/" : "", leaf ? leaf : "");

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

/* Sets *ret to the value of a variable, or NULL if it is unset or empty. -EINVAL if it is a
 * relative path, which would denote another directory in each process. */
static int env_dir(const char *name, const char **ret)
{
	const char *v = getenv(name);

	*ret = v && v[0] ? v : NULL;
	return *ret && v[0] != '/' ? -EINVAL : 0;
}

int path_users_runtime(char *out, size_t cap, const char *leaf)
{
	const char *dir;
	char fallback[64];

	if (env_dir("XDG_RUNTIME_DIR", &dir) < 0) {
		return -EINVAL;
	}
	if (dir) {
		return join(out, cap, dir, "/gbpf", leaf);
	}
	snprintf(fallback, sizeof(fallback), "/tmp/gbpf-%u", (unsigned)geteuid());
	return join(out, cap, fallback, "", leaf);
}

int path_runtime(char *out, size_t cap, const char *leaf)
{
	const char *dir;

	if (env_dir("GBPF_RUNTIME_DIR", &dir) < 0) {
		return -EINVAL;
	}
	if (dir) {
		return join(out, cap, dir, "", leaf);
	}
	if (geteuid() == 0) {
		return join(out, cap, "/run/gbpf", "", leaf);
	}
	return path_users_runtime(out, cap, leaf);
}

unsigned path_runtime_mode(void)
{
	return geteuid() == 0 ? 0755 : 0700;
}

int path_state(char *out, size_t cap, const char *leaf)
{
	const char *dir;

	if (env_dir("GBPF_STATE_DIR", &dir) < 0) {
		return -EINVAL;
	}
	if (dir) {
		return join(out, cap, dir, "", leaf);
	}
	if (geteuid() == 0) {
		return join(out, cap, "/var/lib/gbpf", "", leaf);
	}
	if (env_dir("XDG_STATE_HOME", &dir) < 0) {
		return -EINVAL;
	}
	if (dir) {
		return join(out, cap, dir, "/gbpf", leaf);
	}
	if (env_dir("HOME", &dir) < 0) {
		return -EINVAL;
	}
	return join(out, cap, dir ? dir : "/tmp", "/.local/state/gbpf", leaf);
}

static bool is_empty(const char *name)
{
	const char *v = getenv(name);

	return !v || !v[0];
}

int path_cache(char *out, size_t cap, const char *leaf)
{
	const char *dir;

	if (env_dir("GBPF_CACHE_DIR", &dir) < 0) {
		return -EINVAL;
	}
	if (dir) {
		return join(out, cap, dir, "", leaf);
	}
	if (env_dir("XDG_CACHE_HOME", &dir) < 0) {
		return -EINVAL;
	}
	if (dir) {
		return join(out, cap, dir, "/gbpf", leaf);
	}
	if (env_dir("HOME", &dir) < 0) {
		return -EINVAL;
	}
	return dir ? join(out, cap, dir, "/.cache/gbpf", leaf) : -ENOENT;
}

bool path_cache_is_default(void)
{
	return is_empty("GBPF_CACHE_DIR");
}

static bool is_relative(const char *name)
{
	const char *dir;

	return env_dir(name, &dir) < 0;
}

const char *path_relative_variable(void)
{
	static const char *const always[] = { "GBPF_RUNTIME_DIR", "GBPF_STATE_DIR", "GBPF_LIBDIR",
					      "GBPF_BINDIR", "GBPF_SOFTGPU_SOCKET" };
	bool user = geteuid() != 0, state = user && is_empty("GBPF_STATE_DIR");

	for (size_t i = 0; i < ARRAY_SIZE(always); i++) {
		if (is_relative(always[i])) {
			return always[i];
		}
	}
	if (user && is_empty("GBPF_RUNTIME_DIR") && is_relative("XDG_RUNTIME_DIR")) {
		return "XDG_RUNTIME_DIR";
	}
	if (state && is_relative("XDG_STATE_HOME")) {
		return "XDG_STATE_HOME";
	}
	return state && is_empty("XDG_STATE_HOME") && is_relative("HOME") ? "HOME" : NULL;
}

bool path_state_is_default(void)
{
	return is_empty("GBPF_STATE_DIR");
}

int path_explain(int err, char *out, size_t cap)
{
	const char *name = err == -EINVAL ? path_relative_variable() : NULL;

	if (name) {
		snprintf(out, cap, "invalid %s '%.200s': expected an absolute path", name,
			 getenv(name));
	} else {
		snprintf(out, cap, "%s",
			 err == -ENAMETOOLONG ? "the paths in the environment are too long"
					      : strerror(-err));
	}
	return err;
}

static int own_dir(char *out, size_t cap)
{
	ssize_t n = readlink("/proc/self/exe", out, cap - 1);
	char *slash;

	if (n < 0) {
		return -errno;
	}
	out[n] = 0;
	slash = strrchr(out, '/');
	if (!slash) {
		return -ENOENT;
	}
	*slash = 0;
	return 0;
}

int path_lib(char *out, size_t cap, const char *leaf)
{
	const char *dir;
	char own[4096];
	int err = env_dir("GBPF_LIBDIR", &dir);

	if (err) {
		return err;
	}
	if (dir) {
		return join(out, cap, dir, "", leaf);
	}
	err = own_dir(own, sizeof(own));
	return err ? err : join(out, cap, own, "/../lib/gbpf", leaf);
}

static const char examples[] = "examples/";

int path_policy(char *out, size_t cap, const char *word)
{
	const char *name = word;
	char leaf[512];
	int n, err;

	if (strncmp(word, examples, strlen(examples)) == 0) {
		name += strlen(examples);
	}
	if (!name[0] || strchr(name, '/')) {
		return -EINVAL;
	}
	n = snprintf(leaf, sizeof(leaf), "policies/%s.bpf.o", word);
	err = n < 0 || (size_t)n >= sizeof(leaf) ? -ENAMETOOLONG : path_lib(out, cap, leaf);
	return err || access(out, R_OK) == 0 ? err : -errno;
}

bool path_policy_is_example(const char *word)
{
	char path[4096], example[300];
	int n = snprintf(example, sizeof(example), "%s%s", examples, word);

	return !strchr(word, '/') && n > 0 && (size_t)n < sizeof(example) &&
	       path_policy(path, sizeof(path), word) < 0 &&
	       path_policy(path, sizeof(path), example) == 0;
}

int path_program(char *out, size_t cap, const char *name)
{
	const char *dir;
	char own[4096];
	int err = env_dir("GBPF_BINDIR", &dir);

	if (err) {
		return err;
	}
	if (dir) {
		return join(out, cap, dir, "", name);
	}
	err = own_dir(own, sizeof(own));
	return err ? err : join(out, cap, own, "", name);
}
