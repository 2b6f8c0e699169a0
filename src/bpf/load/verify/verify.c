/* The main loop of the verifier: follows one path instruction by instruction, then takes up the
 * next pending branch until none is left. */
#include "bpf/load/verify/verify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/verify/call/verify_call_int.h"
#include "bpf/load/verify/simt/simt_int.h"
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"

/* Walks one instruction. Returns 1 if the path continues at v->pc, 0 if it has ended, or a negative
 * errno. */
static int step(struct ebpf_verifier *v)
{
	const struct ebpf_insn *in = &v->prog->insns[v->pc];
	int err;

	switch (EBPF_CLASS(in->code)) {
	case EBPF_ALU:
	case EBPF_ALU64:
		err = ebpf_verify_alu(v, in);
		break;
	case EBPF_LD:
		err = ebpf_verify_load_imm64(v, in);
		v->pc += err == 0;
		break;
	case EBPF_LDX:
		err = ebpf_verify_load(v, in);
		break;
	case EBPF_ST:
		err = ebpf_verify_store(v, in);
		break;
	case EBPF_STX:
		err = EBPF_MODE(in->code) == EBPF_ATOMIC ? ebpf_verify_atomic(v, in)
							 : ebpf_verify_store(v, in);
		break;
	default: /* jump instructions set pc */
		switch (EBPF_OP(in->code)) {
		case EBPF_JA:
			v->pc = ebpf_verify_target(in, v->pc);
			return 1;
		case EBPF_CALL:
			err = ebpf_verify_call(v, in);
			return err ? err : 1;
		case EBPF_EXIT:
			return ebpf_verify_exit(v);
		default:
			err = ebpf_verify_branch(v, in);
			return err ? err : 1;
		}
	}
	v->pc += err == 0;
	return err ? err : 1;
}

static int refuse_poison(struct ebpf_verifier *v)
{
	for (uint32_t i = 0; i < v->prog->n_poisons; i++) {
		if (v->prog->poisons[i].insn == v->pc) {
			return ebpf_verify_refuse(v, v->pc, "relocation", "%s",
						  v->prog->poisons[i].why);
		}
	}
	return -EACCES;
}

static int give_up(struct ebpf_verifier *v)
{
	const char *why = v->flags & EBPF_VERIFY_BRIEF ? ", because the policy's other programs "
							 "took most of the effort"
						       : "";
	char text[192];

	if (v->visited <= v->max_visited) {
		snprintf(text, sizeof(text),
			 "too many states to compare, or too much of the stack in reach of "
			 "accesses at variable places%s",
			 why);
	} else {
		snprintf(text, sizeof(text),
			 "gave up after %u instructions on all paths together%s", v->max_visited,
			 why);
	}
	return ebpf_verify_give_up(v, text);
}

static int check_effort(struct ebpf_verifier *v)
{
	return v->visited > v->max_visited || v->work > v->max_work ? give_up(v) : 0;
}

static int account(struct ebpf_verifier *v)
{
	int err;

	v->visited++;
	err = check_effort(v);
	v->cost++;
	v->since++;
	if (err == 0 && ++v->path_cost > v->budget) {
		return ebpf_verify_over_budget(v);
	}
	return err;
}

static int walk_path(struct ebpf_verifier *v, int fresh)
{
	int more = 1;

	while (more == 1) {
		int err;

		if ((v->info[v->pc] & INSN_MEET) && !fresh) {
			more = ebpf_verify_meet(v);
			if (more) {
				return more < 0 ? more : 0; /* the path ended in a known state */
			}
		}
		fresh = 0;
		err = account(v);
		if (err) {
			return err;
		}
		if (v->probe) {
			v->probe(v->probe_arg, v->pc, v->depth, ebpf_verify_frame(v));
		}
		if (v->flags & EBPF_VERIFY_EXPLAIN) {
			ebpf_verify_log_state(v);
		}
		if (v->simt) {
			ebpf_simt_note(v);
		}
		more = v->info[v->pc] & INSN_POISON ? refuse_poison(v) : step(v);
	}
	return more == 0 ? ebpf_verify_path_end(v, NULL) : more;
}

