/* Events: the ring in memory and the file behind it. Write errors (disk full) are counted; the ring
 * continues. */
#include "daemon/history.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/private_file.h"
#include "daemon/clean_text.h"

#define MAX_SEQ (INT64_C(1) << 53)
#define LINE_REST 160u /* of a line, without the text */

json_t *daemon_history_json(const struct daemon_history_event *e)
{
	json_t *j = json_pack("{s:I,s:I,s:s}", "seq", (json_int_t)e->seq, "wall_ns",
			      (json_int_t)e->wall_ns, "kind", e->kind);

	if (j && e->tenant >= 0) {
		json_object_set_new(j, "tenant", json_integer(e->tenant));
	}
	if (j && e->pid >= 0) {
		json_object_set_new(j, "pid", json_integer(e->pid));
	}
	if (j && e->uid >= 0) {
		json_object_set_new(j, "uid", json_integer((json_int_t)e->uid));
	}
	if (j && e->has_use) {
		json_object_set_new(j, "gpu_ns",
				    json_integer((json_int_t)MIN(e->use.gpu_ns, INT64_MAX)));
	}
	if (j && e->has_use && e->use.mem_peak) {
		json_object_set_new(j, "mem_peak",
				    json_integer((json_int_t)MIN(e->use.mem_peak, INT64_MAX)));
	}
	if (j && e->hash) {
		char hash[24];

		snprintf(hash, sizeof(hash), "%016" PRIx64, e->hash);
		json_object_set_new(j, "hash", json_string(hash));
	}
	if (j) {
		json_object_set_new(j, "text", json_string(e->text));
	}
	return j;
}

static void read_line(struct daemon_history *h, const char *line, size_t len)
{
	json_t *j = json_loadb(line, len, 0, NULL), *v;
	json_int_t seq = json_integer_value(json_object_get(j, "seq"));
	const char *kind = json_string_value(json_object_get(j, "kind"));
	const char *text = json_string_value(json_object_get(j, "text"));
	struct daemon_history_event *e;

	if (seq <= 0 || seq > MAX_SEQ || (uint64_t)seq < h->next || !kind || !text) {
		json_decref(j); /* torn line: gbpfd was killed while writing */
		return;
	}
	e = daemon_history_append(h, (uint64_t)seq);
	e->wall_ns = (uint64_t)json_integer_value(json_object_get(j, "wall_ns"));
	v = json_object_get(j, "tenant");
	e->tenant = v ? (int32_t)json_integer_value(v) : -1;
	v = json_object_get(j, "pid");
	e->pid = v ? (int32_t)json_integer_value(v) : -1;
	v = json_object_get(j, "uid");
	e->uid = v ? (int64_t)json_integer_value(v) : -1;
	v = json_object_get(j, "gpu_ns");
	e->has_use = json_is_integer(v);
	e->use.gpu_ns = (uint64_t)json_integer_value(v);
	e->use.mem_peak = (uint64_t)json_integer_value(json_object_get(j, "mem_peak"));
	v = json_object_get(j, "hash");
	e->hash = json_is_string(v) ? strtoull(json_string_value(v), NULL, 16) : 0;
	daemon_text_copy(e->kind, sizeof(e->kind), kind, strlen(kind));
	daemon_text_copy(e->text, sizeof(e->text), text, strlen(text));
	json_decref(j);
}

static void read_old(struct daemon_history *h, const char *path)
{
	struct buf b;
	const char *p, *end, *nl;

	buf_init(&b);
	if (buf_read_file(&b, path, 2 * DAEMON_HISTORY_FILE_BYTES) == 0) {
		p = buf_text(&b);
		end = p + b.len;
		while (p < end && (nl = memchr(p, '\n', (size_t)(end - p)))) {
			read_line(h, p, (size_t)(nl - p));
			p = nl + 1;
		}
	}
	buf_finish(&b);
}

static void open_file(struct daemon_history *h)
{
	struct stat st;

	h->fd = private_file_open(h->path, O_WRONLY | O_CREAT | O_APPEND);
	h->bytes = h->fd >= 0 && fstat(h->fd, &st) == 0 ? (size_t)st.st_size : 0;
	if (h->fd < 0) {
		h->write_errors++;
	} else if (h->bytes && write(h->fd, "\n", 1) < 0) {
		h->write_errors++; /* ends a line torn by a kill, so that the next one is a line of
				      its own */
	}
}

