/* What a virtual GPU is given by variables that other tools know. */
#ifndef GBPF_CLI_VGPU_ENVIRONMENT_H
#define GBPF_CLI_VGPU_ENVIRONMENT_H

#include "cli/cli.h"
#include "proto/vgpu_text.h"

/* Reads CUDA_DEVICE_MEMORY_LIMIT (a size) and CUDA_DEVICE_MEMORY_LIMIT_N (of device N, from 0 on),
 * CUDA_DEVICE_SM_LIMIT (percent) and CUDA_DEVICE_SM_LIMIT_N (the same for each device, since a
 * virtual GPU has one share of time); 0 is no limit. Returns CLI_OK, or CLI_USAGE after a message.
 */
int cli_vgpu_from_environment(struct cli *c, struct proto_vgpu_config *config);

#endif
