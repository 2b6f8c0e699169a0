/* The checks of --check. Each finding is reported once per instruction and kind; the access itself
 * continues and faults or not as it would have. Device memory has a shadow of one byte per byte:
 * allocated, initialized, freed. Shared memory records for each byte which thread accessed it last,
 * in which epoch and at which line. A race is a pair of accesses by threads of different warps
 * without a barrier of the block in between, where at least one writes and at least one is plain;
 * the other may be atomic, but not volatile or ordered. Lanes of one warp are not compared, because
 * what they may rely on differs between devices, and any barrier counts as ordering all threads. So
 * every reported race is one, but some races are missed. */
#include "soft/server/exec/access_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

#define LOOK_BACK 4096u

static bool checking;

void exec_check_enable(bool on)
{
	checking = on;
}

bool exec_checking(void)
{
	return checking;
}

uint64_t exec_check_bytes(uint32_t shared_bytes)
{
	return checking ? (uint64_t)shared_bytes * sizeof(struct exec_check_byte) : 0;
}

int exec_check_create(struct exec_block *b)
{
	if (!checking) {
		return 0;
	}
	b->check = calloc(1, sizeof(*b->check));
	if (b->check) {
		b->check->bytes = calloc(MAX(b->shared_bytes, 1u), sizeof(struct exec_check_byte));
	}
	return b->check && b->check->bytes ? 0 : -ENOMEM;
}

void exec_check_destroy(struct exec_block *b)
{
	if (b->check) {
		free(b->check->bytes);
		free(b->check);
	}
}

void exec_check_reset(struct exec_block *b)
{
	if (b->check) {
		b->check->epoch++;
		b->check->generation++;
		memset(b->shared, EXEC_POISON, b->shared_bytes);
		memset(b->local, EXEC_POISON, (size_t)b->n_warps * EXEC_LANES * b->f->local_stride);
	}
}

void exec_check_barrier(struct exec_block *b)
{
	if (b->check) {
		b->check->epoch++;
	}
}

/* Returns true if this instruction has not had the finding yet, and records it. */
static bool is_news(const struct exec_warp *w, const struct exec_op *o, enum exec_finding_kind kind)
{
	uint32_t *found = w->block->f->found;
	uint32_t bit = 1u << kind;
	size_t pc = (size_t)(o - w->block->f->code);

	return found && !(or_relaxed(&found[pc], bit) & bit);
}

static void tell(struct exec_warp *w, const struct exec_op *o, unsigned lane,
		 struct exec_finding *f)
{
	const struct exec_block *b = w->block;
	const struct exec_host *host = b->launch.host;
	const uint32_t *x = (const uint32_t *)(b->block_slots + BLOCK_CTAID_X * EXEC_SLOT32);

	if (!host || !host->finding || !is_news(w, o, f->kind)) {
		return;
	}
	f->kernel = b->f->info.name;
	f->module = b->f->module->name;
	f->line = o->line;
	f->program = exec_origin_at(b->f->module, o->line, &f->insn);
	f->thread = w->index * EXEC_LANES + lane;
	f->bytes = o->e;
	f->write = o->sub & CHECK_WRITE;
	for (unsigned i = 0; i < 3; i++) {
		f->block[i] = x[i * EXEC_SLOT32 / sizeof(*x)];
	}
	host->finding(host->arg, f);
}

/* Returns how far past the end of an allocation the byte lies, plus 1; 0 if none is near. */
static uint32_t distance(const struct exec_space *s, uint64_t off)
{
	uint64_t most = MIN(off, (uint64_t)LOOK_BACK);

	for (uint64_t i = 1; i <= most; i++) {
		if (s->shadow[off - i] & EXEC_SHADOW_ALLOCATED) {
			return (uint32_t)i;
		}
	}
	return 0;
}

static void check_global(struct exec_warp *w, const struct exec_op *o, unsigned lane,
			 uint64_t address)
{
	const struct exec_space *s = w->block->launch.space;
	uint64_t off = address - s->base;
	struct exec_finding f = { .address = address, .space = "device" };
	uint8_t all = EXEC_SHADOW_ALLOCATED | EXEC_SHADOW_INITIALIZED, any = 0;
	uint32_t first = o->e;

	if (!s->shadow) {
		return;
	}
	if (off >= s->bytes || s->bytes - off < o->e) {
		f.kind = EXEC_FINDING_BOUNDS;
		tell(w, o, lane, &f);
		return;
	}
	for (uint32_t i = 0; i < o->e; i++) {
		uint8_t v = s->shadow[off + i];

		if (!(v & EXEC_SHADOW_ALLOCATED)) {
			first = MIN(first, i);
		}
		all &= v;
		any |= v;
	}
	if (!(all & EXEC_SHADOW_ALLOCATED)) {
		f.kind = any & EXEC_SHADOW_FREED ? EXEC_FINDING_FREED : EXEC_FINDING_BOUNDS;
		f.distance = distance(s, off + first);
		tell(w, o, lane, &f);
		return;
	}
	if ((o->sub & CHECK_READ) && !(all & EXEC_SHADOW_INITIALIZED)) {
		f.kind = EXEC_FINDING_UNINITIALIZED;
		tell(w, o, lane, &f);
	}
	if (o->sub & CHECK_WRITE) {
		memset(s->shadow + off, EXEC_SHADOW_ALLOCATED | EXEC_SHADOW_INITIALIZED, o->e);
	}
}

