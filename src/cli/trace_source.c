/* The text of a line of a source file. */
#include "cli/trace.h"

#include <fcntl.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((off_t)4 << 20)

#define NOBODY 65534u

/* Where a user namespace has no such user, root looks files up as root. */
static bool may_show(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_size > 0 && st->st_size <= FILE_BYTES_MAX &&
	       (geteuid() != 0 || (st->st_mode & S_IROTH));
}

/* Opening a device, or the other end of a FIFO, would have effects, so the file is looked at
 * before it is opened for reading, by its descriptor: it is the same one then. */
static int open_regular(const char *name)
{
	int at = open(name, O_PATH | O_CLOEXEC), fd = -1;
	struct stat st;
	char link[32];

	if (at >= 0 && fstat(at, &st) == 0 && may_show(&st)) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
		fd = open(link, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	}
	if (at >= 0) {
		close(at);
	}
	return fd;
}

/* Root would show what the program's user may not read, so it looks as a user without rights. */
static FILE *open_source(const char *name)
{
	bool root = geteuid() == 0;
	FILE *f;
	int fd;

	if (root) {
		setfsgid(NOBODY);
		setfsuid(NOBODY);
	}
	fd = open_regular(name);
	if (root) {
		setfsuid(geteuid());
		setfsgid(getegid());
	}
	f = fd >= 0 ? fdopen(fd, "r") : NULL;
	if (fd >= 0 && !f) {
		close(fd);
	}
	return f;
}

/* Returns false if the file has fewer lines. `left` bounds a file that grows while it is read. */
static bool skip_lines(FILE *f, uint64_t lines, off_t *left)
{
	int c = 0;

	while (lines && *left > 0 && (c = getc_unlocked(f)) != EOF) {
		lines -= c == '\n';
		(*left)--;
	}
	return !lines;
}

static void take_line(FILE *f, char *ret, size_t size)
{
	size_t n = 0;
	int c;

	while (n + 1 < size && (c = getc_unlocked(f)) != EOF && c != '\n') {
		c = c == '\t' || c == '\r' ? ' ' : c;
		if (n || c != ' ') {
			ret[n++] = (char)(c >= ' ' && c <= '~' ? c : '?');
		}
	}
	while (n && ret[n - 1] == ' ') {
		n--;
	}
	ret[n] = 0;
}

void cli_trace_source(const char *file, uint64_t line, char ret[CLI_TRACE_SOURCE_BYTES])
{
	off_t left = FILE_BYTES_MAX;
	FILE *f = line ? open_source(file) : NULL;

	ret[0] = 0;
	if (!f) {
		return;
	}
	if (skip_lines(f, line - 1, &left)) {
		take_line(f, ret, CLI_TRACE_SOURCE_BYTES);
	}
	fclose(f);
}