static int walk(struct ebpf_verifier *v)
{
	int outcome, err = walk_path(v, 1);

	while (err == 0) {
		if (ebpf_verify_pop(v, &outcome)) {
			/* a path may wait or end before its first instruction, which would count */
			err = check_effort(v);
			err = err ? err : ebpf_verify_outcome(v, outcome);
			err = err ? err : walk_path(v, 0);
		} else if (ebpf_merge_next(v)) {
			err = walk_path(v, 1);
		} else {
			break;
		}
	}
	return err;
}

/* Starts walking the program at function k, the target of a tail call. It inherits nothing from the
 * caller. */
static int restart(struct ebpf_verifier *v, uint32_t k)
{
	struct ebpf_call_state *f = v->frames[0];

	for (uint64_t left = f->used; left; left &= left - 1) {
		memset(f->slots[__builtin_ctzll(left)].kind, BYTE_NONE, 8);
	}
	for (unsigned i = 0; i < 10; i++) {
		ebpf_reg_none(&f->regs[i]);
	}
	f->used = 0;
	f->depth = 0;
	f->regs[1].type = REG_CTX;
	ebpf_scalar_const(&f->regs[1].v, 0);
	v->depth = 0;
	v->n_refs = 0;
	v->entry = k;
	v->pc = v->prog->subprog[k];
	v->cost = v->path_cost = 0;
	v->worst = NULL;
	v->since = 0;
	v->spot.frames = 0;
	memset(&v->written, 0, sizeof(v->written));
	buf_clear(&v->log);
	return ebpf_verify_start(v);
}

/* Walks the program and each target of its tail calls. Sets *ret_cost to the cost of the most
 * expensive chain. */
static int walk_all(struct ebpf_verifier *v, uint64_t *ret_cost)
{
	uint64_t done = 1, left, own[ARRAY_SIZE(v->tails)] = { 0 };
	int err = walk(v);

	own[0] = (uint64_t)v->root->best;
	if (err == 0 && own[0] > v->budget) { /* each path was within the budget; this is the
						       worst combination */
		v->at = NULL;
		v->path_cost = own[0];
		err = ebpf_verify_over_budget(v);
	}
	while (err == 0 && (left = ebpf_verify_tail_targets(v) & ~done) != 0) {
		uint32_t k = (uint32_t)__builtin_ctzll(left);

		done |= 1ull << k;
		err = restart(v, k);
		err = err ? err : walk(v);
		own[k] = err ? 0 : (uint64_t)v->root->best;
	}
	*ret_cost = own[0];
	return err || done == 1 ? err : ebpf_verify_chain_cost(v, own, ret_cost);
}

static int start(struct ebpf_verifier *v)
{
	uint32_t n = v->prog->n_insns;
	struct ebpf_call_state *f = calloc(1, sizeof(*f));

	v->frames[0] = f;
	v->info = calloc(n, 1);
	v->loads = calloc(n, 1);
	v->subprog_of = calloc(n, 1);
	v->open = calloc(n, sizeof(*v->open));
	v->closed = calloc(n, sizeof(*v->closed));
	if (!f || !v->info || !v->loads || !v->subprog_of || !v->open || !v->closed) {
		return -ENOMEM;
	}
	f->regs[1].type = REG_CTX;
	ebpf_scalar_const(&f->regs[1].v, 0);
	f->regs[10].type = REG_STACK;
	ebpf_scalar_const(&f->regs[10].v, 0);
	return 0;
}

