/* Loads a policy as gbpfd and a session do together, in one process. */
#include "bench/policy/hook_policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "bench/control/contexts.h"
#include "bpf/load/jit/jit.h"

#define PRIME_TICKS 50u

struct place {
	int fd[EBPF_REGIONS];
	void *base[EBPF_REGIONS];
	size_t bytes[EBPF_REGIONS];
};

static void place_finish(struct place *pl)
{
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (pl->base[r]) {
			shm_unmap(pl->base[r], pl->bytes[r]);
		}
		fd_close(pl->fd[r]);
	}
}

/* Allocates the regions that gbpfd sends to sessions, with the initial values of data sections. */
static int place_init(struct place *pl, const struct ebpf_built *b)
{
	for (int r = 0; r < EBPF_REGIONS; r++) {
		pl->fd[r] = -1;
		pl->base[r] = NULL;
		pl->bytes[r] = b ? b->region_bytes[r] : 0;
	}
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (!pl->bytes[r] || r == EBPF_REGION_DAEMON) {
			continue;
		}
		pl->fd[r] = shm_create("gbpf-bench", pl->bytes[r], SHM_NOEXEC);
		pl->base[r] = pl->fd[r] < 0 ? NULL : shm_map(pl->fd[r], pl->bytes[r], 1);
		if (!pl->base[r]) {
			return -ENOMEM;
		}
		ebpf_built_init_region(b, (enum ebpf_region)r, pl->base[r]);
	}
	return 0;
}

static void *tenant_region(void *ctx, uint32_t tenant)
{
	struct place *pl = ctx;

	return tenant == HOOK_TENANT ? pl->base[EBPF_REGION_TENANT] : NULL;
}

static int tenant_class(void *ctx, uint32_t tenant)
{
	return tenant == HOOK_TENANT ? GBPF_CLASS_BATCH : -ENOENT;
}

static int tenant_weight(void *ctx, uint32_t tenant)
{
	return tenant == HOOK_TENANT ? 100 : -ENOENT;
}

/* Acts as gbpfd: admits the tenant and ticks, so that the maps have the contents that they have in
 * use. */
static int prime(struct place *pl, int image_fd)
{
	struct ebpf_tenant_ops ops = { tenant_region, tenant_class, tenant_weight, .ctx = pl };
	struct ebpf_policy *p = malloc(sizeof(*p));
	struct gbpf_admit_ctx admit = { .tenant = HOOK_TENANT,
					.class_id = GBPF_CLASS_BATCH,
					.weight = 100,
					.lanes = 1u << GBPF_LANE_PROCESS,
					.sm_percent = 100,
					.cpu_weight = 100 };
	int fds[EBPF_REGIONS] = { pl->fd[EBPF_REGION_GLOBAL], -1, -1, -1 };
	int err = p ? ebpf_policy_open(p, image_fd, fds, EBPF_OPEN_DAEMON) : -ENOMEM;

	if (err) {
		free(p);
		return err;
	}
	p->env.tenants = &ops;
	admit.now_ns = clock_now_ns();
	if (p->insns[HOOK_admit]) {
		ebpf_policy_run(p, HOOK_admit, &admit);
	}
	for (unsigned i = 0; i < PRIME_TICKS && p->insns[HOOK_tick]; i++) {
		struct gbpf_tick_ctx tick = { .now_ns = admit.now_ns + i * UINT64_C(1000000),
					      .period_ns = 1000000,
					      .epoch = i,
					      .tenants = HOOK_TENANT + 1,
					      .active = 1 };

		ebpf_policy_run(p, HOOK_tick, &tick);
	}
	ebpf_policy_close(p);
	free(p);
	return 0;
}

static int open_both(struct bench_hook_policy *p, int image_fd, const struct place *pl,
		     struct report *r)
{
	int err = ebpf_policy_open(&p->compiled, image_fd, pl->fd, 0);

	if (!err) {
		err = ebpf_policy_open(&p->interpreted, image_fd, pl->fd, EBPF_OPEN_NO_JIT);
		if (err) {
			ebpf_policy_close(&p->compiled);
		}
	}
	return err ? report_set(r, err, "open", "cannot open %s: %s", p->name, strerror(-err)) : 0;
}

static void note_program(struct bench_hook_policy *p, const struct ebpf_built *b)
{
	for (uint32_t i = 0; i < b->object.n_progs; i++) {
		int hook = b->object.progs[i].hook;

		p->n_insns[hook] = b->object.progs[i].n_insns;
		p->cost[hook] = b->stats[hook].cost;
	}
}

int bench_hook_policy_load(struct bench_hook_policy *p, const char *path, const char *name,
			   struct report *r)
{
	struct ebpf_built *b = calloc(1, sizeof(*b));
	struct buf elf = { 0 };
	struct place pl;
	int err;

	memset(p, 0, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "%s", name);
	err = b ? buf_read_file(&elf, path, 16u << 20) : -ENOMEM;
	if (err) {
		report_set(r, err, "file", "%s: %s", path, strerror(-err));
		goto out;
	}
	err = ebpf_policy_build(b, elf.data, elf.len, name, 1, 0, r);
	if (err) {
		goto out;
	}
	err = place_init(&pl, b);
	if (!err) {
		err = prime(&pl, b->image_fd);
	}
	if (!err) {
		note_program(p, b);
		err = open_both(p, b->image_fd, &pl, r);
	}
	place_finish(&pl);
	ebpf_built_finish(b);
out:
	if (err) {
		report_set(r, err, "open", "%s: %s", path, strerror(-err));
	}
	free(b);
	buf_finish(&elf);
	return err;
}

int bench_hook_policy_empty(struct bench_hook_policy *p, struct report *r)
{
	static const struct ebpf_insn insns[] = { { .code = EBPF_ALU64 | EBPF_MOV | EBPF_K },
						  { .code = EBPF_JMP | EBPF_EXIT } };
	struct ebpf_image_header *h = calloc(1, sizeof(*h));
	uint8_t code[256];
	size_t bytes = 0;
	struct place pl;
	int fd, err, at;

	memset(p, 0, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "empty");
	if (!h || place_init(&pl, NULL) < 0) {
		free(h);
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	h->version = 1;
	snprintf(h->name, sizeof(h->name), "empty");
	h->n_insns = ARRAY_SIZE(insns);
	at = ebpf_jit_x86(insns, ARRAY_SIZE(insns), NULL, 0, code, sizeof(code), &bytes);
	h->progs[HOOK_submit] =
		(struct ebpf_image_prog){ .n_insns = ARRAY_SIZE(insns),
					  .cost = 2,
					  .code_offset = at < 0 ? UINT32_MAX : (uint32_t)at };
	fd = ebpf_image_build(h, NULL, insns, at < 0 ? NULL : code, at < 0 ? 0 : bytes);
	err = fd < 0 ? report_set(r, fd, "image", "empty: %s", strerror(-fd))
		     : open_both(p, fd, &pl, r);
	p->n_insns[HOOK_submit] = p->cost[HOOK_submit] = 2;
	fd_close(fd);
	free(h);
	return err;
}

void bench_hook_policy_close(struct bench_hook_policy *p)
{
	ebpf_policy_close(&p->compiled);
	ebpf_policy_close(&p->interpreted);
}
