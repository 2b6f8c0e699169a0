/* Reads /proc/<pid>/stat, exe, cmdline, cgroup and cpu.weight of the
 * cgroup v2 (cgroups(7)). The kernel writes the text, but users choose the names in it: a path must
 * not lead out of the mount point. */
#include "daemon/session/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/procfs.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define READ_MAX 16384u

static void read_nice(pid_t pid, struct daemon_peer_share *s)
{
	long long nice;

	if (procfs_stat_field(pid, PROCFS_NICE, &nice, NULL) == 0 && nice >= -20 && nice <= 19) {
		s->nice = (int32_t)nice;
	}
}

/* Extracts the path from the line "0::/path" of cgroup v2. 0 or -1. */
static int group_path(const char *text, char *out, size_t cap)
{
	const char *p = strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/");
	size_t n;

	if (!p) {
		return -1;
	}
	p += *p == '\n' ? 4 : 3;
	n = strcspn(p, "\n");
	if (n >= cap) {
		return -1;
	}
	memcpy(out, p, n);
	out[n] = 0;
	return strstr(out, "/..") ? -1 : 0; /* outside of the mounted hierarchy */
}

static void read_weight(pid_t pid, struct daemon_peer_share *s)
{
	char path[64], group[1024], file[1200];
	struct buf b;
	long weight;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	buf_init(&b);
	if (buf_read_file(&b, path, READ_MAX) < 0 ||
	    group_path(buf_text(&b), group, sizeof(group)) < 0) {
		buf_finish(&b);
		return;
	}
	buf_finish(&b);
	buf_init(&b);
	snprintf(file, sizeof(file), CGROUP_ROOT "%s/cpu.weight", group);
	if (buf_read_file(&b, file, READ_MAX) == 0) {
		weight = strtol(buf_text(&b), NULL, 10);
		if (weight >= 1 && weight <= 10000) {
			s->cpu_weight = (uint32_t)weight;
		}
	}
	buf_finish(&b);
}

static uint64_t fnv(uint64_t h, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		h = (h ^ (uint8_t)text[i]) * 1099511628211u;
	}
	return h;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The first argument is included because programs run by one interpreter differ only there. */
static void read_command(pid_t pid, struct daemon_peer_share *s)
{
	char path[64], exe[1024], line[4096];
	ssize_t n;
	size_t first;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	if (n <= 0) {
		return;
	}
	exe[n] = 0;
	s->command = fnv(14695981039346656037u, base_name(exe), strlen(base_name(exe)) + 1);
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, line, sizeof(line) - 1);
	fd_close(fd);
	if (n <= 0) {
		return;
	}
	line[n] = 0;
	first = strlen(line) + 1;
	if (first < (size_t)n && line[first] != '-') {
		s->command =
			fnv(s->command, base_name(line + first), strlen(base_name(line + first)));
	}
}

struct daemon_peer_share daemon_peer_share_of(pid_t pid, int pidfd)
{
	const struct daemon_peer_share none = { .nice = 0, .cpu_weight = 100 };
	struct daemon_peer_share s = none;
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	if (pid <= 0 || pidfd < 0) {
		return none;
	}
	read_nice(pid, &s);
	read_weight(pid, &s);
	read_command(pid, &s);
	return poll(&p, 1, 0) == 0
		       ? s
		       : none; /* readable: the process has died, and its ID may have been reused */
}
