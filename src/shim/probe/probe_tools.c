/* The tools that gbpfd has attached to this process, and what is reported of them. Messages come on
 * the session's thread, which only notes them; the probe thread acts. */
#include "shim/probe/shim_probe_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pattern.h"
#include "policy/hook.h"
#include "shim/fork_lock.h"
#include "shim/probe/probe_mix.h"
#include "shim/probe/probe_timer.h"
#include "shim/session/session.h"

enum {
#define GBPF_DEVICE_HOOK(id, name, budget, doc) HOOK_##name = id,
#include "gbpf/hooks.def"
};

#define ORDERS_MAX 64u
#define FIGURES_NS 500000000u /* shortest time between messages about costs and launches alone */
#define TIMERS_NS 20000000u   /* while launches are timed */

struct lock shim_probe_build_mutex = LOCK_INITIALIZER(PROBE_BUILD);
struct lock shim_probe_mutex = LOCK_INITIALIZER(PROBE);
uint64_t shim_probe_generation, shim_probe_forms_generation;
bool shim_probe_stopped;
struct shim_probe_tool *shim_probe_tools[SHIM_PROBE_TOOLS_MAX];

static struct proto_probe_order drains[ORDERS_MAX] GUARDED_BY(shim_probe_mutex);
static unsigned n_drains GUARDED_BY(shim_probe_mutex);

static void answer(enum proto_type type, const struct proto_probe_order *o, int status)
{
	union proto_message m = { .probe_order = *o };

	m.probe_order.status = status;
	(void)shim_session_answer_probe(shim_probe_session(), &m, type);
}

/* NULL: no such tool; version 0: a free place. */
static struct shim_probe_tool **place_of(uint64_t version) REQUIRES(shim_probe_mutex)
{
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX; i++) {
		const struct shim_probe_tool *t = shim_probe_tools[i];

		if (t ? version && t->version == version : !version) {
			return &shim_probe_tools[i];
		}
	}
	return NULL;
}

/* What is known of handles holds for the old set of tools. */
static void tools_changed(void) REQUIRES(shim_probe_mutex)
{
	(void)add_acqrel(&shim_probe_generation, (uint64_t)1);
	(void)add_acqrel(&shim.kernel_generation, 1u);
	(void)add_acqrel(&shim_probe_forms_generation, (uint64_t)1);
	shim_probe_thread_wake();
}

/* ---- messages ---- */

static int open_tool(struct shim_probe_tool *t, const struct proto_probe *m, const int *fds)
{
	int regions[EBPF_REGIONS] = EBPF_NO_REGIONS;
	unsigned n = 1;
	int err;

	if (m->regions & PROTO_REGION_GLOBAL) {
		regions[EBPF_REGION_GLOBAL] = fds[n++];
	}
	if (m->regions & PROTO_REGION_TENANT) {
		regions[EBPF_REGION_TENANT] = fds[n];
	}
	t->version = m->version;
	t->replaces = m->replaces;
	t->budget_ppm = t->budget_wanted = m->budget_ppm;
	t->control = t->control_wanted = m->control;
	t->settable = m->control.every != 0;
	t->partial = m->partial == 1;
	t->verify = m->verify != 0;
	t->held = m->held == 1;
	t->announced = t->tell = true;
	memcpy(t->kernel, m->kernel, sizeof(t->kernel));
	err = ebpf_policy_open(&t->p, fds[0], regions, 0);
	t->scratch_bytes =
		err ? 0 : ebpf_maps_scratch(t->p.env.maps, t->p.env.n_maps, t->scratch_at);
	t->submits = !err && t->p.insns[POLICY_HOOK_submit];
	t->retires = !err && t->p.insns[POLICY_HOOK_retire];
	return err;
}

static void refuse(const struct proto_probe *m, int err, const char *why)
{
	union proto_message s = { .probe_state = { .version = m->version, .status = err } };

	snprintf(s.probe_state.why, sizeof(s.probe_state.why), "%s", why);
	(void)shim_session_answer_probe(shim_probe_session(), &s, PROTO_PROBE_STATE);
}

static void put_tool(struct shim_probe_tool *t) REQUIRES(shim_probe_mutex)
{
	struct shim_probe_tool **before = t->replaces ? place_of(t->replaces) : NULL;

	*place_of(0) = t;
	if (t->retires) {
		policy_observer_add(&t->p);
	}
	t->number = add_acqrel(&shim.probes_attached, 1u) + 1;
	if (before && *before) {
		(*before)->ending = true;
		t->number = (*before)->number;
	}
	tools_changed();
}

