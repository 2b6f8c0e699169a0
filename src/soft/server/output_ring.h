/* Where the text of kernels goes: exec_host's print and complain; the argument is a struct group.
 * From any worker, without the device's lock. */
#ifndef GBPF_SOFT_SERVER_OUTPUT_RING_H
#define GBPF_SOFT_SERVER_OUTPUT_RING_H

#include <stddef.h>

void softd_output_text(void *group, const char *text, size_t n);
void softd_output_complaint(void *group, const char *text, size_t n);

#endif