static int check_input(struct ebpf_verifier *v)
{
	v->hook = ebpf_verify_hook(v->prog->hook);
	if (!v->hook) {
		return report_set(v->r, -EACCES, "verify", "hook: there is no hook %d",
				  v->prog->hook);
	}
	if (v->prog->lane && !ebpf_verify_on(v, SIDE_DEVICE)) {
		return report_set(v->r, -EACCES, "verify", "hook: %s has no programs of lanes",
				  v->hook->name);
	}
	v->budget = v->prog->lane ? v->hook->budget / 4 : v->hook->budget;
	if (v->prog->n_insns == 0 || v->prog->n_insns > EBPF_MAX_INSNS ||
	    v->n_maps > EBPF_MAX_MAPS) {
		return report_set(v->r, -EACCES, "verify",
				  "cfg: %u instructions (1 to %u), %u maps (at most %u)",
				  v->prog->n_insns, EBPF_MAX_INSNS, v->n_maps, EBPF_MAX_MAPS);
	}
	for (uint32_t i = 0; i < v->n_maps; i++) {
		const struct ebpf_map_def *m = &v->maps[i];

		if (ebpf_map_check(m) != 0 || m->inner_1 > v->n_maps ||
		    (m->lock_1 && (m->value_bytes < 4 || m->lock_1 - 1 > m->value_bytes - 4))) {
			return report_set(v->r, -EACCES, "verify",
					  "map: the definition of map %u is not valid", i);
		}
	}
	return 0;
}

/* One walk of the program. A cheap walk of all paths decides most programs, the merging walk those
 * whose loops have too many of them, and the last one the others, whose refusal it reports. Their
 * limits together bound the time of any verdict. Programs inside kernels are verified while a user
 * waits for a tool, so their first walk is shorter, and the merging walk also takes those with many
 * branches but no loops. */
struct attempt {
	int merge;
	uint32_t max_visited, max_work;
};

enum { ATTEMPT_BRIEF, ATTEMPT_DEVICE, ATTEMPT_MERGE, ATTEMPT_FULL };

static const struct attempt attempts[] = {
	[ATTEMPT_BRIEF] = { 0, EBPF_VERIFY_EFFORT / 10, VERIFY_MAX_WORK / 10 },
	[ATTEMPT_DEVICE] = { 0, EBPF_VERIFY_EFFORT / 50, VERIFY_MAX_WORK / 200 },
	[ATTEMPT_MERGE] = { 1, EBPF_VERIFY_EFFORT, VERIFY_MAX_WORK / 2 },
	[ATTEMPT_FULL] = { 0, EBPF_VERIFY_EFFORT, VERIFY_MAX_WORK },
};

#define EFFORT_OF_INSN 16u

static void add_stats(struct ebpf_verify_stats *s, const struct ebpf_verifier *v, uint64_t cost)
{
	s->visited = v->visited;
	s->peak_states = v->peak_states;
	s->cost = (uint32_t)cost;
	s->stack_bytes = v->stack_bytes;
	s->joins = v->joins;
	s->effort += v->visited * EFFORT_OF_INSN + (uint32_t)MIN(v->work, UINT32_MAX / 4);
}

static void keep_texts(const struct ebpf_verifier *v)
{
	if (v->texts) {
		*v->prog->texts = *v->texts;
	} else {
		v->prog->texts->n = 0;
	}
}

/* Sets *ret_loops to whether the program has loops for the merging walk. */
static int attempt(const struct ebpf_verifier *how, const struct attempt *a,
		   struct ebpf_verify_stats *stats, int *ret_loops)
{
	struct ebpf_verifier v = *how;
	uint64_t cost = 0;
	int err = check_input(&v);

