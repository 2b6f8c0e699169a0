/* Files that only this user may open: locks, logs, histories. A file that other users may open is
 * not a lock, because flock(2) needs no more than an open descriptor. */
#ifndef GBPF_BASE_PRIVATE_FILE_H
#define GBPF_BASE_PRIVATE_FILE_H

#include <stdbool.h>

/* Opens a regular file of this user, or creates it with mode 0600; never follows a link. flags as
 * of open(2), O_CREAT included by the caller. A wider mode is reduced to the owner's. Returns the
 * descriptor, -EPERM (other owner, several links, or not a regular file), -ELOOP (a link), or
 * -errno. */
int private_file_open(const char *path, int flags);

/* Opens, or creates, a lock file as above and takes its flock. A file that other users could have
 * opened is replaced by a new one, once its own flock is taken; if that is held, `in_use` tells
 * whether the holder is the service that the lock stands for (NULL: it is). Returns the descriptor,
 * -EWOULDBLOCK (held; ret_text has what the holder wrote), or -errno. */
int private_file_lock(const char *path, bool (*in_use)(void *arg), void *arg, char ret_text[32]);

#endif
