/* The gate's stub as PTX. It reads as the rules in ptx/block_gate.h; docs/PREEMPTION-ARGUMENT.md
 * and the model in the tests number its steps. Atomics are used with their results: as reductions
 * ptxas would turn them into instructions of whole warps. */
#include "ptx/block_gate.h"

#include <errno.h>

#include "ptx/block/block_run_text.h"

#define ARCH_CLUSTERS 90u /* the first with clusters, as PTX 7.8 */

/* Sets %i to the linear index of the block. Blocks of a cluster take that of the cluster's first
 * one, which is right for grids of up to 2^24 blocks in x: ptxas computes %cluster_ctaid with
 * floating-point numbers. Labels and registers in braces are local. */
#define INDEX_BEGIN                                                                                \
	"{\n"                                                                                      \
	".reg .pred %k;\n"                                                                         \
	".reg .b32 %x, %y, %z, %m;\n"                                                              \
	"mov.u32 %x, %ctaid.x;\n"                                                                  \
	"mov.u32 %y, %ctaid.y;\n"                                                                  \
	"mov.u32 %z, %ctaid.z;\n"
#define INDEX_CLUSTER                                                                              \
	"mov.u32 %m, %cluster_nctarank;\n"                                                         \
	"setp.le.u32 %k, %m, 1;\n"                                                                 \
	"@%k bra $single;\n"                                                                       \
	"mov.u32 %m, %cluster_ctaid.x;\n"                                                          \
	"sub.u32 %x, %x, %m;\n"                                                                    \
	"mov.u32 %m, %cluster_ctaid.y;\n"                                                          \
	"sub.u32 %y, %y, %m;\n"                                                                    \
	"mov.u32 %m, %cluster_ctaid.z;\n"                                                          \
	"sub.u32 %z, %z, %m;\n"                                                                    \
	"$single:\n"
#define INDEX_END                                                                                  \
	"mov.u32 %m, %nctaid.y;\n"                                                                 \
	"mad.lo.u32 %i, %z, %m, %y;\n"                                                             \
	"mov.u32 %m, %nctaid.x;\n"                                                                 \
	"mad.lo.u32 %i, %i, %m, %x;\n"                                                             \
	"}\n"

/* Sets %t to one more than the highest index. */
#define COUNT_BEGIN                                                                                \
	"{\n"                                                                                      \
	".reg .pred %k;\n"                                                                         \
	".reg .b32 %x, %y, %z, %m;\n"                                                              \
	"mov.u32 %x, %nctaid.x;\n"                                                                 \
	"mov.u32 %y, %nctaid.y;\n"                                                                 \
	"mov.u32 %z, %nctaid.z;\n"                                                                 \
	"mul.lo.u32 %t, %x, %y;\n"                                                                 \
	"mul.lo.u32 %t, %t, %z;\n"
#define COUNT_CLUSTER                                                                              \
	"mov.u32 %m, %cluster_nctarank;\n"                                                         \
	"setp.le.u32 %k, %m, 1;\n"                                                                 \
	"@%k bra $single;\n"                                                                       \
	"mov.u32 %m, %cluster_nctaid.z;\n"                                                         \
	"sub.u32 %t, %z, %m;\n"                                                                    \
	"mov.u32 %m, %cluster_nctaid.y;\n"                                                         \
	"sub.u32 %z, %y, %m;\n"                                                                    \
	"mad.lo.u32 %t, %t, %y, %z;\n"                                                             \
	"mov.u32 %m, %cluster_nctaid.x;\n"                                                         \
	"sub.u32 %z, %x, %m;\n"                                                                    \
	"mad.lo.u32 %t, %t, %x, %z;\n"                                                             \
	"add.u32 %t, %t, 1;\n"                                                                     \
	"$single:\n"
#define COUNT_END "}\n"

/* Only one thread does more than wait at the barrier. Blocks that do not ask first raise the gate
 * before the loads: behind them, the compiler would wait for what is loaded. Blocks whose launch is
 * not at its turn leave the gate closed or open as it is; if they have raised it already, the next
 * attempt has a higher base. A block that has run in an earlier attempt leaves. */
