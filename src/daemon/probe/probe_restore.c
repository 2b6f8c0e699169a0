/* Attaches the tools of an earlier gbpfd again. They have their numbers, and so the versions that
 * programs know them by: a program that still runs one keeps it, with the values of its maps.
 * Stored descriptions are checked like requests; a tool that cannot be attached again is forgotten,
 * with an event. Also watches processes whose end is the end of such a tool. */
#include "daemon/probe/probes_int.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/procfs.h"
#include "base/strmap.h"
#include "daemon/clean_text.h"
#include "daemon/store_file.h"

#define META_MAX (64u << 10)
#define IDS_MAX 64u

/* ---- processes ---- */

struct daemon_process daemon_process_of(pid_t pid)
{
	struct daemon_process p = { 0 };

	if (pid > 0 && procfs_stat_field(pid, PROCFS_START, &p.start, NULL) == 0) {
		p.pid = pid;
	}
	return p;
}

void daemon_probe_unwatch(struct daemon_probe_watch *w)
{
	if (w->source) {
		w->source = sd_event_source_disable_unref(w->source);
		fd_close(w->fd);
	}
}

static int on_process_end(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
	struct daemon_probe *p = arg;

	(void)fd;
	(void)revents;
	daemon_probe_record(p, &p->owner, p->by_admin, "detach", "%s has ended",
			    src == p->holder_watch.source ? "the process that held it"
							  : "its program");
	daemon_probe_end(p, 0, 0); /* and of the watches */
	return 0;
}

/* A pidfd stays that of its process, so it is opened before the process is compared. */
static int watch(struct daemon_probe *p, struct daemon_probe_watch *w,
		 const struct daemon_process *process)
{
	struct pollfd poll_fd = { .events = POLLIN };
	struct daemon_process now;
	int err;

	w->fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
	if (w->fd < 0) {
		return -errno;
	}
	now = daemon_process_of(process->pid);
	poll_fd.fd = w->fd;
	err = !now.pid || now.start != process->start || poll(&poll_fd, 1, 0) != 0 ? -ESRCH : 0;
	err = err ? err
		  : sd_event_add_io(p->d->loop, &w->source, w->fd, EPOLLIN, on_process_end, p);
	if (err < 0) {
		fd_close(w->fd);
		return err;
	}
	return 0;
}

int daemon_probe_watch(struct daemon_probe *p)
{
	int err = 0;

	if (p->held && !p->hold) {
		err = watch(p, &p->holder_watch, &p->holder);
	}
	if (!err && p->target.awaited) {
		err = watch(p, &p->target_watch, &p->target.process);
	}
	return err;
}

/* ---- descriptions ---- */

static json_t *read_file(const struct daemon *d, const char *file)
{
	char path[DAEMON_PATH + 16 + NAME_MAX + 2];

	snprintf(path, sizeof(path), "%s/%s", d->probes->dir, file);
	return daemon_store_read_json(path, META_MAX);
}

static json_int_t number(const json_t *j, const char *member)
{
	return json_integer_value(json_object_get(j, member));
}

static const char *text(const json_t *j, const char *member)
{
	const char *s = json_string_value(json_object_get(j, member));

	return s ? s : "";
}

static struct daemon_process take_process(const json_t *j, const char *member)
{
	const json_t *p = json_object_get(j, member);
	json_int_t pid = number(p, "pid");

	return (struct daemon_process){ .pid = pid > 0 && pid <= INT32_MAX ? (pid_t)pid : 0,
					.start = number(p, "start") };
}

static void take_target(struct daemon_probe_target *t, const json_t *j)
{
	json_int_t uid = number(j, "uid");

	*t = (struct daemon_probe_target){ .uid = uid, .tenant = -1 };
	daemon_text_copy(t->name, sizeof(t->name), text(j, "name"), strlen(text(j, "name")));
	daemon_text_copy(t->text, sizeof(t->text), text(j, "text"), strlen(text(j, "text")));
	t->process = take_process(j, "process");
	t->awaited = t->process.pid != 0;
}

/* Returns NULL, or what is wrong with the description. */
static const char *take_meta(struct daemon_probe *p, const json_t *j)
{
	uint64_t age = clock_wall_ns() - (uint64_t)number(j, "attached_wall_ns");
	json_int_t ppm = number(j, "budget_ppm"), every = number(j, "every");
	const char *kernel = text(j, "kernel");

	if (!daemon_control_good_name(text(j, "name")) || !daemon_probe_good_kernel(kernel) ||
	    ppm < 0 || ppm > DAEMON_PROBE_BUDGET_MAX || every < 0 ||
	    every > DAEMON_PROBE_EVERY_MAX || !json_is_object(json_object_get(j, "target")) ||
	    !daemon_probe_scopes_take(&p->control, json_object_get(j, "scopes"))) {
		return "its description is not valid";
	}
	daemon_text_copy(p->name, sizeof(p->name), text(j, "name"), strlen(text(j, "name")));
	snprintf(p->kernel, sizeof(p->kernel), "%s", kernel);
	p->budget_ppm = (uint32_t)ppm;
	p->control.every = (uint32_t)every;
	p->control.off = json_is_true(json_object_get(j, "off"));
	p->partial = json_is_true(json_object_get(j, "partial"));
	p->owner.uid = (uid_t)number(j, "uid");
	p->owner.pid = (pid_t)number(j, "pid");
	p->by_admin = json_is_true(json_object_get(j, "admin"));
	p->attached_ns = clock_now_ns() - MIN(age, clock_now_ns());
	take_target(&p->target, json_object_get(j, "target"));
	p->held = json_object_get(j, "holder") != NULL;
	p->holder = take_process(j, "holder");
	return NULL;
}

