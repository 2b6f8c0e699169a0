/* Verifies any instructions as a program and runs accepted ones in the checked interpreter, where
 * they must not fault. Those for hooks inside kernels, on each lane or once for a warp, are
 * compiled instead. The first byte selects hook and flags, the rest are instructions (functions
 * begin at the targets of local calls and function addresses). test_verify writes its cases in this
 * form as seeds. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/jit/jit.h"
#include "bpf/load/verify/verify.h"
#include "bpf/run/interp/interp.h"

#include "bpf/run/ctx_bound.h"
#include "policy/ctx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_INSNS 512u

/* The first byte: EBPF_VERIFY_EXPLAIN, EBPF_VERIFY_MERGE, and of programs inside kernels the hook's
 * number, its fourth bit apart. */
#define HOOK_8 0x01u
#define HOOK_SHIFT 3
#define DEVICE 0x40u
#define LANE 0x80u
#define N_DEVICE_HOOKS 11u

static const struct ebpf_map_def maps[] = {
	{ "global", 2, 4, 16, 4, 0, 0 },
	{ "tenant", 2, 4, 24, 8, GBPF_F_TENANT, 0 },
	{ ".rodata", 2, 4, 16, 1, GBPF_F_RDONLY, 1 },
	{ ".bss.tenant", 2, 4, 16, 1, GBPF_F_TENANT, 1 },
	{ "daemon", 2, 4, 8, 2, GBPF_F_DAEMON, 0 },
	{ ".bss", 2, 4, 16, 1, 0, 1 },
	{ "ring", 27, 0, 0, 4096, GBPF_F_TENANT, 0 },
	{ "hash", 1, 8, 16, 16, GBPF_F_TENANT, 0 },
	{ "progs", 3, 4, 4, 4, 0, 0 },
	{ "queue", 22, 0, 16, 8, GBPF_F_TENANT, 0 },
	{ "locked", 2, 4, 16, 2, GBPF_F_DAEMON, 0, .lock_1 = 1 },
	{ "many", 12, 4, 4, 4, 0, 0, .inner_1 = 13 },
	{ "inner", 2, 4, 8, 4, 0, 0 },
	{ "threads", 6, 4, 16, 2, GBPF_F_TENANT, 0 },
	{ "hist", 1000, 4, 512, 2, GBPF_F_TENANT, 0 },
	{ "prefixes", 11, 8, 8, 16, GBPF_F_TENANT, 0 },
	{ "other", 2, 4, 16, 2, GBPF_F_DAEMON, 0, .lock_1 = 9 },
	{ "published", 2, 4, 16, 4, GBPF_F_EPOCH, 0 },
	{ "counters", 2, 4, 16, 64, GBPF_F_DEVICE, 0 },
	{ ".bss.device", 2, 4, 256, 1, GBPF_F_DEVICE, 1 },
	{ "rows", 1000, 4, 512, 4, GBPF_F_DEVICE, 0 },
	{ "dmany", 12, 4, 4, 4, 0, 0, .inner_1 = 19 },
	{ "pushed", 1003, 0, 16, 64, GBPF_F_DEVICE, 0 },
	{ "wide", 2, 4, 32, 4, GBPF_F_DEVICE, 0 },
	{ "pinned", 1, 8, 16, 64, (uint32_t)GBPF_F_DEVICE | (uint32_t)GBPF_F_HOST, 0 },
	{ "scratch", 1008, 4, 16, 4, GBPF_F_DEVICE, 0 },
};

static void find_functions(struct ebpf_prog *p)
{
	static uint8_t starts[MAX_INSNS];

	memset(starts, 0, sizeof(starts));
	for (uint32_t pc = 0; pc < p->n_insns; pc++) {
		const struct ebpf_insn *in = &p->insns[pc];
		int64_t to = (int64_t)pc + 1 + in->imm;

		int names = in->code == EBPF_LD_IMM64 && in->src == EBPF_PSEUDO_FUNC;

		if ((names || (in->code == (EBPF_JMP | EBPF_CALL) && in->src == 1)) && to > 0 &&
		    to < p->n_insns) {
			starts[to] = 1;
		}
	}
	p->n_subprogs = 1;
	for (uint32_t pc = 1; pc < p->n_insns && p->n_subprogs < ARRAY_SIZE(p->subprog); pc++) {
		if (starts[pc]) {
			p->subprog[p->n_subprogs++] = pc;
		}
	}
}

