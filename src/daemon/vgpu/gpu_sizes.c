/* The memory of each GPU, within which reservations are held: what processes report, and NVML where
 * no process that gbpfd trusts has reported it. */
#include "daemon/vgpu/vgpu_int.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/idle/gpu_use.h"
#include "daemon/session/tenant_session.h"

/* Stores the size of a device, unless what is known counts more. sure: it was not reported by a
 * process of another user. Returns true if it has changed. */
static bool take_size(struct daemon *d, struct daemon_gpu *g, uint64_t mem, bool sure)
{
	uint64_t before = g->mem, reserved = daemon_vgpu_reserved(d);

	if (mem < PROTO_VGPU_MEM_MIN || mem > PROTO_VGPU_MEM_MAX ||
	    (!sure && (g->mem_sure || mem <= g->mem))) {
		return false;
	}
	if (mem != g->mem && sure && reserved > mem) {
		daemon_history_add(&d->history, "vgpu", -1,
				   "%llu MiB are reserved, but a GPU has %llu MiB: others "
				   "cannot use it; lower a reservation with gbpf vgpu set",
				   (unsigned long long)(reserved >> 20),
				   (unsigned long long)(mem >> 20));
	}
	g->mem = mem;
	g->mem_sure |= sure;
	return mem != before;
}

/* NVML has answered, or cannot. The device may have gone, and a trusted process may have come. */
static void on_size(struct daemon_job *j)
{
	struct daemon_gpu_size *q = (struct daemon_gpu_size *)j;
	struct daemon *d = q->arg;
	bool changed = false;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		struct daemon_gpu *g = &d->devices.d[i];
		char uuid[sizeof(q->uuid)];

		daemon_gpu_uuid_text(g->uuid, uuid);
		if (g->used && strcmp(uuid, q->uuid) == 0) {
			g->mem_asked = false;
			changed |= !g->mem_sure && take_size(d, g, q->bytes, true);
		}
	}
	if (changed) {
		daemon_vgpu_reserve_update(d);
	}
	free(q);
}

static void on_size_dropped(struct daemon_job *j)
{
	free(j);
}

/* Asks NVML for the size of a device that no trusted process has reported. */
static void ask_nvml(struct daemon *d, struct daemon_gpu *g)
{
	struct daemon_gpu_size *q = g->mem_sure || g->mem_asked ? NULL : calloc(1, sizeof(*q));

	if (!q) {
		return;
	}
	q->job = (struct daemon_job){ .work = daemon_gpu_size_measure,
				      .done = on_size,
				      .drop = on_size_dropped };
	q->arg = d;
	daemon_gpu_use_library(d->devices.kind, q->library);
	daemon_gpu_uuid_text(g->uuid, q->uuid);
	g->mem_asked = true;
	daemon_job_thread_submit(&d->control_thread, &q->job);
}

void daemon_vgpu_note_sizes(struct daemon_session *s, const uint64_t bytes[PROTO_MAX_GPUS])
{
	bool sure = s->peer.uid == 0 || s->peer.uid == s->d->uid, changed = false;

	for (uint32_t i = 0; i < s->gpus; i++) {
		struct daemon_gpu *g = &s->d->devices.d[s->gpu_index[i]];

		changed |= take_size(s->d, g, bytes[i], sure);
		ask_nvml(s->d, g);
	}
	if (changed) {
		daemon_vgpu_reserve_update(s->d);
	}
}
