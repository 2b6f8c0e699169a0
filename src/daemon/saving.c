/* Jobs that write files of gbpfd's state. A failed write is reported and the change that it was to
 * store is kept. */
#include "daemon/saving.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/control_socket.h"
#include "daemon/store_file.h"

struct save_job {
	struct daemon_job job; /* first */
	struct daemon *d;
	struct daemon_saving s;
	int err;
};

static void work(struct daemon_job *j)
{
	struct save_job *save = (struct save_job *)j;
	const struct daemon_saving *s = &save->s;

	save->err = s->text ? daemon_store_write(s->dir, s->file, s->text) : -ENOMEM;
}

static void finish(struct daemon_job *j)
{
	struct save_job *save = (struct save_job *)j;

	if (save->s.waiting) {
		*save->s.waiting -= save->s.result != NULL;
	}
	free(save->s.text);
	json_decref(save->s.result);
	free(save);
}

static void done(struct daemon_job *j)
{
	struct save_job *save = (struct save_job *)j;
	const struct daemon_saving *s = &save->s;

	if (save->err) {
		log_warn("cannot write %s/%s: %s", s->dir, s->file, strerror(-save->err));
		daemon_history_add(&save->d->history, "store", -1,
				   "%s took effect, but will not survive a restart of gbpfd: %s",
				   s->what, strerror(-save->err));
	}
	if (s->result) {
		json_object_set_new(s->result, "stored", json_boolean(save->err == 0));
		daemon_control_answer(save->d, s->conn, s->id, s->result, NULL, 1);
	}
	finish(j);
}

int daemon_save(struct daemon *d, const struct daemon_saving *s)
{
	struct save_job *save = calloc(1, sizeof(*save));

	if (!save) {
		free(s->text);
		json_decref(s->result);
		return -ENOMEM;
	}
	save->job = (struct daemon_job){ .work = work, .done = done, .drop = finish };
	save->d = d;
	save->s = *s;
	if (s->waiting) {
		*s->waiting += s->result != NULL;
	}
	daemon_job_thread_submit(&d->worker, &save->job);
	return 0;
}
