/* A resident block: allocation of its memory, and turns for its warps. */
#include <stdlib.h>
#include <string.h>

#include "soft/server/exec/access_check.h"
#include "soft/server/exec/handlers.h"
#include "soft/server/exec/warp_run.h"

#define WARPS_OF_SM 48u /* of compute capability 8.6; the value of %nwarpid */
#define WARP_TURN 4096u /* operations until the next warp's turn */
#define BLOCK_MEMORY_MAX (UINT64_C(1) << 30)
#define ALIGN_TO 64u

struct exec_layout {
	uint64_t warps, warp_area, warp_bytes, slots, local, shared, total;
	uint64_t mem64, preds, special,
		ret_pc; /* offsets in a warp's area; 32-bit registers come first */
};

static void take(uint64_t *total, uint64_t *ret, uint64_t bytes)
{
	*ret = *total;
	*total = ROUND_UP(*total + bytes, ALIGN_TO);
}

/* Cannot overflow: every count is bounded by the decoder or by EXEC_THREADS_MAX. */
static void lay_out(struct exec_layout *l, const struct exec_function *f, uint32_t n_warps,
		    uint64_t shared_bytes)
{
	uint64_t area = ROUND_UP((uint64_t)f->bytes32, ALIGN_TO);

	*l = (struct exec_layout){ 0 };
	take(&area, &l->mem64, f->bytes64);
	take(&area, &l->preds, (uint64_t)f->preds * sizeof(uint32_t));
	take(&area, &l->special, (uint64_t)WARP_SLOTS * EXEC_SLOT32);
	take(&area, &l->ret_pc, (uint64_t)f->depth * EXEC_LANES * sizeof(uint32_t));
	l->warp_bytes = area;
	take(&l->total, &l->warps, n_warps * sizeof(struct exec_warp));
	take(&l->total, &l->warp_area, n_warps * l->warp_bytes);
	take(&l->total, &l->slots, (uint64_t)BLOCK_SLOTS * EXEC_SLOT32);
	take(&l->total, &l->local, (uint64_t)n_warps * EXEC_LANES * f->local_stride);
	take(&l->total, &l->shared, shared_bytes);
}

static void fill32(uint8_t *slots, unsigned index, uint32_t v)
{
	uint32_t *p = (uint32_t *)(slots + (size_t)index * EXEC_SLOT32);

	for (unsigned i = 0; i < EXEC_LANES; i++) {
		p[i] = v;
	}
}

static void fill64(uint8_t *slots, unsigned index, uint64_t v)
{
	uint64_t *p = (uint64_t *)(slots + (size_t)index * EXEC_SLOT32);

	for (unsigned i = 0; i < EXEC_LANES; i++) {
		p[i] = v;
	}
}

static void warp_special(struct exec_block *b, struct exec_warp *w)
{
	uint8_t *slots = w->base[REF_WARP];
	uint32_t x = b->launch.block[0], y = b->launch.block[1];

	for (uint32_t lane = 0; lane < EXEC_LANES; lane++) {
		uint32_t t = w->index * EXEC_LANES + lane, bit = 1u << lane;
		const uint32_t values[WARP_FRAME] = {
			t % x, t / x % y,	t / x / y, lane,       w->index,
			bit,   bit | (bit - 1), bit - 1,   ~(bit - 1), ~(bit - 1) & ~bit
		};

		for (unsigned k = 0; k < WARP_FRAME; k++) {
			((uint32_t *)(slots + (size_t)k * EXEC_SLOT32))[lane] = values[k];
		}
	}
}

static void block_special(struct exec_block *b)
{
	const struct exec_launch *l = &b->launch;

	for (unsigned i = 0; i < 3; i++) {
		fill32(b->block_slots, BLOCK_NTID_X + i, l->block[i]);
		fill32(b->block_slots, BLOCK_NCTAID_X + i, l->grid[i]);
	}
	fill32(b->block_slots, BLOCK_NWARPID, WARPS_OF_SM);
	fill32(b->block_slots, BLOCK_NSMID, l->sm_count);
	fill32(b->block_slots, BLOCK_GRIDID32, (uint32_t)l->grid_id);
	fill64(b->block_slots, BLOCK_GRIDID, l->grid_id);
	fill32(b->block_slots, BLOCK_ENVREG1, (uint32_t)(l->grid_workspace >> 32));
	fill32(b->block_slots, BLOCK_ENVREG2, (uint32_t)l->grid_workspace);
	fill32(b->block_slots, BLOCK_DYN_SMEM, l->dynamic_shared_bytes);
	fill32(b->block_slots, BLOCK_TOTAL_SMEM, b->shared_bytes);
}

