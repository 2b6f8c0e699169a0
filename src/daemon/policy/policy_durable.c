/* Durable first, then the flip: a policy that an operator loads is on disk, as an object and as the
 * active version, before it becomes active; if it cannot be, the old policy stays. A volatile
 * version, which was loaded so or could not be stored when gbpfd started, has its object in memory,
 * and state.json keeps the version that was active before it. */
#include "daemon/policy/policies_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "daemon/consts.h"
#include "daemon/saving.h"

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

void daemon_durable_keep_watch(struct daemon_policy_op *q)
{
	struct daemon_store *st = &q->d->policies->store;
	const struct daemon_stored_version *v = daemon_store_find(st, q->o.version);
	struct daemon_stored_watch *w = q->o.watch;

	if (w) {
		w->version = q->o.version;
		w->end_wall_ns = clock_wall_ns() + w->ns;
		w->gpu_mask = q->o.gpu_mask;
		memcpy(w->old, q->old, sizeof(w->old));
		snprintf(w->name, sizeof(w->name), "%s", v ? v->name : "");
		daemon_store_watch_set(st, w); /* each GPU has one: there is room */
	}
}

/* Writes the state as it will be after the flip. A crash before the flip makes gbpfd start with the
 * new version, which has been verified and stored. */
void daemon_durable_begin(struct daemon_policy_op *q)
{
	struct daemon_store *st = &q->d->policies->store;

	memcpy(q->kept_before, st->kept, sizeof(q->kept_before));
	daemon_durable_keep(q, q->o.version);
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		q->old[i] = daemon_policy_active_version(q->d, i);
	}
	daemon_durable_keep_watch(q);
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

int daemon_durable_save(struct daemon *d, const char *what, json_t *result, uint64_t conn,
			json_int_t id)
{
	struct daemon_store *st = &d->policies->store;

	return daemon_save(d, &(struct daemon_saving){ .dir = st->dir,
						       .file = DAEMON_STORE_STATE,
						       .what = what,
						       .text = daemon_store_state_text(st),
						       .result = result,
						       .conn = conn,
						       .id = id });
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
