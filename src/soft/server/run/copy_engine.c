/* Copies and memsets, executed in parts of bounded size so that a large one does not delay other
 * groups. */
#include <string.h>

#include "soft/bulk.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/memory/shadow.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/op_stream.h"
#include "soft/server/memory/device_memory.h"

/* Returns true if all rows lie in valid memory. The gaps between rows are checked as well; this
 * only refuses copies that straddle allocations, which programs do not make. */
static bool rows_valid(const struct softd_memory *m, uint64_t address, uint64_t pitch,
		       uint64_t width, uint64_t height, uint8_t rights) REQUIRES(softd_lock)
{
	uint64_t bytes;

	if (checked_mul(pitch, height - 1, &bytes) || checked_add(bytes, width, &bytes)) {
		return false;
	}
	return softd_memory_at(m, address, bytes, rights) != NULL;
}

/* Returns the client's window that the address lies in, or NULL. */
static struct softd_memory *window_of(const struct softd_client *c, uint64_t address)
{
	uint64_t i = (address - SOFT_WINDOW_FIRST) / SOFT_WINDOW_STRIDE;

	return address >= SOFT_WINDOW_FIRST && i < SOFT_MAX_GPUS ? c->windows[i] : NULL;
}

/* Finds the context that the memory belongs to; NULL: none. Returns false if it ends. */
static bool find_owner(const struct softd_client *c, const struct softd_memory *m, uint64_t address,
		       struct softd_group **ret) REQUIRES(softd_lock)
{
	uint32_t slot = softd_memory_owner(m, address);

	*ret = slot < SOFT_MAX_CONTEXTS ? c->groups[slot] : NULL;
	return slot == SOFTD_NO_OWNER || (*ret && !(*ret)->dead);
}

bool softd_copy_check(struct softd_op *op)
{
	const struct softd_client *c = op->stream->group->client;

	op->copy.dst_memory = window_of(c, op->copy.dst);
	if (!op->copy.dst_memory ||
	    !rows_valid(op->copy.dst_memory, op->copy.dst, op->copy.dst_pitch, op->copy.width,
			op->copy.height, 2) ||
	    !find_owner(c, op->copy.dst_memory, op->copy.dst, &op->copy.dst_group)) {
		return false;
	}
	op->copy.dst_serial = softd_memory_serial(op->copy.dst_memory, op->copy.dst);
	if (op->kind != SOFT_OP_COPY) {
		return true;
	}
	op->copy.src_memory = window_of(c, op->copy.src);
	if (!op->copy.src_memory ||
	    !rows_valid(op->copy.src_memory, op->copy.src, op->copy.src_pitch, op->copy.width,
			op->copy.height, 1) ||
	    !find_owner(c, op->copy.src_memory, op->copy.src, &op->copy.src_group)) {
		return false;
	}
	op->copy.src_serial = softd_memory_serial(op->copy.src_memory, op->copy.src);
	return true;
}

bool softd_copy_still_valid(const struct softd_op *op)
{
	struct softd_op now = *op;

	return softd_copy_check(&now) && now.copy.dst_serial == op->copy.dst_serial &&
	       now.copy.src_serial == op->copy.src_serial;
}

/* Queues the copy and holds its groups. The stream's group may be a third one besides source and
 * destination; it must not be destroyed either while a worker holds the copy. */
void softd_copy_submit(struct softd_op *op)
{
	op->stream->group->running++;
	if (op->copy.dst_group) {
		op->copy.dst_group->running++;
	}
	if (op->copy.src_group) {
		op->copy.src_group->running++;
	}
	softd_list_append(&op->stream->group->copies, &op->in_copies);
	if (softd_list_empty(&op->stream->group->in_copying)) {
		softd_list_append(&op->stream->group->gpu->copiers, &op->stream->group->in_copying);
	}
}

static void unhold(struct softd_group *g)
{
	g->running--;
	if (g->running == 0 && g->dead) {
		pthread_cond_broadcast(&g->client->machine->quiescent);
	}
}

void softd_copy_release(struct softd_op *op)
{
	if (!op->started) {
		return;
	}
	if (op->copy.src_group) {
		unhold(op->copy.src_group);
	}
	if (op->copy.dst_group) {
		unhold(op->copy.dst_group);
	}
	unhold(op->stream->group);
	op->started = false;
}

static void set_bytes(uint8_t *dst, uint64_t n, uint32_t value, uint32_t unit)
{
	if (unit == 1) {
		memset(dst, (int)(value & 0xff), n);
		return;
	}
	for (uint64_t i = 0; i < n; i += unit) {
		memcpy(dst + i, &value, unit); /* little endian: the low bytes of value */
	}
}

static void one_piece(struct softd_op *op, uint64_t n)
{
	struct exec_space *d = &op->copy.dst_memory->space;
	uint64_t dst = op->copy.dst + op->copy.row * op->copy.dst_pitch + op->copy.column;
	uint8_t *to = d->host + (dst - d->base);

	if (op->kind == SOFT_OP_COPY) {
		const struct exec_space *s = &op->copy.src_memory->space;
		uint64_t src = op->copy.src + op->copy.row * op->copy.src_pitch + op->copy.column;

		if (op->copy.bulk) {
			soft_bulk_copy(to, s->host + (src - s->base), n);
		} else {
			memmove(to, s->host + (src - s->base), n);
		}
		softd_shadow_copy(d, dst - d->base, s, src - s->base, n);
	} else {
		set_bytes(to, n, op->copy.value, op->copy.unit);
		softd_shadow_set_initialized(d, dst - d->base, n);
	}
}

bool softd_copy_step(struct softd_op *op, uint64_t limit, uint64_t *ret_bytes)
{
	uint64_t done = 0;

	limit = limit / 16 * 16; /* pieces of a memset end between elements */
	while (op->copy.row < op->copy.height && done < limit) {
		uint64_t n = MIN(op->copy.width - op->copy.column, limit - done);

		one_piece(op, n);
		done += n;
		op->copy.column += n;
		if (op->copy.column == op->copy.width) {
			op->copy.column = 0;
			op->copy.row++;
		}
		limit -= op->copy.column % 16; /* keeps the next piece of this row aligned */
	}
	*ret_bytes = done;
	return op->copy.row == op->copy.height;
}

void softd_copy_link_bytes(const struct softd_op *op, uint64_t bytes, uint64_t ret[EXEC_LINK_WAYS])
{
	bool up =
		op->kind == SOFT_OP_COPY && softd_memory_on_host(op->copy.src_memory, op->copy.src);

	ret[EXEC_LINK_UP] = up ? bytes : 0;
	ret[EXEC_LINK_DOWN] = softd_memory_on_host(op->copy.dst_memory, op->copy.dst) ? bytes : 0;
}

bool softd_copies_paced(const struct softd_machine *machine)
{
	return machine->opt.copy_bytes_s || machine->opt.link_bytes_s;
}
