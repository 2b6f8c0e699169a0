/* ranks: two processes, each on a GPU of its own, whose kernels wait for each other, as those of
 * data parallel training do. A step is a kernel that computes, and one that writes the step's
 * number to memory of the other rank's GPU and waits until that rank has written to its own. The
 * name of the latter is as of NCCL.
 *
 * Usage: ranks STEPS US [apart|graph]. US: us that the first kernel takes; apart: each process in
 * its own group; graph: a step is one launch of a graph with both. Prints a line for each rank: its
 * number, steps, ns that its kernels waited for the other rank, ns in all. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"

#define AHEAD 3 /* steps that are unfinished at a time */

static const char ptx[] =
	".version 6.0\n.target sm_70\n.address_size 64\n"
	".visible .entry compute(.param .u64 ns)\n{\n"
	".reg .pred %p<2>; .reg .b64 %rd<5>;\n"
	"mov.u64 %rd1, %globaltimer; ld.param.u64 %rd2, [ns];\n"
	"again: mov.u64 %rd3, %globaltimer; sub.u64 %rd4, %rd3, %rd1;\n"
	"setp.lt.u64 %p1, %rd4, %rd2; @%p1 bra again; ret;\n}\n"
	/* own: the number of the step that the other rank has come to; the time waited, ns; the
	 * number of the own step */
	".visible .entry ncclDevKernel_meet(.param .u64 own, .param .u64 other)\n"
	"{\n.reg .pred %p<2>; .reg .b64 %rd<9>;\n"
	"ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [other];\n"
	"ld.global.u64 %rd3, [%rd1+16]; add.u64 %rd3, %rd3, 1; st.global.u64 [%rd1+16], %rd3;\n"
	"mov.u64 %rd4, %globaltimer; st.volatile.global.u64 [%rd2], %rd3;\n"
	"again: mov.u64 %rd5, %globaltimer; ld.volatile.global.u64 %rd6, [%rd1];\n"
	"setp.lt.u64 %p1, %rd6, %rd3; @%p1 bra again;\n"
	"sub.u64 %rd7, %rd5, %rd4; ld.global.u64 %rd8, [%rd1+8];\n"
	"add.u64 %rd8, %rd8, %rd7; st.global.u64 [%rd1+8], %rd8; ret;\n}\n";

/* Returns the address of the other rank's memory in this process. */
static CUdeviceptr exchange(int other, CUdeviceptr own)
{
	CUipcMemHandle mine, theirs;
	CUdeviceptr at;

	CU(cuIpcGetMemHandle(&mine, own));
	CHECK(send(other, &mine, sizeof(mine), MSG_NOSIGNAL) == sizeof(mine), "to the other rank");
	CHECK(recv(other, &theirs, sizeof(theirs), MSG_WAITALL) == sizeof(theirs),
	      "from the other rank");
	CU(cuIpcOpenMemHandle_v2(&at, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return at;
}

/* Waits until the other rank has come here, too. */
static void meet_on_host(int other)
{
	char c = 'x';

	CHECK(send(other, &c, 1, MSG_NOSIGNAL) == 1, "to the other rank");
	CHECK(recv(other, &c, 1, 0) == 1, "from the other rank");
}

static void step_of(CUfunction compute, CUfunction meet, CUstream stream, unsigned long long *ns,
		    CUdeviceptr memory[2])
{
	LAUNCH3(compute, 1, 1, 1, 32, 1, 1, 0, stream, ns);
	LAUNCH3(meet, 1, 1, 1, 1, 1, 1, 0, stream, &memory[0], &memory[1]);
}

static void rank(int number, int other, unsigned long long steps, unsigned long long ns, bool graph)
{
	CUgraphExec exec = NULL;
	CUevent ends[AHEAD];
	CUfunction compute, meet;
	CUdeviceptr memory[2];
	CUstream stream = NULL;
	CUgraph g;
	CUcontext context;
	CUdevice device;
	CUmodule module;
	uint64_t begin, waited;

	CU(cuInit(0));
	CU(cuDeviceGet(&device, number));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	CU(cuModuleLoadData(&module, ptx));
	CU(cuModuleGetFunction(&compute, module, "compute"));
	CU(cuModuleGetFunction(&meet, module, "ncclDevKernel_meet"));
	memory[0] = program_zeros(24);
	memory[1] = exchange(other, memory[0]);
	if (graph) {
		CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		step_of(compute, meet, stream, &ns, memory);
		CU(cuStreamEndCapture(stream, &g));
		CU(cuGraphInstantiateWithFlags(&exec, g, 0));
	}
	for (unsigned i = 0; i < AHEAD; i++) {
		CU(cuEventCreate(&ends[i], CU_EVENT_DISABLE_TIMING));
	}
	meet_on_host(other);
	begin = program_ns();
	for (unsigned long long step = 1; step <= steps; step++) {
		CUevent end = ends[step % AHEAD];

		CU(cuEventSynchronize(end));
		if (graph) {
			CU(cuGraphLaunch(exec, stream));
		} else {
			step_of(compute, meet, stream, &ns, memory);
		}
		CU(cuEventRecord(end, stream));
	}
	CU(cuCtxSynchronize());
	begin = program_ns() - begin;
	program_get(&waited, memory[0] + 8, sizeof(waited));
	printf("%d %llu %llu %llu\n", number, steps, (unsigned long long)waited,
	       (unsigned long long)begin);
	meet_on_host(other); /* the memory of this one is used until then */
}

int main(int argc, char **argv)
{
	unsigned long long steps = argc > 2 ? strtoull(argv[1], NULL, 10) : 0;
	unsigned long long us = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	int pair[2], status, code = 0;
	pid_t pids[2];

	CHECK(steps && us, "usage: ranks STEPS US [apart|graph]");
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "no sockets");
	for (int i = 0; i < 2; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0, "no process");
		if (!pids[i]) {
			close(pair[!i]);
			if (argc > 3 && strcmp(argv[3], "apart") == 0) {
				setenv("GBPF_GROUP", i ? "second" : "first", 1);
			}
			rank(i, pair[i], steps, us * 1000,
			     argc > 3 && strcmp(argv[3], "graph") == 0);
			return 0;
		}
	}
	close(pair[0]);
	close(pair[1]);
	for (int i = 0; i < 2; i++) {
		pid_t ended = wait(&status);

		if (status) {
			code = 1;
			if (i == 0) { /* a rank whose peer has failed would wait for ever */
				kill(pids[ended == pids[0]], SIGKILL);
			}
		}
	}
	return code;
}
