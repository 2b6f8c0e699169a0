/* Control flow: branches, calls, exits, barriers. A handler leaves the current group in the state
 * in which it continues, and returns STEP_SWITCH if other lanes may have to run first. */
#include <string.h>

#include "soft/server/exec/handlers.h"
#include "soft/server/exec/warp_run.h"

#define POLLS_IN_VAIN 8u

/* Splits off lanes that continue at pc; the remaining lanes stay the current group. */
static void leave_behind(struct exec_warp *w, uint32_t lanes, uint32_t pc)
{
	struct exec_lane_group *g = &w->groups[w->n_groups++];

	exec_group_save(w, g);
	g->mask = lanes;
	g->pc = pc;
	g->state = GROUP_READY;
	w->mask &= ~lanes;
}

int exec_op_bra(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	if (m == w->mask) {
		w->pc = o->e;
		return STEP_NEXT;
	}
	leave_behind(w, w->mask & ~m, w->pc);
	w->pc = o->e;
	return STEP_SWITCH;
}

int exec_op_brx(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_table *t = &w->block->f->tables[o->e];
	const uint32_t *a = REF(const uint32_t, w, o->a);
	uint32_t rest = m, next = w->pc;

	exec_each_lane (m, lane) {
		if (a[lane] >= t->n) {
			return exec_fault_set(w, o, EXEC_FAULT_ADDRESS, lane, a[lane],
					      "index outside the table of branch targets");
		}
	}
	if (w->mask & ~m) {
		leave_behind(w, w->mask & ~m, next);
	}
	while (rest) {
		uint32_t index = a[__builtin_ctz(rest)], same = 0;

		exec_each_lane (rest, lane) {
			same |= (uint32_t)(a[lane] == index) << lane;
		}
		rest &= ~same;
		if (rest) {
			leave_behind(w, same, t->targets[index]);
		} else {
			w->pc = t->targets[index];
		}
	}
	return STEP_SWITCH;
}

static uint8_t *lane_frame(const struct exec_warp *w, uint32_t frame, unsigned lane)
{
	return w->block->local +
	       (size_t)(w->index * EXEC_LANES + lane) * w->block->f->local_stride + frame;
}

/* Copies between the frame of w and the one step_* behind it; in: towards the callee. Returns true
 * if it copied so much that the turn is over. */
static bool copy_all(struct exec_warp *w, const struct exec_call *call,
		     const struct exec_copy *list, uint32_t n, bool in, uint32_t m)
{
	uint8_t *far[ARRAY_SIZE(w->base)];
	uint32_t near_frame = w->frame, far_frame = w->frame + call->step_local;
	uint64_t copied = 0;

	memcpy(far, w->base, sizeof(far));
	far[REF_R32] += call->step32;
	far[REF_R64] += call->step64;
	for (uint32_t k = 0; k < n; k++) {
		const struct exec_copy *c = &list[k];
		uint8_t *const *from = in ? w->base : far, *const *to = in ? far : w->base;
		bool from_memory = c->kind == COPY_BYTES || c->kind == COPY_BYTES_TO_REG;
		bool to_memory = c->kind == COPY_BYTES || c->kind == COPY_REG_TO_BYTES;
		const uint8_t *s =
			from_memory ? NULL : from[c->src & 7] + (c->src & ~(uint32_t)REF_MASK);
		uint8_t *d = to_memory ? NULL : to[c->dst & 7] + (c->dst & ~(uint32_t)REF_MASK);
		uint32_t src = (in ? near_frame : far_frame) + c->src;
		uint32_t dst = (in ? far_frame : near_frame) + c->dst;
		unsigned bytes = c->bytes;

		copied += bytes;
		exec_each_lane (m, lane) {
			const uint8_t *mem_s = from_memory ? lane_frame(w, src, lane) : NULL;
			uint8_t *mem_d = to_memory ? lane_frame(w, dst, lane) : NULL;
			unsigned cell = c->kind == COPY_REG32 || bytes <= 4 ? 4 : 8;

			switch (c->kind) {
			case COPY_BYTES:
				memcpy(mem_d, mem_s, bytes);
				break;
			case COPY_REG32:
			case COPY_REG64:
				memcpy(d + cell * lane, s + cell * lane, cell);
				break;
			case COPY_REG_TO_BYTES:
				memcpy(mem_d, s + cell * lane, bytes);
				break;
			case COPY_BYTES_TO_REG:
				memset(d + cell * lane, 0, cell);
				memcpy(d + cell * lane, mem_s, bytes);
				break;
			}
		}
	}
	return copied * exec_lane_count(m) > EXEC_LONG_BYTES;
}

