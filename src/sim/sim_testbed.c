/* The instances of the policy as in operation, for each GPU: one of gbpfd, and one per tenant that
 * maps global maps read-only and has its own memory. Only the clock and the tenants come from the
 * scenario. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "base/shm.h"
#include "bpf/run/ctx_bound.h"
#include "sim/sim_int.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

/* Default levels available for a tenant of each lane. */
enum {
	COMMON_LEVELS = 1u << GBPF_LEVEL_HOLD | 1u << GBPF_LEVEL_DRAIN | 1u << GBPF_LEVEL_BLOCK,
	PROCESS_LEVELS = COMMON_LEVELS | 1u << GBPF_LEVEL_SLICE | 1u << GBPF_LEVEL_OFF,
	SHARED_LEVELS = COMMON_LEVELS | 1u << GBPF_LEVEL_END
};

static uint64_t now_ns;

uint64_t sim_now(void)
{
	return now_ns;
}

void sim_set_now(uint64_t ns)
{
	now_ns = ns;
}

/* ctx: the GPU whose instance asks. It sees no other tenants than its own. */
static struct sim_tenant *numbered(void *ctx, uint32_t number)
{
	struct sim_gpu *g = ctx;
	struct sim_testbed *w = g->w;

	for (unsigned i = 0; i < w->n_tenants; i++) {
		if (w->tenant[i].number == number && &w->gpu[w->tenant[i].gpu] == g) {
			return &w->tenant[i];
		}
	}
	return NULL;
}

static void *region_of(void *ctx, uint32_t tenant)
{
	const struct sim_tenant *t = numbered(ctx, tenant);

	return t ? t->in.base : NULL;
}

static int class_of(void *ctx, uint32_t tenant)
{
	const struct sim_tenant *t = numbered(ctx, tenant);

	return t ? (int)t->class_id : -ENOENT;
}

static int weight_of(void *ctx, uint32_t tenant)
{
	const struct sim_tenant *t = numbered(ctx, tenant);

	return t ? (int)t->weight : -ENOENT;
}

static int vgpu_of(void *ctx, uint32_t tenant)
{
	const struct sim_tenant *t = numbered(ctx, tenant);

	return t ? (int)t->vgpu : -ENOENT;
}

static uint64_t stat_of(void *ctx, uint32_t tenant, uint32_t what)
{
	const struct sim_tenant *t = numbered(ctx, tenant);

	if (!t || what >= SIM_STATS) {
		return 0;
	}
	return what == GBPF_STAT_LANE ? t->lane : what == GBPF_STAT_UID ? t->uid : t->stat[what];
}

static uint32_t levels_of(const struct sim_tenant *t)
{
	return t->levels ? t->levels : t->lane == GBPF_LANE_SHARED ? SHARED_LEVELS : PROCESS_LEVELS;
}

static int slice_set(void *ctx, uint32_t tenant, uint32_t slice_us)
{
	struct sim_tenant *t = numbered(ctx, tenant);

	if (!t) {
		return -ENOENT;
	}
	if (!(levels_of(t) & 1u << GBPF_LEVEL_SLICE)) {
		return -ENOTSUP;
	}
	t->slice_us = slice_us;
	return 0;
}

static int explain(void *ctx, uint32_t tenant, const char *text)
{
	struct sim_tenant *t = numbered(ctx, tenant);

	if (!t) {
		return -ENOENT;
	}
	snprintf(t->explained, sizeof(t->explained), "%s", text);
	return 0;
}

/* Records a preemption level that gbpfd applies from outside; the process applies the other levels.
 */
static int preempt_now(void *ctx, uint32_t tenant, uint32_t level)
{
	struct sim_tenant *t = numbered(ctx, tenant);

	if (!t) {
		return -ENOENT;
	}
	if (level != GBPF_LEVEL_HOLD && level != GBPF_LEVEL_SLICE && level != GBPF_LEVEL_OFF) {
		return -EINVAL;
	}
	if (!(levels_of(t) & 1u << level)) {
		return -ENOTSUP;
	}
	t->level = level;
	return 0;
}

