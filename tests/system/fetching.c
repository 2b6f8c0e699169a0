/* fetching: launches kernels and graphs on buffers in a given order, for fetching.bats: which
 * buffers are on the device depends on that order. It knows nothing of gBPF.
 *
 *   fetching [--managed] MIB ORDER
 *
 * ORDER is a text of letters a to h and A to H. Each small letter names a buffer of MIB, each
 * capital one of half as much, which is made at its first place in the text, and means a launch
 * that adds i + 1 to the first word of each page i of it. '.' waits for all work. A digit n is a
 * launch on another stream, which reads the n-th small letter's buffer until all of ORDER is
 * launched; after '!' it computes the address from a number in memory and one of its arguments.
 * After '&' it is no launch: the next one names that buffer as well, which it does not use. After
 * '*' a letter is a launch of an executable graph of its own, which is captured or built, after '='
 * of one for all letters, in which the buffer is set before. --managed: buffers are managed memory,
 * whose words the host adds 1 to and takes off again at a '.'. Prints "right" once all words have
 * been compared, and ends when its input does. */
#include <stdbool.h>
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
/* Reads the word at a until that at flag is not 0. */
static const char wait_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			       ".visible .entry wait(.param .u64 a, .param .u64 flag)\n"
			       "{\n"
			       ".reg .pred %p;\n"
			       ".reg .b32 %u;\n"
			       ".reg .b64 %a, %f;\n"
			       "ld.param.u64 %a, [a];\n"
			       "ld.param.u64 %f, [flag];\n"
			       "loop:\n"
			       "ld.volatile.global.u32 %u, [%a];\n"
			       "ld.volatile.global.u32 %u, [%f];\n"
			       "setp.eq.u32 %p, %u, 0;\n"
			       "@%p bra loop;\n"
			       "ret;\n"
			       "}\n";

/* The same, of the word whose address is that at number times size. */
static const char wait_far_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
				   ".visible .entry wait_far(.param .u64 number, .param .u64 size, "
				   ".param .u64 flag)\n"
				   "{\n"
				   ".reg .pred %p;\n"
				   ".reg .b32 %u;\n"
				   ".reg .b64 %n, %s, %a, %f, %q;\n"
				   "ld.param.u64 %n, [number];\n"
				   "ld.param.u64 %s, [size];\n"
				   "ld.param.u64 %f, [flag];\n"
				   "ld.global.u32 %u, [%n];\n"
				   "cvt.u64.u32 %q, %u;\n"
				   "mul.lo.u64 %a, %q, %s;\n"
				   "loop:\n"
				   "ld.volatile.global.u32 %u, [%a];\n"
				   "ld.volatile.global.u32 %u, [%f];\n"
				   "setp.eq.u32 %p, %u, 0;\n"
				   "@%p bra loop;\n"
				   "ret;\n"
				   "}\n";

static CUfunction next, wait, wait_far;
static CUstream stream, other;
static uint32_t *flag; /* and the number behind it */
static size_t bytes[BUFFERS];
static CUdeviceptr buffer[BUFFERS];
static uint32_t launches[BUFFERS];
static bool managed;
static CUdeviceptr also;	       /* the next launch names it; 0: none */
static CUgraphExec graph[BUFFERS + 1]; /* the last one is for all */
static CUgraphNode node;	       /* of the last one */

static CUDA_KERNEL_NODE_PARAMS node_params(void **params)
{
	return (CUDA_KERNEL_NODE_PARAMS){ .func = next,
					  .gridDimX = BLOCKS,
					  .gridDimY = 1,
					  .gridDimZ = 1,
					  .blockDimX = BLOCK,
					  .blockDimY = 1,
					  .blockDimZ = 1,
					  .kernelParams = params };
}

static void launch_graph(unsigned k, bool of_all)
{
	uint32_t n = (uint32_t)(bytes[k] / PAGE);
	uint64_t s[2] = { 0, buffer[k] };
	void *params[] = { &n, s };
	CUDA_KERNEL_NODE_PARAMS p = node_params(params);
	CUgraphExec *exec = &graph[of_all ? BUFFERS : k];
	CUgraph g;

	if (!*exec && !of_all && k % 2) {
		CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		CU(cuLaunchKernel(next, BLOCKS, 1, 1, BLOCK, 1, 1, 0, stream, params, NULL));
		CU(cuStreamEndCapture(stream, &g));
	} else if (!*exec) {
		CU(cuGraphCreate(&g, 0));
		CU(cuGraphAddKernelNode_v2(&node, g, NULL, 0, &p));
	} else if (of_all) {
		CU(cuGraphExecKernelNodeSetParams_v2(*exec, node, &p));
	}
	if (!*exec) {
		CU(cuGraphInstantiateWithFlags(exec, g, 0));
	}
	CU(cuGraphLaunch(*exec, stream));
}

