/* Writes machine code of the device in use, made of PTX by its driver's linker. Usage: soft_ptxas
 * [--fatbin] OUT PTX...; with --fatbin as the only entry of a fat binary. On the soft GPU:
 * tests/block/on-soft SERVER LIBRARIES soft_ptxas k.cubin k.ptx */
#include "program.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A container with one entry, kind 2. */
static void write_heads(FILE *out, uint64_t bytes, unsigned arch)
{
	uint64_t container[2] = { 0x00100001ba55ed50u, 64 + bytes };
	uint64_t entry[8] = {
		0x0000004001010002, bytes, UINT64_C(64) << 32, (uint64_t)arch << 32, 0, 0x11, 0, 0
	};

	fwrite(container, 1, sizeof(container), out);
	fwrite(entry, 1, sizeof(entry), out);
}

static unsigned arch_of(CUdevice device)
{
	int major, minor;

	CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
	CU(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
	return (unsigned)(major * 10 + minor);
}

int main(int argc, char **argv)
{
	static const char zeros[8];
	bool fatbin = argc > 1 && strcmp(argv[1], "--fatbin") == 0;
	int first = fatbin ? 3 : 2;
	struct program p = { .name = "soft_ptxas", .argc = argc, .argv = argv };
	CUlinkState link;
	size_t bytes;
	void *image;
	FILE *out;

	if (argc <= first) {
		fprintf(stderr, "usage: %s [--fatbin] OUT PTX...\n", argv[0]);
		return 2;
	}
	CU(cuInit(0));
	CU(cuDeviceGet(&p.device, 0));
	CU(cuCtxCreate(&p.context, 0, p.device));
	CU(cuLinkCreate(0, NULL, NULL, &link));
	for (int i = first; i < argc; i++) {
		char *text = program_read(argv[i], &bytes);

		CU(cuLinkAddData(link, CU_JIT_INPUT_PTX, text, bytes + 1, argv[i], 0, NULL, NULL));
		free(text);
	}
	CU(cuLinkComplete(link, &image, &bytes));
	out = fopen(argv[first - 1], "wb");
	if (!out) {
		perror(argv[first - 1]);
		return 1;
	}
	if (fatbin) {
		write_heads(out, (bytes + 7) / 8 * 8, arch_of(p.device));
	}
	fwrite(image, 1, bytes, out);
	if (fatbin) {
		fwrite(zeros, 1, (8 - bytes % 8) % 8, out);
	}
	if (fclose(out) != 0) {
		perror(argv[first - 1]);
		return 1;
	}
	CU(cuLinkDestroy(link));
	CU(cuCtxDestroy(p.context));
	return 0;
}
