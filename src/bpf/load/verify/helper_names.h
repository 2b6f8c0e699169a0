/* Names of helpers that gBPF does not have. */
#ifndef GBPF_BPF_LOAD_VERIFY_HELPER_NAMES_H
#define GBPF_BPF_LOAD_VERIFY_HELPER_NAMES_H

#include <stdint.h>

/* Returns the name of a helper that gBPF does not have, NULL if it is not known. Stores in
 * *ret_instead what to use, NULL if there is no counterpart. */
const char *ebpf_verify_foreign_helper(int32_t id, const char **ret_instead);

#endif
