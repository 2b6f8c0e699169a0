/* Tenants of a scenario: their properties, the information that gbpfd would have, and the requests
 * of the policy to gbpfd. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/nearest.h"
#include "sim/sim_int.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

#define MAX_NUMBER_OF_TENANTS 1024u

int sim_take_name(struct sim *s, char out[SIM_NAME_BYTES], const char *what)
{
	size_t len;

	sim_blanks(s);
	len = sim_word(s);
	if (!len || len >= SIM_NAME_BYTES) {
		return sim_wrong(s, s->at, NULL, "here the name of a %s is needed", what);
	}
	memcpy(out, s->at, len);
	out[len] = 0;
	s->at += len;
	return 0;
}

int sim_next_pair(struct sim *s, struct sim_pair *p)
{
	int err;

	sim_blanks(s);
	p->at = s->at;
	err = sim_take_name(s, p->name, "field");
	if (err) {
		return err;
	}
	if (!sim_take(s, "=")) {
		return sim_wrong(s, s->at, NULL, "here '=' is needed: %s=VALUE", p->name);
	}
	sim_blanks(s);
	p->value_at = s->at;
	return sim_expression(s, p->name, &p->value);
}

static uint32_t free_number(const struct sim_testbed *w)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < w->n_tenants; i++) {
		if (w->tenant[i].number == n) {
			n++;
			i = (unsigned)-1; /* restart with the next number */
		}
	}
	return n;
}

static int set_tenant(struct sim *s, struct sim_tenant *t)
{
	const struct sim_property all[] = {
		{ "class", &t->class_id, NULL, 0, 2 },
		{ "weight", &t->weight, NULL, 1, 10000 },
		{ "lane", &t->lane, NULL, 0, 1 },
		{ "levels", &t->levels, NULL, 1, 63 },
		{ "number", &t->number, NULL, 0, MAX_NUMBER_OF_TENANTS - 1 },
		{ "gpu", &t->gpu, NULL, 0, SIM_MAX_GPUS - 1 },
		{ "vgpu", &t->vgpu, NULL, 0, EBPF_VGPUS },
		{ "uid", &t->uid, NULL, 0, UINT32_MAX },
		{ "pid", &t->pid, NULL, 0, UINT32_MAX },
	};

	return sim_set_properties(s, all, ARRAY_SIZE(all), "tenant");
}

int sim_tenant_statement(struct sim *s)
{
	struct sim_testbed *w = &s->testbed;
	struct sim_tenant *t = &w->tenant[w->n_tenants];
	const char *at;
	int err;

	sim_blanks(s);
	at = s->at;
	if (w->n_tenants == SIM_MAX_TENANTS) {
		return sim_wrong(s, at, NULL, "more than %u tenants", SIM_MAX_TENANTS);
	}
	*t = (struct sim_tenant){ .class_id = 1,
				  .weight = 100,
				  .level = GBPF_LEVEL_NONE,
				  .vgpu = EBPF_VGPUS,
				  .in.fd = -1 };
	t->number = free_number(w);
	err = sim_take_name(s, t->name, "tenant");
	if (!err && sim_testbed_tenant(w, t->name, strlen(t->name))) {
		err = sim_wrong(s, at, NULL, "there is a tenant '%s' already", t->name);
	}
	err = err ? err : set_tenant(s, t);
	t->pid = t->pid ? t->pid : 1000 + t->number;
	if (!err && t->vgpu < EBPF_VGPUS && t->vgpu >= w->n_vgpus) {
		err = sim_wrong(s, at, "vGPUs are declared with: vgpu NAME",
				"there is no vGPU at place %u", t->vgpu);
	}
	err = err ? err : sim_need_gpu(s, at, t->gpu);
	for (unsigned i = 0; !err && i < w->n_tenants; i++) {
		if (w->tenant[i].number == t->number && w->tenant[i].gpu == t->gpu) {
			err = sim_wrong(s, at, NULL, "tenant '%s' has the number %u already",
					w->tenant[i].name, t->number);
		}
	}
	if (err) {
		return err;
	}
	t->weight_asked = t->weight;
	if (s->dry) {
		w->n_tenants++;
		return 0;
	}
	err = sim_testbed_add(w, t);
	if (!err) {
		sim_vgpus_write(w);
	}
	return err ? report_set(s->r, err, "memory", "tenant '%s' cannot be made: %s", t->name,
				strerror(-err))
		   : 0;
}

/* Returns the tenant named at the current position. Does not move the position. */
static struct sim_tenant *named(struct sim *s)
{
	sim_blanks(s);
	return sim_testbed_tenant(&s->testbed, s->at, sim_word(s));
}