static void warp_init(struct exec_block *b, uint32_t index, const struct exec_layout *l)
{
	struct exec_warp *w = &b->warps[index];
	uint8_t *area = (uint8_t *)b->memory + l->warp_area + index * l->warp_bytes;
	uint32_t left = b->n_threads - index * EXEC_LANES;

	w->block = b;
	w->index = index;
	w->code = b->f->code;
	w->exists = left >= EXEC_LANES ? ~0u : (1u << left) - 1;
	w->mem32 = area;
	w->mem64 = area + l->mem64;
	w->mem_pred = (uint32_t *)(area + l->preds);
	w->ret_pc = (uint32_t *)(area + l->ret_pc);
	exec_warp_base_set(w, REF_WARP, area + l->special);
	exec_warp_base_set(w, REF_BLOCK, b->block_slots);
	exec_warp_base_set(w, REF_CONST, b->f->constants);
	warp_special(b, w);
}

static bool launch_is_valid(const struct exec_launch *l)
{
	uint64_t threads = 1;

	for (unsigned i = 0; i < 3; i++) {
		if (l->grid[i] == 0 || l->block[i] == 0 || l->block[i] > EXEC_THREADS_MAX) {
			return false;
		}
		threads *= l->block[i];
	}
	return threads <= EXEC_THREADS_MAX && l->dynamic_shared_bytes <= UINT32_MAX / 4;
}

static uint32_t shared_bytes_of(const struct exec_launch *l)
{
	const struct exec_function *f = l->function;

	return ROUND_UP(f->shared_static, MAX(f->shared_align, 16u)) + l->dynamic_shared_bytes;
}

uint64_t exec_block_bytes(const struct exec_launch *l)
{
	struct exec_layout layout;
	uint32_t threads;

	if (!launch_is_valid(l)) {
		return UINT64_MAX;
	}
	threads = l->block[0] * l->block[1] * l->block[2];
	lay_out(&layout, l->function, (threads + EXEC_LANES - 1) / EXEC_LANES, shared_bytes_of(l));
	return layout.total + exec_check_bytes(shared_bytes_of(l));
}

struct exec_block *exec_block_create(const struct exec_launch *l)
{
	const struct exec_function *f = l->function;
	uint32_t shared = shared_bytes_of(l);
	struct exec_block *b;
	struct exec_layout layout;

	if (!launch_is_valid(l)) {
		return NULL;
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		return NULL;
	}
	b->launch = *l;
	b->f = f;
	b->n_threads = l->block[0] * l->block[1] * l->block[2];
	b->n_warps = (b->n_threads + EXEC_LANES - 1) / EXEC_LANES;
	b->shared_bytes = shared;
	lay_out(&layout, f, b->n_warps, shared);
	if (layout.total > BLOCK_MEMORY_MAX) {
		free(b);
		return NULL;
	}
	/* Zeroed, so that no data of another context is visible; large allocations are untouched
	 * pages. */
	b->memory = calloc(1, layout.total + ALIGN_TO);
	if (!b->memory) {
		free(b);
		return NULL;
	}
	layout.warps = ROUND_UP((uintptr_t)b->memory, (uintptr_t)ALIGN_TO) - (uintptr_t)b->memory;
	layout.warp_area += layout.warps;
	b->warps = (struct exec_warp *)((uint8_t *)b->memory + layout.warps);
	b->block_slots = (uint8_t *)b->memory + layout.warps + layout.slots;
	b->local = (uint8_t *)b->memory + layout.warps + layout.local;
	b->shared = (uint8_t *)b->memory + layout.warps + layout.shared;
	block_special(b);
	for (uint32_t i = 0; i < b->n_warps; i++) {
		warp_init(b, i, &layout);
	}
	exec_module_ref(f->module);
	if (exec_check_create(b) < 0) {
		exec_block_destroy(b);
		return NULL;
	}
	exec_block_reset(b, 0, 0);
	return b;
}

void exec_block_destroy(struct exec_block *b)
{
	if (b) {
		exec_module_unref(b->f->module);
		exec_check_destroy(b);
		free(b->memory);
		free(b);
	}
}

