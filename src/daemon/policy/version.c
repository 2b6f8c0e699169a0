/* Live versions. Their memory is safe by the order of steps: gbpfd maps it, initialises it, seals
 * it against further writable mappings, and only then passes the descriptor on. */
#include "daemon/policy/version.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/shm.h"
#include "daemon/policy/policies_int.h"

#define UNMAP_AT_ONCE_BYTES (256u << 10)

struct daemon_left_memory {
	struct daemon_job job; /* first */
	struct daemon_left_memory *next;
	struct daemon *d;
	struct daemon_page page;
	size_t bytes;
};

static int open_global(struct daemon_version *l)
{
	size_t bytes = l->built->region_bytes[EBPF_REGION_GLOBAL];

	if (!bytes) {
		return 0;
	}
	l->global_fd = shm_create("gbpf-global", bytes, SHM_NOEXEC);
	return l->global_fd < 0 ? l->global_fd : 0;
}

/* Initialises the fresh memory of a region that gbpfd's own programs use. */
static int fill_region(struct daemon_version *l, enum ebpf_region region)
{
	struct ebpf_env *env = &l->run.env;
	void *base = l->run.region[region];
	int err;

	if (!base) {
		return 0;
	}
	ebpf_built_init_region(l->built, region, base);
	err = ebpf_maps_seed(env->maps, env->n_maps, region, base);
	if (!err) {
		ebpf_maps_bind(env->maps, env->n_maps, region, base); /* takes the seeds */
	}
	return err;
}

static int open_instance(struct daemon_version *l)
{
	int fds[EBPF_REGIONS] = EBPF_NO_REGIONS, err;

	err = open_global(l);
	fds[EBPF_REGION_GLOBAL] = l->global_fd;
	fds[EBPF_REGION_ALL_GPUS] = l->of->all_gpus_fd;
	if (!err) {
		err = ebpf_policy_open(&l->run, l->of->image_fd, fds, EBPF_OPEN_DAEMON);
	}
	if (err) {
		return err;
	}
	err = fill_region(l, EBPF_REGION_GLOBAL);
	if (!err) {
		err = fill_region(l, EBPF_REGION_DAEMON);
	}
	if (err) {
		return err;
	}
	daemon_version_tenant_ops(l);
	return l->global_fd >= 0 ? shm_seal_future_write(l->global_fd) : 0;
}

/* Instances map it when they are made, and take its seeds. */
static int open_all_gpus(struct daemon_program *p)
{
	const struct ebpf_built *built = &p->verified->built;
	const struct ebpf_object *o = &built->object;
	size_t bytes = built->region_bytes[EBPF_REGION_ALL_GPUS], region_bytes[EBPF_REGIONS];
	struct ebpf_map maps[EBPF_MAX_MAPS];
	void *base;
	int err;

	if (!bytes) {
		return 0;
	}
	p->all_gpus_fd = shm_create("gbpf-all-gpus", bytes, SHM_NOEXEC);
	base = p->all_gpus_fd < 0 ? NULL : shm_map(p->all_gpus_fd, bytes, 1);
	if (!base) {
		return -ENOMEM;
	}
	ebpf_built_init_region(built, EBPF_REGION_ALL_GPUS, base);
	err = ebpf_maps_layout(o->maps, o->n_maps, maps, region_bytes);
	err = err ? err : ebpf_maps_seed(maps, o->n_maps, EBPF_REGION_ALL_GPUS, base);
	shm_unmap(base, bytes);
	return err;
}

struct daemon_program *daemon_program_new(struct daemon_verified *v, uint64_t version)
{
	struct daemon_program *p = calloc(1, sizeof(*p));

	if (!p) {
		return NULL;
	}
	p->users = 1;
	p->verified = daemon_verified_use(v);
	p->all_gpus_fd = -1;
	p->image_fd = daemon_verified_image(v, version);
	if (p->image_fd < 0 || open_all_gpus(p) < 0) {
		daemon_program_drop(p);
		return NULL;
	}
	return p;
}

struct daemon_program *daemon_program_use(struct daemon_program *p)
{
	(void)add_relaxed(&p->users, 1u);
	return p;
}

void daemon_program_drop(struct daemon_program *p)
{
	/* Orders the other users' accesses before the freeing. */
	if (p && sub_acqrel(&p->users, 1u) == 1) {
		fd_close(p->all_gpus_fd);
		fd_close(p->image_fd);
		daemon_verified_drop(p->verified);
		free(p);
	}
}

