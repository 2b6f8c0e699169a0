/* Directories whose owner controls what is in them: sockets, locks, stored policies. Only this user
 * and root may be able to replace such a directory or an entry of it. */
#ifndef GBPF_BASE_PRIVATE_DIR_H
#define GBPF_BASE_PRIVATE_DIR_H

#include <stdbool.h>
#include <stddef.h>

#define PRIVATE_DIR_WHY 4352

/* Checks an existing directory, and each directory and symbolic link on the way to it. All must
 * belong to this user or root. The directory itself must not be writable by its group or others.
 * One on the way must not be either, unless it is sticky, or the group is root's or the user's own
 * (the group with the number of the user). Owners that the user namespace does not map count as
 * root, except for the directory itself. 0, -EPERM, -errno; why has the path and the reason. */
int private_dir_check(const char *dir, char why[PRIVATE_DIR_WHY]);

/* Creates the directory with this mode unless it exists, with parents also its missing parents
 * (mode 0755), and checks it as above. why may be NULL. 0, -EPERM, -ENOENT (parent missing),
 * -errno. */
int private_dir_make(const char *dir, unsigned mode, bool parents, char why[PRIVATE_DIR_WHY]);

#endif
