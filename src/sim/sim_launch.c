/* Launches that touch regions: `launch TENANT touches weights, cache duration_ns=1ms`. If a part of
 * what a launch names is on the host, the program of mem_fault decides, as in the process of the
 * tenant (shim/mem/swap_fetch.c): the launch waits until that part is back, or uses it in place.
 * The clock goes on while the thread that launches waits; launches of a tenant run one after the
 * other. Estimates are exact, as those of a kernel that was measured. */
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "sim/sim_int.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

#define TOUCHES_MAX 32u
#define READS_MAX 1000u
#define HOLD_NS UINT64_C(1000000)	  /* unless the policy says */
#define HOLD_LIMIT_NS UINT64_C(100000000) /* gbpfd's default */
#define DRAIN_MAX_NS UINT64_C(10000000000)
/* After work that was not done in time no memory comes back for that many times as long. */
#define REST 20u

struct launch {
	struct sim_tenant *t;
	const char *at; /* of the statement, after its first word */
	const struct sim_region *region[TOUCHES_MAX];
	unsigned n;
	uint64_t kernel, duration_ns;
	uint32_t reads; /* times that it reads what it touches */
};

/* ---- what a launch needs ---- */

/* Returns the time that a launch loses by each MiB on the host, in nanoseconds. */
static uint32_t cost_of(const struct sim *s, const struct launch *l)
{
	return (uint32_t)(sim_memory_time(SIM_MIB, s->testbed.link.in_place) * l->reads);
}

static struct mem_swap_need need_of(const struct sim *s, struct launch *l, uint32_t cost)
{
	uint64_t limit = s->testbed.vgpu[l->t->vgpu].row.limit;
	struct mem_swap_map *m = &l->t->mem.map;
	struct mem_swap_need need = { 0 };
	uint64_t left = SIM_NAMED_MAX;

	mem_swap_begin_use(m);
	for (unsigned i = 0; i < l->n; i++) {
		struct mem_swap_region *r = l->region[i]->r;
		uint64_t most = r->bytes <= limit ? left : MIN(left, SIM_NAMED_LARGE);

		left -= MIN(left, mem_swap_use(m, r, r->base, most, cost, &need));
	}
	return need;
}

/* ---- the hook ---- */

/* Returns a field of the hook's context after the program. */
static uint64_t answer(const struct sim *s, const char *name)
{
	const struct sim_field *f = sim_field_named(s->last.hook->id, name, strlen(name));

	return sim_field_get(f, s->last.ctx);
}

/* Asks once. The result is the last event. */
static int ask(struct sim *s, const struct launch *l, const struct sim_field_value *values,
	       size_t n)
{
	struct ebpf_env *env = &l->t->in.policy->env;
	uint64_t errors = load_relaxed(&env->helper_errors);
	int err = sim_ask(s, s->last.hook, l->t, values, n);

	if (!err && (load_relaxed(&env->helper_errors) != errors ||
		     (uint64_t)s->last.verdict > GBPF_MEM_HOLD)) {
		err = sim_wrong(s, l->at, "gBPF's own decision, which follows, is not simulated",
				"a helper failed in mem_fault, or its verdict is out of range");
	}
	return err;
}

/* Asks until the verdict is not HOLD, or the hold limit is reached. *ret_fetch: what it is then.
 * Advances the clock. */
static int decide(struct sim *s, const struct launch *l, const struct mem_swap_need *need,
		  uint32_t cost, bool *ret_fetch)
{
	uint64_t begin = sim_now(), use = l->t->mem.map.uses, asked = 0;
	struct sim_room room;
	uint64_t left = sim_region_room(&s->testbed, l->t, &room);

	for (;;) {
		const struct sim_field_value values[] = {
			{ "kernel", l->kernel },
			{ "bytes", need->bytes },
			{ "missing", need->missing },
			{ "room", left },
			{ "in_place_ns", cost * (need->missing / SIM_MIB) },
			{ "lost_ns", need->lost * (MEM_SWAP_UNIT / SIM_MIB) },
			{ "move_ns",
			  sim_memory_move_ns(&s->testbed.link, need->missing, room.device) },
			{ "ratio", mem_swap_ratio(&l->t->mem.map, 0, need, left, use) },
			{ "held_ns", sim_now() - begin },
			{ "asked", asked++ },
		};
		int err = ask(s, l, values, ARRAY_SIZE(values));

		if (err) {
			return err;
		}
		*ret_fetch = s->last.verdict == GBPF_MEM_FETCH;
		if (s->last.verdict != GBPF_MEM_HOLD || sim_now() - begin >= HOLD_LIMIT_NS) {
			return 0;
		}
		if (++s->steps > SIM_MAX_STEPS) {
			return sim_wrong(s, l->at, NULL, "more than %u steps", SIM_MAX_STEPS);
		}
		sim_set_now(sim_now() + MIN(answer(s, "hold_ns") ? answer(s, "hold_ns") : HOLD_NS,
					    HOLD_LIMIT_NS));
	}
}

/* ---- after the decision ---- */

/* Waits for the work of the tenant and brings back what the launch has named. Advances the clock.
 */
