/* The time from an object's bytes to runnable code, and the verifier's part of it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "bench/policy/bench_policy.h"

#define POLICY_US 1000.0
#define LOAD_US 500.0

struct load {
	double verify_us, visit_ns, all_us;
	uint32_t visited, insns;
};

/* The verifier alone. */
static int verify_once(const struct buf *elf, struct load *l, struct report *r)
{
	struct ebpf_object *o = malloc(sizeof(*o));
	uint64_t begin, end;
	int err = o ? ebpf_object_open(o, elf->data, elf->len, "load", r) : -ENOMEM;

	if (err) {
		free(o);
		return err;
	}
	*l = (struct load){ 0 };
	begin = clock_cpu_ns();
	for (uint32_t i = 0; i < o->n_progs && !err; i++) {
		struct ebpf_verify_stats stats = { 0 };

		err = ebpf_verify(&o->progs[i], o->maps, o->n_maps, 0, &stats, r);
		l->visited += stats.visited;
		l->insns += o->progs[i].n_insns;
	}
	end = clock_cpu_ns();
	l->verify_us = (double)(end - begin) / 1e3;
	l->visit_ns = l->visited ? (double)(end - begin) / l->visited : 0;
	ebpf_object_finish(o);
	free(o);
	return err;
}

/* Performs all steps between the bytes of the object and a policy that a process can call. */
static int load_once(const struct buf *elf, struct load *l, struct report *r)
{
	uint64_t begin = clock_cpu_ns();
	struct bench_policy_place *pl = malloc(sizeof(*pl));
	struct ebpf_built *b = malloc(sizeof(*b));
	int err = pl && b ? ebpf_policy_build(b, elf->data, elf->len, "load", 1, 0, r) : -ENOMEM;

	if (!err) {
		err = bench_policy_place_open(pl, b, 0);
		l->all_us = (double)(clock_cpu_ns() - begin) / 1e3;
		if (!err) {
			bench_policy_place_close(pl);
		}
		ebpf_built_finish(b);
	}
	free(pl);
	free(b);
	return err;
}

struct times {
	double verify_us[1000], visit_ns[1000], all_us[1000];
};

static int record(const struct bench_policy_settings *s, const char *name, const struct times *t,
		  const struct load *l)
{
	char what[80];
	int err;

	snprintf(what, sizeof(what), "verify %s (%u insns, %u visited)", name, l->insns,
		 l->visited);
	err = bench_policy_goal(s, what, t->verify_us, "us", POLICY_US);
	if (strcmp(name, "load200") == 0) {
		snprintf(what, sizeof(what), "object to running code, %u insns", l->insns);
		err |= bench_policy_goal(s, what, t->all_us, "us", LOAD_US);
	}
	return err | bench_program_record("visits",
					  json_pack("{s:i, s:o}", "visited", (int)l->visited, "ns",
						    bench_program_doubles(t->visit_ns, s->repeat)));
}

static int bench_one(const struct bench_policy_settings *s, const char *folder, const char *name)
{
	struct times *t = malloc(sizeof(*t));
	struct load l = { 0 };
	struct report r;
	char path[PATH_MAX];
	struct buf elf;
	int err;

	report_init(&r);
	buf_init(&elf);
	snprintf(path, sizeof(path), "%s/%s.bpf.o", folder, name);
	err = t ? buf_read_file(&elf, path, 16u << 20) : -ENOMEM;
	for (unsigned k = 0; k < s->repeat && !err; k++) {
		err = verify_once(&elf, &l, &r);
		err = err ? err : load_once(&elf, &l, &r);
		t->verify_us[k] = l.verify_us;
		t->visit_ns[k] = l.visit_ns;
		t->all_us[k] = l.all_us;
	}
	if (err) {
		fprintf(stderr, "gbpf: bench dev policy: %s: %s\n", path,
			r.message.len ? buf_text(&r.message) : strerror(-err));
	} else {
		err = record(s, name, t, &l);
	}
	buf_finish(&elf);
	report_finish(&r);
	free(t);
	return err;
}

int bench_policy_bench_load(const struct bench_policy_settings *s)
{
	static const char *const shipped[] = { "fair", "fifo", "lc_first" };
	int err = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(shipped); i++) {
		err |= bench_one(s, s->policies, shipped[i]);
	}
	return err | bench_one(s, s->set, "load200") | bench_one(s, s->set, "sort16");
}
