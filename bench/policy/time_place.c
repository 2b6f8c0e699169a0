/* A policy in memory of its own, the inputs of programs, and the timed loops. */
#include "bench/policy/bench_policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "base/shm.h"

static void *tenant_region(void *ctx, uint32_t tenant)
{
	struct bench_policy_place *pl = ctx;

	return tenant < POLICY_TENANTS ? pl->tenants + tenant * pl->bytes[EBPF_REGION_TENANT]
				       : NULL;
}

static int tenant_class(void *ctx, uint32_t tenant)
{
	return tenant < POLICY_TENANTS ? (int)tenant % 3 : -ENOENT;
}

static int tenant_weight(void *ctx, uint32_t tenant)
{
	return tenant < POLICY_TENANTS ? 100 + (int)tenant : -ENOENT;
}

int bench_policy_place_open(struct bench_policy_place *pl, const struct ebpf_built *b,
			    unsigned flags)
{
	int err = 0;

	memset(pl, 0, sizeof(*pl));
	for (int r = 0; r < EBPF_REGIONS; r++) {
		pl->fds[r] = -1;
		pl->bytes[r] = b->region_bytes[r];
	}
	for (int r = 0; r < EBPF_REGIONS && !err; r++) {
		if (!pl->bytes[r] || r == EBPF_REGION_DAEMON) {
			continue;
		}
		pl->fds[r] = shm_create("gbpf-bench", pl->bytes[r], SHM_NOEXEC);
		pl->mem[r] = pl->fds[r] < 0 ? NULL : shm_map(pl->fds[r], pl->bytes[r], 1);
		if (pl->mem[r]) {
			ebpf_built_init_region(b, (enum ebpf_region)r, pl->mem[r]);
		} else {
			err = -ENOMEM;
		}
	}
	pl->tenants = calloc(POLICY_TENANTS, pl->bytes[EBPF_REGION_TENANT] + 1);
	if (!err) {
		err = pl->tenants ? ebpf_policy_open(&pl->p, b->image_fd, pl->fds,
						     EBPF_OPEN_DAEMON | flags)
				  : -ENOMEM;
	}
	if (err) {
		bench_policy_place_close(pl);
		return err;
	}
	pl->ops = (struct ebpf_tenant_ops){ tenant_region, tenant_class, tenant_weight, .ctx = pl };
	pl->p.env.tenants = &pl->ops;
	pl->p.env.random_state = 1;
	return 0;
}

void bench_policy_place_close(struct bench_policy_place *pl)
{
	if (pl->p.image) {
		ebpf_policy_close(&pl->p);
	}
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (pl->mem[r]) {
			shm_unmap(pl->mem[r], pl->bytes[r]);
		}
		if (pl->fds[r] >= 0) {
			fd_close(pl->fds[r]);
		}
	}
	free(pl->tenants);
	memset(pl, 0, sizeof(*pl));
}

int bench_policy_build_file(struct ebpf_built *b, const char *path, struct report *r)
{
	const char *name = strrchr(path, '/');
	struct buf elf;
	int err;

	buf_init(&elf);
	err = buf_read_file(&elf, path, 16u << 20);
	if (err) {
		report_set(r, err, "file", "%s: %s", path, strerror(-err));
	} else {
		err = ebpf_policy_build(b, elf.data, elf.len, name ? name + 1 : path, 1, 0, r);
	}
	buf_finish(&elf);
	return err;
}

/* ---- inputs ---- */

