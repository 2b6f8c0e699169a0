/* Durable first, then the flip: a policy that an operator loads is on disk, as an object and as the
 * active version, before it becomes active; if it cannot be, the old policy stays. A volatile
 * version, which was loaded so or could not be stored when gbpfd started, has its object in memory,
 * and state.json keeps the version that was active before it. */
#include "daemon/policy/policies_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/point.h"
#include "daemon/consts.h"
#include "daemon/control_socket.h"
#include "daemon/watch/watch.h"

#define NOT_STORED "not-stored"
#define EXIT_NOT_STORED 10 /* GBPF_CODE_UNSTORED */

int daemon_durable_fail(struct daemon_policy_op *q, int err)
{
	report_hint(&q->report,
		    "Free space there, or use --volatile: the policy then lasts until gbpfd exits");
	return report_set(&q->report, err, NOT_STORED,
			  "cannot store '%s' in %s: %s; the policy before it stays active", q->name,
			  q->dir, strerror(-err));
}

bool daemon_durable_failed(const struct daemon_policy_op *q, int *ret_exit)
{
	if (strcmp(q->report.code, NOT_STORED) != 0) {
		return false;
	}
	*ret_exit = EXIT_NOT_STORED;
	return true;
}

static void on_written(struct daemon_job *j)
{
	struct daemon_policy_op *q = (struct daemon_policy_op *)j;

	free(q->state_text);
	q->state_text = NULL;
	POINT("daemon.durable.written");
	if (q->store_err) {
		q->err = daemon_durable_fail(q, q->store_err);
		daemon_swap_refuse(q, EXIT_NOT_STORED);
		return;
	}
	q->durable = true;
	daemon_swap_copy(q);
}

/* Makes state.json name the operation's watch, if any, when it is written next. */
static void keep_watch(struct daemon_policy_op *q)
{
	uint64_t old[PROTO_MAX_GPUS];

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		old[i] = daemon_policy_active_version(q->d, i);
	}
	if (q->o.watch) {
		daemon_watch_keep(q->d, q->o.watch, q->o.version, q->o.gpu_mask, old);
	}
}

/* Writes the state as it will be after the flip. A crash before the flip makes gbpfd start with the
 * new version, which has been verified and stored. */
void daemon_durable_begin(struct daemon_policy_op *q)
{
	struct daemon_store *st = &q->d->policies->store;

	memcpy(q->kept_before, st->kept, sizeof(q->kept_before));
	daemon_durable_keep(q, q->o.version);
	keep_watch(q);
	q->state_text = daemon_store_state_text(st);
	q->job = (struct daemon_job){ .work = daemon_policy_op_save_state,
				      .done = on_written,
				      .drop = daemon_policy_op_drop };
	q->kept_changed = true;
	daemon_job_thread_submit(&q->d->worker, &q->job);
}

void daemon_durable_keep(struct daemon_policy_op *q, uint64_t version)
{
	struct daemon_store *st = &q->d->policies->store;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (q->o.gpu_mask & 1u << i) {
			st->kept[i] = version;
		}
	}
}

/* ---- writing the state alone ---- */

struct save_job {
	struct daemon_job job; /* first */
	struct daemon *d;
	const char *what;
	char dir[4096];
	char *text;	/* owned */
	json_t *result; /* owned; NULL: no caller waits */
	uint64_t conn;
	json_int_t id;
	int err;
};

static void save_work(struct daemon_job *j)
{
	struct save_job *s = (struct save_job *)j;

	s->err = s->text ? daemon_store_write_state(s->dir, s->text) : -ENOMEM;
}

static void save_free(struct daemon_job *j)
{
	struct save_job *s = (struct save_job *)j;

	free(s->text);
	json_decref(s->result);
	free(s);
}

static void save_done(struct daemon_job *j)
{
	struct save_job *s = (struct save_job *)j;

	if (s->err) {
		log_warn("cannot write to %s: %s", s->dir, strerror(-s->err));
		daemon_history_add(&s->d->history, "store", -1,
				   "%s took effect, but will not survive a restart of gbpfd: %s",
				   s->what, strerror(-s->err));
	}
	if (s->result) {
		json_object_set_new(s->result, "stored", json_boolean(s->err == 0));
		daemon_control_answer(s->d, s->conn, s->id, s->result, NULL, 1);
	}
	save_free(j);
}

int daemon_durable_save(struct daemon *d, const char *what, json_t *result, uint64_t conn,
			json_int_t id)
{
	struct save_job *s = calloc(1, sizeof(*s));

	if (!s) {
		json_decref(result);
		return -ENOMEM;
	}
	s->job = (struct daemon_job){ .work = save_work, .done = save_done, .drop = save_free };
	s->d = d;
	s->what = what;
	s->result = result;
	s->conn = conn;
	s->id = id;
	s->text = daemon_store_state_text(&d->policies->store);
	snprintf(s->dir, sizeof(s->dir), "%s", d->policies->store.dir);
	daemon_job_thread_submit(&d->worker, &s->job);
	return 0;
}

void daemon_durable_undo(struct daemon_policy_op *q)
{
	struct daemon_store *st = &q->d->policies->store;

	if (!q->kept_changed) {
		return;
	}
	memcpy(st->kept, q->kept_before, sizeof(st->kept));
	daemon_store_watch_remove(st, q->o.version);
	q->kept_changed = false;
	if (q->durable) {
		daemon_durable_save(q->d, "the refusal of a policy", NULL, 0, 0);
	}
}