#define DECIDE(INDEX, COUNT)                                                                       \
	"{\n"                                                                                      \
	".reg .pred %p, %first, %leave;\n"                                                         \
	".reg .b32 %a, %b, %c, %d, %n, %t, %v, %i;\n"                                              \
	".reg .b64 %l, %m, %mine, %old;\n"                                                         \
	"ld.param.u64 %l, [arg+8];\n"                                                              \
	"setp.eq.u64 %p, %l, 0;\n"                                                                 \
	"@%p bra $run;\n"                                                                          \
	"mov.u32 %a, %tid.x;\n"                                                                    \
	"mov.u32 %b, %tid.y;\n"                                                                    \
	"mov.u32 %c, %tid.z;\n"                                                                    \
	"or.b32 %a, %a, %b;\n"                                                                     \
	"or.b32 %a, %a, %c;\n"                                                                     \
	"setp.ne.u32 %p, %a, 0;\n"                                                                 \
	"mov.pred %leave, 0;\n"                                                                    \
	"@%p bra $join;\n" INDEX_BEGIN INDEX INDEX_END "ld.param.u32 %t, [arg+48];\n"              \
	"setp.lt.u32 %leave, %i, %t;\n"                                                            \
	"@%leave bra $join;\n"                                                                     \
	"ld.param.u64 %mine, [arg+40];\n"                                                          \
	"cvt.u64.u32 %old, %i;\n"                                                                  \
	"add.u64 %mine, %mine, %old;\n"                                                            \
	"add.u64 %mine, %mine, 1;\n"                                                               \
	"ld.param.u32 %t, [arg+52];\n"                                                             \
	"setp.lt.u32 %first, %i, %t;\n"                                                            \
	"@!%first atom.global.max.u64 %old, [%l], %mine;\n" PTX_BLOCK_LOAD_TEXT("+-32768")         \
		PTX_BLOCK_LOAD_LEASES_TEXT "ld.param.u32 %t, [arg+24];\n"                          \
					   "sub.u32 %v, %v, %t;\n"                                 \
					   "setp.lt.s32 %leave, %v, 0;\n"                          \
					   "@%leave bra $join;\n"                                  \
					   "ld.param.u32 %t, [arg+56];\n"                          \
					   "setp.lt.u32 %p, %i, %t;\n"                             \
					   "@%p bra $draw;\n" PTX_BLOCK_TEST_TEXT "$draw:\n"       \
					   "@%first atom.global.max.u64 %old, [%l], %mine;\n"      \
					   "$decide:\n"                                            \
					   "setp.lt.s64 %p, %old, 0;\n"                            \
					   "and.b64 %old, %old, 9223372036854775807;\n"            \
					   "setp.lt.and.u64 %leave, %old, %mine, %p;\n"            \
					   "@%leave bra $join;\n" COUNT_BEGIN COUNT COUNT_END      \
					   "add.u32 %i, %i, 1;\n"                                  \
					   "setp.eq.u32 %p, %i, %t;\n"                             \
					   "@%p bra $last;\n"                                      \
					   "$join:\n"                                              \
					   "bar.red.or.pred %p, 0, %leave;\n"                      \
					   "@%p exit;\n"                                           \
					   "bra $run;\n"

static const char plain_text[] = DECIDE("", "");
static const char cluster_text[] = DECIDE(INDEX_CLUSTER, COUNT_CLUSTER);

/* A lease is in force: the gate is closed. A block that asked first runs if the bound is not below
 * it, one that has raised an open gate runs in any case. The last block publishes the launch's end
 * only if the host has not taken the counter (gpu/cuda/gpu_run_bypass.c). */
static const char behind_text[] =
	"$leased:\n"
	"@%first ld.volatile.global.u64 %old, [%l];\n"
	"setp.lt.s64 %p, %old, 0;\n"
	"@%p bra $decide;\n"
	"mov.u64 %m, 9223372036854775808;\n"
	"atom.global.or.b64 %old, [%l], %m;\n"
	"@%first or.b64 %old, %old, %m;\n"
	"bra $decide;\n" PTX_BLOCK_LEASE_TEXT "$last:\n"
	"ld.param.u32 %v, [arg+24];\n"
	"ld.param.u32 %t, [arg+28];\n"
	"atom.global.cas.b32 %n, [%l+-65536], %v, %t;\n"
	"setp.ne.u32 %p, %n, %v;\n"
	"@%p bra $join;\n" PTX_BLOCK_PUBLISH_TEXT("+-32768") "bra $join;\n"
							     "}\n"
							     "$run:\n";

_Static_assert(sizeof(struct ptx_gate_arg) == 64 && offsetof(struct ptx_gate_arg, leases) == 0 &&
		       offsetof(struct ptx_gate_arg, gate) == 8 &&
		       offsetof(struct ptx_gate_arg, done) == 16 &&
		       offsetof(struct ptx_gate_arg, first) == 24 &&
		       offsetof(struct ptx_gate_arg, end) == 28 &&
		       offsetof(struct ptx_gate_arg, number) == 32 &&
		       offsetof(struct ptx_gate_arg, groups) == 36 &&
		       offsetof(struct ptx_gate_arg, base) == 40 &&
		       offsetof(struct ptx_gate_arg, from) == 48 &&
		       offsetof(struct ptx_gate_arg, wave) == 52 &&
		       offsetof(struct ptx_gate_arg, ask) == 56 &&
		       offsetof(struct ptx_gate_arg, launch) == 60 && PTX_GATE_WORD == 65536 &&
		       PTX_BLOCK_READY == 32768,
	       "the texts above say so");

void ptx_gate_begin(struct buf *out, unsigned arch, uint32_t pad)
{
	bool clusters = arch >= ARCH_CLUSTERS;

	buf_puts(out, clusters ? ".version 7.8\n.target sm_90\n" : ".version 6.3\n.target sm_70\n");
	buf_printf(out,
		   ".address_size 64\n.visible .entry %s(.param .align 8 .b8 pad[%u], "
		   ".param .align 8 .b8 arg[%zu])\n{\n",
		   PTX_GATE_ENTRY, pad, sizeof(struct ptx_gate_arg));
	ptx_block_expand(out, clusters ? cluster_text : plain_text, "");
	ptx_block_expand(out, behind_text, "");
}

void ptx_gate_end(struct buf *out)
{
	buf_puts(out, "pmevent 13;\nret;\n}\n");
}

int ptx_gate_stub(struct buf *out, unsigned arch, uint32_t pad)
{
	ptx_gate_begin(out, arch, pad);
	ptx_gate_end(out);
	return out->failed ? -ENOMEM : 0;
}
