/* Monitoring of `gbpf policy swap`. */
#ifndef GBPF_CLI_WATCH_SWAP_H
#define GBPF_CLI_WATCH_SWAP_H

#include "cli/cli.h"
#include "gbpf/gbpf.h"

/* Parses --watch, --rollback-if and --detach as given, or NULL. Returns CLI_OK (ns is set if there
 * is a watch), or CLI_USAGE after a message. */
int cli_watch_options(struct cli *c, const char *time, const char *condition, bool detach,
		      uint64_t *ret_ns);
/* Returns true if the watch that gbpfd reports has not ended: it watches or rolls back. */
bool cli_watch_runs(const json_t *w);
/* Waits for gbpfd's decision. Returns CLI_OK (kept), CLI_ROLLED_BACK, or another code after a
 * message. The caller frees *ret_watch, gbpfd's last report, or NULL. */
int cli_watch_await(struct cli *c, struct gbpf *g, uint64_t version, json_t **ret_watch);

#endif
