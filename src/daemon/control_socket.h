/* The control socket: JSON lines as described in docs/PROTOCOL.md. control_methods.c has the table
 * of methods. */
#ifndef GBPF_DAEMON_CONTROL_SOCKET_H
#define GBPF_DAEMON_CONTROL_SOCKET_H

#include <jansson.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/report.h"
#include "daemon/daemon.h"
#include "daemon/feature.h"

struct daemon_connection;

/* path: open to all users that gbpfd serves; admin_path: to root, gbpfd's own user and group gbpf.
 */
int daemon_control_open(struct daemon *d, const char *path, const char *admin_path);
void daemon_control_close(struct daemon *d);
extern const struct daemon_feature daemon_control_feature;

/* ---- for methods ---- */

struct daemon_call {
	struct daemon *d;
	struct daemon_connection *c;
	uint64_t conn; /* number of the connection, for answers sent later */
	json_int_t id;
	const json_t *params; /* an object */
	int sock;
	struct peer peer;
	int *fd; /* descriptor received with the line, or -1; a method that takes it sets -1 */
};

/* Answers with result, which is taken; NULL: out of memory. */
void daemon_control_result(struct daemon_call *c, json_t *result);
/* Answers with JSON text, which is borrowed; NULL or a failed buffer: out of memory. */
void daemon_control_result_text(struct daemon_call *c, const struct buf *result);
/* Sends a whole line to a connection. Returns false if it is closed. */
bool daemon_control_push(struct daemon *d, uint64_t conn, const struct buf *line);
/* Returns the number of bytes that the connection has not read yet, or SIZE_MAX if it is closed. */
size_t daemon_control_waiting(const struct daemon *d, uint64_t conn);
void daemon_control_error(struct daemon_call *c, int exit_code, const char *code, const char *hint,
			  const char *fmt, ...) PRINTF_LIKE(5, 6);
/* Answers a request of a connection that may have been closed since. result is borrowed. */
void daemon_control_answer(struct daemon *d, uint64_t conn, json_int_t id, const json_t *result,
			   const struct report *r, int exit_code);
void daemon_control_greeted(struct daemon_call *c);
/* Makes the connection receive each new event of this history after this answer. */
void daemon_control_follow(struct daemon_call *c, const struct daemon_history *h);
/* Sends a line of bpf_printk to the followers that may see it: administrators, and those of that
 * user. A follower that does not read misses it. */
void daemon_control_print(struct daemon *d, const struct daemon_history_event *e);
unsigned daemon_control_connections(const struct daemon *d);

/* control_methods.c */
void daemon_method_call(struct daemon_call *c, const char *method, bool greeted);
/* Returns whether a policy or tool may have this name; NULL: no. */
bool daemon_control_good_name(const char *name);
/* Returns the name of method i, or NULL beyond the last: for the test that looks at each. */
const char *daemon_method_name(size_t i);
/* control_info.c */
void daemon_method_ps(struct daemon_call *c);
void daemon_method_set(struct daemon_call *c);
void daemon_method_restart(struct daemon_call *c);
void daemon_method_device_list(struct daemon_call *c);
void daemon_method_events(struct daemon_call *c);
void daemon_method_status(struct daemon_call *c);
/* named.c */
void daemon_method_vgpu_create(struct daemon_call *c);
void daemon_method_vgpu_set(struct daemon_call *c);
void daemon_method_vgpu_rm(struct daemon_call *c);
void daemon_method_vgpu_list(struct daemon_call *c);
/* vgpu_mem.c */
void daemon_method_mem_list(struct daemon_call *c);
/* tenant_stats.c: adds what a tenant's statistics page says; reads every word once. */
struct daemon_session;
void daemon_stats_json(const struct daemon_session *s, json_t *tenant);
/* Returns its kernels and the forms that they can have, for probe.coverage. */
json_t *daemon_coverage_json(const struct daemon_session *s);
/* Copies the name that the tenant states for a kernel's hash. Returns false if it states none. */
bool daemon_kernel_name(const struct daemon_session *s, uint64_t hash, char *name, size_t size);

#endif
