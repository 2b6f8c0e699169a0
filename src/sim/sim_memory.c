/* Regions of a tenant and their movement (sim/sim_memory.h). */
#include "sim/sim_memory.h"

#include <errno.h>
#include <stdlib.h>

#include "base/compiler.h"

#define BASE (UINT64_C(1) << 40) /* of the first region */

void sim_memory_finish(struct sim_memory *m)
{
	for (size_t i = 0; i < m->map.n; i++) {
		free(m->map.region[i]);
	}
	free(m->map.region);
	*m = (struct sim_memory){ 0 };
}

uint64_t sim_memory_time(uint64_t bytes, uint64_t rate)
{
	return (uint64_t)((double)bytes * 1e9 / (double)rate);
}

uint64_t sim_memory_at(const struct sim_memory *m, enum mem_swap_place place)
{
	return m->map.at[0][place].bytes;
}

uint64_t sim_memory_region_at(const struct mem_swap_region *r, enum mem_swap_place place)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		bytes += r->chunk[i].place == place ? r->chunk[i].bytes : 0;
	}
	return bytes;
}

/* What moves in one pause, in order. */
struct moves {
	struct mem_swap_chunk *out[SIM_BATCH], *back[SIM_BATCH];
	unsigned n_out, n_back;
};

static void move_out(struct sim_memory *m, struct mem_swap_chunk *c, struct sim_room *room)
{
	mem_swap_place(&m->map, c, MEM_SWAP_HOST);
	room->host -= MIN(room->host, c->bytes);
	room->device += c->bytes;
	m->out_bytes += c->bytes;
}

static void move_back(struct sim_memory *m, struct mem_swap_chunk *c, struct sim_room *room)
{
	mem_swap_place(&m->map, c, MEM_SWAP_DEVICE);
	room->device -= c->bytes;
	room->host += c->bytes;
	m->back_bytes += c->bytes;
}

/* Moves chunks, each back as soon as there is room for it. Returns the time; *ret_back becomes the
 * bytes that came back. */
static uint64_t move(struct sim_memory *m, const struct moves *v, const struct sim_link *l,
		     struct sim_room *room, uint64_t *ret_back)
{
	uint64_t out_ns = 0, back_ns = 0;
	unsigned o = 0;

	*ret_back = 0;
	for (unsigned i = 0; i < v->n_back; i++) {
		struct mem_swap_chunk *c = v->back[i];

		while (room->device < c->bytes && o < v->n_out) {
			out_ns += sim_memory_time(v->out[o]->bytes, l->out);
			move_out(m, v->out[o++], room);
			back_ns = MAX(back_ns, out_ns);
		}
		if (room->device >= c->bytes) {
			back_ns += sim_memory_time(c->bytes, l->back);
			move_back(m, c, room);
			*ret_back += c->bytes;
		}
	}
	while (o < v->n_out) {
		out_ns += sim_memory_time(v->out[o]->bytes, l->out);
		move_out(m, v->out[o++], room);
	}
	return MAX(out_ns, back_ns);
}

/* Adds chunks that are worth least and were not used since that use, until they have that many
 * bytes, as far as the host has room. */
static void add_out(const struct sim_memory *m, struct moves *v, uint64_t bytes, uint64_t since,
		    const struct sim_room *room)
{
	struct mem_swap_chunk *list[SIM_BATCH];
	uint64_t host = room->host;
	double worth;
	unsigned n = bytes ? mem_swap_pick(&m->map, 0, since, MIN(bytes, SIM_BATCH_BYTES),
					   UINT64_MAX, list, SIM_BATCH, &worth)
			   : 0;

	for (unsigned i = 0; i < n && list[i]->bytes <= host; i++) {
		host -= list[i]->bytes;
		v->out[v->n_out++] = list[i];
	}
}

/* ---- regions ---- */

/* Gives the chunks of a new region their places. Returns whether the host has room for those that
 * the device has none for. */