/* Compares a known tool with one that gbpfd names after the connection was lost. If the images are
 * equal the tool stays, takes the new region, and t is consumed; else it ends, although the
 * versions are equal. Returns whether it stays. */
static bool renew(struct shim_probe_tool *known, struct shim_probe_tool *t)
	REQUIRES(shim_probe_mutex)
{
	struct ebpf_policy *fresh = NULL;

	if (!known->ending && known->p.image_bytes == t->p.image_bytes &&
	    memcmp(known->p.image, t->p.image, t->p.image_bytes) == 0) {
		fresh = known->fresh ? known->fresh : malloc(sizeof(*fresh));
	}
	if (!fresh) {
		known->version = 0;
		known->ending = true;
		return false;
	}
	if (known->fresh) { /* from a gbpfd that has exited since */
		ebpf_policy_close(known->fresh);
	}
	*fresh = t->p;
	known->fresh = fresh;
	known->control_wanted = t->control_wanted;
	known->budget_wanted = t->budget_wanted;
	known->held = t->held;
	known->announced = known->tell = true;
	free(t);
	shim_probe_thread_wake();
	return true;
}

static void attach(struct shim_session *s, const struct proto_probe *m, const int *fds)
{
	struct shim_probe_tool *t = NULL;
	struct shim_probe_tool **known;
	int err = shim_probe_thread_start(s);

	if (err) {
		refuse(m, err, "the probe thread cannot be started");
		return;
	}
	lock_take(&shim_probe_mutex);
	known = m->version ? place_of(m->version) : NULL;
	if (known && (*known)->announced) {
		err = -EEXIST;
	} else if (!m->version || !place_of(0)) {
		err = -E2BIG;
	}
	lock_release(&shim_probe_mutex);
	t = err ? NULL : calloc(1, sizeof(*t));
	err = err ? err : t ? open_tool(t, m, fds) : -ENOMEM;
	if (err) {
		free(t);
		refuse(m, err,
		       err == -E2BIG	? "too many tools are attached"
		       : err == -EEXIST ? "it is attached already"
					: "its image cannot be opened");
		return;
	}
	shim_probe_lead();
	lock_take(&shim_probe_mutex);
	known = place_of(m->version); /* it may have ended meanwhile */
	if (!known || !renew(*known, t)) {
		put_tool(t);
	}
	lock_release(&shim_probe_mutex);
}

/* gbpfd has named all tools that the process is to have: those of an earlier gbpfd that it has not
 * named end. */
static void all_named(void)
{
	lock_take(&shim_probe_mutex);
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX; i++) {
		if (shim_probe_tools[i] && !shim_probe_tools[i]->announced) {
			shim_probe_tools[i]->ending = true;
			tools_changed();
		}
	}
	lock_release(&shim_probe_mutex);
}

static void end(struct shim_session *s, const struct proto_probe_order *m)
{
	struct shim_probe_tool **t;

	(void)s;
	if (!m->version) {
		all_named();
		return;
	}
	lock_take(&shim_probe_mutex);
	t = place_of(m->version);
	if (t) {
		(*t)->ending = (*t)->ordered = true;
		(*t)->end_number = m->number;
		tools_changed();
		shim_probe_exit_changed();
	}
	lock_release(&shim_probe_mutex);
	if (!t && shim_probe_session()) {
		answer(PROTO_PROBE_ENDED, m, 0);
	}
}

static void drain(struct shim_session *s, const struct proto_probe_order *m)
{
	struct shim_probe_tool **t;
	bool taken;

	(void)s;
	lock_take(&shim_probe_mutex);
	t = m->version ? place_of(m->version) : NULL;
	taken = n_drains < ORDERS_MAX && t;
	if (t) {
		shim_probe_exit_note_read(*t, m->read);
	}
	if (taken) {
		drains[n_drains++] = *m;
		shim_probe_thread_wake();
	}
	lock_release(&shim_probe_mutex);
	if (!taken && shim_probe_session()) {
		answer(PROTO_PROBE_DRAINED, m, -ENOENT);
	}
}

static void set(struct shim_session *s, const struct proto_probe_set *m)
{
	struct shim_probe_tool **t;

	(void)s;
	lock_take(&shim_probe_mutex);
	t = m->version ? place_of(m->version) : NULL;
	if (t) {
		(*t)->control_wanted = m->control;
		(*t)->budget_wanted = m->budget_ppm;
		shim_probe_thread_wake();
	}
	lock_release(&shim_probe_mutex);
}

