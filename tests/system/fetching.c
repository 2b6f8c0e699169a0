/* fetching: launches kernels on buffers in a given order, for fetching.bats: which buffers are on
 * the device depends on that order. It knows nothing of gBPF.
 *
 *   fetching MIB ORDER
 *
 * ORDER is a text of letters a to h and A to H. Each small letter names a buffer of MIB, each
 * capital one of half as much, which is made at its first place in the text, and means a launch
 * that adds i + 1 to the first word of each page i of it. '.' waits for all work. Prints "right"
 * once all words have been compared, and ends when its input does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"

#define MIB ((size_t)1 << 20)
#define BUFFERS 16u
#define BLOCK 256u
#define BLOCKS 64u
#define PAGE 4096u

/* The address lies in a struct. */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry next(.param .u32 n, .param .align 8 .b8 s[16])\n"
			  "{\n"
			  ".reg .pred %p;\n"
			  ".reg .b32 %i, %n, %s, %t, %u;\n"
			  ".reg .b64 %a, %q;\n"
			  "ld.param.u32 %n, [n];\n"
			  "ld.param.u64 %a, [s+8];\n"
			  "mov.u32 %t, %tid.x;\n"
			  "mov.u32 %u, %ctaid.x;\n"
			  "mov.u32 %s, %ntid.x;\n"
			  "mad.lo.u32 %i, %u, %s, %t;\n"
			  "mov.u32 %t, %nctaid.x;\n"
			  "mul.lo.u32 %s, %t, %s;\n"
			  "loop:\n"
			  "setp.ge.u32 %p, %i, %n;\n"
			  "@%p bra done;\n"
			  "mul.wide.u32 %q, %i, 4096;\n"
			  "add.u64 %q, %q, %a;\n"
			  "ld.global.u32 %u, [%q];\n"
			  "add.u32 %u, %u, %i;\n"
			  "add.u32 %u, %u, 1;\n"
			  "st.global.u32 [%q], %u;\n"
			  "add.u32 %i, %i, %s;\n"
			  "bra loop;\n"
			  "done:\n"
			  "ret;\n"
			  "}\n";

static const char letters[] = "abcdefghABCDEFGH";
static CUfunction next;
static CUstream stream;
static size_t bytes[BUFFERS];
static CUdeviceptr buffer[BUFFERS];
static uint32_t launches[BUFFERS];

/* By each way to pass parameters in turn. */
static void launch(unsigned k, unsigned turn)
{
	struct {
		uint32_t n, filler;
		uint64_t s[2];
	} all = { (uint32_t)(bytes[k] / PAGE), 0, { 0, buffer[k] } };
	size_t size = sizeof(all);
	void *params[] = { &all.n, all.s };
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &all, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };
	CUlaunchConfig config = { .gridDimX = BLOCKS,
				  .gridDimY = 1,
				  .gridDimZ = 1,
				  .blockDimX = BLOCK,
				  .blockDimY = 1,
				  .blockDimZ = 1,
				  .hStream = stream };

	switch (turn % 3) {
	case 0:
		CU(cuLaunchKernel(next, BLOCKS, 1, 1, BLOCK, 1, 1, 0, stream, params, NULL));
		break;
	case 1:
		CU(cuLaunchKernel(next, BLOCKS, 1, 1, BLOCK, 1, 1, 0, stream, NULL, extra));
		break;
	default:
		CU(cuLaunchKernelEx(&config, next, params, NULL));
	}
}

static void compare(unsigned k)
{
	uint32_t *words = program_room(bytes[k]);

	CU(cuMemcpyDtoH(words, buffer[k], bytes[k]));
	for (size_t i = 0; i < bytes[k] / 4; i++) {
		uint32_t page = (uint32_t)(i / (PAGE / 4));
		uint32_t want = i % (PAGE / 4) ? 0 : (page + 1) * launches[k];

		CHECK(words[i] == want, "word %zu of %c is %u instead of %u", i, letters[k],
		      words[i], want);
	}
	free(words);
}

int main(int argc, char **argv)
{
	CUcontext context;
	CUmodule module;
	CUdevice device;
	size_t most = argc == 3 ? (size_t)atoi(argv[1]) * MIB : 0;
	char c;

	if (!most || strspn(argv[2], "abcdefghABCDEFGH.") != strlen(argv[2])) {
		fprintf(stderr, "usage: fetching MIB ORDER\n");
		return 2;
	}
	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	CU(cuModuleLoadData(&module, ptx));
	CU(cuModuleGetFunction(&next, module, "next"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; argv[2][i]; i++) {
		unsigned k = 0;

		if (argv[2][i] == '.') {
			CU(cuCtxSynchronize());
			continue;
		}
		while (letters[k] != argv[2][i]) {
			k++;
		}
		if (!buffer[k]) {
			bytes[k] = k < BUFFERS / 2 ? most : most / 2;
			CU(cuMemAlloc(&buffer[k], bytes[k]));
			CU(cuMemsetD8Async(buffer[k], 0, bytes[k], stream));
		}
		launch(k, i);
		launches[k]++;
	}
	CU(cuCtxSynchronize());
	for (unsigned k = 0; k < BUFFERS; k++) {
		if (buffer[k]) {
			compare(k);
		}
	}
	printf("right\n");
	fflush(stdout);
	while (read(0, &c, 1) > 0) {
	}
	return 0;
}
