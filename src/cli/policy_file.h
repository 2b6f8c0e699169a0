/* Objects named on the command line, policies and tools: installed ones and files; several files
 * may form one. */
#ifndef GBPF_CLI_POLICY_FILE_H
#define GBPF_CLI_POLICY_FILE_H

#include "cli/cli.h"

#define CLI_OBJECT_MAX_BYTES (16u << 20) /* gbpfd's limit */

enum cli_object { CLI_POLICY, CLI_TOOL };

/* Stores the path of a named object: a word without a slash and without .o is an installed policy
 * or tool, examples/NAME an installed example of a policy, any other word a file. Returns CLI_OK,
 * or an exit code after a message. */
int cli_object_find(struct cli *c, enum cli_object kind, const char *what, const char *name,
		    char *path, size_t cap);

/* Returns the path of the installed policy of that name or, if there is none, name itself. */
const char *cli_policy_path(const char *name, char *path, size_t cap);

/* Reads the objects that n words name and links them into one. name: of the first, without .bpf.o.
 * Returns CLI_OK, or an exit code after a message; the caller finishes elf in either case. */
int cli_object_read(struct cli *c, enum cli_object kind, const char *what, char *const *words,
		    int n, struct buf *elf, char name[64]);

/* `gbpf policy check` of files, each by itself or linked into one policy: prints a line each, or a
 * document of that schema. Returns the exit code. */
int cli_policy_check(struct cli *c, const char *schema, char *const *files, int n, bool explain,
		     bool linked);

/* Returns "x.bpf.o" for "dir/x.bpf.o". */
const char *cli_base_name(const char *path);

#endif
