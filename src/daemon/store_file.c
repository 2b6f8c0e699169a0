/* Files of a store. After a crash there is the old file or the new one, never a part of it. */
#include "daemon/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/point.h"

void daemon_store_path(char out[4200], const char *dir, uint64_t version, const char *ending)
{
	snprintf(out, 4200, "%s/%llu%s", dir, (unsigned long long)version, ending);
}

bool daemon_store_is_file(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

json_t *daemon_store_read_json(const char *path, size_t max)
{
	struct buf b;
	json_t *j = NULL;

	buf_init(&b);
	if (daemon_store_is_file(path) && buf_read_file(&b, path, max) == 0 && b.len) {
		j = json_loadb(b.data, b.len, 0, NULL);
	}
	buf_finish(&b);
	if (!json_is_object(j)) {
		json_decref(j);
		return NULL;
	}
	return j;
}

static int write_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno != EINTR) {
			return -errno;
		}
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int sync_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int err = fd < 0 || fsync(fd) < 0 ? -errno : 0;

	fd_close(fd);
	return err;
}

static int replace(const char *path, const void *data, size_t len)
{
	char part[4200];
	int fd, err;

	if (snprintf(part, sizeof(part), "%s.part", path) >= (int)sizeof(part)) {
		return -ENAMETOOLONG;
	}
	fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		return -errno;
	}
	err = write_all(fd, data, len);
	if (!err && fsync(fd) < 0) {
		err = -errno;
	}
	fd_close(fd);
	POINT("daemon.store.part_written");
	if (!err && rename(part, path) < 0) {
		err = -errno;
	}
	if (err) {
		unlink(part);
	}
	return err;
}

int daemon_store_write_object(const char *dir, uint64_t version, const void *object, size_t bytes,
			      const char *meta)
{
	char path[4200];
	int err;

	daemon_store_path(path, dir, version, ".bpf.o");
	err = replace(path, object, bytes);
	POINT("daemon.store.object_written");
	if (!err) { /* the description last: an object without one is ignored */
		daemon_store_path(path, dir, version, ".json");
		err = replace(path, meta, strlen(meta));
	}
	if (err) {
		daemon_store_delete_files(dir, version);
		return err;
	}
	POINT("daemon.store.meta_written");
	return sync_dir(dir);
}

int daemon_store_write(const char *dir, const char *file, const char *text)
{
	char path[4200];
	int err;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	err = replace(path, text, strlen(text));
	POINT("daemon.state.renamed");
	return err ? err : sync_dir(dir);
}

int daemon_store_read_object(const char *dir, uint64_t version, struct buf *object)
{
	char path[4200];

	daemon_store_path(path, dir, version, ".bpf.o");
	return buf_read_file(object, path, DAEMON_STORE_OBJECT_MAX);
}

void daemon_store_delete_files(const char *dir, uint64_t version)
{
	char path[4200];

	daemon_store_path(path, dir, version, ".json");
	unlink(path);
	daemon_store_path(path, dir, version, ".bpf.o");
	unlink(path);
}
