/* Verification of an operation's object, before the operation enters the queue: threads of their
 * own do it, so neither another operation nor a write to disk waits for it. Several operations may
 * be verified at a time and then enter the queue in the order in which that ends; policies.c
 * refuses one that would replace the result of a later request. */
#include "daemon/policy/policies_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "base/strmap.h"
#include "daemon/policy/object_read.h"
#include "daemon/policy/verdict_file.h"

static int read_object(struct daemon_policy_op *q, struct buf *object)
{
	if (q->o.op == DAEMON_POLICY_ACTIVATE && !q->o.object.len) {
		int err = daemon_store_read_object(q->dir, q->o.version, object);

		return err ? report_set(&q->report, err, "store",
					"its stored object cannot be read: %s", strerror(-err))
			   : 0;
	}
	if (q->o.object_fd < 0) {
		buf_finish(object);
		*object = q->o.object;
		buf_init(&q->o.object);
		return object->len ? 0
				   : report_set(&q->report, -EINVAL, "elf", "the object is empty");
	}
	return daemon_object_read(q->o.object_fd, object, &q->report);
}

/* Takes built and object if it returns 0. */
static int take(struct daemon_policy_op *q, struct ebpf_built *b, struct buf *object)
{
	if (b->n_devices) {
		report_hint(&q->report, "Attach it with `gbpf probe attach`");
		return report_set(&q->report, -EACCES, "tool",
				  "it has programs inside kernels, which a policy cannot have");
	}
	q->verified = daemon_verified_new(b, object, q->name);
	if (!q->verified) {
		return report_set(&q->report, -ENOMEM, "memory", "out of memory");
	}
	daemon_verified_add(q->cache, q->verified);
	return 0;
}

static void write_verdict(const struct daemon_policy_op *q)
{
	const struct ebpf_built *b = &q->verified->built;
	struct daemon_verdict v = { .n = b->object.n_progs, .verify_ns = b->verify_ns };

	memcpy(v.stats, b->stats, sizeof(v.stats));
	daemon_verdict_write(q->name, &q->verified->object, &v);
}

/* Compiles an object that this gbpfd does not have, and verifies it unless an earlier one has. */
static int build(struct daemon_policy_op *q, const struct buf *object, struct ebpf_built *b)
{
	struct daemon_verdict v;

	if (daemon_verdict_read(q->name, object, &v) == 0 &&
	    ebpf_policy_build_known(b, object->data, object->len, q->name, 0, 0, v.stats, v.n,
				    &q->report) == 0) {
		b->verify_ns = v.verify_ns;
		q->was_verified = true;
		return 0;
	}
	report_finish(&q->report);
	report_init(&q->report);
	return ebpf_policy_build(b, object->data, object->len, q->name, 0, 0, &q->report);
}

static int verify(struct daemon_policy_op *q, struct buf *object)
{
	struct ebpf_built *b = calloc(1, sizeof(*b));
	int err;

	if (!b) {
		return report_set(&q->report, -ENOMEM, "memory", "out of memory");
	}
	err = build(q, object, b);
	if (!err) {
		POINT("daemon.load.verified");
		err = take(q, b, object);
		ebpf_built_finish(b); /* empty if it was taken */
	}
	if (!err && !q->was_verified) {
		write_verdict(q);
	}
	free(b);
	return err;
}

/* On a verifier. Uses the operation and the cache alone. */
static void verify_work(struct daemon_job *j)
{
	struct daemon_policy_op *q = (struct daemon_policy_op *)j;
	struct buf object;

	buf_init(&object);
	q->times.verify_begin_ns = clock_now_ns();
	q->err = read_object(q, &object);
	POINT("daemon.load.object_read");
	if (!q->err) {
		q->hash = hash_bytes(object.data, object.len);
		q->verified = daemon_verified_find(q->cache, q->name, &object);
		q->was_verified = q->verified != NULL;
		q->err = q->verified ? 0 : verify(q, &object);
	}
	buf_finish(&object);
	q->times.verify_end_ns = clock_now_ns();
}

static void on_verified(struct daemon_job *j)
{
	struct daemon_policy_op *q = (struct daemon_policy_op *)j;

	if (q->err) {
		daemon_policy_op_fail(q, daemon_policy_op_exit(q));
		return;
	}
	daemon_policy_op_finish(q);
	daemon_policy_op_enqueue(q);
}

void daemon_policy_op_verify(struct daemon_policy_op *q)
{
	struct daemon_policies *p = q->d->policies;

	q->cache = &p->cache;
	q->next = p->verifying;
	p->verifying = q;
	p->n++;
	q->job = (struct daemon_job){ .work = verify_work,
				      .done = on_verified,
				      .drop = daemon_policy_op_drop };
	daemon_job_thread_submit(&q->d->verifiers, &q->job);
}

/* ---- versions whose verified object stays ---- */

void daemon_verified_keep(struct daemon_policy_op *q)
{
	struct daemon_store *st = &q->d->policies->store;
	struct daemon_stored_version *v = daemon_store_find(st, q->o.version);

	if (v && q->program && !v->verified) {
		v->verified = daemon_verified_use(q->program->verified);
	}
	for (unsigned i = 0; i < st->n; i++) {
		if (!daemon_store_in_use(st, st->v[i].version)) {
			daemon_verified_drop(st->v[i].verified);
			st->v[i].verified = NULL;
		}
	}
}
