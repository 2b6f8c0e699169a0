/* The checked interpreter, which runs arbitrary bytes as a program. It is the reference for the
 * other engines, the oracle of the verifier's soundness tests, and the engine of `policy exec`.
 * Same body as interp.c, with checks. */
#pragma GCC diagnostic ignored "-Wpedantic" /* labels as values: the dispatch loop */

#include "bpf/run/interp/interp.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/run/interp/alu.h"
#include "bpf/run/decode.h"
#include "bpf/run/map/map_type.h"
#include "bpf/run/signature.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

static const uint8_t helper_ret[EBPF_HELPER_SLOTS] = {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	[EBPF_SLOT_##name] = RET_##ret,
#include "gbpf/hooks.def"
};

static const uint8_t helper_args[EBPF_HELPER_SLOTS][5] = {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	[EBPF_SLOT_##name] = { ARG_##a1, ARG_##a2, ARG_##a3, ARG_##a4, ARG_##a5 },
#include "gbpf/hooks.def"
};

#define GRANTS 128u /* more than a program can keep in registers and in the slots it reads */

struct saved_frame {
	const struct ebpf_insn *ret;
	uint64_t kept[5];
};

/* State of one run with all its callbacks. */
struct checked {
	struct ebpf_callee callee;
	const struct ebpf_checked_run *run;
	struct ebpf_code code;
	uint64_t fuel;
	unsigned frame; /* current frame, while a helper runs */
	int slot;	/* slot of the current helper */
	int err;	/* error of a callback; ends the run when the helper has returned */
	uint32_t pc;	/* instruction at which the run ended */
	unsigned next_grant;
	struct ebpf_memory grants[GRANTS]; /* memory returned by helpers: values, records, keys */
	uint8_t is_record[GRANTS];
	struct saved_frame saved[EBPF_MAX_FRAMES];
	ALIGNED(16) uint8_t stacks[EBPF_MAX_FRAMES][EBPF_STACK_BYTES];
};

static int inside(uint64_t p, uint64_t bytes, uint64_t base, uint64_t size)
{
	return p >= base && p - base <= size && bytes <= size - (p - base);
}

/* Returns whether the access lies within the value of one element, without its padding. Values of
 * maps other than plain arrays are reachable only through helpers, which grant them. */
static int in_map(const struct ebpf_map *m, uint64_t p, uint64_t bytes, int write)
{
	uint64_t base = (uintptr_t)m->data;

	if (!m->data || m->type != GBPF_MAP_ARRAY || (m->flags & GBPF_F_EPOCH) ||
	    (write && (m->flags & GBPF_F_RDONLY)) ||
	    !inside(p, bytes, base, (uint64_t)m->stride * m->max_entries)) {
		return 0;
	}
	return (p - base) % m->stride + bytes <= m->value_bytes;
}

static int in_memory(const struct ebpf_memory *m, unsigned n, uint64_t p, uint64_t bytes, int write)
{
	for (unsigned i = 0; i < n; i++) {
		if (inside(p, bytes, m[i].base, m[i].bytes) && (!write || m[i].writable)) {
			return 1;
		}
	}
	return 0;
}

static int allowed(const struct checked *s, unsigned frame, uint64_t p, uint64_t bytes, int write)
{
	const struct ebpf_checked_run *run = s->run;

	/* A caller may have passed a pointer into its frame. */
	for (unsigned i = 0; i <= frame; i++) {
		if (inside(p, bytes, (uintptr_t)s->stacks[i], EBPF_STACK_BYTES)) {
			return 1;
		}
	}
	if (in_memory(run->regions, run->n_regions, p, bytes, write)) {
		return 1;
	}
	for (unsigned i = 0; run->env && i < run->env->n_maps && i < EBPF_MAX_MAPS; i++) {
		if (in_map(&run->env->maps[i], p, bytes, write)) {
			return 1;
		}
	}
	return in_memory(s->grants, GRANTS, p, bytes, write);
}

/* Records a grant. Replaces a grant of the same address, else the oldest one. */
static void grant(struct checked *s, uint64_t base, uint64_t bytes, int writable, int record)
{
	unsigned i = 0;

	while (i < GRANTS && s->grants[i].base != base) {
		i++;
	}
	i = i < GRANTS ? i : s->next_grant++ % GRANTS;
	s->grants[i] = (struct ebpf_memory){ base, bytes, writable };
	s->is_record[i] = (uint8_t)record;
}

static void revoke(struct checked *s, uint64_t base)
{
	for (unsigned i = 0; i < GRANTS; i++) {
		if (s->grants[i].base == base) {
			s->grants[i] = (struct ebpf_memory){ 0 };
			s->is_record[i] = 0;
		}
	}
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

static int is_function(const struct checked *s, uint64_t v)
{
	uint64_t base = (uintptr_t)s->code.insns, at = v - 1 - base;

	return (v & 1) && v > base && at % sizeof(struct ebpf_insn) == 0 &&
	       at / sizeof(struct ebpf_insn) < s->code.n;
}

static int is_record(const struct checked *s, uint64_t v)
{
	for (unsigned i = 0; i < GRANTS; i++) {
		if (v && s->grants[i].base == v && s->is_record[i]) {
			return 1;
		}
	}
	return 0;
}

/* Checks the five arguments against the signature of the helper. */
static int call_allowed(const struct checked *s, unsigned frame, const uint64_t *r, int slot)
{
	const struct ebpf_map *map = NULL;

	for (unsigned i = 0; i < 5; i++) {
		uint64_t v = r[i + 1], bytes = i < 4 ? r[i + 2] : 0, aligned = 1;
		int write = 0;

		switch (helper_args[slot][i]) {
		case ARG_CONST_MAP:
			map = handle_of(s->run->env, v);
			if (!map) {
				return 0;
			}
			continue;
		case ARG_FUNC:
			if (!is_function(s, v)) {
				return 0;
			}
			continue;
		case ARG_RECORD:
			if (!is_record(s, v)) {
				return 0;
			}
			continue;
		case ARG_MAP_KEY:
			bytes = map ? map->key_bytes : UINT64_MAX;
			break;
		case ARG_MAP_VALUE:
			bytes = map ? map->value_bytes : UINT64_MAX;
			break;
		case ARG_MAP_OUT:
			bytes = map ? map->value_bytes : UINT64_MAX;
			write = 1;
			break;
		case ARG_MEM_UNINIT:
			write = 1;
			break;
		case ARG_MEM:
			break;
		case ARG_CTX:
			if (slot == EBPF_SLOT_bpf_perf_event_output && !v) {
				continue; /* it does not use its context */
			}
			bytes = 1;
			break;
		case ARG_ITER_NEW:
		case ARG_ITER:
		case ARG_ITER_END:
			bytes = aligned = 8;
			write = 1;
			break;
		case ARG_OUT64:
			bytes = 8;
			write = 1;
			break;
		case ARG_LOCK:
			bytes = aligned = 4;
			write = 1;
			break;
		default:
			continue;
		}
		if (v % aligned || !allowed(s, frame, v, bytes, write)) {
			return 0;
		}
	}
	return 1;
}

/* Updates the grants after a helper call. r: its arguments, with the result in r[0]. */
static void after_call(struct checked *s, const uint64_t *r, int slot)
{
	const struct ebpf_map *map = handle_of(s->run->env, r[1]);

	if (helper_ret[slot] == RET_MAP_VALUE_OR_NULL && r[0] && map &&
	    map->type != GBPF_MAP_ARRAY_OF_MAPS) {
		grant(s, r[0], map->value_bytes, !(map->flags & GBPF_F_RDONLY), 0);
	} else if (helper_ret[slot] == RET_RECORD_OR_NULL && r[0]) {
		grant(s, r[0], r[2], 1, 1);
	} else if (helper_args[slot][0] == ARG_RECORD) {
		revoke(s, r[1]);
	}
}

#define STOP(e)                                                                                    \
	do {                                                                                       \
		err = (e);                                                                         \
		goto stop;                                                                         \
	} while (0)
#define DISPATCH() goto next
#define ACCESS(p, bytes, write)                                                                    \
	do {                                                                                       \
		if (!allowed(s, frame, (p), (bytes), (write))) {                                   \
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
#define EBPF_HELPER(number)                                                                        \
	do {                                                                                       \
		if (!env || (number) < 0 || !env->helpers[number]) {                               \
			STOP(-EINVAL);                                                             \
		}                                                                                  \
		if (!call_allowed(s, frame, r, (number))) {                                        \
			STOP(-EFAULT);                                                             \
		}                                                                                  \
	} while (0)
#define INVOKE(number)                                                                             \
	do {                                                                                       \
		struct ebpf_callee *outer = ebpf_callee;                                           \
                                                                                                   \
		s->frame = frame;                                                                  \
		s->slot = (number);                                                                \
		ebpf_callee = &s->callee;                                                          \
		r[0] = env->helpers[number](r[1], r[2], r[3], r[4], r[5], env);                    \
		ebpf_callee = outer;                                                               \
		if (s->err) {                                                                      \
			return 0;                                                                  \
		}                                                                                  \
		after_call(s, r, (number));                                                        \
	} while (0)
#define TAIL()                                                                                     \
	do {                                                                                       \
		if (frame) {                                                                       \
			STOP(-EINVAL);                                                             \
		}                                                                                  \
	} while (0)
#define ENTER()                                                                                    \
	do {                                                                                       \
		if (frame + 1 >= EBPF_MAX_FRAMES) {                                                \
			STOP(-ELOOP);                                                              \
		}                                                                                  \
	} while (0)
#define BAD() STOP(-EINVAL)
#define DONE() return r[0]

/* Runs a function from its first instruction to its exit. s->err tells whether it got there. */
static uint64_t exec(struct checked *s, const struct ebpf_insn *ip, unsigned frame,
		     const uint64_t args[4])
{
	const struct ebpf_checked_run *run = s->run;
	const unsigned bottom = frame;
	struct ebpf_env *env = run->env;
	struct saved_frame *saved = s->saved;
	uint8_t(*stacks)[EBPF_STACK_BYTES] = s->stacks;
	const struct ebpf_code *code = &s->code;
	unsigned chain = 0;
	int err;
	uint64_t r[16] = { [1] = args[0],
			   [2] = args[1],
			   [3] = args[2],
			   [4] = args[3],
			   [10] = (uintptr_t)stacks[frame] + EBPF_STACK_BYTES };

#include "bpf/run/interp/interp_body.inc"

next:
	/* Offsets are at most 2^31, so the pointer difference is exact. */
	if (ip < code->insns || ip >= code->insns + code->n ||
	    ebpf_insn_slots(code->insns, code->n, (uint32_t)(ip - code->insns)) < 0) {
		STOP(-EINVAL);
	}
	if (!s->fuel--) {
		STOP(-ETIME);
	}
	if (run->observe) {
		run->observe(run->observe_arg, (uint32_t)(ip - code->insns), frame, r);
	}
	goto *labels[ip->code];
stop:
	s->err = err;
	s->pc = (uint32_t)(ip - code->insns);
	return 0;
}

/* Runs a callback one frame deeper than the function that called the helper. A failed callback ends
 * the loop of the helper (result not 0), and the run when the helper has returned. */
static uint64_t call_checked(struct ebpf_callee *self, const struct ebpf_insn *fn, uint64_t a1,
			     uint64_t a2, uint64_t a3, uint64_t a4)
{
	struct checked *s = container_of(self, struct checked, callee);
	const struct ebpf_map *map = handle_of(s->run->env, a1);
	const uint64_t args[4] = { a1, a2, a3, a4 };
	struct ebpf_callee *outer = ebpf_callee;
	unsigned frame = s->frame;
	int slot = s->slot, each = slot == EBPF_SLOT_bpf_for_each_map_elem && map;
	uint64_t r0;

	if (!s->err && frame + 1 >= EBPF_MAX_FRAMES) {
		s->err = -ELOOP;
		s->pc = (uint32_t)(fn - s->code.insns);
	}
	if (s->err) {
		return 1;
	}
	if (each) {
		grant(s, a2, map->key_bytes, 0, 0);
		grant(s, a3, map->value_bytes, !(map->flags & GBPF_F_RDONLY), 0);
	}
	ebpf_callee = NULL;
	r0 = exec(s, fn, frame + 1, args);
	ebpf_callee = outer;
	s->frame = frame;
	s->slot = slot;
	if (each) {
		revoke(s, a2);
	}
	return s->err ? 1 : r0;
}

int ebpf_interp_checked(const struct ebpf_insn *insns, uint32_t n,
			const struct ebpf_checked_run *run, uint64_t *ret_r0, uint32_t *ret_pc)
{
	const uint64_t args[4] = { run->r1, run->r2 };
	struct checked s = {
		.callee = { .call = call_checked, .env = run->env },
		.run = run,
		.code = { insns, n, run->tails, run->n_tails },
		.fuel = run->fuel,
	};
	uint64_t r0 = exec(&s, insns, 0, args);

	if (!s.err) {
		*ret_r0 = r0;
	}
	if (ret_pc) {
		*ret_pc = s.pc;
	}
	return s.err;
}