static bool of_another_warp(uint16_t who, uint32_t thread)
{
	return who && (who - 1u) / EXEC_LANES != thread / EXEC_LANES;
}

static bool is_atomic(const struct exec_op *o)
{
	const uint8_t all = CHECK_STRONG | CHECK_READ | CHECK_WRITE;

	return (o->sub & all) == all;
}

/* Returns true if the access races on this byte. */
static bool races(const struct exec_op *o, const struct exec_check_byte *c, uint32_t thread,
		  struct exec_finding *f)
{
	const struct {
		uint16_t who;
		bool counts, writes;
		uint32_t line;
	} others[] = {
		{ c->writer, true, true, c->writer_line },
		{ c->atomic, !(o->sub & CHECK_STRONG), true, c->atomic_line },
		{ c->reader, o->sub & CHECK_WRITE, false, c->reader_line },
		{ c->other_reader, o->sub & CHECK_WRITE, false, c->other_line },
	};

	if (o->sub & CHECK_STRONG && !is_atomic(o)) {
		return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (others[i].counts && of_another_warp(others[i].who, thread)) {
			f->other_thread = others[i].who - 1u;
			f->other_line = others[i].line;
			f->other_writes = others[i].writes;
			return true;
		}
	}
	return false;
}

static void touch(const struct exec_op *o, struct exec_check_byte *c, uint32_t generation,
		  uint32_t thread)
{
	if (o->sub & CHECK_WRITE) {
		c->generation = generation;
	}
	if (is_atomic(o)) {
		c->atomic = (uint16_t)(thread + 1);
		c->atomic_line = o->line;
	}
	if (o->sub & CHECK_STRONG) {
		return;
	}
	if (o->sub & CHECK_WRITE) {
		c->writer = (uint16_t)(thread + 1);
		c->writer_line = o->line;
	} else if (!c->reader) {
		c->reader = (uint16_t)(thread + 1);
		c->reader_line = o->line;
	} else if (!c->other_reader && of_another_warp(c->reader, thread)) {
		c->other_reader = (uint16_t)(thread + 1);
		c->other_line = o->line;
	}
}

/* Returns true for a store of the value that is there: programs let many threads clear the same
 * flag. */
static bool changes_nothing(const struct exec_warp *w, const struct exec_op *o, unsigned lane,
			    uint64_t off)
{
	uint64_t v;

	if (!(o->sub & CHECK_VALUE) || o->n != 1 || o->size > sizeof(v)) {
		return false;
	}
	v = exec_lane_get(w, o->d, o->flags & 1, lane);
	return memcmp(&v, w->block->shared + off, o->size) == 0;
}

static void check_shared(struct exec_warp *w, const struct exec_op *o, unsigned lane, uint64_t off)
{
	struct exec_block *b = w->block;
	struct exec_finding f = { .address = off, .space = "shared" };
	uint32_t thread = w->index * EXEC_LANES + lane;
	bool initialized = true, race = false;

	if (off >= b->shared_bytes || b->shared_bytes - off < o->e) {
		f.kind = EXEC_FINDING_BOUNDS;
		tell(w, o, lane, &f);
		return;
	}
	for (uint32_t i = 0; i < o->e; i++) {
		struct exec_check_byte *c = &b->check->bytes[off + i];

		if (c->epoch != b->check->epoch) {
			c->epoch = b->check->epoch;
			c->writer = c->reader = c->other_reader = c->atomic = 0;
		}
		initialized = initialized && c->generation == b->check->generation;
		race = race || races(o, c, thread, &f);
		touch(o, c, b->check->generation, thread);
	}
	if (race && !changes_nothing(w, o, lane, off)) {
		f.kind = EXEC_FINDING_RACE;
		tell(w, o, lane, &f);
	}
	if ((o->sub & CHECK_READ) && !initialized) {
		f.kind = EXEC_FINDING_UNINITIALIZED;
		tell(w, o, lane, &f);
	}
}

int exec_op_check(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	exec_each_lane (m, lane) {
		uint64_t off = exec_lane_get(w, o->a, o->wide & WIDE_A, lane) + (uint64_t)o->imm;
		enum exec_space_kind space = o->space;

		if (space == SP_GENERIC) {
			space = exec_window_of(off, &off);
		}
		if (space == SP_GLOBAL) {
			check_global(w, o, lane, off);
		} else if (space == SP_SHARED) {
			check_shared(w, o, lane, off);
		}
	}
	return STEP_NEXT;
}
