/* The gate's stub as PTX. It reads as the rules in ptx/block_gate.h; docs/PREEMPTION-ARGUMENT.md
 * and the model in the tests number its steps. Atomics are used with their results: as reductions
 * ptxas would turn them into instructions of whole warps. */
#include "ptx/block_gate.h"

#include <errno.h>

#include "ptx/block/block_run_text.h"

#define ARCH_CLUSTERS 90u /* the first with %clusterid, as PTX 7.8 */

static const char index_text[] = "mov.u32 %a, %ctaid.x;\n"
				 "mov.u32 %b, %ctaid.y;\n"
				 "mov.u32 %c, %ctaid.z;\n"
				 "mov.u32 %gx, %nctaid.x;\n"
				 "mov.u32 %gy, %nctaid.y;\n"
				 "mov.u32 %gz, %nctaid.z;\n";

/* Without clusters each block is a cluster of its own. */
static const char cluster_text[] = "mov.u32 %a, %clusterid.x;\n"
				   "mov.u32 %b, %clusterid.y;\n"
				   "mov.u32 %c, %clusterid.z;\n"
				   "mov.u32 %gx, %nclusterid.x;\n"
				   "mov.u32 %gy, %nclusterid.y;\n"
				   "mov.u32 %gz, %nclusterid.z;\n";

static const char begin_text[] = "{\n"
				 ".reg .pred %p, %first, %leave;\n"
				 ".reg .b32 %a, %b, %c, %d, %n, %t, %v, %i, %gx, %gy, %gz;\n"
				 ".reg .b64 %l, %m, %mine, %old;\n"
				 "ld.param.u64 %l, [arg+8];\n"
				 "setp.eq.u64 %p, %l, 0;\n"
				 "@%p bra $run;\n";

/* %first: ask for leases before the gate is raised. Blocks whose launch is not at its turn leave
 * the gate closed or open as it is; if they have raised it already, the next attempt has a higher
 * base. */
static const char decide_text[] =
	"mad.lo.u32 %i, %c, %gy, %b;\n"
	"mad.lo.u32 %i, %i, %gx, %a;\n"
	"ld.param.u32 %t, [arg+48];\n"
	"setp.lt.u32 %p, %i, %t;\n"
	"@%p exit;\n"
	"mov.u32 %a, %tid.x;\n"
	"mov.u32 %b, %tid.y;\n"
	"mov.u32 %c, %tid.z;\n"
	"or.b32 %a, %a, %b;\n"
	"or.b32 %a, %a, %c;\n"
	"setp.ne.u32 %p, %a, 0;\n"
	"mov.pred %leave, 0;\n"
	"@%p bra $join;\n"
	"ld.param.u64 %mine, [arg+40];\n"
	"cvt.u64.u32 %old, %i;\n"
	"add.u64 %mine, %mine, %old;\n"
	"add.u64 %mine, %mine, 1;\n"
	"ld.param.u32 %t, [arg+52];\n"
	"setp.lt.u32 %first, %i, %t;\n" PTX_BLOCK_LOAD_TEXT "ld.param.u32 %t, [arg+56];\n"
	"setp.lt.u32 %p, %i, %t;\n"
	"@%p mov.u32 %n, 0;\n" PTX_BLOCK_LOAD_LEASES_TEXT
	"@!%first atom.global.max.u64 %old, [%l+65536], %mine;\n"
	"ld.param.u32 %t, [arg+24];\n"
	"sub.u32 %v, %v, %t;\n"
	"setp.lt.s32 %leave, %v, 0;\n"
	"@%leave bra $join;\n" PTX_BLOCK_TEST_TEXT "$draw:\n"
	"@%first atom.global.max.u64 %old, [%l+65536], %mine;\n"
	"$decide:\n"
	"setp.lt.s64 %p, %old, 0;\n"
	"and.b64 %old, %old, 9223372036854775807;\n"
	"setp.lt.and.u64 %leave, %old, %mine, %p;\n"
	"@%leave bra $join;\n"
	"mul.lo.u32 %t, %gx, %gy;\n"
	"mul.lo.u32 %t, %t, %gz;\n"
	"add.u32 %i, %i, 1;\n"
	"setp.eq.u32 %p, %i, %t;\n"
	"@%p bra $last;\n"
	"$join:\n"
	"bar.red.or.pred %p, 0, %leave;\n"
	"@%p exit;\n"
	"bra $run;\n";

/* A lease is in force: the gate is closed. A block that asked first runs if the bound is not below
 * it, one that has raised an open gate runs in any case. The last block publishes the launch's end
 * only if the host has not taken the counter (gpu/cuda/gpu_run_bypass.c). */
static const char behind_text[] = "$leased:\n"
				  "@%first ld.volatile.global.u64 %old, [%l+65536];\n"
				  "setp.lt.s64 %p, %old, 0;\n"
				  "@%p bra $decide;\n"
				  "mov.u64 %m, 9223372036854775808;\n"
				  "atom.global.or.b64 %old, [%l+65536], %m;\n"
				  "@%first or.b64 %old, %old, %m;\n"
				  "bra $decide;\n" PTX_BLOCK_LEASE_TEXT "$last:\n"
				  "ld.param.u32 %v, [arg+24];\n"
				  "ld.param.u32 %t, [arg+28];\n"
				  "atom.global.cas.b32 %n, [%l], %v, %t;\n"
				  "setp.ne.u32 %p, %n, %v;\n"
				  "@%p bra $join;\n" PTX_BLOCK_PUBLISH_TEXT "bra $join;\n"
				  "}\n"
				  "$run:\n"
				  "pmevent 13;\n"
				  "ret;\n"
				  "}\n";

_Static_assert(sizeof(struct ptx_gate_arg) == 64 && offsetof(struct ptx_gate_arg, leases) == 0 &&
		       offsetof(struct ptx_gate_arg, tickets) == 8 &&
		       offsetof(struct ptx_gate_arg, done) == 16 &&
		       offsetof(struct ptx_gate_arg, first) == 24 &&
		       offsetof(struct ptx_gate_arg, end) == 28 &&
		       offsetof(struct ptx_gate_arg, number) == 32 &&
		       offsetof(struct ptx_gate_arg, groups) == 36 &&
		       offsetof(struct ptx_gate_arg, base) == 40 &&
		       offsetof(struct ptx_gate_arg, from) == 48 &&
		       offsetof(struct ptx_gate_arg, wave) == 52 &&
		       offsetof(struct ptx_gate_arg, ask) == 56 && PTX_GATE_WORD == 65536,
	       "the texts above say so");

int ptx_gate_stub(struct buf *out, unsigned arch, uint32_t pad)
{
	bool clusters = arch >= ARCH_CLUSTERS;

	buf_puts(out, clusters ? ".version 7.8\n.target sm_90\n" : ".version 6.3\n.target sm_70\n");
	buf_printf(out,
		   ".address_size 64\n.visible .entry %s(.param .align 8 .b8 pad[%u], "
		   ".param .align 8 .b8 arg[%zu])\n{\n",
		   PTX_GATE_ENTRY, pad, sizeof(struct ptx_gate_arg));
	ptx_block_expand(out, begin_text, "");
	ptx_block_expand(out, clusters ? cluster_text : index_text, "");
	ptx_block_expand(out, decide_text, "");
	ptx_block_expand(out, behind_text, "");
	return out->failed ? -ENOMEM : 0;
}
