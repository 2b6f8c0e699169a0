/* Walks a path as the kernel does, and checks at each step that no third user can lead it
 * elsewhere. The checks cannot be overtaken: a step that only this user and root can change stays
 * as it was. */
#include "base/private_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/fd.h"

#define MAX_LINKS 40u

struct walk {
	char at[PATH_MAX];   /* the part that has been resolved, without a link; "" for / */
	char rest[PATH_MAX]; /* the part that has not */
	unsigned links;
	bool outside; /* this user namespace does not map overflow_uid */
	uid_t overflow_uid;
	char *why; /* PRIVATE_DIR_WHY bytes */
};

static int PRINTF_LIKE(3, 4) refuse(struct walk *w, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->why, PRIVATE_DIR_WHY, fmt, ap);
	va_end(ap);
	return err;
}

/* Reads the number at the beginning of a file; otherwise returns this one. */
static unsigned long first_number(const char *path, unsigned long otherwise)
{
	char text[32] = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	fd_close(fd);
	return n > 0 ? strtoul(text, NULL, 10) : otherwise;
}

/* Finds the user id that stands for owners outside of this user namespace. */
static void find_overflow(struct walk *w)
{
	FILE *f = fopen("/proc/self/uid_map", "re");
	unsigned long inside, parent, n;

	w->overflow_uid = (uid_t)first_number("/proc/sys/kernel/overflowuid", 65534);
	w->outside = f != NULL;
	while (f && fscanf(f, "%lu %lu %lu", &inside, &parent, &n) == 3) {
		w->outside &= w->overflow_uid < inside || w->overflow_uid - inside >= n;
	}
	if (f) {
		fclose(f);
	}
}

static bool is_trusted_owner(const struct walk *w, uid_t uid, bool last)
{
	return uid == 0 || uid == geteuid() || (!last && w->outside && uid == w->overflow_uid);
}

/* Returns the class of users that may write and must not, or NULL. */
static const char *other_writers(const struct stat *st, bool last)
{
	if (!last && (st->st_mode & S_ISVTX)) {
		return NULL;
	}
	if (st->st_mode & S_IWOTH) {
		return "everybody";
	}
	if ((st->st_mode & S_IWGRP) && (last || (st->st_gid != 0 && st->st_gid != geteuid()))) {
		return "its group";
	}
	return NULL;
}

static int check_step(struct walk *w, const struct stat *st, bool last)
{
	const char *path = w->at[0] ? w->at : "/", *who;

	if (!is_trusted_owner(w, st->st_uid, last)) {
		return refuse(w, -EPERM, "%s belongs to user %u", path, (unsigned)st->st_uid);
	}
	if (S_ISLNK(st->st_mode)) {
		return 0;
	}
	if (!S_ISDIR(st->st_mode)) {
		return refuse(w, -ENOTDIR, "%s is not a directory", path);
	}
	who = other_writers(st, last);
	return who ? refuse(w, -EPERM, "%s is writable by %s", path, who) : 0;
}

/* Moves the first component of rest into name. Returns false at the end. */
static bool next_name(struct walk *w, char name[NAME_MAX + 1], int *ret_err)
{
	const char *p = w->rest + strspn(w->rest, "/");
	size_t n = strcspn(p, "/"), left = strlen(p + n) + 1;

	*ret_err = 0;
	if (n > NAME_MAX) {
		*ret_err = refuse(w, -ENAMETOOLONG, "%s: a name is too long", w->rest);
		return false;
	}
	memcpy(name, p, n);
	name[n] = 0;
	memmove(w->rest, p + n, left);
	return n > 0;
}

static void go_up(struct walk *w)
{
	char *slash = strrchr(w->at, '/');

	if (slash) {
		*slash = 0;
	}
}

/* Replaces the link at w->at by its target. */
static int follow(struct walk *w)
{
	char target[PATH_MAX], rest[PATH_MAX];
	ssize_t n = readlink(w->at, target, sizeof(target) - 1);

	if (n < 0) {
		return refuse(w, -errno, "%s: %s", w->at, strerror(errno));
	}
	target[n] = 0;
	if (++w->links > MAX_LINKS) {
		return refuse(w, -ELOOP, "%s: %s", w->at, strerror(ELOOP));
	}
	if (snprintf(rest, sizeof(rest), "%s/%s", target, w->rest) >= (int)sizeof(rest)) {
		return refuse(w, -ENAMETOOLONG, "%s: the path is too long", w->at);
	}
	memcpy(w->rest, rest, strlen(rest) + 1);
	if (target[0] == '/') {
		w->at[0] = 0;
	} else {
		go_up(w);
	}
	return 0;
}

