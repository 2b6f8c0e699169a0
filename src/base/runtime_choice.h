/* The gbpfd that a user's programs belong to: root's, if one serves the machine, else the user's
 * own. The command line and the shim decide by these functions only, so that both find the same
 * one. */
#ifndef GBPF_BASE_RUNTIME_CHOICE_H
#define GBPF_BASE_RUNTIME_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

#define RUNTIME_OF_ROOT "/run/gbpf"

/* Returns true if a process of root listens on the control socket in /run/gbpf, by the peer of a
 * connection, or if none listens, but a gbpfd of root's starts or stops there. If that socket's
 * queue is full, the peer is not known: returns true if only root can change the directory. The
 * caller verifies the peer of its own connection in any case. */
bool runtime_root_serves(void);

/* Returns true if this process is to use the gbpfd in /run/gbpf although it is not root's and
 * $GBPF_RUNTIME_DIR names no directory. */
bool runtime_is_roots(void);

/* Writes the path of the directory (or dir/leaf if leaf is not NULL) that follows from the
 * decision. Returns 0 or the error of path_runtime(). */
int runtime_path_of(bool roots, char *out, size_t cap, const char *leaf);

/* Decides, and writes the path. */
int runtime_path(char *out, size_t cap, const char *leaf);

#endif
