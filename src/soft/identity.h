/* The identity of a soft GPU, which the driver and the management library report alike. */
#ifndef GBPF_SOFT_IDENTITY_H
#define GBPF_SOFT_IDENTITY_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SOFT_NAME "gBPF soft GPU"
#define SOFT_CUDA_VERSION 13000

static inline void soft_identity_uuid(unsigned char out[16], uint32_t gpu)
{
	memcpy(out, "gBPF-soft-device", 16);
	out[15] = (unsigned char)(out[15] + gpu);
}

/* "GPU-67425046-..." */
static inline void soft_identity_text(char out[48], uint32_t gpu)
{
	unsigned char u[16];
	int len = snprintf(out, 48, "GPU-");

	soft_identity_uuid(u, gpu);
	for (int i = 0; i < 16; i++) {
		len += snprintf(out + len, 48 - (size_t)len, "%s%02x",
				i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
	}
}

static inline unsigned soft_identity_bus(uint32_t gpu)
{
	return gpu + 1;
}

#endif