/* Makes these lanes of the group enter the callee; the others have been split off. */
static int enter(struct exec_warp *w, const struct exec_op *o, const struct exec_call *call,
		 uint32_t target, uint32_t m)
{
	bool took_long;

	if (w->depth == w->block->f->depth) {
		return exec_fault_set(w, o, EXEC_FAULT_TRAP, (unsigned)__builtin_ctz(m), 0,
				      "calls are nested too deeply");
	}
	took_long = copy_all(w, call, call->in, call->n_in, true, m);
	exec_each_lane (m, lane) {
		w->ret_pc[w->depth * EXEC_LANES + lane] = w->pc;
	}
	w->depth++;
	w->off32 += call->step32;
	w->off64 += call->step64;
	w->off_pred += call->step_pred;
	w->frame += call->step_local;
	exec_frame_set(w);
	w->pc = target;
	return took_long ? STEP_LONG : w->n_groups ? STEP_SWITCH : STEP_NEXT;
}

int exec_op_call(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_call *call = &w->block->f->calls[o->e];

	if (m != w->mask) {
		/* Past exec_op_call_out: these lanes do not call. */
		leave_behind(w, w->mask & ~m, w->pc + 1);
	}
	return enter(w, o, call, call->target, m);
}

/* Calls the function of the first lane's pointer with all lanes that share it; the others execute
 * this operation again. */
int exec_op_call_pointer(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_function *f = w->block->f;
	const struct exec_call *call = &f->calls[o->e];
	const uint64_t *a = REF(const uint64_t, w, o->a);
	unsigned first = (unsigned)__builtin_ctz(m);
	uint64_t off = a[first] - f->module->code_base, index = off / EXEC_CODE_STEP;
	uint32_t same = 0;

	if (off % EXEC_CODE_STEP || index >= f->n_callees ||
	    f->callees[index].layout != call->layout) {
		return exec_fault_set(w, o, EXEC_FAULT_ADDRESS, first, a[first],
				      "a call through what is no pointer to such a function");
	}
	exec_each_lane (m, lane) {
		same |= (uint32_t)(a[lane] == a[first]) << lane;
	}
	if (w->mask & ~m) {
		leave_behind(w, w->mask & ~m, w->pc + 1);
	}
	if (m & ~same) {
		leave_behind(w, m & ~same, w->pc - 1);
	}
	return enter(w, o, call, f->callees[index].target, same);
}

int exec_op_call_out(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const struct exec_call *call = &w->block->f->calls[o->e];

	return copy_all(w, call, call->out, call->n_out, false, m) ? STEP_LONG : STEP_NEXT;
}

/* Lanes may have different callers: the group of the first lane's caller returns, the others stay
 * at the callee's last instruction. */
int exec_op_ret(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const uint32_t *back;
	const struct exec_call *call;
	uint32_t pc, same = 0;

	if (w->depth == 0) {
		return exec_op_exit(w, o, m);
	}
	back = w->ret_pc + (w->depth - 1) * EXEC_LANES;
	pc = back[__builtin_ctz(m)];
	exec_each_lane (m, lane) {
		same |= (uint32_t)(back[lane] == pc) << lane;
	}
	if (m & ~same) {
		leave_behind(w, m & ~same, w->pc - 1);
	}
	if (w->mask & ~same) {
		leave_behind(w, w->mask & ~same, w->pc);
	}
	call = &w->block->f->calls[w->code[pc].e];
	w->depth--;
	w->off32 -= call->step32;
	w->off64 -= call->step64;
	w->off_pred -= call->step_pred;
	w->frame -= call->step_local;
	exec_frame_set(w);
	w->pc = pc;
	return w->n_groups ? STEP_SWITCH : STEP_NEXT;
}

int exec_op_exit(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	w->mask &= ~m;
	w->idle |= m;
	/* groups that waited for these lanes need not wait any more */
	for (uint32_t i = 0; i < w->n_groups; i++) {
		if (w->groups[i].state == GROUP_SYNC) {
			w->groups[i].state = GROUP_READY;
			w->groups[i].stamp = w->clock;
		}
	}
	exec_barrier_check(w->block);
	return STEP_SWITCH;
}

int exec_op_trap(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	return exec_fault_set(w, o, EXEC_FAULT_TRAP, (unsigned)__builtin_ctz(m), 0, "trap");
}

int exec_yield(struct exec_warp *w)
{
	for (unsigned k = 0; k < w->n_groups; k++) {
		if (w->groups[k].state == GROUP_READY) {
			w->look_at = 0;
			return STEP_SWITCH;
		}
	}
	return STEP_YIELD; /* the other lanes of the warp wait at a barrier */
}

