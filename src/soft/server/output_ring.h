/* Output of kernels to the client: exec_host.print and exec_host.complain; group: struct
 * softd_group. Called from any worker without the machine's lock. */
#ifndef GBPF_SOFT_SERVER_OUTPUT_RING_H
#define GBPF_SOFT_SERVER_OUTPUT_RING_H

#include <stddef.h>

void softd_output_text(void *group, const char *text, size_t n);
void softd_output_complaint(void *group, const char *text, size_t n);

#endif