int daemon_version_create(struct daemon_version **ret, struct daemon *d, struct daemon_program *of,
			  uint64_t version, uint32_t gpu, struct report *r)
{
	const struct ebpf_built *built = &of->verified->built;
	struct daemon_version *l;
	int err;

	if (built->region_bytes[EBPF_REGION_TENANT] > DAEMON_LIVE_MAX_TENANT_BYTES) {
		report_hint(r, "Make the maps marked GBPF_F_TENANT smaller");
		return report_set(r, -E2BIG, "limit",
				  "its maps need %zu MiB for each tenant, more than %u",
				  built->region_bytes[EBPF_REGION_TENANT] >> 20,
				  DAEMON_LIVE_MAX_TENANT_BYTES >> 20);
	}
	l = calloc(1, sizeof(*l));
	if (!l) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	l->d = d;
	l->version = version;
	l->gpu = gpu;
	l->global_fd = -1;
	for (unsigned i = 0; i < PROTO_MAX_TENANTS; i++) {
		l->region[i] = DAEMON_PAGE_NONE;
	}
	l->of = daemon_program_use(of);
	l->built = built;
	err = open_instance(l);
	if (err) {
		daemon_version_destroy(l);
		return report_set(r, err, "memory", "cannot create its memory: %s", strerror(-err));
	}
	*ret = l;
	return 0;
}

/* On the worker: unmapping gigabytes takes long. */
static void release(struct daemon_version *l)
{
	for (uint32_t i = 0; i < PROTO_MAX_TENANTS; i++) {
		daemon_page_destroy(&l->region[i]);
	}
	if (l->run.image) {
		ebpf_policy_close(&l->run);
	}
	l->global_fd = fd_close(l->global_fd);
	daemon_program_drop(l->of);
	l->of = NULL;
	l->built = NULL;
}

void daemon_version_destroy(struct daemon_version *l)
{
	if (l) {
		daemon_version_copy_done(l);
		release(l);
		free(l);
	}
}

static void release_work(struct daemon_job *j)
{
	release((struct daemon_version *)j);
}

/* Also called in place of release_work(), when gbpfd exits. */
static void release_done(struct daemon_job *j)
{
	daemon_version_destroy((struct daemon_version *)j);
}

void daemon_version_destroy_later(struct daemon_version *l)
{
	l->job = (struct daemon_job){ .work = release_work,
				      .done = release_done,
				      .drop = release_done };
	for (uint32_t i = 0; i < PROTO_MAX_TENANTS; i++) {
		l->of->region_total -= l->region[i].map ? l->region[i].bytes : 0;
	}
	daemon_version_copy_done(l);
	daemon_job_thread_submit(&l->d->worker, &l->job);
}

/* Returns how much memory the tenants of a user have in an instance. */
static uint64_t bytes_of(const struct daemon_version *l, uid_t uid)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < PROTO_MAX_TENANTS; i++) {
		const struct daemon_session *s = l->d->sessions.tenant[i];

		sum += s && s->peer.uid == uid ? l->region[i].bytes : 0;
	}
	return sum;
}

/* Returns true if the memory is within the limits. The limit for each user prevents that one user
 * takes the memory that others' programs need to run under the policy. */
static bool has_room(const struct daemon_version *l, uint32_t tenant, size_t bytes)
{
	const struct daemon *d = l->d;
	const struct daemon_session *s = d->sessions.tenant[tenant];
	uint64_t his = 0;

	if (l->of->region_total + bytes > DAEMON_LIVE_MAX_TOTAL_BYTES ||
	    l->of->region_total + d->policies->unmapping_bytes + bytes >
		    2 * DAEMON_LIVE_MAX_TOTAL_BYTES) {
		return false;
	}
	if (!s || s->peer.uid == 0 || s->peer.uid == d->uid) {
		return true;
	}
	for (const struct daemon_version *o = d->policies->live_versions; o; o = o->next) {
		his += o != l && o->of == l->of ? bytes_of(o, s->peer.uid) : 0;
	}
	return his + bytes_of(l, s->peer.uid) + bytes <= DAEMON_LIVE_MAX_FOREIGN_BYTES;
}

int daemon_version_add_tenant(struct daemon_version *l, uint32_t tenant)
{
	size_t bytes = l->built->region_bytes[EBPF_REGION_TENANT];
	struct daemon_page *p = &l->region[tenant];
	int err;

	if (!bytes || p->map) {
		return 0;
	}
	if (!has_room(l, tenant, bytes)) {
		return -E2BIG;
	}
	err = daemon_page_create(p, "gbpf-tenant", bytes);
	if (err) {
		return err;
	}
	ebpf_built_init_region(l->built, EBPF_REGION_TENANT, p->map);
	err = ebpf_maps_seed(l->run.env.maps, l->run.env.n_maps, EBPF_REGION_TENANT, p->map);
	if (err) {
		daemon_page_destroy(p);
		return err;
	}
	l->of->region_total += bytes;
	return 0;
}

