/* Programs of the least work that an entry stub can have, as the compiler (bpf/load/jit/ptx)
 * writes them: one stores a word for each block, the other adds 1 to a counter. The addresses of
 * their maps are constants of the stub. */
#ifndef GBPF_TESTS_STUB_PROGRAMS_H
#define GBPF_TESTS_STUB_PROGRAMS_H

#include "../unit/cubin/probe_programs.h"

#define STUB_SLOTS 8192u /* blocks that the first one stores for */

/* slot[block] = block + 1 */
static const char stub_store_text[] =
	".func store_f0 (.param .b64 env, .param .b64 map0, .param .b64 block)\n{\n"
	"\t.reg .b64 %r<3>;\n\t.reg .pred %p<2>;\n\tld.param.b64 %r1, [block];\n"
	"\tsetp.ge.u64 %p0, %r1, 8192;\n\t@%p0 bra $L1;\n\tld.param.u64 %r0, [map0];\n"
	"\tshl.b64 %r2, %r1, 3;\n\tadd.s64 %r0, %r0, %r2;\n\tcvta.to.global.u64 %r0, %r0;\n"
	"\tadd.s64 %r1, %r1, 1;\n\tst.relaxed.gpu.global.u64 [%r0], %r1;\n$L1:\n\tret;\n}\n";

static const char stub_count_text[] =
	".func count_f0 (.param .b64 env, .param .b64 map0)\n{\n"
	"\t.reg .b64 %r<2>;\n\tld.param.u64 %r0, [map0];\n\tmov.b64 %r1, 1;\n"
	"\tcvta.to.global.u64 %r0, %r0;\n\tred.relaxed.gpu.global.add.u64 [%r0], %r1;\n\tret;\n}\n";

#endif