int daemon_history_open(struct daemon_history *h, const char *state_dir, const char *name)
{
	memset(h, 0, sizeof(*h));
	h->fd = -1;
	h->next = 1;
	if (daemon_history_ring_open(h) < 0 ||
	    asprintf(&h->path, "%s/%s.jsonl", state_dir, name) < 0) {
		h->path = NULL;
		daemon_history_close(h);
		return -ENOMEM;
	}
	if (asprintf(&h->old_path, "%s.1", h->path) < 0) {
		h->old_path = NULL;
		daemon_history_close(h);
		return -ENOMEM;
	}
	read_old(h, h->old_path);
	h->file_seq = h->next;
	read_old(h, h->path);
	open_file(h);
	return 0;
}

void daemon_history_close(struct daemon_history *h)
{
	h->fd = fd_close(h->fd);
	daemon_history_ring_close(h);
	free(h->path);
	free(h->old_path);
	h->path = h->old_path = NULL;
}

/* Returns the event as a line; NULL: no memory. Caller frees. */
static char *line_of(const struct daemon_history_event *e)
{
	json_t *j = daemon_history_json(e);
	char *text = j ? json_dumps(j, JSON_COMPACT) : NULL, *line = NULL;

	json_decref(j);
	if (text && asprintf(&line, "%s\n", text) < 0) {
		line = NULL;
	}
	free(text);
	return line;
}

/* Writes a line. 0 or -EIO. */
static int write_line(int to, const struct daemon_history_event *e)
{
	char *line = line_of(e);
	size_t len = line ? strlen(line) : 0;
	int err = line && write(to, line, len) == (ssize_t)len ? 0 : -EIO;

	free(line);
	return err;
}

/* Returns the place of the first event from which on gbpfd's own fit. */
static unsigned first_carried(const struct daemon_history *h, unsigned end)
{
	unsigned first = end;
	size_t bytes = 0;

	for (unsigned i = end; i > 0; i--) {
		const struct daemon_history_event *e = daemon_history_at(h, i - 1);

		bytes += e->uid < 0 ? strlen(e->text) + LINE_REST : 0;
		if (bytes > DAEMON_HISTORY_CARRIED_BYTES) {
			break;
		}
		first = i - 1;
	}
	return first;
}

/* Writes gbpfd's own events that are older than the current file. */
static int carry(const struct daemon_history *h, int to)
{
	unsigned end = daemon_history_after(h, h->file_seq - 1);
	int err = 0;

	for (unsigned i = first_carried(h, end); !err && i < end; i++) {
		const struct daemon_history_event *e = daemon_history_at(h, i);

		err = e->uid < 0 ? write_line(to, e) : 0;
	}
	return err;
}

static int copy(int to, int from)
{
	char part[16384];
	ssize_t n;

	while ((n = read(from, part, sizeof(part))) > 0) {
		if (write(to, part, (size_t)n) != n) {
			return -EIO;
		}
	}
	return n < 0 ? -EIO : 0;
}

/* Begins a new file. Users may write as much as both files hold, so the events of gbpfd itself are
 * carried over from file to file; history_ring.c spares them, too. */
static void rotate(struct daemon_history *h)
{
	char *carried = NULL;
	int to = -1, from = open(h->path, O_RDONLY | O_CLOEXEC), err = -EIO;

	if (from >= 0 && asprintf(&carried, "%s.new", h->old_path) >= 0) {
		to = private_file_open(carried, O_WRONLY | O_CREAT | O_TRUNC);
		err = to < 0 ? to : carry(h, to);
		err = err ? err : copy(to, from);
	}
	h->fd = fd_close(h->fd);
	(void)fd_close(from);
	(void)fd_close(to);
	if (!err && rename(carried, h->old_path) == 0) {
		(void)unlink(h->path); /* if gbpfd is killed before, its events are read once */
	} else if (rename(h->path, h->old_path) < 0) {
		h->write_errors++;
	}
	free(carried);
	open_file(h);
	h->file_seq = h->next;
}

/* Writes a line by one call, so that a kill tears at most one. */
static void write_whole(struct daemon_history *h, const char *line, size_t len)
{
	ssize_t n;

	if (h->torn && write(h->fd, "\n", 1) == 1) { /* or the line would continue that one */
		h->torn = false;
	}
	n = h->torn ? 0 : write(h->fd, line, len);
	h->write_errors += n != (ssize_t)len;
	h->torn |= n > 0 && n != (ssize_t)len;
	h->bytes += n > 0 ? (size_t)n : 0;
}

static void write_event(struct daemon_history *h, const struct daemon_history_event *e)
{
	char *line = line_of(e);
	size_t len = line ? strlen(line) : 0;

	if (h->fd < 0) {
		open_file(h); /* the disk may have room again */
	}
	if (line && h->fd >= 0) {
		write_whole(h, line, len);
	}
	free(line);
	if (h->bytes > DAEMON_HISTORY_FILE_BYTES) {
		rotate(h);
	}
}

struct author {
	int64_t uid;
	uint64_t hash;
	const struct daemon_history_use *use; /* NULL: it is the end of no process */
};