void daemon_version_adopt_tenant(struct daemon_version *l, uint32_t tenant, int *fd)
{
	size_t bytes = l->built->region_bytes[EBPF_REGION_TENANT];
	struct daemon_page p;

	if (!bytes || l->region[tenant].map || !has_room(l, tenant, bytes)) {
		return;
	}
	if (daemon_page_adopt(&p, *fd, bytes) < 0) {
		return; /* memory of another policy: the tenant gets new memory */
	}
	if (!p.writable) {
		shm_unmap(p.map, p.bytes);
		return;
	}
	*fd = -1;
	l->region[tenant] = p;
	l->of->region_total += bytes;
}

static void unmap_work(struct daemon_job *j)
{
	daemon_page_destroy(&((struct daemon_left_memory *)j)->page);
}

static void unmap_done(struct daemon_job *j)
{
	struct daemon_left_memory *g = (struct daemon_left_memory *)j;

	g->d->policies->unmapping_bytes -= g->bytes;
	daemon_page_destroy(&g->page);
	free(g);
}

/* Has the worker unmap a tenant's memory. Many tenants may exit at once, each with megabytes that
 * it has filled, and the kernel frees some 10 GiB a second. Until then the memory counts. */
static void unmap_later(struct daemon_left_memory *g)
{
	g->job = (struct daemon_job){ .work = unmap_work, .done = unmap_done, .drop = unmap_done };
	g->d->policies->unmapping_bytes += g->bytes;
	if (g->d->worker.running) {
		daemon_job_thread_submit(&g->d->worker, &g->job);
	} else {
		unmap_done(&g->job); /* gbpfd exits */
	}
}

void daemon_version_remove_tenant(struct daemon_version *l, uint32_t tenant)
{
	struct daemon_page *p = &l->region[tenant];
	struct daemon_left_memory *g;

	daemon_features_call(tenant_memory_ends, l, tenant);
	if (!p->map) {
		return;
	}
	l->of->region_total -= p->bytes;
	if (!l->copying && p->bytes <= UNMAP_AT_ONCE_BYTES) {
		daemon_page_destroy(p);
		return;
	}
	g = malloc(sizeof(*g));
	if (g) {
		*g = (struct daemon_left_memory){
			.d = l->d, .page = *p, .bytes = p->bytes, .next = l->gone
		};
	}
	if (g && l->copying) {
		l->gone = g;
	} else if (g) {
		unmap_later(g);
	} else if (!l->copying) {
		daemon_page_destroy(p);
	} /* otherwise it stays mapped until exit, which is safer than unmapping under the worker */
	*p = DAEMON_PAGE_NONE;
}

void daemon_version_copy_done(struct daemon_version *l)
{
	l->copying = false;
	while (l->gone) {
		struct daemon_left_memory *g = l->gone;

		l->gone = g->next;
		unmap_later(g);
	}
}

int daemon_version_descriptors(struct daemon_version *l, uint32_t tenant, int fds[3],
			       uint32_t *ret_regions)
{
	int err = daemon_version_add_tenant(l, tenant), n = 0;

	if (err) {
		return err;
	}
	*ret_regions = 0;
	fds[n++] = l->of->image_fd;
	if (l->global_fd >= 0) {
		*ret_regions |= PROTO_REGION_GLOBAL;
		fds[n++] = l->global_fd;
	}
	if (l->region[tenant].map) {
		*ret_regions |= PROTO_REGION_TENANT;
		fds[n++] = l->region[tenant].fd;
	}
	return n;
}

void daemon_version_send_prepare(struct daemon_version *l, struct daemon_session *s)
{
	uint32_t tenant = (uint32_t)s->tenant;
	union proto_message m = { 0 };
	int fds[3], n;

	if (!daemon_version_is_for(l, s)) {
		return;
	}
	n = daemon_version_descriptors(l, tenant, fds, &m.version.regions);
	if (n < 0) {
		daemon_session_event(
			s, "limit",
			"%s runs without policy version %llu: no memory for its maps (%s)", s->name,
			(unsigned long long)l->version, strerror(-n));
		return;
	}
	m.version.version = l->version;
	m.version.gpu = l->gpu;
	daemon_session_send(s, &m, PROTO_PREPARE, fds, (unsigned)n);
	s->policy.prepares_sent++;
	daemon_page_close_fd(&l->region[tenant]);
}