static void lost(void)
{
	lock_take(&shim_probe_mutex);
	n_drains = 0;
	shim_probe_cover_lost();
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX; i++) {
		if (shim_probe_tools[i]) {
			shim_probe_tools[i]->announced = false;
			shim_probe_tools[i]->last_drain = 0; /* gbpfds number them anew */
			shim_probe_tools[i]->last_read = false;
		}
	}
	shim_probe_exit_changed();
	lock_release(&shim_probe_mutex);
}

static const struct shim_session_probes callbacks = { .attach = attach,
						      .end = end,
						      .drain = drain,
						      .set = set,
						      .cover = shim_probe_cover,
						      .lost = lost };

void shim_probe_setup(void)
{
	shim_session_probes = &callbacks;
}

/* ---- which kernels ---- */

bool shim_probe_tool_matches(const struct shim_probe_tool *t, uint32_t i, const char *name)
{
	return (!t->kernel[0] || pattern_matches(t->kernel, name)) &&
	       pattern_matches(t->p.devices[i].kernel, name);
}

bool shim_probe_tool_sees(const struct shim_probe_tool *t, const char *name)
{
	for (uint32_t i = 0; i < t->p.n_devices; i++) {
		if (t->p.devices[i].hook == HOOK_gdev_access &&
		    shim_probe_tool_matches(t, i, name)) {
			return true;
		}
	}
	return false;
}

static bool matches(const struct shim_probe_tool *t, const char *name)
{
	for (uint32_t i = 0; i < t->p.n_devices; i++) {
		if (shim_probe_tool_matches(t, i, name)) {
			return true;
		}
	}
	return false;
}

uint32_t shim_probe_tools_for(const char *name, struct shim_probe_tool *ret[SHIM_PROBE_TOOLS_MAX])
{
	uint32_t n = 0;

	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX; i++) {
		if (shim_probe_tools[i] && !shim_probe_tools[i]->ending &&
		    matches(shim_probe_tools[i], name)) {
			ret[n++] = shim_probe_tools[i];
		}
	}
	return n;
}

void shim_probe_tool_refused(struct shim_probe_tool *t, const char *kernel, const char *why)
{
	snprintf(t->why, sizeof(t->why), "%.100s: %.150s", kernel, why);
}

void shim_probe_tools_note_bodies(void)
{
	lock_take(&shim_probe_mutex);
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX; i++) {
		struct shim_probe_tool *t = shim_probe_tools[i];

		if (t && !t->ending && !t->why[0]) {
			shim_probe_tool_refused(
				t, "graph",
				"kernels in bodies of conditional nodes are not reachable and run "
				"without the tool");
			shim_probe_thread_wake();
		}
	}
	lock_release(&shim_probe_mutex);
}

/* ---- on the probe thread ---- */

static bool observes(const struct shim_probe_tool *t)
{
	return t->submits || t->retires;
}

/* Waits until no program of submit or retire runs any more in a tool whose regions are about to
 * change. Only this thread frees tools. Returns false if a thread is stuck in one. */
static bool settle_programs(unsigned i)
{
	struct shim_probe_tool *t;

	lock_take(&shim_probe_mutex);
	t = shim_probe_tools[i];
	t = t && t->fresh && observes(t) ? t : NULL;
	if (t) {
		store_seqcst(&t->unsettled, 1u);
	}
	lock_release(&shim_probe_mutex);
	return !t || policy_observer_remove(&t->p);
}

/* Copies the maps of programs of submit and retire, which do not run now. Those in memory of the
 * GPU are drained behind this. */
static void carry_values(const struct ebpf_policy *to, const struct ebpf_policy *from)
{
	if (to->region[EBPF_REGION_TENANT] && from->region[EBPF_REGION_TENANT]) {
		memcpy(to->region[EBPF_REGION_TENANT], from->region[EBPF_REGION_TENANT],
		       MIN(to->region_bytes[EBPF_REGION_TENANT],
			   from->region_bytes[EBPF_REGION_TENANT]));
	}
}

/* Takes the regions that came with a new connection. Only this thread, those that build, and
 * programs of submit look at them. */
static void take_fresh(void)
{
	struct ebpf_policy *fresh, before;

	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX; i++) {
		bool settled = settle_programs(i);
		struct shim_probe_tool *t;

		lock_take(&shim_probe_build_mutex);
		lock_take(&shim_probe_mutex);
		t = shim_probe_stopped || !settled ? NULL : shim_probe_tools[i];
		fresh = t && load_relaxed(&t->unsettled) == observes(t) ? t->fresh : NULL;
		if (fresh) {
			before = t->p;
			if (observes(t)) {
				carry_values(fresh, &before);
			}
			t->p = *fresh;
			t->fresh = NULL;
			/* Pairs with the acquire in run(): the program sees all of p. */
			store_release(&t->unsettled, 0u);
			if (t->retires) {
				policy_observer_add(&t->p);
			}
		}
		lock_release(&shim_probe_mutex);
		if (fresh) {
			ebpf_policy_close(&before);
			free(fresh);
			shim_probe_places_renew(t);
			(void)shim_probe_memory_drain(t);
		}
		lock_release(&shim_probe_build_mutex);
	}
}

