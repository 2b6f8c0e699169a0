/* Plays the host of a clone's resumable run, with random decisions. */
#include "clone.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"

#define RESIDENT_MAX 4u
#define LAUNCHES_MAX 100000u
#define LEASE_WORDS 64u

struct play {
	struct engine *e;
	const struct engine_launch *l;
	struct exec_launch launch;
	struct exec_host host;
	struct ptx_block_arg arg;
	uint8_t params[CLONE_PARAMS_MAX];
	uint32_t arg_offset;
	volatile uint32_t *counter, *ready, *done, *leases; /* ready: at PTX_BLOCK_READY */
	unsigned mode;
	uint64_t random;
	const char *broken;
};

static uint32_t draw(struct play *p, uint32_t n)
{
	p->random = p->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return n ? (uint32_t)(p->random >> 33) % n : 0;
}

int clone_make(struct clone *t, const char *ptx, size_t len, char *message, size_t room)
{
	struct report r;
	int err;

	*t = (struct clone){ 0 };
	report_init(&r);
	err = ptx_module_parse(&t->module, ptx, len, "case", &r);
	err = err ? err : ptx_block_run(t->module, &t->entries, &t->n_entries, &r);
	err = err ? err : ptx_module_print(t->module, &t->text);
	if (err) {
		snprintf(message, room, "%s: %s", buf_text(&r.place), buf_text(&r.message));
	}
	report_finish(&r);
	return err;
}

void clone_finish(struct clone *t)
{
	ptx_module_free(t->module);
	buf_finish(&t->text);
}

const struct ptx_block_entry *clone_entry(const struct clone *t, const char *name)
{
	for (uint32_t i = 0; i < t->n_entries; i++) {
		if (strcmp(t->entries[i].name, name) == 0) {
			return &t->entries[i];
		}
	}
	return NULL;
}

/* Writes a lease that lasts a minute, an expired one, or none. */
static void toss_leases(struct play *p)
{
	uint32_t now = (uint32_t)(clock_wall_ns() >> PTX_LEASE_SHIFT);
	uint32_t at = draw(p, 4 * p->arg.groups), what = draw(p, 8);

	if (!(p->mode & CLONE_LEASES) || p->arg.groups == 0) {
		return;
	}
	if (what == 0) {
		p->leases[at] = now + 1000;
	} else if (what == 1) {
		p->leases[at] = now - 1 - draw(p, 1000000);
	} else if (what < 5) {
		memset((void *)(uintptr_t)p->leases, 0, LEASE_WORDS * sizeof(*p->leases));
	}
	for (uint32_t i = 4 * p->arg.groups; i < LEASE_WORDS; i++) {
		p->leases[i] = now + 1000; /* not read by the clone */
	}
}

/* Returns when all blocks of the launch have ended. */
static enum exec_status run_blocks(struct play *p, uint64_t blocks)
{
	unsigned n = p->mode & CLONE_MIX ? RESIDENT_MAX : 1, live = 0;
	struct exec_block *b[RESIDENT_MAX] = { NULL };
	bool busy[RESIDENT_MAX] = { false };
	enum exec_status s = EXEC_DONE;
	uint64_t next = 0, used;

	for (unsigned i = 0; i < n; i++) {
		b[i] = exec_block_create(&p->launch);
		if (!b[i]) {
			abort();
		}
	}
	while (s == EXEC_DONE && (next < blocks || live)) {
		unsigned i = draw(p, n);

		if (!busy[i] && next < blocks) {
			exec_block_reset(b[i], next, (uint32_t)(next % 4));
			next++;
			live++;
			busy[i] = true;
			toss_leases(p);
		}
		if (busy[i]) {
			uint64_t budget = n > 1 ? 1 + draw(p, 60) : p->l->budget;

			s = exec_block_run(b[i], budget ? budget : UINT64_MAX, &used, &p->e->fault);
			p->e->operations += used;
			busy[i] = s == EXEC_BUDGET;
			live -= !busy[i];
			s = s == EXEC_BUDGET && (!p->l->limit || p->e->operations < p->l->limit)
				    ? EXEC_DONE
				    : s;
		}
	}
	for (unsigned i = 0; i < n; i++) {
		exec_block_destroy(b[i]);
	}
	return s;
}

/* One launch of the driver. */
static enum exec_status launch(struct play *p, const struct ptx_block_arg *arg, uint32_t blocks)
{
	memcpy(p->params + p->arg_offset, arg, sizeof(*arg));
	p->launch.grid[0] = blocks;
	p->launch.grid[1] = p->launch.grid[2] = 1;
	return run_blocks(p, blocks);
}

/* A launch that follows an unfinished one must change nothing. */
static enum exec_status try_follower(struct play *p)
{
	struct ptx_block_arg arg = p->arg;
	uint32_t before = *p->counter, done = *p->done;
	enum exec_status s;

	arg.first += arg.total;
	arg.number++;
	arg.groups = 0;
	s = launch(p, &arg, 1 + draw(p, 3));
	if (*p->counter != before || *p->done != done) {
		p->broken = "a launch behind an interrupted one drew tickets";
	}
	return s;
}

/* Blocks must start without a lease, under an expired one, or under one outside the range they
 * read, and must not start under a current one at any position. */
