/* Writes files of gbpfd's state through the worker, and answers the caller of a control method when
 * its change is on disk, or cannot be. */
#ifndef GBPF_DAEMON_SAVING_H
#define GBPF_DAEMON_SAVING_H

#include <jansson.h>
#include <stdint.h>

struct daemon;

struct daemon_saving {
	const char *dir;   /* outlives the worker */
	const char *file;  /* static; its name in dir */
	const char *what;  /* static; for messages: "a change of virtual GPUs" */
	char *text;	   /* taken; allocated. NULL: no memory was left to write it */
	json_t *result;	   /* taken; the answer, which gets "stored". NULL: no caller waits */
	uint64_t conn;	   /* of the caller */
	json_int_t id;	   /* of its request */
	unsigned *waiting; /* counts the callers that wait, or NULL */
};

/* Submits a copy of s. The change to store is already in force: a failed write becomes a warning
 * and an event. Returns 0, or -ENOMEM: nothing is written, text and result are freed, and the
 * caller gets no answer. */
int daemon_save(struct daemon *d, const struct daemon_saving *s);

#endif
