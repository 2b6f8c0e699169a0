/* Shared by all verbs of `gbpf`: the table of verbs, parsed arguments, errors, output. Data goes to
 * standard output, everything else to standard error; a verb returns the program's exit code. */
#ifndef GBPF_CLI_CLI_H
#define GBPF_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/nearest.h"
#include "base/report.h"

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_UNREACHABLE = 3, /* no daemon */
	CLI_REFUSED = 4,     /* the verifier or gbpfd refused a policy */
	CLI_NOT_FOUND = 5,
	CLI_PERMISSION = 6,
	CLI_LIMIT = 7,
	CLI_TIMEOUT = 8,
	CLI_ROLLED_BACK = 9, /* `policy swap --watch`: its condition held */
	CLI_UNSTORED = 10,   /* in effect or refused, but not on gbpfd's disk */
	/* `gbpf run` only, as in env(1), timeout(1) and docker(1) */
	CLI_RUN_FAILED = 125,
	CLI_RUN_CANNOT_EXEC = 126,
	CLI_RUN_NO_COMMAND = 127,
};

#define CLI_MAX_OPTIONS 32
#define CLI_MAX_REPEATED 32

struct cli_option {
	const char *name; /* without dashes */
	char letter;	  /* or 0 */
	const char *arg;  /* NULL: a flag; "a|b|c": one of these words, checked by the parser; in
			     capitals: a placeholder, of an option that may be repeated with "..."
			     at its end: one for each verb */
	const char *doc;
};

struct cli;

/* One verb. Usage, completion and the check of the manual pages are generated from this table. */
struct cli_verb {
	const char *name;
	const char *args; /* as in the usage line; "" if there are none */
	const char *doc;
	const char *page;		  /* manual page that contains its section, "gbpf-run.1" */
	const struct cli_option *options; /* terminated by a NULL name; may be NULL */
	const struct cli_verb *const *subs; /* terminated by NULL; run is NULL then */
	int min_args, max_args;		    /* max -1: any number */
	bool program; /* words after "--" are a program with its arguments, beyond max_args */
	bool command; /* the words after the first argument are a command line and are not parsed */
	bool unparsed; /* no word after the verb is parsed: it has options and --help of its own */
	int (*run)(struct cli *c);
};

enum cli_global {
	CLI_JSON,
	CLI_QUIET,
	CLI_SOCKET,
	CLI_TIMEOUT_OPT,
	CLI_COLOR,
	CLI_VERSION,
	CLI_HELP
};

struct cli {
	const struct cli_verb *group; /* "policy" of "policy load", or NULL */
	const struct cli_verb *verb;
	const char *opt[CLI_MAX_OPTIONS]; /* indexed like verb->options: the value, "" for a flag,
					     NULL if absent */
	const char *global[CLI_MAX_OPTIONS];
	const char *repeated[CLI_MAX_REPEATED]; /* all values of the option that may be repeated */
	int n_repeated;
	char **arg; /* borrowed from argv; arg[n_args] == NULL */
	int n_args;
	int n_before; /* of these, those in front of "--" */
	bool json, quiet;
	bool color_out, color_err;
	uint64_t timeout_ns;
	void (*sigpipe)(int), (*sigchld)(int); /* inherited; a started program gets them back */
};

extern const struct cli_verb *const cli_verbs[];
extern const struct cli_option cli_globals[];

/* args.c. Returns 0 with c filled, or an exit code after the message was printed. */
int cli_parse(struct cli *c, int argc, char **argv);
const struct cli_verb *cli_verb_find(const struct cli_verb *const *verbs, const char *name);
/* "policy load" or "ps" */
const char *cli_verb_name(const struct cli *c, char *out, size_t cap);
/* Returns true if arg lists the option's values. */
bool cli_is_choice(const struct cli_option *o);
/* Parses an integer in min..max. Returns 0, or CLI_USAGE after a message; what is "--weight". */
int cli_number(struct cli *c, const char *what, const char *text, uint64_t min, uint64_t max,
	       uint64_t *ret);

/* usage.c */
void cli_usage(const struct cli *c, FILE *to); /* of c->verb, or of the program if NULL */
void cli_usage_verb(const struct cli_verb *group, const struct cli_verb *verb, FILE *to);

/* out.c: "gbpf: message. hint", or the error document with --json. Return exit_code. hint may be
 * NULL. */
