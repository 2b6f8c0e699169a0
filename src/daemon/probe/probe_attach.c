/* Attaching a tool: the worker builds it, each session of its target is sent it, and the caller is
 * answered when all have said what they do with it. */
#include "daemon/probe/probes_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "base/strmap.h"
#include "daemon/policy/object_read.h"
#include "policy/ctx.h"

#define SLICE_NS 1000000u

struct attach_job {
	struct daemon_job job;	/* first: the worker passes it back */
	struct daemon_probe *p; /* owned until it has a place */
	int object_fd;		/* owned */
	json_int_t replaces;
	uint64_t conn;
	json_int_t call;
	/* set by the worker */
	struct report report;
	int err;
};

static void free_job(struct attach_job *j)
{
	daemon_probe_free(j->p);
	fd_close_foreign(j->object_fd);
	report_finish(&j->report);
	free(j);
}

static void drop(struct daemon_job *job)
{
	free_job((struct attach_job *)job);
}

static void fail(struct attach_job *j)
{
	struct daemon *d = j->p->d;

	d->counters.refused++;
	report_set(&j->report, j->err, "failed", "%s", strerror(-j->err));
	daemon_probe_record(j->p, &j->p->owner, j->p->by_admin, j->replaces ? "swap" : "attach",
			    "refused: %s%s%s", buf_text(&j->report.place),
			    j->report.place.len ? ": " : "", buf_text(&j->report.message));
	daemon_control_answer(d, j->conn, j->call, NULL, &j->report,
			      j->err == -ENOENT ? 5
			      : j->err == -EBUSY || j->err == -ENOSPC || j->err == -EUSERS
				      ? 7
				      : daemon_object_exit(j->err, &j->report));
	free_job(j);
}

/* ---- on the worker ---- */

/* A tool has programs inside kernels, and may have one of submit and of retire, which only observe.
 */
static int check(const struct ebpf_built *b, struct report *r)
{
	if (!b->n_devices) {
		report_hint(r, "`gbpf policy load` loads policies");
		return report_set(r, -EACCES, "tool", "it has no programs inside kernels");
	}
	for (uint32_t i = 0; i < b->object.n_progs; i++) {
		const struct ebpf_prog *prog = &b->object.progs[i];

		if (prog->hook < (int)EBPF_FIRST_DEVICE_HOOK && prog->hook != POLICY_HOOK_submit &&
		    prog->hook != POLICY_HOOK_retire) {
			report_hint(r, "Put the programs of other hooks into a policy");
			return report_set(r, -EACCES, "tool",
					  "program %s: a tool has programs inside kernels, and of "
					  "submit and retire only",
					  prog->name);
		}
	}
	return 0;
}

static int build(const struct daemon_probe *p, const struct buf *object,
		 struct daemon_verified **ret, struct report *r)
{
	struct ebpf_built *b = calloc(1, sizeof(*b));
	int err;

	if (!b) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	err = ebpf_policy_build(b, object->data, object->len, p->name, 0,
				p->control.every ? EBPF_BUILD_CONTROL : 0, r);
	if (!err) {
		err = check(b, r);
		*ret = err ? NULL : daemon_verified_new(b, NULL, p->name);
		ebpf_built_finish(b); /* empty if it was taken */
	}
	if (!err && !*ret) {
		err = report_set(r, -ENOMEM, "memory", "out of memory");
	}
	free(b);
	return err;
}

int daemon_probe_build(struct daemon_probe *p, const struct buf *object, struct report *r)
{
	uint64_t version = DAEMON_PROBE_VERSION + p->id;
	struct daemon_verified *v = NULL;
	struct daemon_program *of;
	int err = build(p, object, &v, r);

	if (err) {
		return err;
	}
	of = daemon_program_new(v, version);
	daemon_verified_drop(v);
	if (!of) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	err = daemon_version_create(&p->live, p->d, of, version, 0, r);
	daemon_program_drop(of);
	return err;
}

static void build_work(struct daemon_job *job)
{
	struct attach_job *j = (struct attach_job *)job;
	struct buf object;

	buf_init(&object);
	j->err = daemon_object_read(j->object_fd, &object, &j->report);
	if (!j->err) {
		j->p->hash = hash_bytes(object.data, object.len);
		j->err = daemon_probe_build(j->p, &object, &j->report);
	}
	if (j->err) {
		buf_finish(&object);
	} else {
		j->p->object = object;
	}
}

/* ---- sending ---- */

static int on_slice(sd_event_source *src, uint64_t usec, void *arg);

/* Sends PROBE for at most SLICE_NS, then continues in a later turn of the loop: creating a tenant's
 * memory takes about 30 us, and there may be a thousand tenants. */
static void send_some(struct daemon_probe *p)
{
	struct daemon_probe_wait what = {
		.p = p, .kind = DAEMON_PROBE_WAIT_ATTACH, .conn = p->conn, .call = p->call
	};
	uint64_t begin = clock_now_ns();

	p->timer = sd_event_source_disable_unref(p->timer);
	daemon_session_each(p->d, s)
	{
		if (daemon_probe_part(p, s) || !daemon_probe_targets(p, s)) {
			continue;
		}
		if (clock_now_ns() - begin > SLICE_NS &&
		    sd_event_add_time(p->d->loop, &p->timer, CLOCK_MONOTONIC, 0, 1, on_slice, p) >=
			    0) {
			return;
		}
		daemon_probe_send(p, s);
	}
	POINT("daemon.probe.sent_all");
	p->conn = 0;
	daemon_probe_wait(&what);
}

