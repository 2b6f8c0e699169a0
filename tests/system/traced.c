/* traced: a program with kernels of known shape for trace.bats. It obeys lines of standard input
 * and answers each on standard output with "ok", when the work is done.
 *
 *   load                             loads the module
 *   unrolled                         a warp loads four words on line 41, and stores one on line 42
 *   spin N BLOCKS THREADS US SLOW_US   N launches of spin: blocks of US, each tenth of SLOW_US
 *   access BLOCKS THREADS STRIDE       each thread loads its word, STRIDE words behind that of the
 *                                      thread before, and stores it
 *   banks THREADS STRIDE               the same in shared memory: a store, a barrier, a load
 *   branch THREADS LIMIT               threads below LIMIT take a branch, on line 7
 *   mbarrier BLOCKS US               a warp tests an mbarrier until another one arrives after US
 *   barrier BLOCKS US                a warp waits for another one at a barrier for US
 *   atom BLOCKS THREADS STRIDE       each thread: an atomic on its word of the room (line 21), one
 *                                    on the first word (22), one in shared memory (23)
 *   heat BLOCKS STRIDE               the warp of each block loads 128 bytes of the room, STRIDE
 *                                    bytes behind the block before; even ones store them, too
 *   rows ROUNDS                      two warps load 128 bytes in each round of a loop; fails if
 *                                    lanes of a warp are ever in different rounds
 *   textures                         a load, and an instruction on a texture that no lane executes
 *   where                            prints the room's address, a multiple of 4 MiB
 *   hang BLOCKS THREADS              warp 0 waits at a barrier (line 33) for the others, which loop
 *                                    (line 32) until `release`
 *   release                          ends the loops, and waits for the kernel
 *   again                            executes this program anew, without an answer
 *   exit                             returns from main()
 *   outlast BLOCKS                     block 0 runs until all other blocks have ended
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"

static const char ptx[] =
	".version 7.1\n.target sm_80\n.address_size 64\n"
	".file 1 \"traced.cu\"\n"
	/* blocks last ns, but each tenth slow_ns */
	".visible .entry spin(.param .u64 ns, .param .u64 slow_ns)\n{\n"
	".reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<6>;\n"
	"mov.u64 %rd1, %globaltimer;\n"
	"ld.param.u64 %rd2, [ns]; ld.param.u64 %rd3, [slow_ns];\n"
	"mov.u32 %r1, %ctaid.x; rem.u32 %r2, %r1, 10; setp.eq.u32 %p1, %r2, 9;\n"
	"selp.u64 %rd2, %rd3, %rd2, %p1;\n"
	"again: mov.u64 %rd4, %globaltimer; sub.u64 %rd5, %rd4, %rd1;\n"
	"setp.lt.u64 %p2, %rd5, %rd2; @%p2 bra again; ret;\n}\n"
	".visible .entry access(.param .u64 at, .param .u32 stride)\n{\n"
	".reg .b32 %r<7>; .reg .b64 %rd<4>;\n"
	"ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [stride];\n"
	"mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
	"mad.lo.s32 %r5, %r2, %r3, %r4; mul.lo.u32 %r5, %r5, %r1;\n"
	"mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2;\n"
	"ld.global.u32 %r6, [%rd3]; st.global.u32 [%rd3], %r6; ret;\n}\n"
	".visible .entry rounds(.param .u64 at)\n{\n"
	".reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %d<3>;\n"
	"ld.param.u64 %d0, [at]; mov.u32 %r0, %tid.x; mad.wide.u32 %d1, %r0, 4, %d0;\n"
	"mov.u32 %r1, 0;\nagain:\nld.global.u32 %r2, [%d1]; add.u32 %r1, %r1, 1;\n"
	"setp.lt.u32 %p0, %r1, 5; @%p0 bra again;\n"
	"setp.lt.u32 %p1, %r0, 3; @%p1 ret;\nst.global.u32 [%d1], %r1;\nret;\n}\n"
	".visible .entry rows(.param .u64 at, .param .u32 rounds)\n{\n"
	".reg .pred %p<3>; .reg .b32 %r<7>; .reg .b64 %d<3>;\n"
	"ld.param.u64 %d0, [at]; ld.param.u32 %r5, [rounds];\n"
	"mov.u32 %r0, %tid.x; mov.u32 %r1, 0; mov.u32 %r4, 0;\nagain:\n"
	"shl.b32 %r2, %r1, 5; add.u32 %r2, %r2, %r0; and.b32 %r2, %r2, 1023;\n"
	"mad.wide.u32 %d1, %r2, 4, %d0; ld.global.u32 %r3, [%d1+32];\n"
	"activemask.b32 %r6; setp.ne.u32 %p1, %r6, -1; @%p1 add.u32 %r4, %r4, 1;\n"
	"add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, %r5; @%p0 bra again;\n"
	"red.global.add.u32 [%d0], %r4; ret;\n}\n"
	/* a warp loads 1, 2, 8 and 16 bytes a lane */
	".visible .entry widths(.param .u64 at)\n{\n"
	".reg .b16 %h<3>; .reg .b32 %r<6>; .reg .b64 %rd<5>;\n"
	"ld.param.u64 %rd1, [at]; mov.u32 %r1, %tid.x;\n"
	"mul.wide.u32 %rd2, %r1, 16; add.s64 %rd3, %rd1, %rd2;\n"
	"ld.global.u8 %h1, [%rd3]; ld.global.u16 %h2, [%rd3]; ld.global.u64 %rd4, [%rd3];\n"
	"ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd3]; ret;\n}\n"
	/* a line four times, as in an unrolled loop */
	".visible .entry unrolled(.param .u64 at)\n{\n"
	".reg .b32 %r<5>; .reg .b64 %rd<2>;\n"
	"ld.param.u64 %rd1, [at];\n"
	".loc 1 41 0\n"
	"ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1+4];\n"
	"ld.global.u32 %r3, [%rd1+8]; ld.global.u32 %r4, [%rd1+12];\n"
	".loc 1 42 0\n"
	"st.global.u32 [%rd1+16], %r1; ret;\n}\n"
	/* the end of a block cannot be observed: it reads the size of its shared memory */
	".visible .entry size()\n{\n"
	".reg .b32 %r<2>; mov.u32 %r1, %dynamic_smem_size; ret;\n}\n"
	".visible .entry banks(.param .u32 stride)\n{\n"
	".reg .b32 %r<6>; .shared .align 4 .b8 room[16384];\n"
	"ld.param.u32 %r1, [stride]; mov.u32 %r2, %tid.x; mul.lo.u32 %r3, %r2, %r1;\n"
	"shl.b32 %r3, %r3, 2; mov.u32 %r4, room; add.u32 %r4, %r4, %r3;\n"
	"st.shared.u32 [%r4], %r2; bar.sync 0; ld.shared.u32 %r5, [%r4]; ret;\n}\n"
	".visible .entry branch(.param .u32 limit)\n{\n"
	".reg .pred %p<2>; .reg .b32 %r<3>;\n"
	".loc 1 7 0\n"
	"ld.param.u32 %r1, [limit]; mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, %r1;\n"
	"@%p1 bra over; add.u32 %r1, %r1, 1; over: ret;\n}\n"
	/* the first warp stays until the second one has begun, and ns longer */
	".visible .entry barrier(.param .u64 ns)\n{\n"
	".reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %rd<6>; .shared .align 4 .u32 begun;\n"
	"ld.param.u64 %rd1, [ns]; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32;\n"
	"setp.eq.u32 %p2, %r1, 0; mov.u32 %r2, 0; @%p2 st.shared.u32 [begun], %r2;\n"
	"bar.sync 0;\n"
	"@%p1 bra second;\n"
	"first: ld.volatile.shared.u32 %r3, [begun]; setp.eq.u32 %p3, %r3, 0; @%p3 bra first;\n"
	"mov.u64 %rd2, %globaltimer;\n"
	"again: mov.u64 %rd3, %globaltimer; sub.u64 %rd4, %rd3, %rd2;\n"
	"setp.lt.u64 %p3, %rd4, %rd1; @%p3 bra again; bra meet;\n"
	"second: mov.u32 %r2, 1; st.volatile.shared.u32 [begun], %r2;\n"
	"meet: bar.sync 0; ret;\n}\n"
	".visible .entry mbarrier(.param .u64 ns)\n{\n"
	".reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %rd<6>; .shared .align 8 .b64 met;\n"
	"ld.param.u64 %rd1, [ns]; mov.u32 %r1, %tid.x; mov.u32 %r2, met;\n"
	"setp.ge.u32 %p1, %r1, 32; setp.eq.u32 %p2, %r1, 0;\n"
	"@%p2 mbarrier.init.shared.b64 [%r2], 1;\n"
	"bar.sync 0;\n"
	"@%p1 bra second;\n"
	"mov.u64 %rd2, %globaltimer;\n"
	"again: mov.u64 %rd3, %globaltimer; sub.u64 %rd4, %rd3, %rd2;\n"
	"setp.lt.u64 %p3, %rd4, %rd1; @%p3 bra again;\n"
	"@%p2 mbarrier.arrive.shared.b64 %rd5, [%r2]; ret;\n"
	"second: mbarrier.test_wait.parity.shared.b64 %p3, [%r2], 0;\n"
	"@!%p3 bra second; ret;\n}\n"
	".visible .entry atom(.param .u64 at, .param .u32 stride)\n{\n"
	".reg .b32 %r<5>; .reg .b64 %rd<4>; .shared .align 4 .u32 sum;\n"
	".loc 1 21 0\n"
	"ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [stride]; mov.u32 %r2, %tid.x;\n"
	"mul.lo.u32 %r3, %r2, %r1; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2;\n"
	"atom.global.add.u32 %r4, [%rd3], 1;\n"
	".loc 1 22 0\n"
	"red.global.add.u32 [%rd1], 1;\n"
	".loc 1 23 0\n"
	"red.shared.add.u32 [sum], 1; ret;\n}\n"
	".visible .entry heat(.param .u64 at, .param .u64 stride)\n{\n"
	".reg .pred %p<2>; .reg .b32 %r<5>; .reg .b64 %rd<7>;\n"
	"ld.param.u64 %rd1, [at]; ld.param.u64 %rd2, [stride];\n"
	"mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; cvt.u64.u32 %rd3, %r1;\n"
	"mad.lo.u64 %rd4, %rd3, %rd2, %rd1; mul.wide.u32 %rd5, %r2, 4;\n"
	"add.s64 %rd6, %rd4, %rd5; ld.global.u32 %r3, [%rd6];\n"
	"and.b32 %r4, %r1, 1; setp.ne.u32 %p1, %r4, 0; @%p1 ret;\n"
	"st.global.u32 [%rd6], %r3; ret;\n}\n"
	/* of its accesses programs see one */
	".visible .entry textures(.param .u64 at)\n{\n"
	".reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<2>;\n"
	"ld.param.u64 %rd1, [at]; mov.u32 %r1, 0; setp.ne.u32 %p1, %r1, 0;\n"
	"ld.global.u32 %r1, [%rd1];\n"
	"@%p1 tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [%rd1, {%r1}]; ret;\n}\n"
	/* block 0 waits until all others have counted themselves */
	".visible .entry outlast(.param .u64 at, .param .u32 n)\n{\n"
	".reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<2>;\n"
	"ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [n];\n"
	"mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0; @%p1 bra other;\n"
	"again: ld.volatile.global.u32 %r3, [%rd1]; setp.lt.u32 %p2, %r3, %r1;\n"
	"@%p2 bra again; ret;\n"
	"other: red.global.add.u32 [%rd1], 1; ret;\n}\n"
	".visible .entry hang(.param .u64 flag)\n{\n"
	".reg .pred %p<3>; .reg .b32 %r<3>; .reg .b64 %rd<2>;\n"
	".loc 1 31 0\n"
	"ld.param.u64 %rd1, [flag]; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32;\n"
	"@%p1 bra meet;\n"
	".loc 1 32 0\n"
	"again: ld.volatile.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0;\n"
	"@%p2 bra again;\n"
	"meet:\n"
	".loc 1 33 0\n"
	"bar.sync 0; ret;\n}\n";

