/* Leases: words on the device that make batch kernels stop starting blocks while a latency request
 * is open or about to come. The launch that opens the request raises them, the agent renews them
 * while it is open, and the close lowers them; a lease that is not renewed expires. Only while a
 * policy is in force and gbpfd runs: without gbpfd every board of another tenant counts as closed.
 *
 * Several threads change what the leases follow (a request's state, an announcement). Each changes
 * the state first, then stores the lease, then reads the state again, so the last store belongs to
 * the last change (docs/SCHEDULING.md). */
#include "sched/sched_int.h"

bool sched_lease_allowed(struct sched *s, uint32_t gpu)
{
	uint32_t index = load_relaxed(&s->policy.gpu[gpu].index);
	const struct proto_directory *dir = load_acquire(&s->policy.dir);

	return dir != &s->absent.dir && index < PROTO_MAX_GPUS && !load_relaxed(&s->policy.off) &&
	       !load_relaxed(&dir->off) && load_relaxed(&dir->version[index]) != 0;
}

static bool wanted(struct sched *s, uint32_t gpu)
{
	const struct sched_request *r = &s->req[gpu];

	return (load_seqcst(&r->open) == SCHED_REQUEST_OPEN || load_seqcst(&r->ahead)) &&
	       sched_lease_allowed(s, gpu);
}

static void put(struct sched *s, uint32_t gpu, uint64_t until_ns)
{
	store_relaxed(&s->req[gpu].lease_ns, until_ns);
	s->cfg.device->lease(s->cfg.dev, gpu, until_ns);
}

void sched_lease_raise(struct sched *s, uint32_t gpu, uint64_t now)
{
	if (s->cfg.device->lease && sched_lease_allowed(s, gpu)) {
		put(s, gpu, now + SCHED_LEASE_NS);
	}
}

void sched_lease_update(struct sched *s, uint32_t gpu, uint64_t now)
{
	bool up;

	if (!s->cfg.device->lease) {
		return;
	}
	do {
		up = wanted(s, gpu);
		if (up || load_relaxed(&s->req[gpu].lease_ns)) {
			put(s, gpu, up ? now + SCHED_LEASE_NS : 0);
		}
		fence_seqcst();
	} while (wanted(s, gpu) != up);
}

void sched_lease_step(struct sched *s, uint32_t gpu, uint64_t now)
{
	uint64_t until = load_relaxed(&s->req[gpu].lease_ns);
	bool up;

	if (!s->cfg.device->lease) {
		return;
	}
	up = wanted(s, gpu);
	if (up ? until < now + SCHED_LEASE_NS - SCHED_RENEW_NS : until != 0) {
		sched_lease_update(s, gpu, now);
	}
}