static void fetch(struct sim *s, struct sim_tenant *t)
{
	uint64_t begin = sim_now(), use = t->mem.map.uses, ns = 0;
	uint64_t drain_ns = MIN(answer(s, "drain_ns"), DRAIN_MAX_NS);
	uint64_t work_ns = t->work.end_ns - MIN(t->work.end_ns, begin);
	bool some = false;
	struct sim_room room;

	if (work_ns <= drain_ns) {
		(void)sim_region_room(&s->testbed, t, &room);
		while (sim_memory_fetch_once(&t->mem, use, &s->testbed.link, &room, &ns)) {
			some = true;
		}
	}
	sim_set_now(begin + MIN(work_ns, drain_ns) + ns);
	if (!some) {
		t->work.rest_until_ns = sim_now() + REST * (sim_now() - begin);
	}
	sim_regions_moved(&s->testbed);
}

/* Returns how much of what a launch touches is on the host, whether it has named it or not. */
static uint64_t on_host(const struct launch *l)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < l->n; i++) {
		bytes += sim_memory_region_at(l->region[i]->r, MEM_SWAP_HOST);
	}
	return bytes;
}

static void run(const struct launch *l, uint32_t cost)
{
	uint64_t lost_ns = cost * (on_host(l) / SIM_MIB);

	l->t->work.in_place += sim_memory_is_missing(&l->t->mem, l->t->mem.map.uses);
	l->t->work.lost_ns += lost_ns;
	l->t->work.end_ns = MAX(l->t->work.end_ns, sim_now()) + l->duration_ns + lost_ns;
}

static void trace(const struct sim *s, const struct sim_tenant *t, const struct sim_tenant *before)
{
	const struct {
		const char *name;
		uint64_t v;
	} all[] = { { "out", t->mem.out_bytes - before->mem.out_bytes },
		    { "back", t->mem.back_bytes - before->mem.back_bytes },
		    { "wait_ns", t->work.wait_ns - before->work.wait_ns },
		    { "lost_ns", t->work.lost_ns - before->work.lost_ns },
		    { "done_ns", t->work.end_ns } };

	fprintf(s->o->trace, "%3u  %.6f s  %-8s launch", s->line + 1, (double)sim_now() / 1e9,
		t->name);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		fprintf(s->o->trace, " %s=", all[i].name);
		sim_print_number(s->o->trace, all[i].name, (struct sim_value){ all[i].v, false });
	}
	fputc('\n', s->o->trace);
}

static int do_launch(struct sim *s, struct launch *l)
{
	uint32_t cost = cost_of(s, l);
	const struct mem_swap_need need = need_of(s, l, cost);
	const struct sim_field_value named[] = { { "kernel", l->kernel },
						 { "bytes", need.bytes },
						 { "missing", need.missing } };
	struct sim_tenant *t = l->t, before = *t;
	uint64_t begin = sim_now();
	bool fetches = false;
	int err = 0;

	sim_not_asked(s, s->last.hook, t, named, ARRAY_SIZE(named));
	if (need.missing && begin >= t->work.rest_until_ns) {
		t->work.faults++;
		err = decide(s, l, &need, cost, &fetches);
	}
	if (err) {
		return err;
	}
	if (fetches) {
		fetch(s, t);
	}
	t->work.wait_ns += sim_now() - begin;
	run(l, cost);
	if (s->o->trace) {
		trace(s, t, &before);
	}
	return 0;
}

/* ---- the statement ---- */

static bool has(const struct launch *l, const struct sim_region *r)
{
	for (unsigned i = 0; i < l->n; i++) {
		if (l->region[i] == r) {
			return true;
		}
	}
	return false;
}

/* Takes `touches NAME, NAME ...`. */
static int take_regions(struct sim *s, struct launch *l)
{
	if (!sim_take_word(s, "touches")) {
		return sim_wrong(s, s->at,
				 "It is written: launch TENANT touches REGION, REGION ...",
				 "here 'touches' is needed");
	}
	do {
		const struct sim_region *r;

		sim_blanks(s);
		r = sim_region_named(&s->testbed, l->t, s->at, sim_word(s));
		if (!r) {
			return sim_no_region(s, l->t);
		}
		if (has(l, r)) {
			return sim_wrong(s, s->at, NULL, "region '%s' is named twice", r->name);
		}
		if (l->n == TOUCHES_MAX) {
			return sim_wrong(s, s->at, NULL, "more than %u regions", TOUCHES_MAX);
		}
		l->region[l->n++] = r;
		s->at += sim_word(s);
	} while (sim_take(s, ","));
	return 0;
}

int sim_launch_statement(struct sim *s)
{
	const struct sim_hook *h = sim_hook_named("mem_fault", strlen("mem_fault"));
	struct launch l = { .reads = 1 };
	const struct sim_property all[] = {
		{ "kernel", NULL, &l.kernel, 0, UINT64_MAX },
		{ "duration_ns", NULL, &l.duration_ns, 0, UINT64_C(1000000000000) },
		{ "reads", &l.reads, NULL, 1, READS_MAX },
	};
	bool given;
	int err;

	sim_blanks(s);
	l.at = s->at;
	given = !sim_take_word(s, "touches");
	s->at = l.at;
	err = sim_take_tenant(s, given, "It is written: launch TENANT touches REGION ...", &l.t);
	err = err ? err : take_regions(s, &l);
	err = err ? err : sim_set_properties(s, all, ARRAY_SIZE(all), "launch");
	if (!err && !sim_testbed_fills(&s->testbed, h->id)) {
		err = sim_wrong(s, l.at, "gBPF's own decision is not simulated",
				"the policy has no program for mem_fault");
	}
	if (err) {
		return err;
	}
	s->last.hook = h;
	if (s->dry) {
		sim_not_asked(s, h, l.t, NULL, 0);
		return 0;
	}
	return do_launch(s, &l);
}
