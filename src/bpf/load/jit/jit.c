/* One compilation: makes the plan, then appends the code of the target to the buffer. */
#include "bpf/load/jit/jit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/jit/jit_int.h"

int ebpf_jit_compile_with(const struct ebpf_target *target, const struct ebpf_jit_options *options,
			  const struct ebpf_code *prog, const struct ebpf_map *maps,
			  uint32_t n_maps, uint8_t *out, size_t cap, size_t *len)
{
	static const struct ebpf_jit_options none;
	size_t entry = ROUND_UP(*len, target->entry_align);
	struct ebpf_jit *j = calloc(1, sizeof(*j));
	int64_t bytes;

	if (!j) {
		return -ENOMEM;
	}
	j->options = options ? options : &none;
	j->fuses = target->fuses;
	j->insns = prog->insns;
	j->n = prog->n;
	j->tails = prog->tails;
	j->n_tails = prog->n_tails;
	j->maps = maps;
	j->n_maps = n_maps;
	bytes = ebpf_jit_plan(j);
	if (bytes == 0) {
		bytes = entry > cap || entry > INT32_MAX
				? -ENOSPC
				: target->emit(j, out ? out + entry : NULL, cap - entry);
	}
	if (bytes >= 0) {
		memset(out + *len, target->filler, entry - *len);
		*len = entry + (size_t)bytes;
	}
	free(j->notes);
	free(j);
	return bytes < 0 ? (int)bytes : (int)entry;
}

int ebpf_jit_compile(const struct ebpf_target *target, const struct ebpf_code *prog,
		     const struct ebpf_map *maps, uint32_t n_maps, uint8_t *out, size_t cap,
		     size_t *len)
{
	return ebpf_jit_compile_with(target, NULL, prog, maps, n_maps, out, cap, len);
}

int ebpf_jit_x86(const struct ebpf_insn *insns, uint32_t n, const struct ebpf_map *maps,
		 uint32_t n_maps, uint8_t *out, size_t cap, size_t *len)
{
	const struct ebpf_code prog = { insns, n, NULL, 0 };

	return ebpf_jit_compile(&ebpf_target_x86, &prog, maps, n_maps, out, cap, len);
}
