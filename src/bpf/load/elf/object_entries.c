/* Reads the initialized entries of maps: the maps of an array of maps, the programs of a program
 * array. They are pointers in .maps that relocations fill. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/elf/object_int.h"

static int same_shape(const struct ebpf_map_def *a, const struct ebpf_map_def *b)
{
	return a->type == b->type && a->key_bytes == b->key_bytes &&
	       a->value_bytes == b->value_bytes && a->max_entries == b->max_entries &&
	       a->flags == b->flags && a->lock_1 == b->lock_1;
}

static int refuse_entry(struct ebpf_obj_parse *p, const Elf64_Rel *r, const char *map,
			uint64_t index, const char *what, const char *name)
{
	return ebpf_obj_refuse(p, -EINVAL, ".maps", r->r_offset, "map %s: entry %llu is %s, %s",
			       map, (unsigned long long)index, name, what);
}

static int map_entry(struct ebpf_obj_parse *p, const struct ebpf_obj_map_at *at, const Elf64_Rel *r,
		     uint32_t index, const Elf64_Sym *sym, uint64_t where)
{
	struct ebpf_object *o = p->o;
	const struct ebpf_obj_map_at *inner = ebpf_obj_map_at(p, where);
	const char *name = o->maps[at->map].name;
	uint32_t *entries = o->init[at->map];

	if (p->secs[sym->st_shndx].role != OBJ_MAPS || !inner) {
		return refuse_entry(p, r, name, index, "which is no map",
				    ebpf_obj_symbol_name(p, sym));
	}
	if (!same_shape(&o->maps[inner->map], at->inner)) {
		report_hint(p->r,
			    "type, key, value, max_entries and map_flags have to be the same");
		return refuse_entry(p, r, name, index, "which has not the shape that is declared",
				    o->maps[inner->map].name);
	}
	if (!entries) {
		entries = calloc(o->maps[at->map].max_entries, sizeof(*entries));
		if (!entries) {
			return -ENOMEM;
		}
		o->init[at->map] = entries;
	}
	entries[index] = inner->map + 1;
	o->maps[at->map].inner_1 = inner->map + 1;
	return 0;
}

static int program_entry(struct ebpf_obj_parse *p, const struct ebpf_obj_map_at *at,
			 const Elf64_Rel *r, uint32_t index, const Elf64_Sym *sym, uint64_t where)
{
	const char *name = p->o->maps[at->map].name;
	const struct ebpf_obj_section *s = &p->secs[sym->st_shndx];
	struct ebpf_obj_func *f = s->role == OBJ_CODE && where % 8 == 0
					  ? ebpf_obj_func_at(p, sym->st_shndx, where / 8)
					  : NULL;

	if (!f) {
		return refuse_entry(p, r, name, index, "which is no program",
				    ebpf_obj_symbol_name(p, sym));
	}
	if (s->code != OBJ_OF_HOOK && s->code != OBJ_HOOK) {
		report_hint(p->r, "write SEC(\"?gbpf/<hook>\") before it");
		return refuse_entry(p, r, name, index, "which is a program of no hook", f->name);
	}
	if (p->n_tails == OBJ_MAX_TAILS) {
		return ebpf_obj_refuse(p, -E2BIG, ".maps", r->r_offset,
				       "more than %u entries of program arrays", OBJ_MAX_TAILS);
	}
	if (p->n_tails == p->cap_tails) {
		uint32_t cap = p->cap_tails ? p->cap_tails * 2 : 16;
		struct ebpf_obj_tail *tails = realloc(p->tails, cap * sizeof(*tails));

		if (!tails) {
			return -ENOMEM;
		}
		p->tails = tails;
		p->cap_tails = cap;
	}
	p->tails[p->n_tails++] = (struct ebpf_obj_tail){ at->map, index, f };
	return 0;
}

/* Returns the map declaration that contains an offset of .maps. */
static const struct ebpf_obj_map_at *declaration_of(const struct ebpf_obj_parse *p, uint64_t offset)
{
	for (uint32_t i = 0; i < p->n_map_at; i++) {
		const struct ebpf_obj_map_at *at = &p->map_at[i];

		if (offset >= at->offset && offset - at->offset < at->bytes) {
			return at;
		}
	}
	return NULL;
}