/* Returns an environment with empty maps. */
static struct ebpf_env *make_env(void)
{
	static struct ebpf_env env;
	static void *memory[EBPF_REGIONS];
	static size_t bytes[EBPF_REGIONS];

	if (!env.n_maps) {
		ebpf_env_init(&env);
		if (ebpf_maps_layout(maps, ARRAY_SIZE(maps), env.maps, bytes)) {
			abort();
		}
		env.n_maps = ARRAY_SIZE(maps);
		for (int k = 0; k < EBPF_REGIONS; k++) {
			memory[k] = bytes[k] ? aligned_alloc(4096, bytes[k]) : NULL;
			ebpf_maps_bind(env.maps, env.n_maps, (enum ebpf_region)k, memory[k]);
		}
	}
	for (int k = 0; k < EBPF_REGIONS; k++) {
		if (memory[k]) {
			memset(memory[k], 0, bytes[k]);
		}
	}
	return &env;
}

static void run(const struct ebpf_prog *p, uint64_t cost)
{
	static uint64_t ctx[sizeof(struct gbpf_submit_ctx) /
			    8]; /* exact size, so that the sanitizer detects reads after the end */
	struct ebpf_memory region = { (uintptr_t)ctx, sizeof(ctx), 1 };
	struct ebpf_checked_run how = { .regions = &region,
					.n_regions = 1,
					.r1 = (uintptr_t)ctx,
					.env = make_env(),
					.fuel = cost };
	uint64_t r0 = 0;
	uint32_t pc = 0;
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(ctx); i++) {
		ctx[i] = i * 0x9e3779b97f4a7c15ull;
	}
	ebpf_ctx_bound((unsigned)p->hook, ctx);
	err = ebpf_interp_checked(p->insns, p->n_insns, &how, &r0, &pc);
	if (err || r0 > 3) {
		fprintf(stderr, "accepted, but insn %u: error %d, verdict %llu\n", pc, err,
			(unsigned long long)r0);
		abort();
	}
}

/* Compiles a program for kernels, or has it refused with a reason. */
static void compile(const struct ebpf_prog *p)
{
	static struct ebpf_map laid[ARRAY_SIZE(maps)];
	static uint8_t text[1 << 20];
	const struct ebpf_code code = { .insns = p->insns, .n = p->n_insns };
	uint64_t used = 0;
	struct ebpf_jit_options o = { .device_hook = p->hook,
				      .device_lane = p->lane,
				      .maps = &used };
	size_t bytes[EBPF_REGIONS], len = 0;
	struct report r;

	report_init(&r);
	o.report = &r;
	if (ebpf_maps_layout(maps, ARRAY_SIZE(maps), laid, bytes)) {
		abort();
	}
	if (ebpf_jit_compile_with(&ebpf_target_ptx, &o, &code, laid, ARRAY_SIZE(maps), text,
				  sizeof(text), &len) < 0 &&
	    !r.message.len) {
		abort();
	}
	report_finish(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ebpf_prog p;
	static struct ebpf_insn insns[MAX_INSNS];
	struct ebpf_verify_stats stats;
	struct report r;
	struct buf text;
	int err;

	if (size < 9) {
		return 0;
	}
	memset(&p, 0, sizeof(p));
	p.hook = 3;
	if (data[0] & DEVICE) {
		p.hook = (int)(EBPF_FIRST_DEVICE_HOOK +
			       ((data[0] >> HOOK_SHIFT & 7) | (data[0] & HOOK_8) << 3) %
				       N_DEVICE_HOOKS);
		p.lane = (data[0] & LANE) != 0;
	}
	p.n_insns = (uint32_t)MIN((size - 1) / 8, (size_t)MAX_INSNS);
	memcpy(insns, data + 1, (size_t)p.n_insns * 8);
	p.insns = insns;
	find_functions(&p);
	report_init(&r);
	buf_init(&text);
	/* without flags that explain a million steps or walk every path, which cost the fuzzer too
	 * much time */
	err = ebpf_verify(&p, maps, ARRAY_SIZE(maps),
			  size < 128 ? data[0] & (EBPF_VERIFY_EXPLAIN | EBPF_VERIFY_MERGE)
				     : data[0] & EBPF_VERIFY_MERGE,
			  &stats, &r);
	if (err && !r.message.len) {
		abort();
	}
	if (err == 0 && data[0] & DEVICE) {
		compile(&p);
	} else if (err == 0) {
		run(&p, stats.cost);
	}
	report_text(&r, &text);
	report_finish(&r);
	buf_finish(&text);
	return 0;
}
