/* A gbpfd of its own for a test, and fake processes that speak the session protocol to it. */
#ifndef GBPF_TESTS_DAEMON_HARNESS_H
#define GBPF_TESTS_DAEMON_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <sys/types.h>

#include "gbpf/gbpf.h"
#include "proto/wire.h"
#include "proto/pages.h"

#include "../eventually.h"

/* For limits of calls in tests, in ms. */
#define PATIENCE_MS ((unsigned)EVENTUALLY_MS)

/* ---- gbpfd ---- */

struct gd {
	char dir[64], runtime[96], state[96];
	pid_t pid;	 /* 0: not running */
	uid_t uid;	 /* gd_start: run as this user; 0: as the test's */
	char said[2048]; /* text read from --ready-fd */
	struct gbpf *g;
};

int gd_setup(void **state); /* makes a folder and starts gbpfd */
int gd_teardown(void **state);
void gd_renew(struct gd *d);
/* restarts gbpfd with empty state */ /* checks that its exit code is 0 */
/* Starts gbpfd in gd->runtime with more arguments (NULL-terminated list, may be NULL). 0 when
 * ready; otherwise -1, with the error text in ->said. */
int gd_start(struct gd *d, const char *const *more);
int gd_stop(struct gd *d);	    /* SIGTERM; returns the exit code */
void gd_kill(struct gd *d);	    /* SIGKILL */
struct gbpf *gd_open(struct gd *d); /* opens another connection */

json_t *gd_call(struct gd *d, const char *method,
		const char *params); /* must succeed; caller frees */
json_int_t gd_number(struct gd *d, const char *method,
		     const char *path); /* path: "counters.swaps" */
/* Waits until the history has an event of that kind after sequence number `since` whose text
 * contains `what`; returns its sequence number. */
uint64_t gd_await_event(struct gd *d, uint64_t since, const char *kind, const char *what);
uint64_t gd_last_event(struct gd *d);
/* Returns the processor time of the thread that runs gbpfd's loop. Waits until it sleeps, because
 * the kernel may count a running thread's time late. */
uint64_t gd_loop_ns(const struct gd *d);
/* Returns the path of a test policy's object. */
const char *gd_object(const char *name);

/* ---- fake processes ---- */

struct fake {
	int sock;
	uint32_t tenant;
	uint32_t weight_asked; /* stated when reattaching; 0: 100 */
	struct proto_welcome welcome;
	const struct proto_directory *dir;
	struct proto_board *board;
	struct proto_stats *stats;
	int dir_fd, board_fd, stats_fd, region_fd;
};

void fake_connect(struct fake *f, const struct gd *d);
/* Sends the hello without waiting for the answer. */
void fake_say_hello(struct fake *f, uint32_t class_id, uint32_t weight, const char *name);
/* Receives WELCOME, maps everything and confirms it. */
void fake_welcomed(struct fake *f);
/* Connects and completes the hello. */
void fake_enter(struct fake *f, const struct gd *d, uint32_t class_id, const char *name);
/* Reattaches with its pages after a restart of gbpfd, running this policy version. */
void fake_reattach(struct fake *f, const struct gd *d, uint64_t version);
void fake_leave(struct fake *f);
/* Receives the next message, which must arrive within 10 s, but the one that says that all tools
 * were sent; fake_receive_any() does not skip that. Descriptors are the caller's. Returns
 * the value of proto_recv(). */
int fake_receive(struct fake *f, union proto_message *m, int fds[8], unsigned *nfds);
int fake_receive_any(struct fake *f, union proto_message *m, int fds[8], unsigned *nfds);
/* Receives a message, which must be of this type; returns its only descriptor, or -1. */
int fake_expect(struct fake *f, union proto_message *m, enum proto_type type);
void fake_send(struct fake *f, union proto_message *m, enum proto_type type);
/* Receives a PREPARE and answers it; returns the version. The tenant region's descriptor is in
 * region_fd afterwards. */
uint64_t fake_prepare(struct fake *f, int status);

unsigned count_fds(pid_t pid);

#endif
