/* Live versions. The order is what makes the memory safe: gbpfd maps, initialises, seals against
 * further writable mappings, and only then passes the descriptor on. */
#include "daemon/policy/version.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/shm.h"

#define UNMAP_AT_ONCE_BYTES (256u << 10)

struct gone {
	struct job job; /* first */
	struct gone *next;
	struct daemon *d;
	struct page page;
	size_t bytes;
};

static int open_global(struct live *l)
{
	size_t bytes = l->built->region_bytes[EBPF_REGION_GLOBAL];

	if (!bytes) {
		return 0;
	}
	l->global_fd = shm_create("gbpf-global", bytes, SHM_NOEXEC);
	return l->global_fd < 0 ? l->global_fd : 0;
}

static int open_instance(struct live *l)
{
	int fds[EBPF_REGIONS] = { -1, -1, -1 }, err;

	err = open_global(l);
	fds[EBPF_REGION_GLOBAL] = l->global_fd;
	if (!err) {
		err = ebpf_policy_open(&l->run, l->built->image_fd, fds, EBPF_OPEN_DAEMON);
	}
	if (err) {
		return err;
	}
	if (l->run.region[EBPF_REGION_GLOBAL]) {
		ebpf_built_init_region(l->built, EBPF_REGION_GLOBAL,
				       l->run.region[EBPF_REGION_GLOBAL]);
	}
	if (l->run.region[EBPF_REGION_DAEMON]) {
		ebpf_built_init_region(l->built, EBPF_REGION_DAEMON,
				       l->run.region[EBPF_REGION_DAEMON]);
	}
	live_tenant_ops(l);
	return l->global_fd >= 0 ? shm_seal_future_write(l->global_fd) : 0;
}

int live_create(struct live **ret, struct daemon *d, struct ebpf_built *built, uint64_t version,
		struct report *r)
{
	struct live *l;
	int err;

	if (built->region_bytes[EBPF_REGION_TENANT] > LIVE_MAX_TENANT_BYTES) {
		report_hint(r, "Make the maps marked GBPF_F_TENANT smaller");
		return report_set(
			r, -E2BIG, "limit", "its maps need %zu MiB for each tenant, more than %u",
			built->region_bytes[EBPF_REGION_TENANT] >> 20, LIVE_MAX_TENANT_BYTES >> 20);
	}
	l = calloc(1, sizeof(*l));
	if (!l) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	l->d = d;
	l->version = version;
	l->global_fd = -1;
	for (unsigned i = 0; i < SCHED_MAX_TENANTS; i++) {
		l->region[i] = PAGE_NONE;
	}
	l->built = built;
	err = open_instance(l);
	if (err) {
		l->built = NULL; /* stays the caller's */
		live_destroy(l);
		return report_set(r, err, "memory", "its memory cannot be made: %s",
				  strerror(-err));
	}
	*ret = l;
	return 0;
}

/* Unmapping gigabytes takes a while. */
static void release(struct live *l)
{
	for (uint32_t i = 0; i < SCHED_MAX_TENANTS; i++) {
		page_destroy(&l->region[i]);
	}
	if (l->run.image) {
		ebpf_policy_close(&l->run);
	}
	l->global_fd = fd_close(l->global_fd);
	if (l->built) {
		ebpf_built_finish(l->built);
		free(l->built);
		l->built = NULL;
	}
}

void live_destroy(struct live *l)
{
	if (l) {
		live_copied(l);
		release(l);
		free(l);
	}
}

static void release_work(struct job *j)
{
	release((struct live *)j);
}

/* Also instead of release_work, when the daemon ends. */
static void release_done(struct job *j)
{
	live_destroy((struct live *)j);
}

void live_destroy_later(struct live *l)
{
	l->job = (struct job){ .work = release_work, .done = release_done, .drop = release_done };
	live_copied(l);
	worker_submit(&l->d->worker, &l->job);
}

/* One user cannot take from all others what their programs need to run under the policy. */
static bool has_room(const struct live *l, uint32_t tenant, size_t bytes)
{
	const struct daemon *d = l->d;
	const struct session *s = d->tenant[tenant];
	uint64_t his = 0;

	if (l->region_total + bytes > LIVE_MAX_TOTAL_BYTES ||
	    l->region_total + d->unmapping_bytes + bytes > 2 * LIVE_MAX_TOTAL_BYTES) {
		return false;
	}
	if (!s || s->peer.uid == 0 || s->peer.uid == d->uid) {
		return true;
	}
	for (uint32_t i = 0; i < SCHED_MAX_TENANTS; i++) {
		his += d->tenant[i] && d->tenant[i]->peer.uid == s->peer.uid ? l->region[i].bytes
									     : 0;
	}
	return his + bytes <= LIVE_MAX_FOREIGN_BYTES;
}

