/* The watch of `gbpf policy swap`. */
#ifndef GBPF_CLI_WATCH_SWAP_H
#define GBPF_CLI_WATCH_SWAP_H

#include "cli/cli.h"
#include "gbpf/gbpf.h"

/* --watch, --rollback-if, --detach as given, or NULL: CLI_OK (ns is written when there is a watch)
 * or CLI_USAGE after a message. */
int cli_watch_options(struct cli *c, const char *time, const char *condition, bool detach,
		      uint64_t *ret_ns);
/* Until gbpfd has decided: CLI_OK (it stays), CLI_ROLLED_BACK, or another code after a message. The
 * caller frees *ret_watch, what gbpfd said last, or NULL. */
int cli_watch_await(struct cli *c, struct gbpf *g, uint64_t version, json_t **ret_watch);

#endif
