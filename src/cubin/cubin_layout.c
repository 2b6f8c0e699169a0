/* Recomputes the offsets of a changed image; the order of its parts is kept. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin/cubin_plan_int.h"

#define TABLE_ALIGN 8u

/* Something that the file holds. */
struct piece {
	uint64_t at, bytes; /* in the old image */
	uint64_t align;
	uint32_t section; /* 0: a table */
	uint64_t *to;	  /* where its new offset goes */
};

int cubin_layout_init(struct cubin_layout *l, const struct cubin_elf *e)
{
	memset(l, 0, sizeof(*l));
	l->offset = calloc(e->n_sections, sizeof(*l->offset));
	l->bytes = calloc(e->n_sections, sizeof(*l->bytes));
	l->order = calloc(e->n_sections, sizeof(*l->order));
	if (!l->offset || !l->bytes || !l->order) {
		cubin_layout_finish(l);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < e->n_sections; i++) {
		l->bytes[i] = e->sections[i].sh_size;
	}
	return 0;
}

void cubin_layout_finish(struct cubin_layout *l)
{
	free(l->offset);
	free(l->bytes);
	free(l->order);
	memset(l, 0, sizeof(*l));
}

/* By offset; pieces without bytes in the file first, then the longer ones; then by number. */
static int by_place(const void *x, const void *y)
{
	const struct piece *a = x, *b = y;

	if (a->at != b->at) {
		return a->at < b->at ? -1 : 1;
	}
	if (!a->bytes != !b->bytes) {
		return a->bytes ? 1 : -1;
	}
	if (a->bytes != b->bytes) {
		return a->bytes > b->bytes ? -1 : 1;
	}
	return a->section < b->section ? -1 : a->section > b->section;
}

static bool all_zero(const uint8_t *p, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		if (p[i]) {
			return false;
		}
	}
	return true;
}

static size_t list_pieces(struct cubin_layout *l, const struct cubin_elf *e, struct piece *to)
{
	size_t n = 0;

	for (uint32_t i = 1; i < e->n_sections; i++) {
		const Elf64_Shdr *s = &e->sections[i];

		to[n++] = (struct piece){ s->sh_offset, cubin_elf_in_file(e, i) ? s->sh_size : 0,
					  MAX(s->sh_addralign, 1), i, &l->offset[i] };
	}
	to[n++] = (struct piece){ e->head.e_shoff, e->n_sections * sizeof(Elf64_Shdr), TABLE_ALIGN,
				  0, &l->sections_at };
	if (e->n_segments) {
		to[n++] = (struct piece){ e->head.e_phoff, e->n_segments * sizeof(Elf64_Phdr),
					  TABLE_ALIGN, 0, &l->segments_at };
	}
	return n;
}

/* Whether nothing inside a piece changes: symbols and attributes do without changing their size. */
static bool stays(const struct cubin_layout *l, const struct cubin_elf *e, const struct piece *p)
{
	return p->section && l->bytes[p->section] == p->bytes && p->section != e->symtab &&
	       e->sections[p->section].sh_type != CUBIN_TYPE_INFO;
}

/* Blackwell's cubins have sections that lie in the bytes of another one. */
static bool shares(const struct cubin_layout *l, const struct cubin_elf *e, const struct piece *p,
		   const struct piece *owner)
{
	return owner && p->at >= owner->at && p->at + p->bytes <= owner->at + owner->bytes &&
	       stays(l, e, p) && stays(l, e, owner);
}

