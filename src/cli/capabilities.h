/* What can be done to programs on a GPU, as sentences for `gbpf device` and `gbpf doctor`. */
#ifndef GBPF_CLI_CAPABILITIES_H
#define GBPF_CLI_CAPABILITIES_H

#include "cli/cli.h"

/* A device of device.list: "time slice yes, interleave no (needs rights)". False: no program has
 * tried yet, which out then says. */
bool cli_capabilities_of(struct buf *out, const json_t *device);
/* Of the answer: "process yes, shared no (nvidia-cuda-mps-control not found)". True: all can be
 * had.
 */
bool cli_capabilities_lanes(struct buf *out, const json_t *result);

#endif