static int step(struct walk *w, const char *name)
{
	size_t len = strlen(w->at);
	struct stat st;
	int err;

	if (strcmp(name, ".") == 0) {
		return 0;
	}
	if (strcmp(name, "..") == 0) {
		go_up(w);
		return 0;
	}
	if (snprintf(w->at + len, sizeof(w->at) - len, "/%s", name) >= (int)(sizeof(w->at) - len)) {
		return refuse(w, -ENAMETOOLONG, "%s: the path is too long", w->at);
	}
	if (lstat(w->at, &st) < 0) {
		return refuse(w, -errno, "%s: %s", w->at, strerror(errno));
	}
	err = check_step(w, &st, false);
	return !err && S_ISLNK(st.st_mode) ? follow(w) : err;
}

static int check_path(struct walk *w)
{
	char name[NAME_MAX + 1];
	struct stat st;
	int err;

	if (stat("/", &st) < 0) {
		return refuse(w, -errno, "/: %s", strerror(errno));
	}
	err = check_step(w, &st, false);
	while (!err && next_name(w, name, &err)) {
		err = step(w, name);
	}
	if (err) {
		return err;
	}
	if (lstat(w->at[0] ? w->at : "/", &st) < 0) {
		return refuse(w, -errno, "%s: %s", w->at, strerror(errno));
	}
	return check_step(w, &st, true);
}

int private_dir_check(const char *dir, char why[PRIVATE_DIR_WHY])
{
	struct walk *w = calloc(1, sizeof(*w));
	int err;

	if (!w) {
		snprintf(why, PRIVATE_DIR_WHY, "out of memory");
		return -ENOMEM;
	}
	w->why = why;
	find_overflow(w);
	if (dir[0] != '/') {
		err = refuse(w, -EINVAL, "'%s' is not an absolute path", dir);
	} else if (strlen(dir) >= sizeof(w->rest)) {
		err = refuse(w, -ENAMETOOLONG, "%s: the path is too long", dir);
	} else {
		memcpy(w->rest, dir, strlen(dir) + 1);
		err = check_path(w);
	}
	free(w);
	return err;
}

/* Creates the missing parents of a directory. */
static int make_parents(const char *dir, char *why)
{
	char part[PATH_MAX];

	for (size_t i = 1; dir[i] && i < sizeof(part); i++) {
		if (dir[i] == '/') {
			memcpy(part, dir, i);
			part[i] = 0;
			if (mkdir(part, 0755) < 0 && errno != EEXIST) {
				snprintf(why, PRIVATE_DIR_WHY, "%s: %s", part, strerror(errno));
				return -errno;
			}
		}
	}
	return 0;
}

/* Names the first missing directory on the way to a directory that cannot be created. */
static int parent_missing(const char *dir, char *why)
{
	char part[PATH_MAX];

	for (size_t i = 1; dir[i] && i < sizeof(part); i++) {
		if (dir[i] == '/') {
			memcpy(part, dir, i);
			part[i] = 0;
			if (access(part, F_OK) < 0 && errno == ENOENT) {
				break;
			}
		}
	}
	snprintf(why, PRIVATE_DIR_WHY, "%s does not exist", part);
	return -ENOENT;
}

int private_dir_make(const char *dir, unsigned mode, bool parents, char why[PRIVATE_DIR_WHY])
{
	char unused[PRIVATE_DIR_WHY];
	bool created = false;
	int err = 0;

	why = why ? why : unused;
	why[0] = 0;
	if (dir[0] == '/' && strlen(dir) < PATH_MAX) {
		err = parents ? make_parents(dir, why) : 0;
		created = !err && mkdir(dir, mode) == 0;
		if (!err && !created && errno == ENOENT) {
			return parent_missing(dir, why);
		}
		if (!err && !created && errno != EEXIST) {
			err = -errno;
			snprintf(why, PRIVATE_DIR_WHY, "%s: %s", dir, strerror(-err));
		}
	}
	err = err ? err : private_dir_check(dir, why);
	if (err && created) {
		rmdir(dir);
	}
	return err;
}