static int make_region(const struct ebpf_built *b, enum ebpf_region region, int *fd, void **base)
{
	size_t bytes = b->region_bytes[region];

	*fd = -1;
	*base = NULL;
	if (!bytes) {
		return 0;
	}
	*fd = shm_create("gbpf-test", bytes, SHM_NOEXEC);
	*base = *fd < 0 ? NULL : shm_map(*fd, bytes, 1);
	if (!*base) {
		return -ENOMEM;
	}
	ebpf_built_init_region(b, region, *base);
	return 0;
}

static int open_instance(struct sim_testbed *w, struct sim_instance *in, uint32_t gpu,
			 unsigned flags)
{
	int fds[EBPF_REGIONS] = { w->gpu[gpu].global_fd, in->fd, -1, w->all_gpus_fd };
	int err;

	in->policy = calloc(1, sizeof(*in->policy));
	if (!in->policy) {
		return -ENOMEM;
	}
	err = ebpf_policy_open(in->policy, w->built.image_fd, fds, w->open_flags | flags);
	if (err) {
		free(in->policy);
		in->policy = NULL;
		return err;
	}
	in->policy->env.random_state =
		UINT64_C(0x9e3779b97f4a7c15) ^ w->n_tenants ^ (uint64_t)gpu << 48;
	return 0;
}

static void close_instance(struct sim_testbed *w, struct sim_instance *in)
{
	if (in->policy) {
		ebpf_policy_close(in->policy);
		free(in->policy);
	}
	shm_unmap(in->base, w->built.region_bytes[EBPF_REGION_TENANT]);
	fd_close(in->fd);
}

static int open_gpu(struct sim_testbed *w, uint32_t gpu)
{
	struct sim_gpu *g = &w->gpu[gpu];
	int err = make_region(&w->built, EBPF_REGION_GLOBAL, &g->global_fd, &g->global);

	if (err) {
		return err;
	}
	err = open_instance(w, &g->daemon, gpu, EBPF_OPEN_DAEMON);
	if (err) {
		return err;
	}
	if (g->daemon.policy->region[EBPF_REGION_DAEMON]) {
		ebpf_built_init_region(&w->built, EBPF_REGION_DAEMON,
				       g->daemon.policy->region[EBPF_REGION_DAEMON]);
	}
	g->ops = (struct ebpf_tenant_ops){ .region = region_of,
					   .class_id = class_of,
					   .weight = weight_of,
					   .vgpu = vgpu_of,
					   .stat = stat_of,
					   .slice_set = slice_set,
					   .preempt_now = preempt_now,
					   .explain = explain,
					   .ctx = g };
	g->daemon.policy->env.tenants = &g->ops;
	g->last_tick_ns = sim_now();
	return 0;
}

int sim_testbed_gpus(struct sim_testbed *w, unsigned n)
{
	int err = 0;

	while (!err && w->n_gpus < n) {
		err = open_gpu(w, w->n_gpus);
		w->n_gpus += !err;
	}
	return err;
}

int sim_testbed_init(struct sim_testbed *w, const struct sim_options *o, struct report *r)
{
	bool jit = o->flags & SIM_JIT;
	void *all_gpus;
	int err;

	memset(w, 0, sizeof(*w));
	w->all_gpus_fd = -1;
	for (unsigned i = 0; i < SIM_MAX_GPUS; i++) {
		w->gpu[i] = (struct sim_gpu){ .w = w, .global_fd = -1, .daemon.fd = -1 };
	}
	w->open_flags = jit ? 0 : EBPF_OPEN_NO_JIT;
	err = ebpf_policy_build(&w->built, o->elf, o->elf_bytes, o->policy, 1,
				jit ? 0 : EBPF_BUILD_NO_JIT, r);
	if (err) {
		w->built.image_fd = -1;
		return err;
	}
	sim_set_now(SIM_START_NS);
	clock_set_source(sim_now);
	err = make_region(&w->built, EBPF_REGION_ALL_GPUS, &w->all_gpus_fd, &all_gpus);
	shm_unmap(all_gpus, w->built.region_bytes[EBPF_REGION_ALL_GPUS]);
	err = err ? err : sim_testbed_gpus(w, 1);
	if (err) {
		return report_set(r, err, "memory", "%s: the policy cannot be set up: %s",
				  o->policy, strerror(-err));
	}
	return 0;
}

