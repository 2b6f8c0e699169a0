/* vGPUs by place, as policies see them. */
#include "daemon/vgpu/vgpu_list.h"

#include "base/atomic.h"
#include "daemon/vgpu/vgpu_int.h"
#include "mem/ledger.h"

uint32_t daemon_vgpu_place(const struct daemon_session *s)
{
	return s->vgpu.of ? s->vgpu.of->place : PROTO_VGPUS;
}

/* Adds the sessions in it. Returns the process's ordinal of that GPU, by which limits are given. */
static uint32_t add_sessions(const struct daemon_vgpu *v, uint32_t gpu, struct daemon_vgpu_entry *r)
{
	uint32_t ordinal = 0;

	daemon_session_each(v->d, s)
	{
		if (s->vgpu.of != v || s->dying) {
			continue;
		}
		r->tenants++;
		r->gpus |= s->gpu_mask;
		r->lanes |= 1u << s->grant.lane;
		for (uint32_t i = 0; i < s->gpus; i++) {
			ordinal = s->gpu_index[i] == gpu ? i : ordinal;
		}
	}
	return ordinal;
}

static void add_figures(const struct daemon_vgpu *v, uint32_t gpu, struct daemon_vgpu_entry *r)
{
	const struct daemon_gpu *g = &v->d->devices.d[gpu];
	uint32_t row = g->used ? daemon_vgpu_row_of(v, g->uuid) : PROTO_ACCOUNT_ROWS, lines;
	const struct proto_account *a = daemon_vgpu_page(v);

	if (row == PROTO_ACCOUNT_ROWS) {
		return;
	}
	r->used = mem_account_used(a, row);
	lines = load_relaxed(&a->lines); /* a process may have written anything */
	for (uint32_t i = 0; i < MIN(lines, PROTO_ACCOUNT_LINES); i++) {
		r->overhead += load_relaxed(&a->line[row][i].overhead);
	}
}

bool daemon_vgpu_at(const struct daemon *d, uint32_t place, uint32_t gpu,
		    struct daemon_vgpu_entry *ret)
{
	const struct daemon_vgpu *v = d->vgpus.first;

	while (v && v->place != place) {
		v = v->next;
	}
	if (!v || gpu >= PROTO_MAX_GPUS) {
		return false;
	}
	*ret = (struct daemon_vgpu_entry){ .config = &v->is.config };
	ret->limit = v->is.config.mem[add_sessions(v, gpu, ret)];
	add_figures(v, gpu, ret);
	return true;
}

bool daemon_vgpus_have_share(const struct daemon *d)
{
	for (const struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		if (v->is.config.compute) {
			return true;
		}
	}
	return false;
}