#define ROOM_BYTES (8u << 20)
#define ROOM_ALIGN (4u << 20)

static CUmodule module;
static CUdeviceptr room;
static volatile unsigned *released; /* pinned */
static bool hangs;

static CUfunction kernel(const char *name)
{
	CUfunction f;

	CU(cuModuleGetFunction(&f, module, name));
	return f;
}

static void spin(unsigned n, unsigned blocks, unsigned threads, unsigned long long us,
		 unsigned long long slow_us)
{
	unsigned long long ns = us * 1000, slow_ns = slow_us * 1000;

	for (unsigned i = 0; i < n; i++) {
		LAUNCH(kernel("spin"), blocks, threads, 0, &ns, &slow_ns);
	}
}

/* At most `ahead` of them are unfinished. */
static void keep(unsigned n, unsigned long long us, unsigned ahead)
{
	for (unsigned i = 0; i < n; i++) {
		spin(1, 1, 32, us, us);
		if (i % ahead == ahead - 1) {
			CU(cuCtxSynchronize());
		}
	}
}

static void touch(unsigned blocks, unsigned threads, unsigned stride)
{
	size_t bytes = (size_t)blocks * threads * (stride ? stride : 1) * 4;
	CUdeviceptr at;

	CU(cuMemAlloc(&at, bytes));
	LAUNCH(kernel("access"), blocks, threads, 0, &at, &stride);
	CU(cuCtxSynchronize());
	CU(cuMemFree(at));
}

