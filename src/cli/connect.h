/* Calls to gbpfd through libgbpf: connect, call, parse the reply, or print the error and return its
 * exit code. */
#ifndef GBPF_CLI_CONNECT_H
#define GBPF_CLI_CONNECT_H

#include "cli/cli.h"
#include "gbpf/gbpf.h"

/* Connects to the daemon named by --socket or the environment. Returns CLI_OK with *ret (caller
 * closes), or an exit code after the message was printed. */
int cli_open(struct cli *c, struct gbpf **ret);

/* Returns the value of --timeout for libgbpf; 0: no limit. */
unsigned cli_timeout_ms(const struct cli *c);

/* Returns CLI_UNSTORED after a warning if an answer says that what was done is not stored, else
 * CLI_OK. */
int cli_check_stored(struct cli *c, const char *what, const json_t *result);

/* Prints the last error of g and returns its exit code. */
int cli_fail_daemon(struct cli *c, struct gbpf *g, const char *what);

/* Parses and frees the answer of a libgbpf call; NULL: the call has failed, or the answer is not an
 * object. Caller decrefs. */
json_t *cli_answer(int rc, char *json);

/* Handles the result of a libgbpf call: rc < 0 prints its error and returns the exit code;
 * otherwise parses and frees json and returns CLI_OK with *ret (caller decrefs). what: "policy
 * load". */
int cli_result(struct cli *c, struct gbpf *g, const char *what, int rc, char *json, json_t **ret);

/* Implements a simple verb: connect, one call without a descriptor, result. Takes params (may be
 * NULL). */
int cli_call(struct cli *c, const char *what, const char *method, json_t *params, json_t **ret);

/* Reads the page of a map after *after (owned; NULL: the first), of at most limit entries, and
 * stores in it what the next page follows; NULL: there is none. Returns the code of libgbpf, with
 * *ret as cli_answer(). */
int cli_map_page(struct gbpf *g, const struct gbpf_map *map, unsigned limit, bool nonzero,
		 char **after, json_t **ret);
/* Reads all pages, or those with the first `limit` entries unless it is 0, as one: its member
 * `more` states whether there are others. As cli_map_page(), with NULL unless all of them were
 * read. */
int cli_map_dump(struct gbpf *g, const struct gbpf_map *map, uint64_t limit, bool nonzero,
		 json_t **ret);

/* Members of a result; one that is missing or of another type reads as 0 or "". */
uint64_t cli_u64(const json_t *o, const char *key);
const char *cli_text(const json_t *o, const char *key);
/* Returns whether an array, NULL for none, has that integer. */
bool cli_has_number(const json_t *array, json_int_t number);
/* Returns the tool with the number in an answer of probe.list, NULL for none; or NULL. */
json_t *cli_tool_in(const json_t *list, uint64_t id);
/* Returns whether a tenant of a tool is the process pid, and runs the program whose session began
 * at connected_ns. A process that executes another program has a new session; so has one that comes
 * back to a gbpfd that was restarted, and is the same program. */
bool cli_is_program(const json_t *tenant, uint64_t pid, uint64_t connected_ns);

#define CLI_POLL_MAX_NS 250000000u /* between two readings of a tool's maps */
/* Returns the time between two readings while a program runs that was started with the tool, from
 * the duration of the last one. The program's exit waits for two readings (docs/DEVICE-RUNTIME.md);
 * if readings take long, they take a fifth of the time at most. */
uint64_t cli_poll_ns(uint64_t took_ns);

#endif