void exec_block_place_warps(struct exec_block *b, uint64_t slots)
{
	for (uint32_t i = 0; i < b->n_warps && slots; i++) {
		fill32(b->warps[i].base[REF_WARP], WARP_WARPID, (uint32_t)__builtin_ctzll(slots));
		slots &= slots - 1;
	}
}

void exec_block_reset(struct exec_block *b, uint64_t block_index, uint32_t smid)
{
	const struct exec_launch *l = &b->launch;

	fill32(b->block_slots, BLOCK_CTAID_X, (uint32_t)(block_index % l->grid[0]));
	fill32(b->block_slots, BLOCK_CTAID_Y, (uint32_t)(block_index / l->grid[0] % l->grid[1]));
	fill32(b->block_slots, BLOCK_CTAID_Z, (uint32_t)(block_index / l->grid[0] / l->grid[1]));
	fill32(b->block_slots, BLOCK_SMID, smid);
	b->status = EXEC_BUDGET;
	b->current = 0;
	b->barriers_used = 0;
	memset(b->barriers, 0, sizeof(b->barriers));
	exec_check_reset(b);
	for (uint32_t i = 0; i < b->n_warps; i++) {
		struct exec_warp *w = &b->warps[i];

		w->pc = b->f->start;
		w->mask = w->exists;
		w->idle = ~w->exists;
		w->stop_pc = UINT32_MAX;
		w->state = GROUP_READY;
		w->depth = w->off32 = w->off64 = w->off_pred = w->frame = w->carry = 0;
		w->n_groups = 0;
		w->forced = w->sync_forced = false;
		w->look_at = UINT64_MAX;
		w->next_turn = w->clock = w->poll = w->polls = 0;
		memset(w->arrived, 0, sizeof(w->arrived));
		w->cluster_arrived = w->cluster_passed = 0;
		if (b->f->stack_bytes) {
			exec_stack_reset(w);
		}
		exec_frame_set(w);
	}
}

/* Returns the next warp that can run, starting with the current one; NULL: none. */
static struct exec_warp *next_ready(struct exec_block *b)
{
	for (uint32_t i = 0; i < b->n_warps; i++) {
		struct exec_warp *w = &b->warps[b->current];

		if (exec_warp_ready(w)) {
			return w;
		}
		b->current = b->current + 1 == b->n_warps ? 0 : b->current + 1;
	}
	return NULL;
}

/* Called when no warp can run: all have exited, or some wait for an event that cannot occur. */
static enum exec_status settle(struct exec_block *b)
{
	struct exec_warp *waiting = NULL;

	for (uint32_t i = 0; i < b->n_warps; i++) {
		struct exec_warp *w = &b->warps[i];

		for (uint32_t k = 0; k < w->n_groups; k++) {
			if (w->groups[k].state == GROUP_SYNC) {
				w->sync_forced = true;
				return EXEC_BUDGET;
			}
			waiting = w;
		}
	}
	if (!waiting) {
		return EXEC_DONE;
	}
	exec_fault_set(waiting, &waiting->code[waiting->groups[0].pc - 1], EXEC_FAULT_TRAP,
		       (unsigned)__builtin_ctz(waiting->groups[0].mask), waiting->groups[0].barrier,
		       "a barrier that can never be passed");
	return EXEC_FAULT_TRAP;
}

enum exec_status exec_block_run(struct exec_block *b, uint64_t budget, uint64_t *ret_used,
				struct exec_fault *ret_fault)
{
	enum exec_warp_stop stop;
	uint64_t used = 0;
	uint32_t yields = 0;

	b->lanes = 0;
	memset(b->link_bytes, 0, sizeof(b->link_bytes));
	while (b->status == EXEC_BUDGET && used < budget) {
		struct exec_warp *w = next_ready(b);

		if (!w) {
			b->status = settle(b);
			continue;
		}
		stop = exec_warp_run(w, MIN(budget - used, (uint64_t)WARP_TURN), &used);
		yields = stop == WARP_YIELDS ? yields + 1 : 0;
		if (yields > b->n_warps) {
			break; /* all wait for other blocks, or for time */
		}
		b->current = b->current + 1 == b->n_warps ? 0 : b->current + 1;
	}
	*ret_used = used;
	if (b->status > EXEC_BUDGET && ret_fault) {
		*ret_fault = b->fault;
	}
	return b->status;
}

uint64_t exec_block_lanes(const struct exec_block *b)
{
	return b->lanes;
}

uint64_t exec_block_link_bytes(const struct exec_block *b, enum exec_link_way way)
{
	return b->link_bytes[way];
}
