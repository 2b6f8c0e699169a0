/* What the host has room for (mem/host_room.h): proc(5), cgroups(7), and the kernel's
 * Documentation/accounting/psi.rst and admin-guide/cgroup-v2.rst. */
#include "mem/host_room.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"

#define FILE_MAX 65536u
#define PATH_BYTES 1280u
#define GROUP_BYTES 1024u
/* For this part of the last ten seconds some task of the machine has waited for memory. */
#define PRESSURE_MAX 500u /* hundredths of a percent */
#define MARGIN 8u	  /* this part of the whole is left alone */
/* Version 1 has no word for a group without a limit: the largest multiple of a page. */
#define NO_LIMIT (UINT64_C(1) << 62)

/* ---- texts ---- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Reads a decimal number and advances *at behind it. Returns false if there is none, or if it is
 * too large. */
static bool number(const char **at, uint64_t *ret)
{
	uint64_t n = 0;

	if (!is_digit(**at)) {
		return false;
	}
	for (; is_digit(**at); (*at)++) {
		unsigned digit = (unsigned)(**at - '0');

		if (n > (UINT64_MAX - digit) / 10) {
			return false;
		}
		n = n * 10 + digit;
	}
	*ret = n;
	return true;
}

/* Returns what follows a line's beginning, or NULL if no line begins so. */
static const char *behind(const char *text, const char *begin)
{
	size_t n = strlen(begin);

	while (strncmp(text, begin, n) != 0) {
		text = strchr(text, '\n');
		if (!text) {
			return NULL;
		}
		text++;
	}
	return text + n;
}

bool mem_host_parse_pressure(const char *text, uint64_t *ret)
{
	const char *at = behind(text, "some avg10=");
	uint64_t percent;

	if (!at || !number(&at, &percent) || percent > 100 || at[0] != '.' || !is_digit(at[1]) ||
	    !is_digit(at[2]) || at[3] != ' ') {
		return false;
	}
	*ret = percent * 100 + (uint64_t)(at[1] - '0') * 10 + (uint64_t)(at[2] - '0');
	return true;
}

bool mem_host_parse_field(const char *text, const char *name, uint64_t *ret)
{
	char begin[64];
	int n = snprintf(begin, sizeof(begin), "%s:", name);
	const char *at = behind(text, begin);
	uint64_t value, unit = at ? 1024 : 1;

	if (!at && n > 0 && (size_t)n < sizeof(begin)) {
		begin[n - 1] = ' ';
		at = behind(text, begin);
	}
	if (!at) {
		return false;
	}
	at += strspn(at, " ");
	if (!number(&at, &value) || value > UINT64_MAX / unit) {
		return false;
	}
	if (unit == 1 ? *at && *at != '\n' : strncmp(at, " kB", 3) != 0) {
		return false;
	}
	*ret = value * unit;
	return true;
}

/* Returns true if a list "cpu,memory" has the word. */
static bool has_word(const char *list, size_t bytes, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = list; at + n <= list + bytes; at++) {
		bool begins = at == list || at[-1] == ',';

		if (begins && strncmp(at, word, n) == 0 &&
		    (at + n == list + bytes || at[n] == ',')) {
			return true;
		}
	}
	return false;
}

/* Copies the path of a line if it is one. */
static bool copy_path(const char *from, size_t bytes, char *ret, size_t room)
{
	if (!bytes || *from != '/' || bytes >= room) {
		return false;
	}
	memcpy(ret, from, bytes);
	ret[bytes] = '\0';
	return !strstr(ret, "/.."); /* outside of the mounted hierarchy */
}

/* A line is "number:controllers:path". */
bool mem_host_parse_group(const char *text, const char *controller, char *ret, size_t room)
{
	while (*text) {
		size_t line = strcspn(text, "\n");
		const char *list = memchr(text, ':', line), *end = text + line;
		const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;

		if (path) {
			size_t bytes = (size_t)(path - ++list);

			if (*controller ? has_word(list, bytes, controller) : bytes == 0) {
				return copy_path(path + 1, (size_t)(end - path - 1), ret, room);
			}
		}
		text = *end ? end + 1 : end;
	}
	return false;
}

