/* Maps in shared memory of blocks (WARP_SCRATCH). The launch of a form has more dynamic shared
 * memory than that of f (ptx_probe_smem()): behind f's, bytes for each warp, the first warp's last.
 * So an address follows from the end and the warp's number in its block. */
#include "ptx/block.h"
#include "ptx/probe/emit/probe_emit.h"

/* Sets %~w to the thread's number in its block. */
static void thread_number(struct ptx_probe_work *p)
{
	ptx_probe_text(p, "\t.reg .b32 %%~w, %%~x, %%~y;\n\tmov.u32 %%~w, %%tid.z;\n"
			  "\tmov.u32 %%~x, %%ntid.y;\n\tmov.u32 %%~y, %%tid.y;\n"
			  "\tmad.lo.u32 %%~w, %%~w, %%~x, %%~y;\n\tmov.u32 %%~x, %%ntid.x;\n"
			  "\tmov.u32 %%~y, %%tid.x;\n\tmad.lo.u32 %%~w, %%~w, %%~x, %%~y;\n");
}

/* Sets %~a to the address of the warp's bytes and leaves the warp's number in %~x. */
static void warp_address(struct ptx_probe_work *p)
{
	ptx_probe_shared_end(p);
	thread_number(p);
	ptx_probe_text(p,
		       "\tshr.u32 %%~x, %%~w, 5;\n\tmul.lo.u32 %%~y, %%~x, %u;\n"
		       "\tsub.u32 %%~a, %%~a, %%~y;\n\tsub.u32 %%~a, %%~a, %u;\n",
		       p->read->warp_bytes, p->read->warp_bytes + 16);
}

/* All lanes that the warp has begin here, and the last warp of a block may have fewer than 32. They
 * divide the words among themselves. The barrier names just these lanes, so it waits for nothing
 * else, and orders their stores before the programs that any of them runs. */
void ptx_probe_scratch_clear(struct ptx_probe_work *p)
{
	uint32_t label = ++p->n_labels;

	ptx_probe_text(p, "\t.reg .b32 %%~members;\n\t{\n\t.reg .pred %%~p;\n"
			  "\t.reg .b32 %%~n, %%~t;\n");
	warp_address(p);
	ptx_probe_text(p, "\tmov.u32 %%~n, %%ntid.x;\n\tmov.u32 %%~t, %%ntid.y;\n"
			  "\tmul.lo.u32 %%~n, %%~n, %%~t;\n\tmov.u32 %%~t, %%ntid.z;\n"
			  "\tmul.lo.u32 %%~n, %%~n, %%~t;\n\tshl.b32 %%~t, %%~x, 5;\n"
			  "\tsub.u32 %%~n, %%~n, %%~t;\n\tmin.u32 %%~n, %%~n, 32;\n"
			  "\tsub.u32 %%~t, 32, %%~n;\n\tmov.u32 %%~members, -1;\n"
			  "\tshr.u32 %%~members, %%~members, %%~t;\n\tand.b32 %%~w, %%~w, 31;\n"
			  "\tshl.b32 %%~w, %%~w, 2;\n\tshl.b32 %%~n, %%~n, 2;\n");
	ptx_probe_text(p,
		       "$~word%u:\n\tsetp.lt.u32 %%~p, %%~w, %u;\n"
		       "\tadd.u32 %%~t, %%~a, %%~w;\n\t@%%~p st.shared.u32 [%%~t], 0;\n"
		       "\tadd.u32 %%~w, %%~w, %%~n;\n\t@%%~p bra $~word%u;\n"
		       "\tbar.warp.sync %%~members;\n\t}\n",
		       label, p->read->warp_bytes, label);
}

/* The lane that is elected at the beginning need not be the one that is elected elsewhere, and
 * nothing makes the others wait for it: on an H100 programs at exits did not find what the warp's
 * first lane had stored (docs/BENCHMARKS.md). Here, too, all lanes of the warp come. */
void ptx_probe_scratch_entered(struct ptx_probe_work *p)
{
	ptx_probe_text(p, "\tbar.warp.sync %%~members;\n");
}

void ptx_probe_scratch_address(struct ptx_probe_work *p, const struct ptx_probe_program *g,
			       uint32_t map, const char *reg)
{
	ptx_probe_text(p, "\t{\n");
	warp_address(p);
	ptx_probe_text(p,
		       "\tadd.u32 %%~a, %%~a, %u;\n\tcvt.u64.u32 %s, %%~a;\n\tcvta.shared.u64 %s, "
		       "%s;\n\t}\n",
		       g->scratch + g->probe->scratch_at[map], reg, reg, reg);
}