void sim_testbed_finish(struct sim_testbed *w)
{
	clock_set_source(NULL);
	for (unsigned i = 0; i < w->n_tenants; i++) {
		close_instance(w, &w->tenant[i].in);
		sim_memory_finish(&w->tenant[i].mem);
	}
	for (unsigned i = 0; i < SIM_MAX_GPUS; i++) {
		close_instance(w, &w->gpu[i].daemon);
		shm_unmap(w->gpu[i].global, w->built.region_bytes[EBPF_REGION_GLOBAL]);
		fd_close(w->gpu[i].global_fd);
	}
	fd_close(w->all_gpus_fd);
	if (w->built.image_fd >= 0) {
		ebpf_built_finish(&w->built);
	}
}

int sim_testbed_add(struct sim_testbed *w, struct sim_tenant *t)
{
	int err = make_region(&w->built, EBPF_REGION_TENANT, &t->in.fd, &t->in.base);

	if (!err) {
		err = open_instance(w, &t->in, t->gpu, 0);
	}
	if (err) {
		close_instance(w, &t->in);
		return err;
	}
	w->n_tenants++;
	return 0;
}

struct sim_tenant *sim_testbed_tenant(struct sim_testbed *w, const char *name, size_t len)
{
	for (unsigned i = 0; i < w->n_tenants; i++) {
		if (strlen(w->tenant[i].name) == len && memcmp(w->tenant[i].name, name, len) == 0) {
			return &w->tenant[i];
		}
	}
	return NULL;
}

static void put(const struct sim_hook *h, void *ctx, const char *name, uint64_t v)
{
	const struct sim_field *f = sim_field_named(h->id, name, strlen(name));

	if (f) {
		sim_field_set(f, ctx, v);
	}
}

static void tenant_defaults(const struct sim_hook *h, const struct sim_tenant *t, void *ctx)
{
	put(h, ctx, "tenant", t->number);
	put(h, ctx, "class_id", t->class_id);
	put(h, ctx, "weight", strcmp(h->name, "admit") == 0 ? t->weight_asked : t->weight);
	put(h, ctx, "uid", t->uid);
	put(h, ctx, "pid", t->pid);
	put(h, ctx, "lane", t->lane);
	put(h, ctx, "vgpu", t->vgpu);
	put(h, ctx, "levels", levels_of(t));
}

static void vgpu_defaults(const struct sim_testbed *w, const struct sim_hook *h,
			  const struct sim_tenant *t, void *ctx)
{
	const struct ebpf_vgpu_row *r = &w->vgpu[t->vgpu < EBPF_VGPUS ? t->vgpu : 0].row;

	if (t->vgpu < EBPF_VGPUS) {
		put(h, ctx, "mem_limit", r->limit);
		put(h, ctx, "mem_reserve", r->reserve);
		put(h, ctx, "mem_used", r->used);
		put(h, ctx, "compute", r->compute);
		put(h, ctx, "copy", r->copy);
		put(h, ctx, "prio", (uint64_t)(int64_t)r->prio);
		put(h, ctx, "burst", r->burst);
	}
}

