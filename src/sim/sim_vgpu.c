/* vGPUs of a scenario: `vgpu NAME compute=30 ...` makes one, or changes it when it exists, as
 * gbpf vgpu create and set do; the standard maps about them follow. `gpu gpus=2 mem=8GiB` states
 * how many GPUs there are, and the memory of each. */
#include <inttypes.h>
#include <string.h>

#include "base/compiler.h"
#include "sim/sim_int.h"

struct sim_vgpu *sim_vgpu_named(struct sim_testbed *w, const char *name, size_t len)
{
	for (unsigned i = 0; i < w->n_vgpus; i++) {
		if (strlen(w->vgpu[i].name) == len && memcmp(w->vgpu[i].name, name, len) == 0) {
			return &w->vgpu[i];
		}
	}
	return NULL;
}

/* Returns whether a tenant before t is of the same program, in the same vGPU. */
static bool counts_already(const struct sim_testbed *w, const struct sim_tenant *t)
{
	const struct sim_tenant *i = w->tenant;

	while (i->number != t->number || i->vgpu != t->vgpu) {
		i++;
	}
	return i != t;
}

void sim_vgpus_write(struct sim_testbed *w)
{
	struct ebpf_vgpu_row row[EBPF_VGPUS] = { 0 };
	const struct ebpf_object *o = &w->built.object;

	for (unsigned i = 0; i < w->n_vgpus; i++) {
		row[i] = w->vgpu[i].row;
	}
	for (unsigned i = 0; i < w->n_tenants; i++) {
		const struct sim_tenant *t = &w->tenant[i];

		if (t->vgpu < EBPF_VGPUS) {
			row[t->vgpu].tenants += !counts_already(w, t);
			row[t->vgpu].gpus |= 1u << t->gpu;
			row[t->vgpu].lanes |= 1u << t->lane;
		}
	}
	for (unsigned i = 0; i < w->n_gpus; i++) {
		struct ebpf_env *env = &w->gpu[i].daemon.policy->env;

		ebpf_vgpu_maps_write(env->maps, o->maps, o->n_maps, row);
		ebpf_maps_publish(env->maps, env->n_maps);
	}
}

static int set_vgpu(struct sim *s, struct sim_vgpu *v)
{
	struct ebpf_vgpu_row *r = &v->row;
	uint32_t burst = r->burst, prio = (uint32_t)r->prio;
	const struct sim_property all[] = {
		{ "compute", &r->compute, NULL, 0, 100 },
		{ "copy", &r->copy, NULL, 0, 100 },
		{ "prio", &prio, NULL, 0, 100 },
		{ "burst", &burst, NULL, 0, 1 },
		{ "mem", NULL, &r->limit, 0, UINT64_MAX },
		{ "reserve", NULL, &r->reserve, 0, UINT64_MAX },
		{ "used", NULL, &v->used, 0, UINT64_MAX },
		{ "swap", NULL, &v->swap, 0, UINT64_MAX },
		{ "overhead", NULL, &r->overhead, 0, UINT64_MAX },
	};
	int err = sim_set_properties(s, all, ARRAY_SIZE(all), "vGPU");

	r->burst = burst != 0;
	r->prio = (int32_t)prio;
	return err;
}

int sim_vgpu_statement(struct sim *s)
{
	struct sim_testbed *w = &s->testbed;
	struct sim_vgpu *v;
	char name[SIM_NAME_BYTES];
	int err = sim_take_name(s, name, "vGPU");

	if (err) {
		return err;
	}
	v = sim_vgpu_named(w, name, strlen(name));
	if (!v && w->n_vgpus == EBPF_VGPUS) {
		return sim_wrong(s, s->at, NULL, "more than %u vGPUs", EBPF_VGPUS);
	}
	if (!v) {
		v = &w->vgpu[w->n_vgpus++];
		*v = (struct sim_vgpu){ .row = { .present = true } };
		memcpy(v->name, name, sizeof(name));
	}
	err = set_vgpu(s, v);
	if (!err && !s->dry) {
		sim_regions_moved(w);
	}
	return err;
}

int sim_gpu_statement(struct sim *s)
{
	struct sim_testbed *w = &s->testbed;
	uint32_t gpus = w->n_gpus;
	const struct sim_property all[] = {
		{ "gpus", &gpus, NULL, 1, SIM_MAX_GPUS },
		{ "mem", NULL, &w->gpu_mem, 0, UINT64_MAX },
	};
	const char *at;
	int err;

	sim_blanks(s);
	at = s->at;
	err = sim_set_properties(s, all, ARRAY_SIZE(all), "GPU");
	if (!err && gpus < w->n_gpus) {
		err = sim_wrong(s, at, NULL, "there are %u GPUs already", w->n_gpus);
	}
	if (err) {
		return err;
	}
	if (s->dry) {
		w->n_gpus = gpus;
		return 0;
	}
	err = sim_testbed_gpus(w, gpus);
	if (err) {
		return report_set(s->r, err, "memory", "%u GPUs cannot be made: %s", gpus,
				  strerror(-err));
	}
	sim_vgpus_write(w);
	return 0;
}

int sim_need_gpu(struct sim *s, const char *at, uint64_t gpu)
{
	return gpu < s->testbed.n_gpus ? 0
				       : sim_wrong(s, at, "GPUs are declared with: gpu gpus=N",
						   "there is no GPU %" PRIu64, gpu);
}

uint64_t sim_gpu_free(const struct sim_testbed *w)
{
	uint64_t left = w->gpu_mem;

	for (unsigned i = 0; i < w->n_vgpus; i++) {
		left -= MIN(w->vgpu[i].row.used, left);
	}
	return left;
}

bool sim_vgpu_place(struct sim *s, const char *field, struct sim_value *ret)
{
	struct sim_vgpu *v;

	if (!field || (strcmp(field, "vgpu") != 0 && strcmp(field, "for_vgpu") != 0)) {
		return false;
	}
	v = sim_vgpu_named(&s->testbed, s->at, sim_word(s));
	if (!v) {
		return false;
	}
	s->at += sim_word(s);
	ret->v = (uint64_t)(v - s->testbed.vgpu);
	return true;
}
