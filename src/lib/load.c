/* Sending the object of a policy or tool to gbpfd: reads it whole and passes it in a sealed memfd
 * with the request. */
#include "lib/lib_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"

/* Verification may take a second; waiting for sessions and the disk adds to it. */
#define LOAD_TIMEOUT_MS 30000u

static int make_memfd(const void *data, size_t bytes)
{
	int fd = shm_create("gbpf-object", bytes, SHM_NOEXEC);
	size_t done = 0;

	if (fd < 0) {
		return fd;
	}
	while (done < bytes) {
		ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)done);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			int err = n < 0 ? -errno : -EIO;

			fd_close(fd);
			return err;
		}
		done += (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0) {
		int err = -errno;

		fd_close(fd);
		return err;
	}
	return fd;
}

EXPORT int gbpf_policy_load_bytes(struct gbpf *g, const void *elf, size_t bytes, const char *name,
				  unsigned flags, char **ret_json)
{
	return gbpf_policy_load_watched(g, elf, bytes, name, flags, 0, NULL, ret_json);
}

int lib_send_object(struct gbpf *g, const char *method, const char *name, const void *elf,
		    size_t bytes, json_t *p, char **ret_json)
{
	unsigned timeout = g->timeout_ms;
	int fd, err;

	if (!bytes || bytes > GBPF_OBJECT_MAX_BYTES) {
		json_decref(p);
		return bytes ? lib_fail(g, -E2BIG, GBPF_CODE_LIMIT, "limit", NULL,
					"the object of %s has more than %u MiB", name,
					GBPF_OBJECT_MAX_BYTES >> 20)
			     : lib_fail(g, -EINVAL, GBPF_CODE_FAILED, "elf",
					"Build it with clang -target bpf -mcpu=v3 -g -O2 -c",
					"the object of %s is empty", name);
	}
	if (!p) {
		return lib_fail(g, -EINVAL, GBPF_CODE_USAGE, "usage", NULL, "a name must be UTF-8");
	}
	fd = make_memfd(elf, bytes);
	if (fd < 0) {
		json_decref(p);
		return lib_fail(g, fd, GBPF_CODE_FAILED, "memory", NULL,
				"cannot hand over the object: %s", strerror(-fd));
	}
	g->timeout_ms = timeout ? MAX(timeout, (unsigned)clock_patience(LOAD_TIMEOUT_MS)) : 0;
	err = lib_text(g, method, p, fd, ret_json);
	g->timeout_ms = timeout;
	fd_close(fd);
	return err;
}

EXPORT int gbpf_policy_load_watched(struct gbpf *g, const void *elf, size_t bytes, const char *name,
				    unsigned flags, uint64_t watch_ns, const char *rollback_if,
				    char **ret_json)
{
	json_t *p = json_pack("{s:s,s:b}", "name", name, "swap", !!(flags & GBPF_LOAD_SWAP));

	if (p && rollback_if) {
		json_object_set_new(p, "watch_ns", json_integer((json_int_t)watch_ns));
		json_object_set_new(p, "rollback_if", json_string(rollback_if));
	}
	if (p && flags & GBPF_LOAD_KEEP_MAPS) {
		json_object_set_new(p, "keep_maps", json_true());
	}
	if (p && flags & GBPF_LOAD_VOLATILE) {
		json_object_set_new(p, "volatile", json_true());
	}
	lib_name_gpu(g, p);
	return lib_send_object(g, "policy.load", name, elf, bytes, p, ret_json);
}

static void name_of(const char *path, char *out, size_t cap)
{
	static const char *const endings[] = { ".bpf.o", ".o" };
	const char *slash = strrchr(path, '/');

	snprintf(out, cap, "%s", slash ? slash + 1 : path);
	for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
		size_t n = strlen(out), e = strlen(endings[i]);

		if (n > e && strcmp(out + n - e, endings[i]) == 0) {
			out[n - e] = 0;
			break;
		}
	}
}

static int fail_read(struct gbpf *g, const char *path, int err)
{
	switch (err) {
	case -ENOENT:
		return lib_fail(g, err, GBPF_CODE_NOT_FOUND, "not-found",
				"Check the path of the .bpf.o", "%s does not exist", path);
	case -EACCES:
		return lib_fail(g, -EPERM, GBPF_CODE_PERMISSION, "permission", NULL,
				"not allowed to read %s", path);
	case -EFBIG:
		return lib_fail(g, -E2BIG, GBPF_CODE_LIMIT, "limit", NULL,
				"%s has more than %u MiB", path, GBPF_OBJECT_MAX_BYTES >> 20);
	default:
		return lib_fail(g, err, GBPF_CODE_FAILED, "read", NULL, "cannot read %s: %s", path,
				strerror(-err));
	}
}

EXPORT int gbpf_policy_load(struct gbpf *g, const char *path, const char *name, unsigned flags,
			    char **ret_json)
{
	char own_name[256];
	struct buf object;
	int err;

	buf_init(&object);
	err = buf_read_file(&object, path, GBPF_OBJECT_MAX_BYTES);
	if (err) {
		err = fail_read(g, path, err);
	} else {
		name_of(path, own_name, sizeof(own_name));
		err = gbpf_policy_load_bytes(g, object.data, object.len, name ? name : own_name,
					     flags, ret_json);
	}
	buf_finish(&object);
	return err;
}
