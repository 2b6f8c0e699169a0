/* The table of shapes: an entry for each remainder of their numbers. */
#include "mem/layout.h"

uint64_t mem_layout_known(const struct mem_layouts *t, uint64_t shape)
{
	const struct mem_layout *l = &t->entry[shape % MEM_LAYOUTS];

	return l->shape == shape ? l->known : 0;
}

bool mem_layout_note(struct mem_layouts *t, uint64_t shape, uint64_t bytes)
{
	struct mem_layout *l = &t->entry[shape % MEM_LAYOUTS];

	if (l->shape != shape) {
		*l = (struct mem_layout){ .shape = shape, .least = bytes };
		return false;
	}
	if (bytes == l->least && (!l->known || bytes < l->known)) {
		l->known = bytes;
		return true;
	}
	if (bytes < l->least) {
		l->least = bytes;
	}
	return false;
}