/* ---- attaching ---- */

/* 0, or -errno with the report. */
static int build(struct daemon_probe *p, struct report *r)
{
	struct buf object;
	int err;

	buf_init(&object);
	err = daemon_store_read_object(p->d->probes->dir, p->id, &object);
	if (err) {
		report_set(r, err, "store", "its object cannot be read: %s", strerror(-err));
	} else {
		p->hash = hash_bytes(object.data, object.len);
		err = daemon_probe_build(p, &object, r);
	}
	buf_finish(&object);
	return err;
}

static int attach(struct daemon_probe *p, const json_t *meta, struct report *r)
{
	const char *fault = take_meta(p, meta);
	uint64_t attached_ns = p->attached_ns;
	int err;

	if (fault) {
		return report_set(r, -EINVAL, "store", "%s", fault);
	}
	err = daemon_probe_watch(p);
	if (err) {
		return report_set(r, err, "ended", "%s",
				  err == -ESRCH ? "its program, or the process that held it, has "
						  "ended"
						: strerror(-err));
	}
	err = build(p, r);
	if (err) {
		return err;
	}
	p->stored = true;
	err = daemon_probe_insert(p);
	p->attached_ns = attached_ns;
	return err ? report_set(r, err, "limit", "there are too many tools") : 0;
}

static void restore(struct daemon *d, uint32_t id, const json_t *meta)
{
	struct daemon_probe *p = calloc(1, sizeof(*p));
	struct report r;

	report_init(&r);
	if (!p) {
		return; /* its files stay */
	}
	p->d = d;
	p->id = id;
	buf_init(&p->object);
	if (attach(p, meta, &r) == 0) {
		daemon_history_add_of(&d->history, p->owner.uid, "probe", -1, 0,
				      "tool %u '%s' of an earlier gbpfd is attached again", id,
				      p->name);
	} else {
		daemon_history_add_of(&d->history, p->owner.uid, "probe", -1, 0,
				      "tool %u of an earlier gbpfd was detached: %s", id,
				      buf_text(&r.message));
		daemon_store_delete_files(d->probes->dir, id);
		daemon_probe_free(p);
	}
	report_finish(&r);
}

/* ---- the directory ---- */

struct stored {
	uint32_t id;
	json_t *meta; /* owned */
};

static int by_id(const void *a, const void *b)
{
	const struct stored *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

/* Returns the number of a file N.json, or 0. */
static uint32_t id_of(const char *file)
{
	char *end;
	unsigned long long n = strtoull(file, &end, 10);

	return file[0] >= '1' && file[0] <= '9' && n < UINT32_MAX && strcmp(end, ".json") == 0
		       ? (uint32_t)n
		       : 0;
}

static unsigned list(struct daemon *d, struct stored at[IDS_MAX])
{
	DIR *dir = opendir(d->probes->dir);
	const struct dirent *e;
	unsigned n = 0;

	while (dir && n < IDS_MAX && (e = readdir(dir))) {
		if (id_of(e->d_name)) {
			at[n].id = id_of(e->d_name);
			at[n++].meta = read_file(d, e->d_name);
		}
	}
	if (dir) {
		closedir(dir);
	}
	if (n) {
		qsort(at, n, sizeof(at[0]), by_id);
	}
	return n;
}

static bool is_replaced(const struct stored at[], unsigned n, uint32_t id)
{
	for (unsigned i = 0; i < n; i++) {
		if (number(at[i].meta, "replaces") == (json_int_t)id) {
			return true;
		}
	}
	return false;
}

void daemon_probes_restore(struct daemon *d)
{
	json_t *next = read_file(d, DAEMON_PROBES_NEXT);
	json_int_t number_next = number(next, "next");
	struct stored at[IDS_MAX];
	unsigned n = list(d, at);

	json_decref(next);
	d->probes->next_id =
		number_next > 0 && number_next < UINT32_MAX / 2 ? (uint32_t)number_next : 0;
	for (unsigned i = 0; i < n; i++) {
		d->probes->next_id = MAX(d->probes->next_id, at[i].id);
		if (is_replaced(at, n, at[i].id)) { /* the swap took place */
			daemon_store_delete_files(d->probes->dir, at[i].id);
		} else {
			restore(d, at[i].id, at[i].meta);
		}
	}
	for (unsigned i = 0; i < n; i++) {
		json_decref(at[i].meta);
	}
}
