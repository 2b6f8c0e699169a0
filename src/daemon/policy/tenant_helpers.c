/* The functions behind the gbpf_tenant_* helpers, for programs that run in gbpfd: for an instance
 * there are only the tenants on its GPU. Tenants write the
 * pages that statistics come from: each word is read once and affects only what the policy decides
 * about that tenant. */
#include "daemon/policy/version.h"

#include <errno.h>
#include <stdio.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/consts.h"
#include "daemon/hw/hw_control.h"
#include "daemon/vgpu/vgpu_list.h"

static struct daemon_session *find(struct daemon_version *l, uint32_t tenant)
{
	struct daemon_session *s =
		tenant < PROTO_MAX_TENANTS ? l->d->sessions.tenant[tenant] : NULL;

	return s && !s->dying && daemon_version_is_for(l, s) ? s : NULL;
}

static void *region(void *ctx, uint32_t tenant)
{
	struct daemon_version *l = ctx;

	return tenant < PROTO_MAX_TENANTS ? l->region[tenant].map : NULL;
}

static int class_id(void *ctx, uint32_t tenant)
{
	const struct daemon_session *s = find(ctx, tenant);

	return s ? (int)s->class_id : -ENOENT;
}

static int weight(void *ctx, uint32_t tenant)
{
	const struct daemon_session *s = find(ctx, tenant);

	return s ? (int)s->weight : -ENOENT;
}

static int vgpu(void *ctx, uint32_t tenant)
{
	const struct daemon_session *s = find(ctx, tenant);

	return s ? (int)daemon_vgpu_place(s) : -ENOENT;
}

static uint64_t board_stat(const struct daemon_session *s, uint32_t gpu, uint32_t what)
{
	const struct proto_board *b = s->board.map;

	if (!b) {
		return 0;
	}
	switch (what) {
	case GBPF_STAT_OPEN:
		return proto_board_open(b, gpu, clock_now_ns()) != 0;
	case GBPF_STAT_NEXT_NS:
		return load_relaxed(&b->gpu[gpu].next_ns);
	default:
		return load_relaxed(&b->gpu[gpu].deadline_ns);
	}
}

static uint64_t stat(void *ctx, uint32_t tenant, uint32_t what)
{
	struct daemon_version *l = ctx;
	const struct daemon_session *s = find(l, tenant);
	const struct proto_stats *st = s ? s->stats.map : NULL;

	if (!st) {
		return 0;
	}
	switch (what) {
	case GBPF_STAT_BUSY_NS:
		return load_relaxed(&daemon_session_gpu_stats(s, l->gpu)->busy_ns);
	case GBPF_STAT_INFLIGHT_NS:
		return load_relaxed(&daemon_session_gpu_stats(s, l->gpu)->inflight_ns);
	case GBPF_STAT_LAUNCHES:
		return load_relaxed(&daemon_session_gpu_stats(s, l->gpu)->launches);
	case GBPF_STAT_BLOCK_LAUNCHES:
		return load_relaxed(&st->block_launches);
	case GBPF_STAT_HELD_NS:
		return load_relaxed(&st->held_ns);
	case GBPF_STAT_REQUESTS:
		return load_relaxed(&st->requests);
	case GBPF_STAT_REQUEST_NS:
		return load_relaxed(&st->request_ns);
	case GBPF_STAT_OPEN:
	case GBPF_STAT_NEXT_NS:
	case GBPF_STAT_DEADLINE_NS:
		return board_stat(s, l->gpu, what);
	case GBPF_STAT_LANE:
		return s->grant.lane;
	case GBPF_STAT_UID:
		return s->peer.uid;
	case GBPF_STAT_SYNCS:
		return load_relaxed(&st->syncs);
	case GBPF_STAT_BYTES:
		return load_relaxed(&st->bytes);
	case GBPF_STAT_COPY_UP:
		return load_relaxed(&st->copy_up_bytes);
	case GBPF_STAT_COPY_DOWN:
		return load_relaxed(&st->copy_down_bytes);
	case GBPF_STAT_GROUP:
		return s->group.sole_gpus & 1u << l->gpu ? s->group.number : 0;
	case GBPF_STAT_THREADS:
		return load_relaxed(&st->threads);
	default:
		return 0;
	}
}

static int slice_set(void *ctx, uint32_t tenant, uint32_t slice_us)
{
	struct daemon_version *l = ctx;
	struct daemon_session *s = find(l, tenant);

	return s ? daemon_hw_set_slice(s, slice_us, l->version) : -ENOENT;
}

static int preempt_now(void *ctx, uint32_t tenant, uint32_t level)
{
	struct daemon_version *l = ctx;
	struct daemon_session *s = find(l, tenant);

	return s ? daemon_hw_set_level(s, level, 1u << l->gpu, l->version, NULL) : -ENOENT;
}

static int explain(void *ctx, uint32_t tenant, const char *text)
{
	struct daemon_version *l = ctx;
	struct daemon_session *s = find(l, tenant);

	if (!s) {
		return -ENOENT;
	}
	snprintf(s->explained.text, sizeof(s->explained.text), "%s", text);
	s->explained.version = l->version;
	return 0;
}

void daemon_version_tenant_ops(struct daemon_version *l)
{
	l->ops = (struct ebpf_tenant_ops){ .region = region,
					   .class_id = class_id,
					   .weight = weight,
					   .vgpu = vgpu,
					   .stat = stat,
					   .slice_set = slice_set,
					   .preempt_now = preempt_now,
					   .explain = explain,
					   .ctx = l };
	l->run.env.tenants = &l->ops;
}
