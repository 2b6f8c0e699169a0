/* Two halves of a program that are linked at run time. Usage: link IMAGE_A IMAGE_B: PTX text. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>

#define N 512

int main(int argc, char **argv)
{
	static const int offsets[4] = { 100, 200, 300, 400 };
	int in[N], out[N], n = N, factor = 7;
	char errors[4096] = "", *half;
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { errors, (void *)(uintptr_t)sizeof(errors) }, *image;
	struct program p = { .name = "link", .argc = argc, .argv = argv };
	uint64_t seed = 13;
	size_t bytes, image_bytes;
	CUlinkState link;
	CUdeviceptr d, o;
	bool right = true;

	if (argc < 3) {
		fprintf(stderr, "usage: %s IMAGE_A IMAGE_B\n", argv[0]);
		return 2;
	}
	CU(cuInit(0));
	CU(cuDeviceGet(&p.device, 0));
	CU(cuCtxCreate(&p.context, 0, p.device));
	CU(cuLinkCreate(2, options, values, &link));
	for (int i = 1; i < 3; i++) {
		half = program_read(argv[i], &bytes);
		CU(cuLinkAddData(link, CU_JIT_INPUT_PTX, half, bytes + 1, argv[i], 0, NULL, NULL));
		free(half);
	}
	CU(cuLinkComplete(link, &image, &image_bytes));
	CU(cuModuleLoadData(&p.module, image));
	CU(cuLinkDestroy(link));
	for (int i = 0; i < N; i++) {
		in[i] = (int)(program_random(&seed) % 1000);
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	for (int round = 0; round < 2; round++) {
		LAUNCH(program_kernel(&p, "linked"), N / 128, 128, 0, &o, &d, &n);
		program_get(out, o, sizeof(out));
		for (int i = 0; i < N; i++) {
			int twisted = (in[i] ^ 21) + i % 5 * in[i];

			right = right && out[i] == twisted * factor + offsets[i & 3];
		}
		factor = -3;
		LAUNCH(program_kernel(&p, "setFactor"), 1, 1, 0, &factor);
	}
	program_check(&p, right, "the linked kernel");
	program_exact(&p, "words", out, sizeof(out));
	return program_close(&p);
}