static enum exec_status try_lease(struct play *p)
{
	uint32_t now = (uint32_t)(clock_wall_ns() >> PTX_LEASE_SHIFT), before = *p->counter;
	bool looked_at = draw(p, 2), ahead = draw(p, 2);
	unsigned mode = p->mode, at = draw(p, draw(p, 2) ? 4 : LEASE_WORDS);
	struct ptx_block_arg arg = p->arg;
	enum exec_status s;

	memset((void *)(uintptr_t)p->leases, 0, LEASE_WORDS * sizeof(*p->leases));
	p->leases[at] = ahead ? now + 1000 + draw(p, 2000000000) : now - 1 - draw(p, 2000000000);
	p->leases[at] += p->leases[at] == 0;
	arg.groups = !looked_at ? at / 4
				: at / 4 + 1 + draw(p, draw(p, 2) ? 1 : LEASE_WORDS / 4 - at / 4);
	p->mode &= ~(unsigned)CLONE_LEASES;
	s = launch(p, &arg, 1);
	p->mode = mode;
	if (s == EXEC_DONE && *p->counter != before + !(looked_at && ahead)) {
		p->broken = ahead ? "a lease in force does not stop a block, or from outside"
				  : "a lease that has run out stops a block";
	}
	memset((void *)(uintptr_t)p->leases, 0, LEASE_WORDS * sizeof(*p->leases));
	return s;
}

static enum exec_status play(struct play *p)
{
	uint32_t total = p->arg.total;
	enum exec_status s = EXEC_DONE;

	for (unsigned n = 0; s == EXEC_DONE && !p->broken; n++) {
		uint32_t drawn = *p->counter - p->arg.first, left = total - drawn;

		if (drawn > total) {
			p->broken = "more tickets than blocks";
		} else if ((drawn == total) != (*p->done == p->arg.number)) {
			p->broken = "the last ticket is not what the word says";
		} else if (*p->ready != p->arg.first + (drawn == total ? total : 0)) {
			p->broken = "what later launches look at is wrong";
		}
		if (p->broken || drawn == total) {
			break;
		}
		if (n > LAUNCHES_MAX) {
			p->arg.groups = 0;
		}
		if (draw(p, 4) == 0) {
			s = try_follower(p);
		} else if ((p->mode & CLONE_LEASES) && draw(p, 3) == 0) {
			s = try_lease(p);
		} else {
			s = launch(p, &p->arg,
				   p->mode & CLONE_SPLIT ? 1 + draw(p, MIN(left, 1000u)) : left);
		}
	}
	return s;
}

static void prepare(struct play *p, const struct engine_launch *l, const char *clone)
{
	uint64_t leases, counter, done;
	struct engine *e = p->e;

	p->leases = engine_take(e, LEASE_WORDS * sizeof(uint32_t), &leases);
	p->counter = engine_take(e, PTX_BLOCK_READY + sizeof(uint32_t), &counter);
	p->ready = p->counter + PTX_BLOCK_READY / sizeof(*p->counter);
	p->done = engine_take(e, sizeof(uint32_t), &done);
	p->arg = (struct ptx_block_arg){
		.leases = leases,
		.tickets = counter,
		.done = done,
		.first = UINT32_MAX - draw(p, 50),
		.total = l->grid[0] * l->grid[1] * l->grid[2],
		.number = 1 + draw(p, 1000),
		.groups = p->mode & CLONE_LEASES ? 1 + draw(p, 3) : draw(p, 3),
		.grid_x = l->grid[0],
		.grid_y = l->grid[1],
		.grid_z = l->grid[2],
	};
	*p->counter = *p->ready = p->arg.first;
	engine_host(e, &p->host);
	p->launch = (struct exec_launch){
		.function = exec_module_function(e->module, clone),
		.block = { l->block[0], l->block[1], l->block[2] },
		.dynamic_shared_bytes = PTX_BLOCK_SMEM(l->shared),
		.params = p->params,
		.space = &e->space,
		.sm_count = 4,
		.grid_id = 7,
		.host = &p->host,
	};
}

/* The pass and the engine must agree on the placement of parameters. */
static const char *check_layout(const struct exec_function *f, const struct ptx_block_entry *entry)
{
	const struct exec_function_info *info = exec_function_info(f);

	if (info->n_params != entry->n_params + 1 ||
	    info->params[entry->n_params].offset != entry->arg_offset ||
	    info->param_bytes > CLONE_PARAMS_MAX) {
		return "the argument does not lie where the pass says";
	}
	for (uint32_t i = 0; i < entry->n_params; i++) {
		if (info->params[i].offset != entry->param_offset[i] ||
		    info->params[i].bytes != entry->param_bytes[i]) {
			return "a parameter does not lie where the pass says";
		}
	}
	return NULL;
}

enum exec_status clone_run(struct engine *e, const struct ptx_block_entry *entry,
			   const struct engine_launch *l, unsigned mode, uint64_t seed)
{
	struct play p = { .e = e, .l = l, .mode = mode, .random = seed };
	enum exec_status s = EXEC_DONE;
	char name[512];

	snprintf(name, sizeof(name), "%s" PTX_BLOCK_SUFFIX, entry->name);
	e->operations = 0;
	p.arg_offset = entry->arg_offset;
	prepare(&p, l, name);
	p.broken = p.launch.function ? check_layout(p.launch.function, entry) : "no clone";
	if (!p.broken) {
		memcpy(p.params, l->params, entry->arg_offset);
		s = play(&p);
	}
	if (p.broken) {
		e->fault = (struct exec_fault){ .what = p.broken };
		s = EXEC_FAULT_INSN;
	}
	return s;
}