static bool differs(const struct proto_probe_state *a, const struct proto_probe_state *b)
{
	return a->kernels != b->kernels || a->waiting != b->waiting || a->refused != b->refused ||
	       a->falls_back != b->falls_back || a->stubs != b->stubs ||
	       a->brackets != b->brackets || a->parts != b->parts || a->unseen != b->unseen ||
	       a->equal != b->equal || a->differing != b->differing ||
	       a->not_compared != b->not_compared || strcmp(a->why, b->why) != 0 ||
	       shim_probe_gaps_differ(a, b);
}

/* Returns whether figures have changed enough for a message. A cost changes with each timed launch,
 * so less than an eighth does not count. */
static bool figures_differ(const struct proto_probe_state *a, const struct proto_probe_state *b)
{
	uint32_t least = MIN(a->cost_ppm, b->cost_ppm), most = MAX(a->cost_ppm, b->cost_ppm);

	return a->launches != b->launches || a->probed != b->probed ||
	       a->resident_before != b->resident_before || a->resident_after != b->resident_after ||
	       most - least > least / 8 + 1000;
}

/* Returns false if there is more to be reported later. */
static bool tell(struct shim_probe_tool *t) REQUIRES(shim_probe_build_mutex, shim_probe_mutex)
{
	union proto_message m = { .probe_state = { .version = t->version } };
	uint64_t now = clock_now_ns();
	bool figures;

	shim_probe_kernels_count(t, &m.probe_state);
	shim_probe_mix_report(t, &m.probe_state);
	memcpy(m.probe_state.why, t->why, sizeof(m.probe_state.why));
	if (m.probe_state.waiting && !t->why[0]) {
		shim_probe_busy_text(m.probe_state.why, sizeof(m.probe_state.why));
	}
	figures = figures_differ(&m.probe_state, &t->told);
	if (t->announced && (t->tell || differs(&m.probe_state, &t->told) ||
			     (figures && now - t->told_ns > FIGURES_NS))) {
		figures = false;
		t->told = m.probe_state;
		t->told_ns = now;
		t->tell = shim_session_answer_probe(shim_probe_session(), &m, PROTO_PROBE_STATE) ==
			  -EAGAIN;
	}
	return !figures;
}

static void set_budget(struct shim_probe_tool *t) REQUIRES(shim_probe_mutex)
{
	if (t->budget_ppm != t->budget_wanted) {
		t->budget_ppm = t->budget_wanted;
		shim_probe_budget_changed(t);
	}
}

/* Takes over which blocks are to run the tool; returns whether that differs. */
static bool set_control(struct shim_probe_tool *t) REQUIRES(shim_probe_mutex)
{
	bool differs = memcmp(&t->control, &t->control_wanted, sizeof(t->control)) != 0;

	t->control = t->control_wanted;
	return differs && t->settable;
}

/* Kernels that run see the interval at once, launches the budget. */
static void carry_out_sets(void)
{
	lock_take(&shim_probe_build_mutex);
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX && !shim_probe_stopped; i++) {
		struct shim_probe_tool *t;
		bool differs = false;

		lock_take(&shim_probe_mutex);
		t = shim_probe_tools[i];
		if (t) {
			set_budget(t);
			differs = set_control(t);
		}
		lock_release(&shim_probe_mutex);
		if (differs) {
			(void)shim_probe_memory_control(t, 0, SHIM_PROBE_ROWS);
		}
	}
	lock_release(&shim_probe_build_mutex);
}

/* Compares the clocks of the tool's contexts. Called behind the answer, since it takes a while if
 * the GPU is busy. */
static void renew_clocks(uint64_t version)
{
	struct shim_probe_tool **t;

	lock_take(&shim_probe_build_mutex);
	lock_take(&shim_probe_mutex);
	t = shim_probe_stopped ? NULL : place_of(version);
	lock_release(&shim_probe_mutex);
	if (t) {
		shim_probe_clocks_renew(*t);
	}
	lock_release(&shim_probe_build_mutex);
}