	v.max_visited = a->max_visited;
	v.max_work = a->max_work;
	err = err ? err : start(&v);
	err = err || !(v.flags & EBPF_VERIFY_EXPLAIN) ? err : ebpf_verify_log_start(&v);
	err = err ? err : ebpf_verify_cfg(&v);
	err = err || !a->merge ? err : ebpf_merge_start(&v);
	err = err ? err : ebpf_verify_start(&v);
	err = err || !v.prog->lane ? err : ebpf_simt_start(&v);
	err = err ? err : walk_all(&v, &cost);
	err = err || !v.simt ? err : ebpf_simt_check(&v);
	if (err == -ENOMEM) {
		report_set(v.r, err, "verify", "out of memory");
	}
	if (!err && v.prog->texts) {
		keep_texts(&v);
	}
	add_stats(stats, &v, cost);
	*ret_loops = v.plain_loops && !v.converges;
	ebpf_verify_free(&v);
	return err;
}

/* Like attempt(), but reports nothing. */
static int try_quietly(const struct ebpf_verifier *how, const struct attempt *a,
		       struct ebpf_verify_stats *stats, int *ret_loops)
{
	struct ebpf_verifier quiet = *how;
	struct report unused;
	int err;

	report_init(&unused);
	quiet.r = &unused;
	quiet.flags &= ~(unsigned)EBPF_VERIFY_EXPLAIN;
	err = attempt(&quiet, a, stats, ret_loops);
	report_finish(&unused);
	return err;
}

static int verify(const struct ebpf_verifier *how, struct ebpf_verify_stats *stats)
{
	static const struct {
		unsigned flag, attempt;
	} single[] = {
		{ EBPF_VERIFY_MERGE, ATTEMPT_MERGE },
		{ EBPF_VERIFY_NO_PRUNE, ATTEMPT_FULL },
		{ EBPF_VERIFY_BRIEF, ATTEMPT_BRIEF },
	};
	int loops, err, device = how->prog->hook >= (int)EBPF_FIRST_DEVICE_HOOK;

	for (size_t i = 0; i < ARRAY_SIZE(single); i++) {
		if (how->flags & single[i].flag) {
			return attempt(how, &attempts[single[i].attempt], stats, &loops);
		}
	}
	err = try_quietly(how, &attempts[device ? ATTEMPT_DEVICE : ATTEMPT_BRIEF], stats, &loops);
	if (err == -E2BIG && (loops || device)) {
		err = try_quietly(how, &attempts[ATTEMPT_MERGE], stats, &loops);
	}
	return err ? attempt(how, &attempts[ATTEMPT_FULL], stats, &loops) : 0;
}

int ebpf_verify_levels(const struct ebpf_prog *prog, const struct ebpf_map_def *maps,
		       uint32_t n_maps, unsigned flags, ebpf_verify_probe_fn probe,
		       void (*simt_probe)(void *arg, struct ebpf_simt *s), void *arg)
{
	const struct ebpf_verifier how = {
		.prog = prog,
		.maps = maps,
		.n_maps = n_maps,
		.flags = flags,
		.probe = probe,
		.probe_arg = arg,
		.simt_probe = simt_probe,
	};
	struct ebpf_verify_stats stats = { 0 };

	return verify(&how, &stats);
}

int ebpf_verify_observed(const struct ebpf_prog *prog, const struct ebpf_map_def *maps,
			 uint32_t n_maps, unsigned flags, ebpf_verify_probe_fn probe,
			 void *probe_arg, struct ebpf_verify_stats *ret_stats, struct report *r)
{
	const struct ebpf_verifier how = {
		.prog = prog,
		.maps = maps,
		.n_maps = n_maps,
		.flags = flags,
		.r = r,
		.probe = probe,
		.probe_arg = probe_arg,
	};
	struct ebpf_verify_stats stats = { 0 };
	int err = verify(&how, &stats);

	if (ret_stats) {
		*ret_stats = stats;
	}
	return err;
}

int ebpf_verify(const struct ebpf_prog *prog, const struct ebpf_map_def *maps, uint32_t n_maps,
		unsigned flags, struct ebpf_verify_stats *ret_stats, struct report *r)
{
	return ebpf_verify_observed(prog, maps, n_maps, flags, NULL, NULL, ret_stats, r);
}
