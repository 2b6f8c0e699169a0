/* The objects that a user names: installed policies and files, one or several that are one policy.
 */
#ifndef GBPF_CLI_POLICY_FILE_H
#define GBPF_CLI_POLICY_FILE_H

#include "cli/cli.h"

#define CLI_OBJECT_MAX_BYTES (16u << 20) /* as gbpfd takes it */

/* Path of the object that a user named: a word without a slash and without .o is an installed
 * policy, all else a file. CLI_OK, or an exit code after a message. */
int cli_policy_find(struct cli *c, const char *what, const char *name, char *path, size_t cap);

/* Where a file, or, if there is none of that name, the installed policy lies: name or path. */
const char *cli_policy_path(const char *name, char *path, size_t cap);

/* Reads the objects that n words name and makes one of them. name: of the first, without .bpf.o.
 * CLI_OK, or an exit code after a message; the caller finishes elf in any case. */
int cli_policy_read(struct cli *c, const char *what, char *const *words, int n, struct buf *elf,
		    char name[64]);

/* `gbpf policy check` of files, each by itself or linked to one policy: prints a line each, or a
 * document of that schema; the exit code. */
int cli_policy_check(struct cli *c, const char *schema, char *const *files, int n, bool explain,
		     bool linked);

/* "x.bpf.o" of "dir/x.bpf.o" */
const char *cli_base_name(const char *path);

#endif