static int on_slice(sd_event_source *src, uint64_t usec, void *arg)
{
	(void)src;
	(void)usec;
	send_some(arg);
	return 0;
}

/* Finds the tool to be replaced, which may have ended or been replaced since it was named. */
static int take_over(struct attach_job *j)
{
	struct daemon_probe *old = daemon_probe_find(j->p->d, j->replaces);

	if (!old || old->ending) {
		report_hint(&j->report, "`gbpf probe ls` lists them");
		return report_set(&j->report, -ENOENT, "not-found",
				  "there is no tool %lld any more", (long long)j->replaces);
	}
	if (old->replaced || old->timer) {
		report_hint(&j->report, "Try again in a moment");
		return report_set(&j->report, -EBUSY, "busy", "tool %lld is being %s",
				  (long long)j->replaces, old->replaced ? "replaced" : "attached");
	}
	j->p->replaces = old;
	old->replaced = j->p;
	return 0;
}

/* Takes its place from a tool that cannot be attached. */
static void give_back(struct daemon_probe *p)
{
	p->d->probes->at[p->slot] = NULL;
	if (p->replaces) {
		p->replaces->replaced = NULL;
		p->replaces = NULL;
	}
}

static void on_built(struct daemon_job *job)
{
	struct attach_job *j = (struct attach_job *)job;
	struct daemon_probe *p = j->p;

	p->d->probes->building -= !j->replaces;
	POINT("daemon.probe.built");
	if (p->hold && daemon_control_waiting(p->d, p->hold) == SIZE_MAX) {
		free_job(j); /* its connection was closed meanwhile: no caller waits */
		return;
	}
	if (!j->err) { /* the user may have begun several at a time */
		j->err = daemon_probe_check_place(p->d, p->owner.uid, p->by_admin, j->replaces,
						  &j->report);
	}
	if (!j->err) {
		j->err = daemon_probe_insert(p);
		if (j->err) {
			report_hint(&j->report, "Try again in a moment");
			report_set(&j->report, j->err, "busy", "too many tools are being detached");
		}
	}
	if (!j->err && j->replaces) {
		j->err = take_over(j);
		if (j->err) {
			give_back(p);
		}
	}
	if (!j->err && daemon_probe_watch(p) < 0) {
		j->err = report_set(&j->report, -ENOENT, "not-found",
				    "the process that the tool belongs to has ended");
		give_back(p);
	}
	if (j->err) {
		fail(j);
		return;
	}
	j->p = NULL;
	p->conn = j->conn;
	p->call = j->call;
	free_job(j);
	send_some(p);
}

int daemon_probe_attach(struct daemon *d, const struct daemon_probe_request *o)
{
	struct attach_job *j = calloc(1, sizeof(*j));

	if (!j) {
		fd_close_foreign(o->object_fd);
		daemon_probe_free(o->p);
		return -ENOMEM;
	}
	*j = (struct attach_job){ .job = { .work = build_work, .done = on_built, .drop = drop },
				  .p = o->p,
				  .object_fd = o->object_fd,
				  .replaces = o->replaces,
				  .conn = o->conn,
				  .call = o->call };
	report_init(&j->report);
	j->p->d = d;
	j->p->id = ++d->probes->next_id;
	d->probes->building += !o->replaces; /* a swap takes the place of another */
	daemon_job_thread_submit(&d->tool_builder, &j->job);
	return 0;
}

/* ---- the end ---- */

/* Returns true if the tool has sessions, and all of them have refused it. */
static bool is_refused(const struct daemon_probe *p)
{
	unsigned n = 0;

	daemon_session_each(p->d, s)
	{
		const struct daemon_probe_part *part = daemon_probe_part(p, s);

		if (part && part->status == 0) {
			return false;
		}
		n += part != NULL;
	}
	return n > 0;
}

static void refuse(struct daemon_probe *p, uint64_t conn, json_int_t call)
{
	struct report r;

	report_init(&r);
	report_hint(&r, "`gbpf events` has the reasons of all");
	report_set(&r, -EACCES, "refused", "no program can have it: %s", daemon_probe_why(p));
	daemon_probe_record(p, &p->owner, p->by_admin, p->replaces ? "swap" : "attach",
			    "refused: %s", buf_text(&r.message));
	daemon_control_answer(p->d, conn, call, NULL, &r, 4);
	report_finish(&r);
	p->d->counters.refused++;
	daemon_probe_remove(p);
}

void daemon_probe_answer_attach(const struct daemon_probe *p, uint64_t conn, json_int_t call)
{
	json_t *result = daemon_probe_attach_json(p);

	daemon_control_answer(p->d, conn, call, result, NULL, 1);
	json_decref(result);
}

void daemon_probe_attached(struct daemon_probe *p, uint64_t conn, json_int_t call)
{
	const struct daemon_probe_wait swap = { .p = p, .kind = DAEMON_PROBE_WAIT_SWAP };

	if (p->ending) { /* detached meanwhile */
		daemon_probe_answer_attach(p, conn, call);
		return;
	}
	if (is_refused(p)) {
		refuse(p, conn, call);
		return;
	}
	if (p->replaces) {
		daemon_probe_record(p, &p->owner, p->by_admin, "swap", "replaces tool %u '%s'",
				    p->replaces->id, p->replaces->name);
	} else {
		daemon_probe_record(p, &p->owner, p->by_admin, "attach", "to %s, kernels %.100s",
				    p->target.text[0] ? p->target.text : "all programs", p->kernel);
	}
	daemon_probe_store(p, daemon_probe_attach_json(p), conn, call);
	if (p->replaces) {
		daemon_probe_wait(&swap);
	}
}
