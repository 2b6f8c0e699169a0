/* The control socket: JSON lines as in docs/PROTOCOL.md. Methods are a table in methods.c. */
#ifndef GBPF_DAEMON_CONTROL_SOCKET_H
#define GBPF_DAEMON_CONTROL_SOCKET_H

#include <jansson.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/report.h"
#include "daemon/daemon.h"

struct connection;

int control_open(struct daemon *d, const char *path);
void control_close(struct daemon *d);

/* ---- for methods ---- */

struct call {
	struct daemon *d;
	struct connection *c;
	uint64_t conn; /* number of the connection, for answers that come later */
	json_int_t id;
	const json_t *params; /* an object */
	int sock;
	struct peer peer;
	int *fd; /* descriptor that came with the line, or -1; a method that takes it sets -1 */
};

/* result is taken; NULL counts as out of memory. */
void control_result(struct call *c, json_t *result);
/* The same from text, which is JSON already; borrowed, NULL or failed: out of memory. */
void control_result_text(struct call *c, const struct buf *result);
/* Sends a whole line of its own to a connection. false: it is gone. */
bool control_push(struct daemon *d, uint64_t conn, const struct buf *line);
/* Bytes that it has not read yet; SIZE_MAX: it is gone. */
size_t control_waiting(const struct daemon *d, uint64_t conn);
void control_error(struct call *c, int exit_code, const char *code, const char *hint,
		   const char *fmt, ...) PRINTF_LIKE(5, 6);
/* An answer to a connection that may have gone meanwhile. result is borrowed. */
void control_answer(struct daemon *d, uint64_t conn, json_int_t id, const json_t *result,
		    const struct report *r, int exit_code);
void control_greeted(struct call *c);
/* After the answer, each new event is sent too. */
void control_follow(struct call *c);
unsigned control_connections(const struct daemon *d);

/* methods.c */
void method_call(struct call *c, const char *method, bool greeted);
/* info.c */
void method_ps(struct call *c);
void method_set(struct call *c);
void method_restart(struct call *c);
void method_device_list(struct call *c);
void method_events(struct call *c);
void method_status(struct call *c);
/* stats.c: what a tenant's pages say; every word is read once. */
struct session;
void stats_json(const struct session *s, json_t *tenant);

#endif
