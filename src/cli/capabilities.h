/* Available hardware controls and sharing modes as sentences, for `gbpf device` and `gbpf doctor`.
 */
#ifndef GBPF_CLI_CAPABILITIES_H
#define GBPF_CLI_CAPABILITIES_H

#include "cli/cli.h"

/* Appends the controls of a device of device.list: "time slice yes, interleave no (needs rights)".
 * Returns false, with an explanation in out, if no program has detected them yet. */
bool cli_capabilities_of(struct buf *out, const json_t *device);
/* Appends the sharing modes: "process yes, shared no (nvidia-cuda-mps-control not found)". Returns
 * true if all are available. */
bool cli_capabilities_lanes(struct buf *out, const json_t *result);

#endif