/* ---- files ---- */

/* Reads a whole file as text. Returns false if it cannot be read; else the caller finishes b. */
static bool read_text(struct buf *b, const char *root, const char *folder, const char *name)
{
	char path[PATH_BYTES + 64];
	int n = snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);

	buf_init(b);
	if (n > 0 && (size_t)n < sizeof(path) && buf_read_file(b, path, FILE_MAX) == 0) {
		return true;
	}
	buf_finish(b);
	return false;
}

/* Reads a file of one number. Returns false if it is anything else ("max"). */
static bool read_number(const char *root, const char *folder, const char *name, uint64_t *ret)
{
	struct buf b;
	const char *at;
	bool is = false;

	if (read_text(&b, root, folder, name)) {
		at = buf_text(&b);
		is = number(&at, ret) && (!*at || *at == '\n');
		buf_finish(&b);
	}
	return is;
}

static bool is_under_pressure(const char *root)
{
	uint64_t pressure = 0;
	struct buf b;

	if (read_text(&b, root, "/proc/pressure", "memory")) {
		(void)mem_host_parse_pressure(buf_text(&b), &pressure);
		buf_finish(&b);
	}
	return pressure >= PRESSURE_MAX;
}

/* Returns what is left of the whole, less the margin. */
static uint64_t less_margin(uint64_t all, uint64_t left)
{
	return left > all / MARGIN ? left - all / MARGIN : 0;
}

static uint64_t room_of_machine(const char *root)
{
	uint64_t all, available, room = UINT64_MAX;
	struct buf b;

	if (!read_text(&b, root, "/proc", "meminfo")) {
		return room;
	}
	if (mem_host_parse_field(buf_text(&b), "MemTotal", &all) &&
	    mem_host_parse_field(buf_text(&b), "MemAvailable", &available)) {
		room = less_margin(all, available);
	}
	buf_finish(&b);
	return room;
}

/* The files of a version of control groups. */
struct version {
	const char *controller, *mount, *limit, *use;
	const char *reclaimable; /* the field of memory.stat: part of the use that is the first to
				    be taken back */
};

static const struct version versions[] = {
	{ "", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file" },
	{ "memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
	  "total_inactive_file" },
};

/* Returns what one group leaves. */
static uint64_t room_of_group(const char *root, const char *folder, const struct version *v)
{
	uint64_t limit, use, cache = 0;
	struct buf b;

	if (!read_number(root, folder, v->limit, &limit) || limit >= NO_LIMIT ||
	    !read_number(root, folder, v->use, &use)) {
		return UINT64_MAX;
	}
	if (read_text(&b, root, folder, "memory.stat")) {
		(void)mem_host_parse_field(buf_text(&b), v->reclaimable, &cache);
		buf_finish(&b);
	}
	use -= MIN(use, cache);
	return less_margin(limit, limit - MIN(limit, use));
}

/* Returns the least that the group of the process and those above it leave. In a container the
 * path may be that of the machine's hierarchy, of which only the upper folders exist. */
static uint64_t room_of_groups(const char *root, const char *text, const struct version *v)
{
	char path[GROUP_BYTES], folder[PATH_BYTES];
	uint64_t room = UINT64_MAX;
	char *end;

	if (!mem_host_parse_group(text, v->controller, path, sizeof(path))) {
		return room;
	}
	for (;;) {
		snprintf(folder, sizeof(folder), "%s%s", v->mount, path);
		room = min_once(room, room_of_group(root, folder, v));
		end = strrchr(path, '/');
		if (!end) {
			return room;
		}
		*end = '\0';
	}
}

uint64_t mem_host_room(const char *root)
{
	uint64_t room = room_of_machine(root);
	struct buf b;

	if (is_under_pressure(root)) {
		return 0;
	}
	if (read_text(&b, root, "/proc/self", "cgroup")) {
		for (unsigned i = 0; i < ARRAY_SIZE(versions); i++) {
			room = min_once(room, room_of_groups(root, buf_text(&b), &versions[i]));
		}
		buf_finish(&b);
	}
	return room;
}
