/* The interpreter that trusts nothing: any bytes may be the program. It is the reference for the
 * other engines, the judge of the verifier's soundness tests, and what `policy exec` runs. Same
 * body as interp.c, with the checks. */
#include "bpf/run/interp.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/run/alu.h"
#include "bpf/run/decode.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

enum arg_kind {
	ARG_NONE,
	ARG_SCALAR,
	ARG_CONST_MAP,
	ARG_MAP_KEY,
	ARG_MAP_VALUE,
	ARG_MEM,
	ARG_MEM_UNINIT,
	ARG_SIZE,
	ARG_SIZE_OR_ZERO,
	ARG_CTX,
	ARG_CONST_SIZE,
	ARG_MAP_OUT,
	ARG_FUNC,
	ARG_ANY,
	ARG_RECORD,
	ARG_ITER_NEW,
	ARG_ITER,
	ARG_ITER_END,
	ARG_LOCK
};

static const uint8_t helper_args[EBPF_HELPER_SLOTS][5] = {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	[EBPF_SLOT_##name] = { ARG_##a1, ARG_##a2, ARG_##a3, ARG_##a4, ARG_##a5 },
#include "gbpf/hooks.def"
};

struct saved_frame {
	const struct ebpf_insn *ret;
	uint64_t kept[5];
};

static int inside(uint64_t p, uint64_t bytes, uint64_t base, uint64_t size)
{
	return p >= base && p - base <= size && bytes <= size - (p - base);
}

/* One element's value, not the padding after it and not two elements at once. */
static int in_map(const struct ebpf_map *m, uint64_t p, uint64_t bytes, int write)
{
	uint64_t base = (uintptr_t)m->data;

	if (!m->data || (write && (m->flags & GBPF_F_RDONLY)) ||
	    !inside(p, bytes, base, (uint64_t)m->stride * m->max_entries)) {
		return 0;
	}
	return (p - base) % m->stride + bytes <= m->value_bytes;
}

static int allowed(const struct ebpf_checked_run *run, uint8_t (*stacks)[EBPF_STACK_BYTES],
		   unsigned frame, uint64_t p, uint64_t bytes, int write)
{
	/* A function may have been passed a pointer into a caller's frame. */
	for (unsigned i = 0; i <= frame; i++) {
		if (inside(p, bytes, (uintptr_t)stacks[i], EBPF_STACK_BYTES)) {
			return 1;
		}
	}
	for (unsigned i = 0; i < run->n_regions; i++) {
		const struct ebpf_memory *m = &run->regions[i];

		if (inside(p, bytes, m->base, m->bytes) && (!write || m->writable)) {
			return 1;
		}
	}
	for (unsigned i = 0; run->env && i < run->env->n_maps && i < EBPF_MAX_MAPS; i++) {
		if (in_map(&run->env->maps[i], p, bytes, write)) {
			return 1;
		}
	}
	return 0;
}

static const struct ebpf_map *handle_of(const struct ebpf_env *env, uint64_t v)
{
	for (unsigned i = 0; i < env->n_maps && i < EBPF_MAX_MAPS; i++) {
		if (v == (uintptr_t)&env->maps[i]) {
			return &env->maps[i];
		}
	}
	return NULL;
}

/* The five arguments against the helper's signature. */
static int call_allowed(const struct ebpf_checked_run *run, uint8_t (*stacks)[EBPF_STACK_BYTES],
			unsigned frame, const uint64_t *r, int slot)
{
	const struct ebpf_map *map = NULL;

	for (unsigned i = 0; i < 5; i++) {
		uint64_t v = r[i + 1], bytes = i < 4 ? r[i + 2] : 0;
		int write = 0;

		switch (helper_args[slot][i]) {
		case ARG_CONST_MAP:
			map = handle_of(run->env, v);
			if (!map) {
				return 0;
			}
			continue;
		case ARG_MAP_KEY:
			bytes = map ? map->key_bytes : UINT64_MAX;
			break;
		case ARG_MAP_VALUE:
			bytes = map ? map->value_bytes : UINT64_MAX;
			break;
		case ARG_MEM_UNINIT:
			write = 1;
			break;
		case ARG_MEM:
			break;
		case ARG_CTX:
			bytes = 1;
			break;
		default:
			continue;
		}
		if (!allowed(run, stacks, frame, v, bytes, write)) {
			return 0;
		}
	}
	return 1;
}

#define STOP(e)                                                                                    \
	do {                                                                                       \
		err = (e);                                                                         \
		goto stop;                                                                         \
	} while (0)
#define DISPATCH() goto next
#define ACCESS(p, bytes, write)                                                                    \
	do {                                                                                       \
		if (!allowed(run, stacks, frame, (p), (bytes), (write))) {                         \
			STOP(-EFAULT);                                                             \
		}                                                                                  \
	} while (0)
#define ALIGNED_ACCESS(p, bytes)                                                                   \
	do {                                                                                       \
		if ((p) % (bytes)) {                                                               \
			STOP(-EFAULT);                                                             \
		}                                                                                  \
		ACCESS((p), (bytes), 1);                                                           \
	} while (0)
#define MAP(index)                                                                                 \
	do {                                                                                       \
		if (!env || (index) >= MIN(env->n_maps, EBPF_MAX_MAPS)) {                          \
			STOP(-EINVAL);                                                             \
		}                                                                                  \
	} while (0)
#define HELPER(slot)                                                                               \
	do {                                                                                       \
		if (!env || (slot) < 0) {                                                          \
			STOP(-EINVAL);                                                             \
		}                                                                                  \
		if (!call_allowed(run, stacks, frame, r, (slot))) {                                \
			STOP(-EFAULT);                                                             \
		}                                                                                  \
	} while (0)
#define ENTER()                                                                                    \
	do {                                                                                       \
		if (frame + 1 >= EBPF_MAX_FRAMES) {                                                \
			STOP(-ELOOP);                                                              \
		}                                                                                  \
	} while (0)
#define BAD() STOP(-EINVAL)
#define DONE() STOP(0)

int ebpf_interp_checked(const struct ebpf_insn *insns, uint32_t n,
			const struct ebpf_checked_run *run, uint64_t *ret_r0, uint32_t *ret_pc)
{
	ALIGNED(16) uint8_t stacks[EBPF_MAX_FRAMES][EBPF_STACK_BYTES] = { 0 };
	struct saved_frame saved[EBPF_MAX_FRAMES];
	const struct ebpf_insn *ip = insns;
	struct ebpf_env *env = run->env;
	uint64_t fuel = run->fuel;
	unsigned frame = 0;
	int err;
	uint64_t r[16] = {
		[1] = run->r1, [2] = run->r2, [10] = (uintptr_t)stacks[0] + EBPF_STACK_BYTES
	};

#include "bpf/run/interp_body.inc"

next:
	/* Offsets are at most 2^31, so the pointer difference is exact. */
	if (ip < insns || ip >= insns + n ||
	    ebpf_insn_slots(insns, n, (uint32_t)(ip - insns)) < 0) {
		STOP(-EINVAL);
	}
	if (!fuel--) {
		STOP(-ETIME);
	}
	if (run->observe) {
		run->observe(run->observe_arg, (uint32_t)(ip - insns), frame, r);
	}
	goto *labels[ip->code];
stop:
	if (!err) {
		*ret_r0 = r[0];
	}
	if (ret_pc) {
		*ret_pc = (uint32_t)(ip - insns);
	}
	return err;
}