/* Places the pieces; they must not overlap otherwise, and nothing may lie between them. */
static int place(struct cubin_layout *l, const struct cubin_elf *e, const struct piece *pieces,
		 size_t n, struct report *r)
{
	uint64_t old = sizeof(Elf64_Ehdr), new = sizeof(Elf64_Ehdr);
	const struct piece *owner = NULL;
	size_t ordered = 0;

	for (size_t i = 0; i < n; i++) {
		const struct piece *p = &pieces[i];

		if (p->section) {
			l->order[ordered++] = p->section;
		}
		if (p->bytes && shares(l, e, p, owner)) {
			*p->to = *owner->to + (p->at - owner->at);
			continue;
		}
		if (p->bytes && p->at < old) {
			return cubin_refuse(r, "parts of the image overlap");
		}
		if (p->bytes && !all_zero(e->data + old, p->at - old)) {
			return cubin_refuse(r, "bytes that belong to no section");
		}
		old = p->bytes ? p->at + p->bytes : old;
		new = ROUND_UP(new, p->align);
		*p->to = new;
		if (p->bytes) {
			owner = p;
			new += p->section ? l->bytes[p->section] : p->bytes;
			l->total = new;
		}
	}
	if (!all_zero(e->data + old, e->bytes - old)) {
		return cubin_refuse(r, "bytes behind the last section");
	}
	return 0;
}

int cubin_layout_make(struct cubin_layout *l, const struct cubin_elf *e, struct report *r)
{
	struct piece *pieces = calloc((size_t)e->n_sections + 2, sizeof(*pieces));
	size_t n;
	int err;

	if (!pieces) {
		return -ENOMEM;
	}
	n = list_pieces(l, e, pieces);
	qsort(pieces, n, sizeof(*pieces), by_place);
	err = place(l, e, pieces, n, r);
	free(pieces);
	return err;
}

/* Returns the index in l->order of the first section at or behind `at`. */
static size_t first_from(const struct cubin_layout *l, const struct cubin_elf *e, uint64_t at)
{
	size_t low = 0, high = (size_t)e->n_sections - 1;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (e->sections[l->order[mid]].sh_offset < at) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

/* Returns the new place of a section that begins at `at`, -1 if there is none. in_file: it must
 * have bytes in the file. */
static int64_t moved_start(const struct cubin_layout *l, const struct cubin_elf *e, uint64_t at,
			   bool in_file)
{
	size_t n = (size_t)e->n_sections - 1;

	for (size_t i = first_from(l, e, at); i < n; i++) {
		uint32_t section = l->order[i];

		if (e->sections[section].sh_offset != at) {
			break;
		}
		if (!in_file || cubin_elf_in_file(e, section)) {
			return (int64_t)l->offset[section];
		}
	}
	return -1;
}

/* The same for the end of a section. A segment may also end where a section without bytes begins,
 * but not within another one: moved, that would lie in the segment as a whole. */
static int64_t moved_end(const struct cubin_layout *l, const struct cubin_elf *e, uint64_t at)
{
	for (size_t i = first_from(l, e, at); i > 0; i--) {
		uint32_t section = l->order[i - 1];
		const Elf64_Shdr *s = &e->sections[section];

		if (!cubin_elf_in_file(e, section)) {
			continue;
		}
		if (s->sh_offset + s->sh_size == at) {
			return (int64_t)(l->offset[section] + l->bytes[section]);
		}
		if (s->sh_offset + s->sh_size > at) {
			return -1;
		}
		break;
	}
	return moved_start(l, e, at, false);
}

int cubin_layout_segment(const struct cubin_layout *l, const struct cubin_elf *e, Elf64_Phdr *p,
			 struct report *r)
{
	uint64_t end = p->p_offset + p->p_filesz;
	int64_t from, to;

	if (end < p->p_offset || end > e->bytes || p->p_memsz < p->p_filesz) {
		return cubin_refuse(r, "a segment exceeds the image");
	}
	if (p->p_offset == e->head.e_phoff) {
		p->p_offset = l->segments_at;
		return p->p_filesz == e->n_segments * sizeof(*p)
			       ? 0
			       : cubin_refuse(r, "a segment of more than the segments' table");
	}
	from = moved_start(l, e, p->p_offset, p->p_filesz > 0);
	to = p->p_filesz ? moved_end(l, e, end) : from;
	if (from < 0 || to < from) {
		return cubin_refuse(r, "a segment that does not begin and end with sections");
	}
	p->p_memsz += (uint64_t)(to - from) - p->p_filesz;
	p->p_filesz = (uint64_t)(to - from);
	p->p_offset = (uint64_t)from;
	return 0;
}
