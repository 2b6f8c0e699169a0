/* Output of kernels. */
#ifndef GBPF_SOFT_CLIENT_PRINTF_OUTPUT_H
#define GBPF_SOFT_CLIENT_PRINTF_OUTPUT_H

#include "soft/client/process.h"

/* Writes what kernels have printed so far. */
void soft_output_drain(void);

#endif
