/* Talking to gbpfd through libgbpf: connect, call, parse the answer, or print the error and give
 * its exit code. */
#ifndef GBPF_CLI_CONNECT_H
#define GBPF_CLI_CONNECT_H

#include "cli/cli.h"
#include "gbpf/gbpf.h"

/* Connects to the daemon of --socket or of the environment. CLI_OK with *ret (caller closes), or an
 * exit code after the message was printed. */
int cli_open(struct cli *c, struct gbpf **ret);

/* Prints the last error of g and gives its exit code. */
int cli_fail_daemon(struct cli *c, struct gbpf *g, const char *what);

/* After a call of libgbpf: rc < 0 prints its error and gives the exit code. Else parses and frees
 * json: CLI_OK with *ret (caller decrefs). what: "policy load". */
int cli_result(struct cli *c, struct gbpf *g, const char *what, int rc, char *json, json_t **ret);

/* The whole of a simple verb: connect, one call without a descriptor, result. Takes params (may be
 * NULL). */
int cli_call(struct cli *c, const char *what, const char *method, json_t *params, json_t **ret);

/* Members of a result; what is missing or of another type reads as 0 or "". */
uint64_t cli_u64(const json_t *o, const char *key);
const char *cli_text(const json_t *o, const char *key);

#endif
