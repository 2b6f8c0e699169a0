/* The places of a tool: numbers that its programs read as the field `place`, and the tool's map
 * KERNEL_PLACES, which lists them for readers. A number is given when a form is made that has a
 * program at the place, and is never given again, so that values in the tool's maps keep their
 * meaning whatever is loaded and unloaded. docs/DEVICE-CODE.md, "Places", has the argument. */
#include "shim/probe/shim_probe_int.h"

#include <stdlib.h>
#include <string.h>

#include "bpf/run/kernel_places.h"

#define CUT "..."

/* What distinguishes places. */
struct key {
	uint64_t kernel, file; /* hashes */
	uint32_t hook, line, site, reserved;
};

/* The map is a copy of this: other processes may write it. */
struct shim_probe_places {
	uint32_t n, max;	      /* places; index of all without an entry */
	struct strmap numbers;	      /* by struct key: the entry in `at` */
	struct ebpf_kernel_place *at; /* owned; n */
};

/* Returns NULL if the tool has no such map. */
static const struct ebpf_map *map_of(const struct shim_probe_tool *t)
{
	for (uint32_t i = 0; i < t->p.env.n_maps; i++) {
		const struct ebpf_map *m = &t->p.env.maps[i];

		if (strcmp(t->p.defs[i].name, EBPF_KERNEL_PLACES) == 0 && m->data &&
		    m->key_bytes == sizeof(uint32_t) &&
		    m->value_bytes == sizeof(struct ebpf_kernel_place) && m->max_entries > 1) {
			return m;
		}
	}
	return NULL;
}

/* A reader that sees the kernel's hash, which is the first field, sees the others. */
static void write_row(const struct ebpf_map *m, uint32_t i, const struct ebpf_kernel_place *row)
{
	struct ebpf_kernel_place *to = m ? ebpf_map_lookup(m, &i) : NULL;

	if (to) {
		memcpy((char *)to + sizeof(to->kernel), (const char *)row + sizeof(row->kernel),
		       sizeof(*row) - sizeof(row->kernel));
		store_release(&to->kernel, row->kernel);
	}
}

static struct shim_probe_places *places_of(struct shim_probe_tool *t, const struct ebpf_map *m)
	REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_places *all = t->places ? t->places : calloc(1, sizeof(*all));

	if (!all || t->places) {
		return all;
	}
	all->max = m->max_entries - 1;
	strmap_init(&all->numbers);
	all->at = calloc(all->max, sizeof(*all->at));
	if (!all->at) {
		shim_probe_places_free(all);
		return NULL;
	}
	t->places = all;
	return all;
}

/* Copies printable characters; `to` holds zeros. */
static void put_text(char *to, const char *from, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
	}
}

static void fill(struct ebpf_kernel_place *row, const struct key *key,
		 const struct ptx_probe_place *place)
{
	size_t room = sizeof(row->file) - 1, len = place->file ? place->file_len : 0;

	*row = (struct ebpf_kernel_place){
		.kernel = key->kernel, .hook = place->hook, .site = place->site, .line = place->line
	};
	put_text(row->name, place->kernel, strnlen(place->kernel, sizeof(row->name) - 1));
	if (len > room) {
		memcpy(row->file, CUT, strlen(CUT));
		put_text(row->file + strlen(CUT), place->file + len - (room - strlen(CUT)),
			 room - strlen(CUT));
	} else if (len) {
		put_text(row->file, place->file, len);
	}
}

uint32_t shim_probe_place_number(void *tool, const struct ptx_probe_place *place)
{
	struct shim_probe_tool *t = tool;
	const struct ebpf_map *m = map_of(t);
	struct shim_probe_places *all = m ? places_of(t, m) : NULL;
	struct key key = { .kernel = hash_bytes(place->kernel, strlen(place->kernel)),
			   .hook = place->hook,
			   .line = place->line,
			   .site = place->line ? 0 : place->site };
	struct ebpf_kernel_place *row;

	if (!all) {
		return m ? m->max_entries - 1 : PTX_PROBE_NO_NUMBER;
	}
	if (place->file) {
		key.file = hash_bytes(place->file, place->file_len);
	}
	row = strmap_get_n(&all->numbers, (const char *)&key, sizeof(key));
	if (!row && all->n < all->max) {
		row = &all->at[all->n];
		if (strmap_add_n(&all->numbers, (const char *)&key, sizeof(key), row) < 0) {
			return all->max;
		}
		fill(row, &key, place);
		write_row(m, all->n++, row);
	}
	return row ? (uint32_t)(row - all->at) : all->max;
}

void shim_probe_places_renew(const struct shim_probe_tool *t)
{
	const struct ebpf_map *m = map_of(t);

	for (uint32_t i = 0; t->places && i < t->places->n; i++) {
		write_row(m, i, &t->places->at[i]);
	}
}

void shim_probe_places_free(struct shim_probe_places *places)
{
	if (places) {
		strmap_finish(&places->numbers);
		free(places->at);
	}
	free(places);
}
