/* Calls functions of a program from helpers (bpf_loop, bpf_for_each_map_elem). A function address
 * identifies the engine that made it, so helpers need not know the engine. */
#include "bpf/run/interp/interp.h"

TLS_FAST struct ebpf_callee *ebpf_callee;

uint64_t ebpf_call_back(uint64_t fn, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
			struct ebpf_env *env)
{
	const struct ebpf_insn *insn = (const struct ebpf_insn *)(uintptr_t)(fn - 1);

	if (!(fn & 1)) {
		return ((ebpf_helper_fn)(uintptr_t)fn)(a1, a2, a3, a4, 0, env);
	}
	if (ebpf_callee && ebpf_callee->env == env) {
		return ebpf_callee->call(ebpf_callee, insn, a1, a2, a3, a4);
	}
	return ebpf_interp_call(insn, a1, a2, a3, a4, env);
}