int exec_op_yield(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	return exec_yield(w);
}

/* Repeated loads of one value at one pc indicate a spin wait: after some of them the group yields.
 */
int exec_op_poll(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	unsigned lane = (unsigned)__builtin_ctz(m);
	uint64_t seen = exec_lane_get(w, o->d, o->flags & 1, lane) * UINT64_C(0x9e3779b97f4a7c15) ^
			exec_lane_get(w, o->a, o->wide & WIDE_A, lane) ^ (uint64_t)w->pc << 40;

	if (seen != w->poll) {
		w->poll = seen;
		w->polls = 0;
		return STEP_NEXT;
	}
	return ++w->polls < POLLS_IN_VAIN ? STEP_NEXT : exec_yield(w);
}

int exec_op_mapa(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		uint32_t rank = REF(const uint32_t, w, o->b)[lane];

		if (rank) {
			return exec_fault_set(w, o, EXEC_FAULT_ADDRESS, lane, rank,
					      "rank of a block outside the cluster");
		}
		exec_lane_set(w, o->d, o->wide & WIDE_D, lane,
			      exec_lane_get(w, o->a, o->wide & WIDE_A, lane));
	}
	return STEP_NEXT;
}

int exec_op_cluster_arrive(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	if (w->cluster_arrived & m) {
		return exec_fault_set(w, o, EXEC_FAULT_TRAP, (unsigned)__builtin_ctz(m), 0,
				      "barrier.cluster.arrive twice without a wait");
	}
	w->cluster_arrived |= m;
	w->block->barriers_used |= 1u << EXEC_BARRIER_CLUSTER;
	exec_barrier_check(w->block);
	return STEP_NEXT;
}

int exec_op_cluster_wait(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	uint32_t pass = w->cluster_passed & m;

	if (m & ~(w->cluster_passed | w->cluster_arrived)) {
		return exec_fault_set(w, o, EXEC_FAULT_TRAP, (unsigned)__builtin_ctz(m), 0,
				      "barrier.cluster.wait without an arrive");
	}
	w->cluster_passed &= ~pass;
	if (pass == m) {
		return STEP_NEXT;
	}
	if (w->mask & (pass | ~m)) {
		leave_behind(w, w->mask & (pass | ~m), w->pc);
	}
	w->state = GROUP_BARRIER;
	w->barrier = EXEC_BARRIER_CLUSTER;
	return STEP_SWITCH;
}

/* The group waits past the instruction until exec_barrier_check releases it. Lanes that name
 * another barrier execute the instruction again. */
int exec_op_bar(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	struct exec_block *b = w->block;
	unsigned first = (unsigned)__builtin_ctz(m);
	uint32_t number = REF(const uint32_t, w, o->a)[first];
	uint32_t count = o->wide & WIDE_B ? REF(const uint32_t, w, o->b)[first] : 0;
	struct exec_barrier *bar;
	uint32_t same = 0;

	if (number >= EXEC_BARRIERS || count > EXEC_THREADS_MAX ||
	    (o->wide & WIDE_B && count % EXEC_LANES)) {
		return exec_fault_set(w, o, EXEC_FAULT_TRAP, first, number,
				      "a barrier's number or count is not valid");
	}
	if ((o->a & REF_MASK) == REF_CONST) {
		same = m;
	} else {
		exec_each_lane (m, lane) {
			same |= (uint32_t)(REF(const uint32_t, w, o->a)[lane] == number) << lane;
		}
	}
	if (m & ~same) {
		leave_behind(w, m & ~same, w->pc - 1);
		m = same;
	}
	bar = &b->barriers[number];
	b->barriers_used |= 1u << number;
	if (o->wide & WIDE_B) {
		bar->expected = count;
	}
	if (o->sub == BAR_ARRIVE) {
		bar->extra += (m | w->idle) == ~0u ? EXEC_LANES : (uint32_t)__builtin_popcount(m);
		exec_barrier_check(b);
		return STEP_SWITCH;
	}
	if (o->sub >= BAR_RED_POPC) {
		uint32_t bits = w->preds[o->r] ^ (o->r_not ? ~0u : 0);

		w->red_in[number] = (w->red_in[number] & ~m) | (bits & m);
	}
	if (w->mask & ~m) {
		leave_behind(w, w->mask & ~m, w->pc);
	}
	w->arrived[number] |= m;
	w->state = GROUP_BARRIER;
	w->barrier = (uint8_t)number;
	exec_barrier_check(b);
	return STEP_SWITCH;
}
