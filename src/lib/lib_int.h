/* The handle of libgbpf, for the files of this room. */
#ifndef GBPF_LIB_LIB_INT_H
#define GBPF_LIB_LIB_INT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/runtime_state.h"
#include "gbpf/gbpf.h"

#define LIB_CLIENT_MAX_ANSWER (64u << 20) /* limit for one line from gbpfd */
#define LIB_CLIENT_PATH 4096

/* Which gbpfd that does not serve yet, or no longer, a connection waits for. */
enum lib_wait {
	LIB_WAIT,	/* one that starts or stops */
	LIB_WAIT_START, /* one that starts */
	LIB_NO_WAIT,
};

struct gbpf {
	int fd;	      /* -1: not connected */
	int peer_pid; /* of the gbpfd of the last connection, or that stops; 0: none */
	enum lib_wait wait;
	unsigned timeout_ms;
	int gpu; /* that operations on policies are about; -1: all */
	uint64_t next_id;
	struct buf in;	/* received bytes without a complete line */
	size_t scanned; /* bytes of `in` known to contain no newline */
	char dir[LIB_CLIENT_PATH], socket[LIB_CLIENT_PATH];
	bool is_roots; /* the directory was chosen because root's gbpfd serves there */
	struct gbpf_error error;
	struct buf code, message, hint, detail; /* owned; texts of error */
	struct gbpf_hello hello;
	char version[64], device[32];
};

/* ---- error.c ---- */
void lib_ok(struct gbpf *g);
/* Stores and returns err; hint may be NULL. */
int lib_fail(struct gbpf *g, int err, int exit_code, const char *code, const char *hint,
	     const char *fmt, ...) PRINTF_LIKE(6, 7);
/* Stores an error that gbpfd answered. */
int lib_fail_json(struct gbpf *g, const json_t *error);
int lib_no_memory(struct gbpf *g);

/* ---- line.c ---- */
/* Converts a timeout in ms to an absolute monotonic deadline in ns; UINT64_MAX for 0. */
uint64_t lib_deadline(unsigned timeout_ms);
int lib_send_line(struct gbpf *g, const char *line, size_t len, int fd, uint64_t deadline);
/* Reads the next line as JSON; *ret is the caller's. -EINTR only if interruptible. */
int lib_read_line(struct gbpf *g, uint64_t deadline, bool interruptible, json_t **ret);
void lib_disconnect(struct gbpf *g);
/* Returns true for the error of a connection that gbpfd closed. */
bool lib_is_lost(int err);

/* ---- dial.c ---- */
/* Returns true if the handle may wait for that one. */
bool lib_may_await(const struct gbpf *g, struct runtime_state h, uint64_t deadline);
/* Fails because of a gbpfd that starts or stops. */
int lib_fail_passing(struct gbpf *g, struct runtime_state h);
/* Connects, once a gbpfd that starts or stops has done so. Returns the descriptor, or -errno. */
int lib_dial(struct gbpf *g, uint64_t deadline);

/* ---- maps.c ---- */
json_t *lib_map_params(const struct gbpf_map *m);

/* ---- calls.c ---- */
/* Adds the GPU that operations on policies are about; params: NULL or borrowed. */
void lib_name_gpu(const struct gbpf *g, json_t *params);

/* ---- load.c ---- */
/* Calls a method with an object in a memfd. Waits at least 30 s. p: taken; NULL: a text in it is
 * not UTF-8. */
int lib_send_object(struct gbpf *g, const char *method, const char *name, const void *elf,
		    size_t bytes, json_t *p, char **ret_json);

/* ---- client.c ---- */
/* Chooses the user's own directory, where root's gbpfd has ended. 0 or -errno. */
int lib_leave_roots(struct gbpf *g);
/* Dials and says hello. 0 or -errno. */
int lib_connect(struct gbpf *g, uint64_t deadline);
int lib_request(struct gbpf *g, const char *method, json_t *params /* takes */, int fd,
		json_t **ret);
/* Stores a value as text, which the caller frees, unless ret_json is NULL. */
int lib_give_text(struct gbpf *g, const json_t *v, char **ret_json);
/* Same as lib_request, with the result as text. */
int lib_text(struct gbpf *g, const char *method, json_t *params /* takes */, int fd,
	     char **ret_json);

#endif