static void testbed_defaults(const struct sim_testbed *w, const struct sim_hook *h, uint32_t gpu,
			     void *ctx)
{
	bool is_tick = strcmp(h->name, "tick") == 0;
	uint32_t n = 0, top = 0, latency = 0, batch = 0;

	for (unsigned i = 0; i < w->n_tenants; i++) {
		if (w->tenant[i].gpu == gpu) {
			n++;
			top = MAX(top, w->tenant[i].number + 1);
			latency += w->tenant[i].class_id == GBPF_CLASS_LATENCY;
			batch += w->tenant[i].class_id == GBPF_CLASS_BATCH;
		}
	}
	put(h, ctx, "gpu", gpu);
	put(h, ctx, "tenants", is_tick ? top : n ? n - 1 : 0);
	put(h, ctx, "active", n);
	put(h, ctx, "latency_tenants", latency);
	put(h, ctx, "batch_tenants", batch);
	put(h, ctx, "period_ns", sim_now() - w->gpu[gpu].last_tick_ns);
	put(h, ctx, "epoch", w->gpu[gpu].ticks);
	put(h, ctx, "version", 1);
	put(h, ctx, "mem_size", w->gpu_mem);
	put(h, ctx, "mem_free", sim_gpu_free(w));
}

/* Excludes the requesting tenant from the counts of admitted tenants. */
static void leave_out(const struct sim_hook *h, const struct sim_tenant *t, void *ctx)
{
	const char *name = t->class_id == GBPF_CLASS_LATENCY ? "latency_tenants"
			   : t->class_id == GBPF_CLASS_BATCH ? "batch_tenants"
							     : "";
	const struct sim_field *f = sim_field_named(h->id, name, strlen(name));

	if (f) {
		sim_field_set(f, ctx, sim_field_get(f, ctx) - 1);
	}
}

void sim_testbed_defaults(struct sim_testbed *w, const struct sim_hook *h,
			  const struct sim_tenant *t, uint32_t gpu, void *ctx)
{
	memset(ctx, 0, SIM_CTX_BYTES);
	put(h, ctx, "now_ns", sim_now());
	put(h, ctx, "lc_idle_ns", UINT64_MAX);
	put(h, ctx, "lc_next_ns", UINT64_MAX);
	put(h, ctx, "lanes", 1u << GBPF_LANE_PROCESS);
	put(h, ctx, "sm_percent", 100);
	put(h, ctx, "cpu_weight", 100);
	put(h, ctx, "tried", GBPF_LEVEL_NONE);
	put(h, ctx, "count", 1);
	put(h, ctx, "vgpu", EBPF_VGPUS);
	put(h, ctx, "for_vgpu", EBPF_VGPUS);
	put(h, ctx, "linger_ns", 200000);
	put(h, ctx, "blocks", 1);
	put(h, ctx, "threads", 1);
	put(h, ctx, "number", 1);
	put(h, ctx, "ranks", 2);
	put(h, ctx, "ready", 1);
	put(h, ctx, "drain_ns", 1000000000);
	testbed_defaults(w, h, gpu, ctx);
	if (t) {
		tenant_defaults(h, t, ctx);
		vgpu_defaults(w, h, t, ctx);
		leave_out(h, t, ctx);
	}
	if (strcmp(h->name, "retire") == 0) {
		put(h, ctx, "submit_version", 1);
	}
}

bool sim_testbed_fills(const struct sim_testbed *w, int hook)
{
	return ebpf_built_stats(&w->built, (int)hook) != NULL;
}

int64_t sim_testbed_run(struct sim_testbed *w, const struct sim_hook *h, struct sim_instance *in,
			uint32_t gpu, void *ctx)
{
	struct ebpf_policy *p = in->policy;
	int64_t verdict = 0;

	if (p->insns[h->id]) {
		/* As in gBPF, the verdict is a 32-bit int. */
		ebpf_ctx_bound((unsigned)h->id, ctx);
		verdict = (int32_t)ebpf_policy_run(p, (unsigned)h->id, ctx);
	}
	if (h->daemon) {
		ebpf_maps_publish(p->env.maps, p->env.n_maps);
	}
	if (strcmp(h->name, "tick") == 0) {
		w->gpu[gpu].last_tick_ns = sim_now();
		w->gpu[gpu].ticks++;
	}
	return verdict;
}