/* By each way to pass parameters in turn. */
static void launch(unsigned k, unsigned turn)
{
	struct {
		uint32_t n, filler;
		uint64_t s[2];
	} all = { (uint32_t)(bytes[k] / PAGE), 0, { also, buffer[k] } };
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

	also = 0;
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

static void begin_wait(CUdeviceptr on, bool far)
{
	CUdeviceptr at, number, size = 2 * MIB; /* bases are multiples of it */
	void *params[] = { &on, &at }, *params_far[] = { &number, &size, &at };

	CU(cuMemHostGetDevicePointer_v2(&at, flag, 0));
	number = at + sizeof(*flag);
	flag[1] = (uint32_t)(on / size);
	CU(cuLaunchKernel(far ? wait_far : wait, 1, 1, 1, 1, 1, 1, 0, other,
			  far ? params_far : params, NULL));
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

static void make(unsigned k)
{
	if (managed) {
		CU(cuMemAllocManaged(&buffer[k], bytes[k], CU_MEM_ATTACH_GLOBAL));
	} else {
		CU(cuMemAlloc(&buffer[k], bytes[k]));
	}
}

/* The host uses managed memory where it is. */
static void touch(void)
{
	for (unsigned k = 0; k < BUFFERS && managed; k++) {
		volatile uint32_t *words = (uint32_t *)(uintptr_t)buffer[k];

		for (size_t i = 0; buffer[k] && i < bytes[k] / 4; i += PAGE / 4) {
			words[i] += 1;
			words[i] -= 1;
		}
	}
}

int main(int argc, char **argv)
{
	CUcontext context;
	CUmodule module, waits, far;
	CUdevice device;
	size_t most;
	char c;

	if (argc > 1 && strcmp(argv[1], "--managed") == 0) {
		managed = true;
		argv++;
		argc--;
	}
	most = argc == 3 ? (size_t)atoi(argv[1]) * MIB : 0;
	if (!most || strspn(argv[2], "abcdefghABCDEFGH12345678!&*=.") != strlen(argv[2])) {
		fprintf(stderr, "usage: fetching [--managed] MIB ORDER\n");
		return 2;
	}
	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	CU(cuModuleLoadData(&module, ptx));
	CU(cuModuleGetFunction(&next, module, "next"));
	CU(cuModuleLoadData(&waits, wait_ptx));
	CU(cuModuleGetFunction(&wait, waits, "wait"));
	CU(cuModuleLoadData(&far, wait_far_ptx));
	CU(cuModuleGetFunction(&wait_far, far, "wait_far"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CU(cuMemHostAlloc((void **)&flag, 2 * sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	*flag = 0;
	for (unsigned i = 0; argv[2][i]; i++) {
		unsigned k = 0;

		if (argv[2][i] == '.') {
			CU(cuCtxSynchronize());
			touch();
			continue;
		}
		if (argv[2][i] > '0' && argv[2][i] < '9' && i && argv[2][i - 1] == '&') {
			also = buffer[argv[2][i] - '1'];
			continue;
		}
		if (argv[2][i] > '0' && argv[2][i] < '9') {
			begin_wait(buffer[argv[2][i] - '1'], i && argv[2][i - 1] == '!');
			continue;
		}
		if (strchr("!&*=", argv[2][i])) {
			continue;
		}
		while (letters[k] != argv[2][i]) {
			k++;
		}
		if (!buffer[k]) {
			bytes[k] = k < BUFFERS / 2 ? most : most / 2;
			make(k);
			CU(cuMemsetD8Async(buffer[k], 0, bytes[k], stream));
		}
		if (i && strchr("*=", argv[2][i - 1])) {
			launch_graph(k, argv[2][i - 1] == '=');
		} else {
			launch(k, i);
		}
		launches[k]++;
	}
	*(volatile uint32_t *)flag = 1;
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
