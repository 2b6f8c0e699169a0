/* Where things lie: runtime files, state, and the installed tree, found relative to the running
 * program. */
#ifndef GBPF_BASE_PATHS_H
#define GBPF_BASE_PATHS_H

#include <stddef.h>

/* Runtime directory: $GBPF_RUNTIME_DIR, else /run/gbpf for root, else $XDG_RUNTIME_DIR/gbpf, else
 * /tmp/gbpf-<uid>. Writes dir (or dir/leaf when leaf is not NULL). 0 or -ENAMETOOLONG. Makes
 * nothing. */
int path_runtime(char *out, size_t cap, const char *leaf);

/* The mode that whoever makes the runtime directory gives it: others may enter root's, whose
 * sockets check their peers. */
unsigned path_runtime_mode(void);

/* State kept over restarts: $GBPF_STATE_DIR, else /var/lib/gbpf for root, else
 * $XDG_STATE_HOME/gbpf, else ~/.local/state/gbpf. */
int path_state(char *out, size_t cap, const char *leaf);

/* Installed files (shim, soft GPU client, policies, samples): $GBPF_LIBDIR, else <dir of
 * program>/../lib/gbpf. */
int path_lib(char *out, size_t cap, const char *leaf);

/* A program beside the running one (gbpfd, gbpf-softgpu): $GBPF_BINDIR, else the running program's
 * directory. */
int path_program(char *out, size_t cap, const char *name);

/* mkdir -p with that mode for the last part; an existing directory must belong to us (or root) and
 * not be writable by others: -EPERM otherwise, since whoever owns the directory owns the sockets in
 * it. */
int path_make_private(const char *dir, unsigned mode);

#endif
