/* The places of tools' maps among the bytes that a warp has in shared memory. */
#include <errno.h>

#include "ptx/probe/read/probe_read.h"

/* Returns a program in front of number i that has the same maps, or NULL. */
static const struct ptx_probe_program *sibling(const struct ptx_probe_read *p, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++) {
		if (p->programs[k].owns &&
		    p->programs[k].probe->scratch_at == p->programs[i].probe->scratch_at) {
			return &p->programs[k];
		}
	}
	return NULL;
}

int ptx_probe_scratch_find(struct ptx_probe_read *p)
{
	for (uint32_t i = 0; i < p->n_programs; i++) {
		struct ptx_probe_program *g = &p->programs[i];
		const struct ptx_probe_program *same = g->owns ? sibling(p, i) : NULL;

		if (!g->owns) {
			continue;
		}
		if (!g->probe->scratch_at || g->probe->scratch_bytes % 16) {
			report_place(p->report, "%s", g->probe->name);
			return report_set(p->report, -EINVAL, "probe",
					  "its maps have no place in shared memory");
		}
		g->scratch = same ? same->scratch : p->warp_bytes;
		p->warp_bytes += same ? 0 : g->probe->scratch_bytes;
		if (p->warp_bytes > PTX_PROBE_SCRATCH_MAX) {
			report_place(p->report, "%s", g->probe->name);
			report_hint(p->report, "detach a tool that has a WARP_SCRATCH, or make its "
					       "maps smaller");
			return report_set(
				p->report, -E2BIG, "probe",
				"the tools of the kernel have %u bytes of WARP_SCRATCH for "
				"a warp, more than %u",
				p->warp_bytes, PTX_PROBE_SCRATCH_MAX);
		}
	}
	return 0;
}