static int entry(struct ebpf_obj_parse *p, const struct ebpf_obj_section *s, const Elf64_Rel *r)
{
	const Elf64_Sym *sym = &p->syms[ELF64_R_SYM(r->r_info)];
	const struct ebpf_obj_map_at *at = declaration_of(p, r->r_offset);
	uint64_t in_map = at ? r->r_offset - at->offset : 0, index;
	const struct ebpf_map_def *d;
	uint64_t where;

	if (!at || !at->values || in_map < at->values || (in_map - at->values) % 8 ||
	    ELF64_R_TYPE(r->r_info) != OBJ_R_64_ABS64) {
		return ebpf_obj_refuse(p, -EINVAL, ".maps", r->r_offset,
				       "%s: an address in a map's declaration where no entry is",
				       at ? p->o->maps[at->map].name : "no map");
	}
	d = &p->o->maps[at->map];
	index = (in_map - at->values) / 8;
	if (index >= d->max_entries) {
		return ebpf_obj_refuse(p, -EINVAL, ".maps", r->r_offset,
				       "map %s: entry %llu is initialized, max_entries is %u",
				       d->name, (unsigned long long)index, d->max_entries);
	}
	if (!ebpf_obj_symbol_defined(sym)) {
		return refuse_entry(p, r, d->name, index, "which is not in this object",
				    ebpf_obj_symbol_name(p, sym));
	}
	where = sym->st_value + ebpf_obj_word_at(s, r->r_offset);
	return ebpf_map_type_has(d->type, EBPF_MAP_PROGRAMS)
		       ? program_entry(p, at, r, (uint32_t)index, sym, where)
		       : map_entry(p, at, r, (uint32_t)index, sym, where);
}

/* Finds the shape for an array of maps without entries: any map with that shape determines it. */
static int find_shape(struct ebpf_obj_parse *p, const struct ebpf_obj_map_at *at)
{
	struct ebpf_map_def *d = &p->o->maps[at->map];

	for (uint32_t i = 0; i < p->n_map_at && !d->inner_1; i++) {
		if (same_shape(&p->o->maps[p->map_at[i].map], at->inner)) {
			d->inner_1 = p->map_at[i].map + 1;
		}
	}
	if (!d->inner_1) {
		return ebpf_obj_refuse(
			p, -EINVAL, ".maps", at->offset,
			"map %s: no map of this object has the shape that it declares for "
			"its members",
			d->name);
	}
	if (!p->o->init[at->map]) {
		p->o->init[at->map] = calloc(d->max_entries, sizeof(uint32_t));
	}
	return p->o->init[at->map] ? 0 : -ENOMEM;
}

static int tail_order(const void *a, const void *b)
{
	const struct ebpf_obj_tail *x = a, *y = b;

	if (x->map != y->map) {
		return x->map < y->map ? -1 : 1;
	}
	return x->index < y->index ? -1 : x->index > y->index;
}

int ebpf_obj_read_entries(struct ebpf_obj_parse *p)
{
	int err = 0;

	for (uint32_t i = 1; i < p->n_secs; i++) {
		const struct ebpf_obj_section *s = &p->secs[i];

		for (uint32_t k = 0; s->role == OBJ_MAPS && err == 0 && k < s->n_rels; k++) {
			err = entry(p, s, &s->rels[k]);
		}
	}
	for (uint32_t i = 0; err == 0 && i < p->n_map_at; i++) {
		err = p->map_at[i].inner ? find_shape(p, &p->map_at[i]) : 0;
	}
	if (p->n_tails) {
		qsort(p->tails, p->n_tails, sizeof(*p->tails), tail_order);
	}
	return err;
}
