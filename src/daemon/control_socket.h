/* The control socket: JSON lines as in docs/PROTOCOL.md. Methods are a table in methods.c. */
#ifndef GBPF_DAEMON_CONTROL_SOCKET_H
#define GBPF_DAEMON_CONTROL_SOCKET_H

#include <jansson.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/report.h"
#include "daemon/daemon.h"

struct daemon_connection;

int daemon_control_open(struct daemon *d, const char *path);
void daemon_control_close(struct daemon *d);

/* ---- for methods ---- */

struct daemon_call {
	struct daemon *d;
	struct daemon_connection *c;
	uint64_t conn; /* number of the connection, for answers that come later */
	json_int_t id;
	const json_t *params; /* an object */
	int sock;
	struct peer peer;
	int *fd; /* descriptor that came with the line, or -1; a method that takes it sets -1 */
};

/* result is taken; NULL counts as out of memory. */
void daemon_control_result(struct daemon_call *c, json_t *result);
/* The same from text, which is JSON already; borrowed, NULL or failed: out of memory. */
void daemon_control_result_text(struct daemon_call *c, const struct buf *result);
/* Sends a whole line of its own to a connection. false: it is gone. */
bool daemon_control_push(struct daemon *d, uint64_t conn, const struct buf *line);
/* Bytes that it has not read yet; SIZE_MAX: it is gone. */
size_t daemon_control_waiting(const struct daemon *d, uint64_t conn);
void daemon_control_error(struct daemon_call *c, int exit_code, const char *code, const char *hint,
			  const char *fmt, ...) PRINTF_LIKE(5, 6);
/* An answer to a connection that may have gone meanwhile. result is borrowed. */
void daemon_control_answer(struct daemon *d, uint64_t conn, json_int_t id, const json_t *result,
			   const struct report *r, int exit_code);
void daemon_control_greeted(struct daemon_call *c);
/* After the answer, each new event is sent too. */
void daemon_control_follow(struct daemon_call *c);
unsigned daemon_control_connections(const struct daemon *d);

/* methods.c */
void daemon_method_call(struct daemon_call *c, const char *method, bool greeted);
/* info.c */
void daemon_method_ps(struct daemon_call *c);
void daemon_method_set(struct daemon_call *c);
void daemon_method_restart(struct daemon_call *c);
void daemon_method_device_list(struct daemon_call *c);
void daemon_method_events(struct daemon_call *c);
void daemon_method_status(struct daemon_call *c);
/* stats.c: what a tenant's pages say; every word is read once. */
struct daemon_session;
void daemon_stats_json(const struct daemon_session *s, json_t *tenant);

#endif
