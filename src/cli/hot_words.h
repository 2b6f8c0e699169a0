/* Warnings of words to which every warp of a kernel adds. */
#ifndef GBPF_CLI_HOT_WORDS_H
#define GBPF_CLI_HOT_WORDS_H

#include "bpf/load/policy.h"
#include "cli/cli.h"

/* Returns an array with {map, program, place, message} for each in a verified object; place may be
 * "". Caller decrefs. */
json_t *cli_hot_words_json(const struct ebpf_object *o);
/* Prints them as warnings. file: for those whose place in the source is not known. */
void cli_hot_words_note(struct cli *c, const char *file, const json_t *words);
/* The same for an object that is not verified yet; prints nothing if it is not accepted. */
void cli_hot_words_check(struct cli *c, const char *name, const struct buf *elf);

#endif
