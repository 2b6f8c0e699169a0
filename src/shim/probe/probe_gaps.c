/* Kernels that run a tool although some of its programs have no site in them, as gbpfd is told. */
#include "shim/probe/shim_probe_int.h"

#include <stdio.h>
#include <string.h>

/* Lists the kernel. One with the same name and programs, of another module or context, is listed
 * once; those beyond the list are only counted. */
static void list(struct proto_probe_state *s, const char *kernel, uint32_t programs)
{
	struct proto_probe_gap gap = { .programs = programs };

	snprintf(gap.kernel, sizeof(gap.kernel), "%s", kernel);
	for (unsigned i = 0; i < PROTO_PROBE_GAPS; i++) {
		struct proto_probe_gap *at = &s->gaps[i];

		if (!at->programs) {
			*at = gap;
			return;
		}
		if (at->programs == programs && strcmp(at->kernel, gap.kernel) == 0) {
			return;
		}
	}
}

void shim_probe_gaps_add(struct proto_probe_state *s, const struct shim_probe_kernel *k,
			 const struct shim_probe_form *f, uint32_t i)
{
	s->placed |= f->placed[i];
	s->unplaced |= f->unplaced[i];
	if (f->unplaced[i]) {
		s->siteless++;
		list(s, k->name, f->unplaced[i]);
	}
}

bool shim_probe_gaps_differ(const struct proto_probe_state *a, const struct proto_probe_state *b)
{
	return a->siteless != b->siteless || a->placed != b->placed || a->unplaced != b->unplaced ||
	       memcmp(a->gaps, b->gaps, sizeof(a->gaps)) != 0;
}