static uint64_t mix(uint64_t z)
{
	z += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void fill_submit(struct gbpf_submit_ctx *c, uint64_t x, unsigned i)
{
	c->kernel = mix(x % 5);
	c->est_ns = x % 7 ? 20000 + x % 50000 : 0;
	c->blocks = 132;
	c->inflight = (uint32_t)(x >> 8) % 6;
	c->inflight_ns = c->inflight * c->est_ns;
	c->lc_open = (x >> 16) % 8 == 0;
	c->lc_idle_ns = c->lc_open ? 0 : 100000 * (i % 6 + 1);
	c->tenant = 3;
	c->queue = i % 3;
	c->class_id = (x >> 24) % 4 == 3 ? GBPF_CLASS_LATENCY : GBPF_CLASS_BATCH;
	c->weight = 100;
	c->kind = (x >> 32) % 8 == 0 ? GBPF_KIND_COPY : GBPF_KIND_KERNEL;
	c->asked = 1; /* a repeated call skips the counters of gbpf_note, which would dominate the
			 measurement */
	c->threads = 256;
}

void bench_policy_fill_contexts(union bench_policy_ctx c[POLICY_CONTEXTS], unsigned hook)
{
	memset(c, 0, sizeof(*c) * POLICY_CONTEXTS);
	for (unsigned i = 0; i < POLICY_CONTEXTS; i++) {
		uint64_t x = mix(i);

		switch (hook) {
		case HOOK_submit:
			fill_submit(&c[i].submit, x, i);
			break;
		case HOOK_retire:
			c[i].retire =
				(struct gbpf_retire_ctx){ .kernel = x,
							  .duration_ns = 20000 + x % 100000,
							  .submit_version = 1,
							  .tenant = 3,
							  .queue = i % 3,
							  .class_id = GBPF_CLASS_BATCH,
							  .weight = 100 + (uint32_t)(x >> 32) % 50,
							  .count = 1 + (x >> 20) % 4 };
			break;
		case HOOK_dispatch:
			c[i].dispatch =
				(struct gbpf_dispatch_ctx){ .held_ns = x % 200000000,
							    .est_ns = 20000,
							    .tenant = 3,
							    .class_id = (uint32_t)(x >> 32) % 3,
							    .priority = (int)(x >> 40) % 2 };
			break;
		case HOOK_admit:
			c[i].admit = (struct gbpf_admit_ctx){ .tenant = i % POLICY_TENANTS,
							      .class_id = i % 3,
							      .weight = 100 };
			break;
		default:
			c[i].tick = (struct gbpf_tick_ctx){ .period_ns = 1000000 + x % 1000,
							    .epoch = x,
							    .tenants = POLICY_TENANTS,
							    .active = POLICY_TENANTS };
		}
	}
}

static void fill_text(char *b, size_t n, uint64_t x)
{
	static const char *const keys[] = { "wgt", "lim", "class", "Quota", "wgt", "x" };
	size_t at = 0;

	while (at < n) {
		char word[32];
		int len = snprintf(word, sizeof(word), "%s=%u ", keys[x % 6],
				   (unsigned)(x >> 32) % 100000);

		memcpy(b + at, word, MIN((size_t)len, n - at));
		at += (size_t)len;
		x = mix(x);
	}
}

void bench_policy_fill_maps(struct bench_policy_place *pl)
{
	for (uint32_t i = 0; i < pl->p.env.n_maps; i++) {
		const struct ebpf_map *m = &pl->p.env.maps[i];
		const char *name = pl->p.defs[i].name;
		int sorted = strcmp(name, "sorted") == 0, texts = strcmp(name, "texts") == 0;

		if (!sorted && !texts && strcmp(name, "inputs") != 0) {
			continue;
		}
		for (uint32_t k = 0; k < m->max_entries; k++) {
			uint8_t *value = m->data + (size_t)k * m->stride;

			if (texts) {
				fill_text((char *)value, 64, mix(k));
				continue;
			}
			for (uint32_t w = 0; w < (sorted ? m->value_bytes / 4 : 16); w++) {
				uint32_t v = (uint32_t)mix(k * 64 + w);

				v = sorted ? w * (UINT32_MAX / 64) : v;
				memcpy(value + 4 * w, &v, 4);
			}
		}
	}
}

/* ---- timing ---- */

NOINLINE double bench_policy_time(ebpf_entry fn, struct ebpf_env *env,
				  union bench_policy_ctx c[POLICY_CONTEXTS], unsigned calls)
{
	uint64_t begin = clock_cpu_ns(), now = begin;

	for (unsigned i = 0; i < calls; i++) {
		union bench_policy_ctx *x = &c[i % POLICY_CONTEXTS];

		x->now_ns = now += 1000;
		if (fn) {
			fn(x, env);
		}
		compiler_barrier();
	}
	return (double)(clock_cpu_ns() - begin) / calls;
}

NOINLINE double bench_policy_time_interpreted(const struct ebpf_code *code, struct ebpf_env *env,
					      union bench_policy_ctx c[POLICY_CONTEXTS],
					      unsigned calls)
{
	uint64_t begin = clock_cpu_ns(), now = begin;

	for (unsigned i = 0; i < calls; i++) {
		union bench_policy_ctx *x = &c[i % POLICY_CONTEXTS];

		x->now_ns = now += 1000;
		ebpf_interp_code(code, x, env);
		compiler_barrier();
	}
	return (double)(clock_cpu_ns() - begin) / calls;
}
