/* As count_blocks, with the map in pinned host memory. */
#include <gbpf/gbpf.bpf.h>

#define PLACE (GBPF_F_DEVICE | GBPF_F_HOST)
#include "count_blocks.bpf.c"
