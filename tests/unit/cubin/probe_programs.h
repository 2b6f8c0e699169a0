/* Two programs as the compiler (bpf/load/jit/ptx) writes them, for entry stubs: one counts blocks
 * and adds their indices, the other counts warps by multiprocessor, with their lanes and their
 * time. */
#ifndef GBPF_TESTS_PROBE_PROGRAMS_H
#define GBPF_TESTS_PROBE_PROGRAMS_H

#include "base/compiler.h"
#include "ptx/probe_stub.h"

#define PROBE_ENTER 32u /* ids of hooks.def */
#define PROBE_BLOCK_ENTER 34u
#define PROBE_BLOCK_EXIT 35u
#define PROBE_FIELD(i) (UINT64_C(1) << (i))
#define PROBE_REGISTERS                                                                            \
	"\t.reg .b64 %r<11>;\n\t.reg .b64 %t<4>;\n\t.reg .b32 %w<4>;\n\t.reg .pred %p<2>;\n"       \
	"\t.reg .b64 %env;\n\t.reg .b64 %genv;\n\tld.param.u64 %env, [env];\n"                     \
	"\tcvta.to.global.u64 %genv, %env;\n"

static const char probe_blocks[] =
	".func blocks_f0 (.param .b64 env, .param .b64 block);\n"
	".func blocks_f0 (.param .b64 env, .param .b64 block)\n{\n" PROBE_REGISTERS
	"\t.reg .b64 %c_block;\n\tld.param.b64 %c_block, [block];\n"
	"\tld.global.nc.u64 %t0, [%genv+0];\n\tmov.b32 %w0, 0;\n"
	"\tmad.wide.u32 %r0, %w0, 8, %t0;\n\tmov.b64 %r1, 1;\n\tadd.s64 %t0, %r0, 0;\n"
	"\tcvta.to.global.u64 %t0, %t0;\n\tred.relaxed.gpu.global.add.u64 [%t0], %r1;\n"
	"\tadd.s64 %t0, %r0, 8;\n\tcvta.to.global.u64 %t0, %t0;\n"
	"\tred.relaxed.gpu.global.add.u64 [%t0], %c_block;\n\tret;\n}\n";

static const char probe_warps[] =
	".func warps_f0 (.param .b64 env, .param .b64 time_ns, .param .b32 sm, .param .b32 lanes)\n"
	"{\n" PROBE_REGISTERS "\t.reg .b64 %c_time_ns;\n\tld.param.b64 %c_time_ns, [time_ns];\n"
	"\t.reg .b32 %c_sm;\n\tld.param.b32 %c_sm, [sm];\n"
	"\t.reg .b32 %c_lanes;\n\tld.param.b32 %c_lanes, [lanes];\n"
	"\tsetp.ge.u32 %p0, %c_sm, 256;\n\t@%p0 bra $L9;\n\tmov.b64 %r6, 0;\n"
	"$L3:\n\tld.global.nc.u64 %t0, [%genv+8];\n\tmad.wide.u32 %r0, %c_sm, 32, %t0;\n"
	"\tshl.b64 %t1, %r6, 3;\n\tadd.s64 %r0, %r0, %t1;\n\tsetp.ne.s64 %p0, %r6, 0;\n"
	"\t@%p0 bra $M1;\n\tmov.b64 %r2, 1;\n\tred.relaxed.gpu.global.add.u64 [%r0], %r2;\n"
	"\tbra $L8;\n$M1:\n\tsetp.ne.s64 %p0, %r6, 1;\n\t@%p0 bra $M2;\n"
	"\tcvt.u64.u32 %r2, %c_lanes;\n\tred.relaxed.gpu.global.add.u64 [%r0], %r2;\n"
	"\tbra $L8;\n$M2:\n\tst.u64 [%r0], %c_time_ns;\n"
	"$L8:\n\tadd.s64 %r6, %r6, 1;\n\tsetp.lt.u64 %p0, %r6, 3;\n\t@%p0 bra $L3;\n"
	"$L9:\n\tret;\n}\n";

/* Counts blocks, and adds the kernel's argument of 4 bytes at 16. */
static const char probe_arg[] =
	".func arg_f0 (.param .b64 env, .param .b32 arg_16_4)\n{\n" PROBE_REGISTERS
	"\t.reg .b32 %n;\n\tld.param.b32 %n, [arg_16_4];\n"
	"\tld.global.nc.u64 %t0, [%genv+0];\n\tmov.b64 %r1, 1;\n"
	"\tcvta.to.global.u64 %t0, %t0;\n\tred.relaxed.gpu.global.add.u64 [%t0], %r1;\n"
	"\tcvt.u64.u32 %r1, %n;\n\tred.relaxed.gpu.global.add.u64 [%t0+8], %r1;\n\tret;\n}\n";

static const struct ptx_probe probe_of_arg = { .hook = PROBE_BLOCK_ENTER,
					       .name = "arg",
					       .text = probe_arg };

static const struct ptx_probe probe_both[] = {
	{ .hook = PROBE_BLOCK_ENTER,
	  .fields = PROBE_FIELD(3),
	  .name = "blocks",
	  .text = probe_blocks },
	{ .hook = PROBE_ENTER,
	  .fields = PROBE_FIELD(1) | PROBE_FIELD(18) | PROBE_FIELD(21),
	  .name = "warps",
	  .text = probe_warps },
};
/* The first one for blocks that have ended. */
static const struct ptx_probe probe_late[] = {
	{ .hook = PROBE_BLOCK_EXIT,
	  .fields = PROBE_FIELD(3),
	  .name = "blocks",
	  .text = probe_blocks },
	{ .hook = PROBE_ENTER,
	  .fields = PROBE_FIELD(1) | PROBE_FIELD(18) | PROBE_FIELD(21),
	  .name = "warps",
	  .text = probe_warps },
};
static const uint64_t probe_envs[] = { 0x7f1200345600, 0x7f12f0001000 };

#endif