int cli_fail(struct cli *c, int exit_code, const char *code, const char *hint, const char *fmt, ...)
	PRINTF_LIKE(5, 6);
int cli_fail_report(struct cli *c, int exit_code, const char *what, const struct report *r);
void cli_print_hint(FILE *to, const char *hint);
/* print_report.c: "✗ file: place: message. hint" with its detail; and the same as an object. */
void cli_print_report(struct cli *c, FILE *to, const char *file, const struct report *r);
json_t *cli_report_json(const struct report *r);
void cli_note(struct cli *c, const char *fmt, ...)
	PRINTF_LIKE(2, 3); /* to standard error, not with -q */
/* Prints a document and releases it. verb: "ps" for the schema "gbpf.ps/1". */
/* A JSON string with question marks in place of bytes that are not UTF-8; null for NULL. */
json_t *cli_json_text(const char *s);
int cli_json(struct cli *c, const char *verb, json_t *document);
/* Returns utf8 if the locale's encoding is UTF-8, else ascii. */
const char *cli_sign(const char *utf8, const char *ascii);
#define CLI_SIGN_OK cli_sign("✓", "ok")
#define CLI_SIGN_BAD cli_sign("✗", "bad")
#define CLI_SIGN_TO cli_sign("→", "->")
enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_GREEN, CLI_RED, CLI_DIM };
const char *cli_style(bool on, enum cli_style style);
/* Returns 0, or an exit code if standard output could not be written: CLI_FAILED after a message,
 * or 128 + SIGPIPE if it is a pipe whose reader has closed it. */
int cli_flush(struct cli *c);

/* table.c: columns of text as wide as their contents. */
#define CLI_COLUMNS 17
struct cli_table {
	const char *head[CLI_COLUMNS];
	bool right[CLI_COLUMNS];
	unsigned optional[CLI_COLUMNS]; /* ranks; 0: always shown */
	unsigned columns;
	char **cells; /* owned */
	size_t n, cap;
};
void cli_table_init(struct cli_table *t);
void cli_table_finish(struct cli_table *t);
void cli_table_column(struct cli_table *t, const char *head, bool right);
/* The column that was added last is left out on a terminal that is too narrow, those with the
 * highest rank first. */
void cli_table_optional(struct cli_table *t, unsigned rank);
/* Appends a cell. Control characters become '?', since names and commands are untrusted; "" becomes
 * "-". */
void cli_table_cell(struct cli_table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void cli_table_print(const struct cli_table *t, FILE *to, bool color);
/* Appends text; control characters and what the locale's encoding does not have become '?'. */
void cli_safe_text(struct buf *out, const char *text);
void cli_put_safe(FILE *to, const char *text);
/* Returns the columns of the terminal fd, 0 if it is none or unknown. */
int cli_terminal_width(int fd);

/* units.c */
const char *cli_duration(char out[24], uint64_t ns); /* "41.2 µs" */
const char *cli_count(char out[24], uint64_t n);     /* "1.25M" */
const char *cli_plain(char out[24], uint64_t n);
const char *cli_bytes(char out[24], uint64_t n); /* "3.1 MiB" */
const char *cli_when(char out[40], uint64_t wall_ns);
/* Parses "200ms", "5s", "2m", "1h", "3d"; a bare number is in units of bare_ns (0: a unit is
 * required). Returns 0 or -EINVAL. */
int cli_parse_duration(const char *text, uint64_t bare_ns, uint64_t *ret_ns);
/* Parses how long ago ("90s", "2h"), the latest moment up to now at which local clocks showed a
 * time
 * ("22:00", "22:00:30"), a day ("today", "yesterday", "2026-11-27"), which means its midnight, or a
 * day and a time with a blank or T between them. Fractions of seconds are ignored. Returns 0, or
 * -EINVAL. */
int cli_parse_moment(const char *text, uint64_t now_ns, uint64_t *ret_ns);
/* Finds a user by name or number. */
bool cli_parse_user(const char *text, uint32_t *ret_uid);
/* Returns the name of a user, or the number if it has none. */
const char *cli_user(char out[64], uint32_t uid);
/* "4G", "1.5 GiB" without the blank, "512M", bytes without a unit; powers of 1024. 0 or -EINVAL. */
int cli_parse_bytes(const char *text, uint64_t *ret);

#endif
