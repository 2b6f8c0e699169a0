/* What a gbpfd says of itself in its runtime directory, for clients that find no listener there.
 * The file may be read by all users and decides about no service: nothing locks it. */
#ifndef GBPF_BASE_RUNTIME_STATE_H
#define GBPF_BASE_RUNTIME_STATE_H

#include <stdbool.h>

#define RUNTIME_STATE_FILE "gbpfd.state"

enum runtime_phase { RUNTIME_SERVES, RUNTIME_STARTS, RUNTIME_STOPS };

struct runtime_state {
	int pid; /* 0: no gbpfd runs that wrote the file */
	enum runtime_phase phase;
};

/* Creates the file of a gbpfd that holds the directory's lock and starts, in place of one that
 * another process left. Returns a descriptor to write to, or -errno. */
int runtime_state_create(const char *dir);
/* Replaces the content by this process's ID and the phase. Returns 0 or -errno. */
int runtime_state_write(int fd, enum runtime_phase phase);

/* Reads the file of a directory. It counts if it belongs to root, to this user, or, for root, to
 * anybody, and if its process is a running gbpfd of the file's owner. */
struct runtime_state runtime_state_read(const char *dir);

/* Returns true if that gbpfd has not opened its sockets yet, or is about to close them. */
bool runtime_state_is_passing(struct runtime_state s);

#endif