static void carry_out_drains(void)
{
	struct proto_probe_order o;
	struct shim_probe_tool **t;
	int err;

	for (;;) {
		lock_take(&shim_probe_build_mutex);
		lock_take(&shim_probe_mutex);
		t = NULL;
		if (n_drains && !shim_probe_stopped) {
			o = drains[0];
			memmove(drains, drains + 1, --n_drains * sizeof(drains[0]));
			t = place_of(o.version);
			if (t) {
				shim_probe_exit_note_drain(*t, o.number);
			}
		} else {
			o.version = 0;
		}
		lock_release(&shim_probe_mutex);
		err = t ? shim_probe_memory_drain(*t) : -ENOENT;
		if (t) {
			lock_take(&shim_probe_mutex);
			(*t)->told_ns = 0;
			(void)tell(*t); /* counts of launches that fit the copied values */
			lock_release(&shim_probe_mutex);
		}
		lock_release(&shim_probe_build_mutex);
		if (!o.version) {
			return;
		}
		answer(PROTO_PROBE_DRAINED, &o, err);
		renew_clocks(o.version);
	}
}

static void finish(struct shim_probe_tool *t) REQUIRES(shim_probe_build_mutex)
{
	struct proto_probe_order o = { .version = t->version, .number = t->end_number };
	int err = shim_probe_memory_drain(t);

	shim_probe_memory_abandon(t);
	if (t->ordered) {
		answer(PROTO_PROBE_ENDED, &o, err);
	}
	if (t->retires && !policy_observer_remove(&t->p)) {
		return; /* a thread is stuck in its program of retire: it stays */
	}
	ebpf_policy_close(&t->p);
	if (t->fresh) {
		ebpf_policy_close(t->fresh);
		free(t->fresh);
	}
	free(t->initial);
	free(t->gone);
	free(t->rows);
	shim_probe_places_free(t->places);
	free(t);
}

bool shim_probe_tools_end(void)
{
	struct shim_probe_tool *ended[SHIM_PROBE_TOOLS_MAX];
	unsigned n = 0;

	lock_take(&shim_probe_mutex);
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX && !shim_probe_stopped; i++) {
		struct shim_probe_tool *t = shim_probe_tools[i];

		if (t && t->ending && !t->refs && (t->ordered || !t->announced)) {
			ended[n++] = t;
			shim_probe_tools[i] = NULL;
		}
	}
	lock_release(&shim_probe_mutex);
	for (unsigned i = 0; i < n; i++) {
		finish(ended[i]);
	}
	return n != 0;
}

bool shim_probe_tools_settle(uint64_t *ret_ns)
{
	bool settled;

	take_fresh();
	carry_out_sets();
	carry_out_drains();
	lock_take(&shim_probe_build_mutex);
	settled = !shim_probe_tools_end(); /* else there is unused memory */
	*ret_ns = !shim_probe_stopped && shim_probe_timers_read() ? TIMERS_NS : 0;
	lock_take(&shim_probe_mutex);
	shim_probe_kernels_note_refusals();
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX && !shim_probe_stopped; i++) {
		struct shim_probe_tool *t = shim_probe_tools[i];

		if (t) {
			if (!tell(t) || t->budget_ppm) { /* its launches are counted */
				*ret_ns = *ret_ns ? *ret_ns : FIGURES_NS;
			}
			settled = settled && !t->tell;
		}
	}
	lock_release(&shim_probe_mutex);
	lock_release(&shim_probe_build_mutex);
	return settled;
}

void shim_probe_exit(void)
{
	if (!load_acquire(&shim.probes_attached)) {
		return;
	}
	shim_probe_exit_await(); /* the probe thread may need the mutex for that */
	lock_take(&shim_probe_build_mutex);
	shim_probe_stopped = true;
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX; i++) {
		struct shim_probe_tool *t;

		lock_take(&shim_probe_mutex);
		t = shim_probe_tools[i];
		lock_release(&shim_probe_mutex);
		if (t) {
			(void)shim_probe_memory_drain(t);
		}
	}
	lock_release(&shim_probe_build_mutex);
}

/* Another thread of the parent may have held the mutexes. */
void shim_probe_forget(void)
{
	shim_lock_after_fork(&shim_probe_build_mutex, LOCK_PROBE_BUILD);
	shim_lock_after_fork(&shim_probe_mutex, LOCK_PROBE);
	shim_probe_graphs_forget();
	memset(shim_probe_tools, 0, sizeof(shim_probe_tools));
	policy_observers_forget();
	n_drains = 0;
	shim_probe_exit_forget();
	shim_probe_cover_lost();
	shim_probe_timers_forget();
	shim_probe_memory_forget_streams();
	shim_probe_rows_forget();
	shim.probes_attached = 0;
	shim.kernel_generation++;
}