static int no_tenant(struct sim *s)
{
	return sim_wrong(s, s->at, "Tenants are declared with: tenant NAME",
			 "there is no tenant '%.*s'", (int)sim_word(s), s->at);
}

int sim_take_tenant(struct sim *s, bool given, const char *hint, struct sim_tenant **ret)
{
	const struct sim_testbed *w = &s->testbed;

	*ret = given ? named(s) : &s->testbed.tenant[0];
	if (!*ret) {
		return no_tenant(s);
	}
	s->at += given ? sim_word(s) : 0;
	return given || w->n_tenants == 1 ? 0
					  : sim_wrong(s, s->at, hint,
						      w->n_tenants ? "it does not say which tenant"
								   : "there is no tenant yet");
}

/* Returns the statistic with that name in scenarios: busy_ns is GBPF_STAT_BUSY_NS. */
static int statistic(const char *name)
{
	char wanted[SIM_NAME_BYTES + sizeof("STAT_")];
	uint64_t v;

	snprintf(wanted, sizeof(wanted), "STAT_%s", name);
	for (char *c = wanted; *c; c++) {
		*c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
	}
	return sim_constant(NULL, wanted, strlen(wanted), &v) && v < SIM_STATS ? (int)v : -ENOENT;
}

/* The names of statistics in lower case. nearest keeps pointers to the names that it is offered. */
struct names {
	struct nearest n;
	char text[SIM_STATS][SIM_NAME_BYTES];
	unsigned count;
};

static void offer(void *arg, const char *name)
{
	struct names *all = arg;
	char *low = all->text[all->count];

	if (all->count == SIM_STATS - 1) {
		return;
	}
	for (size_t i = 0; name[i] && i + 1 < SIM_NAME_BYTES; i++) {
		low[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
	}
	all->count++;
	nearest_offer(&all->n, low);
}

static int unknown_statistic(struct sim *s, const struct sim_pair *p)
{
	struct names all = { .count = 0 };
	struct buf text = { 0 };

	nearest_init(&all.n, p->name);
	sim_constant_each("stat", offer, &all);
	for (unsigned i = 0; i < all.count; i++) {
		buf_printf(&text, "%s%s", i ? ", " : "", all.text[i]);
	}
	sim_unknown(s, p->at, &all.n, &text, "there is no statistic '%s' of tenants", p->name);
	buf_finish(&text);
	return -EINVAL;
}

int sim_stat_statement(struct sim *s)
{
	struct sim_tenant *t = named(s);
	struct sim_pair p;
	int err = 0;

	if (!t) {
		return no_tenant(s);
	}
	s->at += sim_word(s);
	while (!err && (sim_blanks(s), *s->at)) {
		int what;

		err = sim_next_pair(s, &p);
		if (err) {
			return err;
		}
		what = statistic(p.name);
		if (what < 0) {
			return unknown_statistic(s, &p);
		}
		if (what == GBPF_STAT_LANE || what == GBPF_STAT_UID) {
			return sim_wrong(s, p.at, "Set it with: tenant NAME lane=... uid=...",
					 "%s is a property of the tenant", p.name);
		}
		t->stat[what] = p.value.v;
	}
	return err;
}

bool sim_of_tenant(struct sim *s, struct sim_value *ret, int *ret_err)
{
	static const char *const words[] = { "slice_us", "level", "lane", "class_id", "weight" };
	const char *at = s->at;
	struct sim_tenant *t;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!sim_take_word(s, words[i])) {
			continue;
		}
		if (!sim_take_word(s, "of")) {
			break;
		}
		t = named(s);
		*ret_err = t ? 0 : no_tenant(s);
		if (t) {
			const uint32_t have[] = { t->slice_us, t->level, t->lane, t->class_id,
						  t->weight };

			s->at += sim_word(s);
			ret->v = have[i];
		}
		return true;
	}
	s->at = at;
	return false;
}

bool sim_explained(struct sim *s, const struct sim_tenant **ret, int *ret_err)
{
	const char *at = s->at;

	if (!sim_take_word(s, "explained") || !sim_take_word(s, "of")) {
		s->at = at;
		return false;
	}
	*ret = named(s);
	*ret_err = *ret ? 0 : no_tenant(s);
	s->at += *ret ? sim_word(s) : 0;
	return true;
}

bool sim_tenant_number(struct sim *s, const char *field, struct sim_value *ret)
{
	struct sim_tenant *t;

	if (!field || (strcmp(field, "for_tenant") != 0 && strcmp(field, "tenant") != 0)) {
		return false;
	}
	t = named(s);
	if (!t) {
		return false;
	}
	s->at += sim_word(s);
	ret->v = t->number;
	return true;
}