int live_add_tenant(struct live *l, uint32_t tenant)
{
	size_t bytes = l->built->region_bytes[EBPF_REGION_TENANT];
	int err;

	if (!bytes || l->region[tenant].map) {
		return 0;
	}
	if (!has_room(l, tenant, bytes)) {
		return -E2BIG;
	}
	err = page_create(&l->region[tenant], "gbpf-tenant", bytes);
	if (!err) {
		l->region_total += bytes;
		ebpf_built_init_region(l->built, EBPF_REGION_TENANT, l->region[tenant].map);
	}
	return err;
}

void live_adopt_tenant(struct live *l, uint32_t tenant, int *fd)
{
	size_t bytes = l->built->region_bytes[EBPF_REGION_TENANT];
	struct page p;

	if (!bytes || l->region[tenant].map || !has_room(l, tenant, bytes)) {
		return;
	}
	if (page_adopt(&p, *fd, bytes) < 0) {
		return; /* of another policy: the tenant gets new memory */
	}
	if (!p.writable) {
		shm_unmap(p.map, p.bytes);
		return;
	}
	*fd = -1;
	l->region[tenant] = p;
	l->region_total += bytes;
}

static void unmap_work(struct job *j)
{
	page_destroy(&((struct gone *)j)->page);
}

static void unmap_done(struct job *j)
{
	struct gone *g = (struct gone *)j;

	g->d->unmapping_bytes -= g->bytes;
	page_destroy(&g->page);
	free(g);
}

/* Many may die at once, each with megabytes that it has filled: the kernel frees some 10 GiB a
 * second. Until it has, they count. */
static void unmap_later(struct gone *g)
{
	g->job = (struct job){ .work = unmap_work, .done = unmap_done, .drop = unmap_done };
	g->d->unmapping_bytes += g->bytes;
	if (g->d->worker.running) {
		worker_submit(&g->d->worker, &g->job);
	} else {
		unmap_done(&g->job); /* gbpfd ends */
	}
}

void live_forget_tenant(struct live *l, uint32_t tenant)
{
	struct page *p = &l->region[tenant];
	struct gone *g;

	if (!p->map) {
		return;
	}
	l->region_total -= p->bytes;
	if (!l->copying && p->bytes <= UNMAP_AT_ONCE_BYTES) {
		page_destroy(p);
		return;
	}
	g = malloc(sizeof(*g));
	if (g) {
		*g = (struct gone){ .d = l->d, .page = *p, .bytes = p->bytes, .next = l->gone };
	}
	if (g && l->copying) {
		l->gone = g;
	} else if (g) {
		unmap_later(g);
	} else if (!l->copying) {
		page_destroy(p);
	} /* else it stays mapped for good, which is better than under the worker's feet */
	*p = PAGE_NONE;
}

void live_copied(struct live *l)
{
	l->copying = false;
	while (l->gone) {
		struct gone *g = l->gone;

		l->gone = g->next;
		unmap_later(g);
	}
}

void live_prepare(struct live *l, struct session *s)
{
	uint32_t tenant = (uint32_t)s->tenant;
	union wire_message m = { 0 };
	int fds[3] = { l->built->image_fd }, err;
	unsigned n = 1;

	err = live_add_tenant(l, tenant);
	if (err) {
		session_event(s, "limit",
			      "%s runs without policy version %llu: no memory for its maps (%s)",
			      s->name, (unsigned long long)l->version, strerror(-err));
		return;
	}
	m.version.version = l->version;
	if (l->global_fd >= 0) {
		m.version.regions |= WIRE_REGION_GLOBAL;
		fds[n++] = l->global_fd;
	}
	if (l->region[tenant].map) {
		m.version.regions |= WIRE_REGION_TENANT;
		fds[n++] = l->region[tenant].fd;
	}
	session_send(s, &m, WIRE_PREPARE, fds, n);
	s->prepares_sent++;
	page_close_fd(&l->region[tenant]);
}
