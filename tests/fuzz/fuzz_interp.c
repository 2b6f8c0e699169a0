/* Runs any bytes as a program. The checked interpreter must terminate and access only the memory it
 * was given; the compiler must refuse or translate without touching other memory, and must refuse
 * what the program check refuses. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/jit/jit.h"
#include "bpf/run/decode.h"
#include "bpf/run/interp/interp.h"

#define MEM 64u
#define GUARD 0x5a

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct place {
	uint8_t before[64], mem[MEM], after[64];
};

static uint64_t map_memory[3][32];

static void setup(struct ebpf_env *env)
{
	static const struct ebpf_map_def defs[3] = {
		{ .name = "a", .type = 2, .key_bytes = 4, .value_bytes = 12, .max_entries = 4 },
		{ .name = "b",
		  .type = 2,
		  .key_bytes = 4,
		  .value_bytes = 8,
		  .max_entries = 4,
		  .flags = 0x40000 },
		{ .name = "c",
		  .type = 2,
		  .key_bytes = 4,
		  .value_bytes = 64,
		  .max_entries = 1,
		  .flags = 0x10000,
		  .is_data = 1 },
	};
	size_t bytes[EBPF_REGIONS];

	ebpf_env_init(env);
	env->n_maps = 3;
	if (ebpf_maps_layout(defs, 3, env->maps, bytes)) {
		abort();
	}
	for (int i = 0; i < 3; i++) {
		env->maps[i].data = (uint8_t *)map_memory[i];
	}
	memset(map_memory[1], GUARD, sizeof(map_memory[1]));
}

static void check_guards(const struct place *p)
{
	for (unsigned i = 0; i < 64; i++) {
		if (p->before[i] != GUARD || p->after[i] != GUARD) {
			abort();
		}
	}
	for (unsigned i = 0; i < sizeof(map_memory[1]); i++) {
		if (((uint8_t *)map_memory[1])[i] != GUARD) {
			abort(); /* constant memory was changed */
		}
	}
	for (unsigned i = 4 * 16 / 8; i < 32; i++) {
		if (map_memory[0][i]) {
			abort(); /* memory after the elements was changed */
		}
	}
}

/* Neither form of PTX may be made from what is malformed, and its text is text. */
static void compile_ptx(const struct ebpf_insn *insns, uint32_t n, const struct ebpf_env *env,
			int checked)
{
	static uint8_t text[8u << 20];
	const struct ebpf_jit_options o = { .name = "fuzz", .checked = checked };
	const struct ebpf_code prog = { insns, n, NULL, 0 };
	size_t len = 0;
	int err = ebpf_jit_compile_with(&ebpf_target_ptx, &o, &prog, env->maps, 3, text,
					sizeof(text), &len);

	if (err >= 0 && (ebpf_program_check(insns, n, 3, NULL) || memchr(text, 0, len))) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t code[1u << 20];
	static struct ebpf_env env;
	struct place p;
	struct ebpf_memory region = { (uintptr_t)p.mem, MEM, 1 };
	struct ebpf_checked_run run = {
		.regions = &region, .n_regions = 1, .r1 = (uintptr_t)p.mem, .r2 = MEM, .fuel = 5000
	};
	uint32_t n = (uint32_t)(size / 8), pc = 0;
	struct ebpf_insn *insns;
	uint64_t r0;
	size_t len = 0;
	int err;

	if (!n || n > 4096) {
		return 0;
	}
	insns = malloc(
		n *
		sizeof(*insns)); /* exact size, so that the sanitizer detects reads after the end */
	memcpy(insns, data, n * sizeof(*insns));
	setup(&env);
	run.env = size & 1 ? &env : NULL;
	memset(&p, GUARD, sizeof(p));
	err = ebpf_interp_checked(insns, n, &run, &r0, &pc);
	if (err > 0) {
		abort();
	}
	check_guards(&p);
	if (ebpf_jit_x86(insns, n, env.maps, 3, code, sizeof(code), &len) >= 0 &&
	    ebpf_program_check(insns, n, 3, NULL)) {
		abort();
	}
	compile_ptx(insns, n, &env, 0);
	compile_ptx(insns, n, &env, 1);
	free(insns);
	return 0;
}
