/* The stored tools: <state>/tools/N.bpf.o and N.json for each that is attached, and next.json with
 * the number of the next one. The worker writes, with copies of what it needs; a tool is stored
 * before its caller is answered, and removed when its detachment begins. */
#include "daemon/probe/probes_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/point.h"
#include "daemon/store_file.h"

enum what { STORE, CHANGE, REMOVE, ANSWER };

struct store_job {
	struct daemon_job job; /* first */
	struct daemon *d;
	enum what what;
	uint32_t id, next_id;
	struct buf object; /* STORE */
	char *meta;	   /* owned; STORE, CHANGE */
	json_t *result;	   /* owned; NULL: none is to be sent */
	uint64_t conn;
	json_int_t call;
	int err;
	bool is_stored; /* the worker has done it */
};

/* ---- the description ---- */

static json_t *process_json(const struct daemon_process *p)
{
	return json_pack("{s:I,s:I}", "pid", (json_int_t)p->pid, "start", (json_int_t)p->start);
}

/* Returns the description as allocated text, or NULL. */
static char *meta_text(const struct daemon_probe *p)
{
	uint64_t wall = clock_wall_ns() - (clock_now_ns() - p->attached_ns);
	const struct daemon_probe_target *t = &p->target;
	json_t *j = json_pack("{s:s,s:s,s:I,s:I,s:b,s:o,s:b,s:I,s:I,s:b,s:I,s:I,s:{s:I,s:s,s:s}}",
			      "name", p->name, "kernel", p->kernel, "budget_ppm",
			      (json_int_t)p->budget_ppm, "every", (json_int_t)p->control.every,
			      "off", (int)p->control.off, "scopes",
			      daemon_probe_scopes_json(&p->control), "partial", (int)p->partial,
			      "uid", (json_int_t)p->owner.uid, "pid", (json_int_t)p->owner.pid,
			      "admin", (int)p->by_admin, "attached_wall_ns", (json_int_t)wall,
			      "replaces", (json_int_t)(p->replaces ? p->replaces->id : 0), "target",
			      "uid", (json_int_t)t->uid, "name", t->name, "text", t->text);
	char *text;

	if (t->process.pid) {
		json_object_set_new(json_object_get(j, "target"), "process",
				    process_json(&t->process));
	}
	if (p->held) {
		json_object_set_new(j, "holder", process_json(&p->holder));
	}
	text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return text;
}

/* A tool of a process that gbpfd cannot see would be attached to none, or end with none. */
static bool can_be_stored(const struct daemon_probe *p)
{
	bool of_one = p->target.tenant >= 0 || p->target.awaited;

	return !(of_one && !p->target.process.pid) && !(p->held && !p->holder.pid);
}

/* ---- on the worker ---- */

static int write_next(const char *dir, uint32_t next_id)
{
	char text[32];

	snprintf(text, sizeof(text), "{\"next\":%u}", next_id);
	return daemon_store_write(dir, DAEMON_PROBES_NEXT, text);
}

static void work(struct daemon_job *job)
{
	struct store_job *j = (struct store_job *)job;
	const char *dir = j->d->probes->dir; /* constant while the worker runs */
	char file[32];

	snprintf(file, sizeof(file), "%u.json", j->id);
	if (j->what == ANSWER) {
		return; /* what was submitted before has been written */
	}
	if (j->what == REMOVE) {
		daemon_store_delete_files(dir, j->id);
	} else if (!j->meta) {
		j->err = -ENOMEM;
	} else if (j->what == CHANGE) {
		j->err = daemon_store_write(dir, file, j->meta);
	} else {
		j->err = write_next(dir, j->next_id);
		j->err = j->err ? j->err
				: daemon_store_write_object(dir, j->id, j->object.data,
							    j->object.len, j->meta);
	}
	j->is_stored = true;
	POINT("daemon.probe.stored");
}

/* ---- on the loop ---- */

static void finish(struct daemon_job *job)
{
	struct store_job *j = (struct store_job *)job;

	buf_finish(&j->object);
	free(j->meta);
	json_decref(j->result);
	free(j);
}

/* gbpfd stops. What the caller was answered already, that a tool was set or detached, is stored
 * now; the worker has ended. */
static void drop(struct daemon_job *job)
{
	struct store_job *j = (struct store_job *)job;

	if (j->what != STORE && j->what != ANSWER && !j->is_stored) {
		work(job);
	}
	finish(job);
}

static void answer(struct daemon *d, json_t *result, bool stored, uint64_t conn, json_int_t call)
{
	if (result) {
		json_object_set_new(result, "stored", json_boolean(stored));
	}
	daemon_control_answer(d, conn, call, result, NULL, 1);
}

static void done(struct daemon_job *job)
{
	struct store_job *j = (struct store_job *)job;

	if (j->err) {
		log_warn("cannot store tool %u in %s: %s", j->id, j->d->probes->dir,
			 strerror(-j->err));
		daemon_history_add(&j->d->history, "store", -1,
				   "tool %u is attached, but will not survive a restart of gbpfd: "
				   "%s",
				   j->id, strerror(-j->err));
	}
	if (j->what == STORE) {
		answer(j->d, j->result, !j->err, j->conn, j->call);
	} else if (j->what == ANSWER) {
		daemon_control_answer(j->d, j->conn, j->call, j->result, NULL, 1);
	}
	finish(job);
}

/* Returns a job, or NULL. */
static struct store_job *job_for(const struct daemon_probe *p, enum what what)
{
	struct store_job *j = calloc(1, sizeof(*j));

	if (j) {
		j->job = (struct daemon_job){ .work = work, .done = done, .drop = drop };
		j->d = p->d;
		j->what = what;
		j->id = p->id;
		j->next_id = p->d->probes->next_id;
		j->meta = what == REMOVE ? NULL : meta_text(p);
		buf_init(&j->object);
	}
	return j;
}

void daemon_probe_store(struct daemon_probe *p, json_t *result, uint64_t conn, json_int_t call)
{
	struct store_job *j = can_be_stored(p) ? job_for(p, STORE) : NULL;

	if (!j) {
		buf_finish(&p->object);
		buf_init(&p->object);
		answer(p->d, result, false, conn, call);
		json_decref(result);
		return;
	}
	p->stored = true;
	j->object = p->object;
	buf_init(&p->object);
	j->result = result;
	j->conn = conn;
	j->call = call;
	daemon_job_thread_submit(&p->d->worker, &j->job);
}

static void submit(struct daemon_probe *p, enum what what)
{
	struct store_job *j = p->stored ? job_for(p, what) : NULL;

	if (j) {
		daemon_job_thread_submit(&p->d->worker, &j->job);
	}
}

void daemon_probe_store_change(struct daemon_probe *p)
{
	submit(p, CHANGE);
}

void daemon_probe_store_remove(struct daemon_probe *p)
{
	submit(p, REMOVE);
	p->stored = false;
}

void daemon_probe_store_answer(struct daemon *d, json_t *result, uint64_t conn, json_int_t call)
{
	struct store_job *j = conn ? calloc(1, sizeof(*j)) : NULL;

	if (!j) {
		daemon_control_answer(d, conn, call, result, NULL, 1);
		json_decref(result);
		return;
	}
	j->job = (struct daemon_job){ .work = work, .done = done, .drop = drop };
	j->d = d;
	j->what = ANSWER;
	j->result = result;
	j->conn = conn;
	j->call = call;
	buf_init(&j->object);
	daemon_job_thread_submit(&d->worker, &j->job);
}