PRINTF_LIKE(6, 0)
static const struct daemon_history_event *add(struct daemon_history *h, struct author a,
					      const char *kind, int tenant, int pid,
					      const char *fmt, va_list ap)
{
	struct daemon_history_event *e = daemon_history_append(h, h->next);

	e->wall_ns = clock_wall_ns();
	e->tenant = tenant;
	e->pid = pid;
	e->uid = a.uid;
	e->hash = a.hash;
	e->has_use = a.use != NULL;
	e->use = a.use ? *a.use : e->use;
	snprintf(e->kind, sizeof(e->kind), "%s", kind);
	daemon_text_clean(e->kind);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	daemon_text_clean(e->text);
	write_event(h, e);
	if (h->listener) {
		h->listener(h->arg, e);
	}
	return e;
}

void daemon_history_add(struct daemon_history *h, const char *kind, int pid, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(h, (struct author){ .uid = -1 }, kind, -1, pid, fmt, ap);
	va_end(ap);
}

void daemon_history_add_of(struct daemon_history *h, uid_t uid, const char *kind, int tenant,
			   int pid, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(h, (struct author){ .uid = (int64_t)uid }, kind, tenant, pid, fmt, ap);
	va_end(ap);
}

void daemon_history_add_end(struct daemon_history *h, uid_t uid, const char *kind, int tenant,
			    int pid, const struct daemon_history_use *use, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(h, (struct author){ .uid = (int64_t)uid, .use = use }, kind, tenant, pid, fmt, ap);
	va_end(ap);
}

const struct daemon_history_event *daemon_history_add_audit(struct daemon_history *h, uid_t uid,
							    int pid, const char *kind,
							    uint64_t hash, const char *fmt, ...)
{
	const struct daemon_history_event *e;
	va_list ap;

	va_start(ap, fmt);
	e = add(h, (struct author){ .uid = (int64_t)uid, .hash = hash }, kind, -1, pid, fmt, ap);
	va_end(ap);
	return e;
}

/* Events that an older gbpfd has recorded lack the user: those of a tenant are administrators'. */
bool daemon_history_may_read(const struct daemon_history_event *e, uid_t uid)
{
	return e->uid < 0 ? e->tenant < 0 : e->uid == (int64_t)uid;
}

/* ---- repeated events ---- */

#define REPEAT_FIRST_NS 10000000000u
#define REPEAT_MAX_NS 3600000000000u
#define REPEAT_OVER_NS 60000000000u

/* Returns the entry of this kind and process (tenant numbers are reused by other processes), or the
 * least recently used one, reset. */
static struct daemon_history_repeat *repeat_of(struct daemon_history *h, const char *kind,
					       int tenant, int pid)
{
	struct daemon_history_repeat *oldest = &h->repeats[0];

	for (struct daemon_history_repeat *r = h->repeats; r < h->repeats + DAEMON_HISTORY_REPEATS;
	     r++) {
		if (r->kind[0] && r->tenant == tenant && r->pid == pid &&
		    strncmp(r->kind, kind, sizeof(r->kind) - 1) == 0) {
			return r;
		}
		oldest = r->last_ns < oldest->last_ns ? r : oldest;
	}
	*oldest = (struct daemon_history_repeat){ .tenant = tenant, .pid = pid };
	snprintf(oldest->kind, sizeof(oldest->kind), "%s", kind);
	return oldest;
}

static uint64_t next_wait(uint64_t wait_ns)
{
	return wait_ns == 0		     ? REPEAT_FIRST_NS
	       : wait_ns == REPEAT_FIRST_NS  ? 6 * wait_ns
	       : wait_ns < REPEAT_MAX_NS / 6 ? 10 * wait_ns
					     : REPEAT_MAX_NS;
}

void daemon_history_repeat(struct daemon_history *h, uint64_t now, uid_t uid, const char *kind,
			   int tenant, int pid, const char *fmt, ...)
{
	struct daemon_history_repeat *r = repeat_of(h, kind, tenant, pid);
	char text[300];
	va_list ap;

	if (r->last_ns && now - r->last_ns >= REPEAT_OVER_NS) {
		r->wait_ns = 0;
	}
	r->last_ns = now;
	if (r->wait_ns && now - r->told_ns < r->wait_ns) {
		r->more++;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (r->more) {
		daemon_history_add_of(h, uid, kind, tenant, pid,
				      "%s (and %u more in the %llu s before)", text, r->more,
				      (unsigned long long)((now - r->told_ns) / 1000000000u));
	} else {
		daemon_history_add_of(h, uid, kind, tenant, pid, "%s", text);
	}
	r->wait_ns = next_wait(r->wait_ns);
	r->told_ns = now;
	r->more = 0;
}