static void one_warp(const char *name)
{
	CUdeviceptr at = program_zeros(512);

	LAUNCH(kernel(name), 1, 32, 0, &at);
	CU(cuCtxSynchronize());
	CU(cuMemFree(at));
}

static void outlast(unsigned blocks)
{
	CUdeviceptr at = program_zeros(4);
	unsigned others = blocks - 1;

	LAUNCH(kernel("outlast"), blocks, 1, 0, &at, &others);
	CU(cuCtxSynchronize());
	CU(cuMemFree(at));
}

static void rows(unsigned rounds)
{
	CUdeviceptr at = program_zeros(8192);
	unsigned parted;

	LAUNCH(kernel("rows"), 1, 64, 0, &at, &rounds);
	program_get(&parted, at, sizeof(parted));
	CHECK(parted == 0, "lanes are in different rounds %u times", parted);
	CU(cuMemFree(at));
}

static void load(void)
{
	void *pinned;

	CU(cuModuleLoadData(&module, ptx));
	CU(cuMemAlloc(&room, ROOM_BYTES + ROOM_ALIGN));
	room = (room + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
	CU(cuMemHostAlloc(&pinned, sizeof(*released), CU_MEMHOSTALLOC_DEVICEMAP));
	released = pinned;
}

static void hang(unsigned blocks, unsigned threads)
{
	CUdeviceptr flag;

	*released = 0;
	CU(cuMemHostGetDevicePointer_v2(&flag, (void *)(uintptr_t)released, 0));
	LAUNCH(kernel("hang"), blocks, threads, 0, &flag);
	hangs = true;
}

static bool obey(const char *line)
{
	unsigned long long us, slow_us, ns;
	unsigned n, blocks, threads;

	if (strcmp(line, "load\n") == 0) {
		load();
	} else if (sscanf(line, "spin %u %u %u %llu %llu", &n, &blocks, &threads, &us, &slow_us) ==
		   5) {
		spin(n, blocks, threads, us, slow_us);
	} else if (sscanf(line, "keep %u %llu %u", &n, &us, &blocks) == 3 && blocks) {
		keep(n, us, blocks);
	} else if (sscanf(line, "access %u %u %u", &blocks, &threads, &n) == 3) {
		touch(blocks, threads, n);
	} else if (strcmp(line, "rounds\n") == 0) {
		one_warp("rounds");
	} else if (sscanf(line, "outlast %u", &blocks) == 1) {
		outlast(blocks);
	} else if (sscanf(line, "rows %u", &n) == 1) {
		rows(n);
	} else if (strcmp(line, "widths\n") == 0) {
		one_warp("widths");
	} else if (strcmp(line, "unrolled\n") == 0) {
		one_warp("unrolled");
	} else if (strcmp(line, "textures\n") == 0) {
		one_warp("textures");
	} else if (strcmp(line, "size\n") == 0) {
		CU(cuLaunchKernel(kernel("size"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	} else if (sscanf(line, "banks %u %u", &threads, &n) == 2) {
		LAUNCH(kernel("banks"), 1, threads, 0, &n);
	} else if (sscanf(line, "branch %u %u", &threads, &n) == 2) {
		LAUNCH(kernel("branch"), 1, threads, 0, &n);
	} else if (sscanf(line, "barrier %u %llu", &blocks, &us) == 2) {
		ns = us * 1000;
		LAUNCH(kernel("barrier"), blocks, 64, 0, &ns);
	} else if (sscanf(line, "mbarrier %u %llu", &blocks, &us) == 2) {
		ns = us * 1000;
		LAUNCH(kernel("mbarrier"), blocks, 64, 0, &ns);
	} else if (sscanf(line, "atom %u %u %u", &blocks, &threads, &n) == 3) {
		LAUNCH(kernel("atom"), blocks, threads, 0, &room, &n);
	} else if (sscanf(line, "heat %u %llu", &blocks, &ns) == 2) {
		LAUNCH(kernel("heat"), blocks, 32, 0, &room, &ns);
	} else if (strcmp(line, "where\n") == 0) {
		printf("0x%llx\n", (unsigned long long)room);
		fflush(stdout);
	} else if (sscanf(line, "hang %u %u", &blocks, &threads) == 2) {
		hang(blocks, threads);
	} else if (strcmp(line, "again\n") == 0) {
		execl("/proc/self/exe", "traced", (char *)NULL);
		CHECK(false, "cannot execute the program");
	} else if (strcmp(line, "release\n") == 0) {
		*released = 1;
		hangs = false;
	} else {
		CHECK(strcmp(line, "exit\n") == 0, "unknown line %s", line);
		return false;
	}
	if (!hangs) {
		CU(cuCtxSynchronize());
	}
	return true;
}

int main(void)
{
	CUcontext context;
	CUdevice device;
	char line[64];

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && obey(line)) {
		printf("ok\n");
		fflush(stdout);
	}
	return 0;
}
