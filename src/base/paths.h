/* Paths of runtime files, state, and the installed tree, which is found relative to the running
 * program. */
#ifndef GBPF_BASE_PATHS_H
#define GBPF_BASE_PATHS_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the path of the runtime directory (or dir/leaf if leaf is not NULL): $GBPF_RUNTIME_DIR,
 * else /run/gbpf for root, else $XDG_RUNTIME_DIR/gbpf, else /tmp/gbpf-<uid>. 0, -ENAMETOOLONG, or
 * -EINVAL if the variable that decides is a relative path; path_explain() has the message. Creates
 * nothing. */
int path_runtime(char *out, size_t cap, const char *leaf);
/* The same, of a user that is not root and for whom $GBPF_RUNTIME_DIR is not set. */
int path_users_runtime(char *out, size_t cap, const char *leaf);

/* Returns the mode for creating the runtime directory: other users may enter root's, whose sockets
 * check their peers. */
unsigned path_runtime_mode(void);

/* State across restarts: $GBPF_STATE_DIR, else /var/lib/gbpf for root, else $XDG_STATE_HOME/gbpf,
 * else ~/.local/state/gbpf. */
int path_state(char *out, size_t cap, const char *leaf);
/* Returns true unless $GBPF_STATE_DIR names it. */
bool path_state_is_default(void);

/* Files that can be made again: $GBPF_CACHE_DIR, else $XDG_CACHE_HOME/gbpf, else $HOME/.cache/gbpf.
 * -ENOENT if none of these variables is set. */
int path_cache(char *out, size_t cap, const char *leaf);
/* Returns true unless $GBPF_CACHE_DIR names it. */
bool path_cache_is_default(void);

/* Returns the name of a variable that the functions here consult, or GBPF_SOFTGPU_SOCKET, if it is
 * a relative path; NULL: none. */
const char *path_relative_variable(void);
/* Writes the message for an error of the functions here. Returns err. */
int path_explain(int err, char *out, size_t cap);

/* Installed files (shim, soft GPU client, policies, samples): $GBPF_LIBDIR, else <dir of
 * program>/../lib/gbpf. */
int path_lib(char *out, size_t cap, const char *leaf);

/* The object of the installed policy that a word names: NAME, or examples/NAME for an example.
 * -EINVAL if the word is neither, as with any other slash; -errno if the object cannot be read;
 * else as path_lib(). */
int path_policy(char *out, size_t cap, const char *word);
/* Returns true if a word without a slash names an example, but no other installed policy. Such a
 * word is not accepted: messages name examples/NAME instead. */
bool path_policy_is_example(const char *word);

/* A program in the same directory as the running one (gbpfd, gbpf-softgpu): $GBPF_BINDIR, else the
 * running program's directory. */
int path_program(char *out, size_t cap, const char *name);

#endif