static bool place_all(struct sim_memory *m, struct mem_swap_region *r, struct sim_room *room)
{
	for (uint32_t i = 0; i < r->n; i++) {
		struct mem_swap_chunk *c = &r->chunk[i];
		bool fits = c->bytes <= room->device;

		if (!fits && c->bytes > room->host) {
			while (i--) {
				mem_swap_place(&m->map, &r->chunk[i], MEM_SWAP_NOWHERE);
			}
			return false;
		}
		*(fits ? &room->device : &room->host) -= c->bytes;
		mem_swap_place(&m->map, c, fits ? MEM_SWAP_DEVICE : MEM_SWAP_HOST);
	}
	return true;
}

int sim_memory_add(struct sim_memory *m, uint64_t bytes, bool busy, const struct sim_link *l,
		   struct sim_room *room, struct mem_swap_region **ret, uint64_t *ret_ns)
{
	struct mem_swap_region *r = mem_swap_region_create(
		bytes, bytes >= SIM_LARGE ? SIM_CHUNK_MAX : SIM_CHUNK, SIM_CHUNK, 0);
	bool moved = !busy;
	uint64_t back;

	*ret_ns = 0;
	m->next_base = MAX(m->next_base, BASE);
	if (!r || mem_swap_add(&m->map, r, m->next_base) < 0) {
		free(r);
		return -ENOMEM;
	}
	m->next_base += r->reserved + MEM_SWAP_UNIT;
	while (moved && room->device < r->reserved) {
		struct moves v = { .n_out = 0 };

		add_out(m, &v, r->reserved - room->device, UINT64_MAX, room);
		*ret_ns += move(m, &v, l, room, &back);
		moved = v.n_out != 0;
	}
	if (!place_all(m, r, room)) {
		mem_swap_remove(&m->map, r);
		free(r);
		return -ENOSPC;
	}
	*ret = r;
	return 0;
}

void sim_memory_remove(struct sim_memory *m, struct mem_swap_region *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		mem_swap_place(&m->map, &r->chunk[i], MEM_SWAP_NOWHERE);
	}
	mem_swap_remove(&m->map, r);
	free(r);
}

uint64_t sim_memory_fill(struct sim_memory *m, const struct sim_link *l, struct sim_room *room)
{
	uint64_t device = MIN(room->device, SIM_BATCH_BYTES), back;
	struct moves v = { .n_out = 0 };

	for (struct mem_swap_chunk *c = m->map.at[0][MEM_SWAP_HOST].last;
	     c && c->bytes <= device && v.n_back < SIM_BATCH; c = c->prev) {
		device -= c->bytes;
		v.back[v.n_back++] = c;
	}
	return move(m, &v, l, room, &back);
}

/* ---- faults ---- */

uint64_t sim_memory_move_ns(const struct sim_link *l, uint64_t missing, uint64_t room)
{
	uint64_t out = missing - MIN(missing, room);

	return MAX(sim_memory_time(out, l->out), sim_memory_time(missing, l->back));
}

/* Adds the chunks on the host that were named by this use or a later one, the latest first. Behind
 * them are those that have left since then, which were used before. */
static uint64_t add_missing(const struct sim_memory *m, uint64_t use, struct moves *v)
{
	struct mem_swap_chunk *c = m->map.at[0][MEM_SWAP_HOST].last;
	uint64_t bytes = 0;

	for (unsigned i = 0; c && v->n_back < SIM_BATCH && i < MEM_SWAP_SEARCHED;
	     c = c->prev, i++) {
		if (c->used >= use && bytes + c->bytes <= SIM_BATCH_BYTES) {
			v->back[v->n_back++] = c;
			bytes += c->bytes;
		}
	}
	return bytes;
}

bool sim_memory_fetch_once(struct sim_memory *m, uint64_t use, const struct sim_link *l,
			   struct sim_room *room, uint64_t *ns)
{
	uint64_t back = 0;

	/* A second time where chunks have left that did not suffice for one that comes back. */
	for (int i = 0; i < 2 && !back; i++) {
		struct moves v = { .n_out = 0 };
		uint64_t bytes = add_missing(m, use, &v);

		add_out(m, &v, bytes - MIN(bytes, room->device), use, room);
		*ns += move(m, &v, l, room, &back);
	}
	return back != 0;
}

bool sim_memory_is_missing(const struct sim_memory *m, uint64_t use)
{
	struct moves v = { .n_out = 0 };

	return add_missing(m, use, &v) != 0;
}
