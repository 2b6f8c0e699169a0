/* The text of lines of source files. Each file of a document is read once. */
#include "cli/trace.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/strmap.h"

#define FILE_BYTES_MAX ((off_t)4 << 20)
#define ALL_BYTES_MAX ((size_t)64 << 20) /* texts, and offsets of lines */

#define NOBODY 65534u

struct source {
	char *text;	/* owned; NULL: the file is not shown */
	uint32_t *line; /* owned; offset of each line in the text */
	size_t bytes, lines;
};

struct cli_trace_sources {
	struct strmap files; /* struct source by name; owned */
	size_t bytes;	     /* of all */
};

/* ---- opening ---- */

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

/* Sets the supplementary groups of this thread only, which setgroups() of the C library would set
 * for all threads. */
static bool set_groups(size_t n, const gid_t *groups)
{
	return syscall(SYS_setgroups, n, groups) == 0;
}

/* Returns whether this thread has root's rights again. */
static bool restore(size_t n, const gid_t *groups)
{
	setfsuid(geteuid());
	setfsgid(getegid());
	return (!n || set_groups(n, groups)) && (uid_t)setfsuid((uid_t)-1) == geteuid() &&
	       (gid_t)setfsgid((gid_t)-1) == getegid();
}

/* Opens a file as a user without rights, whose groups are none. Returns a descriptor, or -1, also
 * if the groups cannot be dropped. If they cannot be restored the thread has fewer rights than
 * before, and no file is opened any more. */
static int open_as_nobody(const char *name)
{
	static bool stuck;
	int n = getgroups(0, NULL), fd = -1;
	gid_t *groups = n >= 0 && !stuck ? calloc((size_t)n + 1, sizeof(*groups)) : NULL;

	n = groups ? getgroups(n, groups) : -1;
	if (n >= 0 && (!n || set_groups(0, NULL))) {
		setfsgid(NOBODY);
		setfsuid(NOBODY);
		fd = open_regular(name);
		stuck = !restore((size_t)n, groups);
	}
	if (stuck && fd >= 0) {
		close(fd);
		fd = -1;
	}
	free(groups);
	return fd;
}

/* Root would show what the program's user may not read. */
static int open_source(const char *name)
{
	return geteuid() == 0 ? open_as_nobody(name) : open_regular(name);
}

/* ---- reading ---- */

/* Returns how many bytes were read: fewer if the file has become shorter. */
static size_t read_text(int fd, char *to, size_t bytes)
{
	size_t n = 0;
	ssize_t got;

	while (n < bytes && (got = read(fd, to + n, bytes - n)) > 0) {
		n += (size_t)got;
	}
	return n;
}

/* Finds the lines of the text. Returns false if there is no memory. */
static bool split(struct source *f)
{
	size_t n = 1;

	for (size_t i = 0; i < f->bytes; i++) {
		n += f->text[i] == '\n';
	}
	f->line = calloc(n, sizeof(*f->line));
	for (size_t i = 0; f->line && i < f->bytes; i++) {
		if (f->text[i] == '\n') {
			f->line[++f->lines] = (uint32_t)i + 1;
		}
	}
	f->lines++;
	return f->line != NULL;
}

static void clear(struct source *f)
{
	free(f->text);
	free(f->line);
	*f = (struct source){ 0 };
}

/* Reads a file if there is room for it. */
static void load(struct cli_trace_sources *s, struct source *f, const char *name)
{
	size_t room = ALL_BYTES_MAX - s->bytes, bytes;
	int fd = open_source(name);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size <= FILE_BYTES_MAX &&
	    (size_t)st.st_size <= room) {
		f->text = malloc((size_t)st.st_size);
		f->bytes = f->text ? read_text(fd, f->text, (size_t)st.st_size) : 0;
	}
	if (fd >= 0) {
		close(fd);
	}
	bytes = f->text && split(f) ? f->bytes + f->lines * sizeof(*f->line) : SIZE_MAX;
	if (bytes > room) {
		clear(f);
	} else {
		s->bytes += bytes;
	}
}

/* Returns NULL if there is no memory. */
static const struct source *source_of(struct cli_trace_sources *s, const char *name)
{
	struct source *f = strmap_get(&s->files, name);

	if (f) {
		return f;
	}
	f = calloc(1, sizeof(*f));
	if (!f || strmap_add(&s->files, name, f) < 0) {
		free(f);
		return NULL;
	}
	load(s, f, name);
	return f;
}

struct cli_trace_sources *cli_trace_sources_new(void)
{
	struct cli_trace_sources *s = calloc(1, sizeof(*s));

	if (s) {
		strmap_init(&s->files);
	}
	return s;
}

void cli_trace_sources_free(struct cli_trace_sources *s)
{
	if (!s) {
		return;
	}
	strmap_each (&s->files, e) {
		clear(e->value);
		free(e->value);
	}
	strmap_finish(&s->files);
	free(s);
}

/* ---- a line ---- */

static void take_line(const char *at, const char *end, char *ret, size_t size)
{
	size_t n = 0;

	for (; n + 1 < size && at < end && *at != '\n'; at++) {
		char c = *at == '\t' || *at == '\r' ? ' ' : *at;

		if (n || c != ' ') {
			ret[n++] = (char)(c >= ' ' && c <= '~' ? c : '?');
		}
	}
	while (n && ret[n - 1] == ' ') {
		n--;
	}
	ret[n] = 0;
}

void cli_trace_source(struct cli_trace_sources *s, const char *file, uint64_t line,
		      char ret[CLI_TRACE_SOURCE_BYTES])
{
	const struct source *f = s && line ? source_of(s, file) : NULL;

	ret[0] = 0;
	if (f && line <= f->lines) {
		take_line(f->text + f->line[line - 1], f->text + f->bytes, ret,
			  CLI_TRACE_SOURCE_BYTES);
	}
}
