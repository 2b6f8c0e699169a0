/* Learned durations: an estimate for each kernel and size class of its grid, and for copies by
 * size. One launch in N is measured; N grows while measurements agree with the estimate and falls
 * when they do not. */
#include "sched/sched_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/block_why.h"

#define MAX_KERNELS 65536u /* different names */
#define ABOVE 64u	   /* samples above the estimate in a row after which it rises */

static unsigned log2_floor(uint64_t v)
{
	return v ? 63u - (unsigned)__builtin_clzll(v) : 0;
}

uint64_t sched_kernel_hash(const struct sched_kernel *k)
{
	return k->hash;
}

struct sched_kernel *sched_kernel_get(struct sched *s, const char *name)
{
	struct sched_kernel *k;

	if (load_relaxed(&s->forked)) {
		return NULL;
	}
	lock_take(&s->lock);
	k = strmap_get(&s->kernels.by_name, name);
	if (!k && s->kernels.by_name.live < MAX_KERNELS) {
		k = calloc(1, sizeof(*k));
		if (k && strmap_add(&s->kernels.by_name, name, k) < 0) {
			free(k);
			k = NULL;
		}
		if (k) {
			k->hash = hash_bytes(name, strlen(name));
			memcpy(k->name, name, strnlen(name, sizeof(k->name) - 1));
			store_relaxed(&k->communicates, (uint8_t)proto_communicates(name));
			if (s->kernels.by_name.live <= PROTO_KERNELS) {
				s->kernels.shown[s->kernels.by_name.live - 1] = k;
			}
		}
	}
	lock_release(&s->lock);
	return k;
}

void sched_kernel_set_block(struct sched_kernel *k, uint8_t why)
{
	store_relaxed(&k->block_why, why);
}

void sched_kernel_set_form(struct sched *s, struct sched_kernel *k, uint8_t form, const char *why)
{
	char *copy = *why ? strndup(why, PROTO_FORM_WHY - 1) : NULL;

	lock_take(&s->lock);
	free(k->form_why);
	k->form_why = copy;
	store_relaxed(&k->form, form);
	lock_release(&s->lock);
}

void sched_kernel_set_communicates(struct sched_kernel *k, bool communicates)
{
	store_relaxed(&k->communicates, (uint8_t)communicates);
}

uint8_t sched_kernel_form(const struct sched_kernel *k)
{
	return load_relaxed(&k->form);
}

struct sched_kernel *sched_kernel_find(struct sched *s, const char *name)
{
	struct sched_kernel *k;

	if (load_relaxed(&s->forked)) {
		return NULL;
	}
	lock_take(&s->lock);
	k = strmap_get(&s->kernels.by_name, name);
	lock_release(&s->lock);
	return k;
}

uint64_t sched_kernel_launches(const struct sched_kernel *k)
{
	return load_relaxed(&k->count);
}

void sched_kernel_add_graph(struct sched *s, struct sched_kernel *k, uint64_t launches, uint64_t ns)
{
	lock_take(&s->lock);
	k->graph_launches += launches;
	k->graph_ns += ns;
	lock_release(&s->lock);
}

void sched_kernel_cover(struct sched *s, struct sched_kernel *graph, uint64_t launches,
			uint64_t divided_ns)
{
	lock_take(&s->lock);
	graph->covered += launches;
	s->kernels.divided_ns += divided_ns;
	lock_release(&s->lock);
}

static void add_one(uint64_t *count)
{
	store_relaxed(count, load_relaxed(count) + 1);
}

static void count_stoppable(struct sched_kernel *k, uint8_t which)
{
	if (which & SCHED_KERNEL_STOPPABLE) {
		add_one(&k->stoppable);
	}
	if (which & SCHED_KERNEL_PERSISTENT) {
		add_one(&k->persistent);
	}
}

void sched_kernel_count(struct sched_kernel *k, const struct sched_launch *l)
{
	uint8_t which = 0;

	add_one(&k->count);
	if (unlikely(l->block_ok)) {
		which = SCHED_KERNEL_STOPPABLE |
			(l->blocks <= l->resident ? SCHED_KERNEL_PERSISTENT : 0);
		store_relaxed(&k->stop, l->stop);
	}
	if (unlikely(load_relaxed(&k->newest) != which)) {
		store_relaxed(&k->newest, which);
	}
	count_stoppable(k, which);
}

void sched_kernel_count_granted(struct sched_kernel *k)
{
	add_one(&k->count);
	count_stoppable(k, load_relaxed(&k->newest));
}

struct sched_estimate *sched_estimate_of(struct sched *s, const struct sched_launch *l)
{
	if (l->kernel) {
		return &l->kernel->est[MIN(log2_floor(l->blocks) / 2, SCHED_EST_CLASSES - 1)];
	}
	if (l->kind == GBPF_KIND_COPY || l->kind == GBPF_KIND_MEMSET) {
		return &s->copy_est[l->kind == GBPF_KIND_MEMSET]
				   [MIN(log2_floor(l->bytes), SCHED_BYTE_CLASSES - 1)];
	}
	return NULL;
}

bool sched_counts_bytes(const struct sched *s, const struct sched_launch *l)
{
	return l->kind == GBPF_KIND_COPY && sched_copies_decided(s);
}

bool sched_estimate_is_new(const struct sched_estimate *e)
{
	return load_relaxed(&e->seen) + load_relaxed(&e->above) < SCHED_FIRST_SAMPLES;
}

bool sched_estimate_due(struct sched_estimate *e)
{
	uint32_t left = load_relaxed(&e->left);

	if (left) {
		store_relaxed(&e->left, left - 1);
		return false;
	}
	store_relaxed(&e->left, MAX(load_relaxed(&e->interval), 1u) - 1);
	return true;
}

/* Returns the shortest interval between measurements. The shorter a kernel, the more a marker costs
 * relative to it: short kernels are measured rarely once a few samples exist. */
static uint32_t least_interval(uint64_t est_ns, uint32_t seen)
{
	if (seen < SCHED_FIRST_SAMPLES) {
		return 1;
	}
	return est_ns < SCHED_MARK_NS ? 128 : est_ns < 500000 ? 4 : 1;
}

void sched_estimate_learn(struct sched_estimate *e, uint64_t measured_ns)
{
	uint64_t x = MIN(MAX(measured_ns, (uint64_t)1), SCHED_MAX_EST_NS);
	uint64_t est = load_relaxed(&e->est_ns), off;
	uint32_t n = load_relaxed(&e->interval), seen = load_relaxed(&e->seen);

	if (!est) {
		store_relaxed(&e->est_ns, x);
		store_relaxed(&e->interval, 1u);
		store_relaxed(&e->seen, 1u);
		return;
	}
	off = x > est ? x - est : est - x;
	n = off <= est / 4 + 500 ? MIN(n * 2, 256u) : n / 2;
	/* Sharing the device makes a kernel look longer, never shorter: the estimate rises slowly
	 * and falls fast. The first samples replace it at once, because the markers of a kernel's
	 * first launches may include the loading of its code. */
	store_relaxed(&e->est_ns, x > est		       ? est + (MIN(x, 8 * est) - est) / 16
				  : seen < SCHED_FIRST_SAMPLES ? x
							       : est - (est - x) / 2);
	store_relaxed(&e->interval, MAX(n, least_interval(est, seen)));
	store_relaxed(&e->seen, MIN(seen + 1, 1000000u));
}

bool sched_estimate_is_above(const struct sched_estimate *e, uint64_t measured_ns,
			     uint64_t others_ns)
{
	uint64_t est = load_relaxed(&e->est_ns);

	return est && others_ns && measured_ns > est && measured_ns - est >= others_ns;
}

/* Leaves out a sample above the estimate, unless it is the 64th in a row. The interval between
 * samples is nevertheless at least what the estimate asks for: a short kernel next to long ones may
 * have no other samples for a while. */
static void leave_out(struct sched_estimate *e, uint64_t measured_ns)
{
	uint32_t above = load_relaxed(&e->above), seen = load_relaxed(&e->seen);
	uint64_t low = above ? MIN(load_relaxed(&e->low_ns), measured_ns) : measured_ns;
	bool rises = above + 1 == ABOVE;

	if (rises) {
		store_relaxed(&e->est_ns, MIN(low, SCHED_MAX_EST_NS));
		store_relaxed(&e->seen, MAX(seen, SCHED_FIRST_SAMPLES));
	}
	store_relaxed(&e->low_ns, low);
	store_relaxed(&e->above, rises ? 0 : above + 1);
	store_relaxed(&e->interval,
		      MAX(load_relaxed(&e->interval),
			  least_interval(load_relaxed(&e->est_ns), seen + above + 1)));
}

void sched_estimate_learn_shared(struct sched_estimate *e, uint64_t measured_ns, uint64_t others_ns)
{
	if (sched_estimate_is_above(e, measured_ns, others_ns)) {
		leave_out(e, measured_ns);
	} else {
		store_relaxed(&e->above, 0u);
		sched_estimate_learn(e, measured_ns);
	}
}

/* Returns the estimate of the grid class that was measured most. */
static uint64_t main_estimate(const struct sched_kernel *k)
{
	const struct sched_estimate *best = &k->est[0];

	for (unsigned i = 1; i < SCHED_EST_CLASSES; i++) {
		best = load_relaxed(&k->est[i].seen) > load_relaxed(&best->seen) ? &k->est[i]
										 : best;
	}
	return load_relaxed(&best->est_ns);
}

uint64_t sched_kernel_duration(const struct sched_kernel *k)
{
	return main_estimate(k);
}

/* Caller holds s->lock. */
static uint64_t all_launches(const struct sched_kernel *k)
{
	return load_relaxed(&k->count) + k->graph_launches;
}

static int by_count(const void *a, const void *b)
{
	uint64_t x = all_launches(*(struct sched_kernel *const *)a);
	uint64_t y = all_launches(*(struct sched_kernel *const *)b);

	return x < y ? -1 : x > y;
}

/* Chooses the 64 most launched kernels for the statistics. */
static void choose(struct sched *s) REQUIRES(s->lock)
{
	if (s->kernels.by_name.live <= PROTO_KERNELS) {
		return;
	}
	strmap_each (&s->kernels.by_name, e) {
		struct sched_kernel *k = e->value;
		bool shown = false;

		for (unsigned i = 0; i < PROTO_KERNELS && !shown; i++) {
			shown = s->kernels.shown[i] == k;
		}
		if (!shown && all_launches(k) > all_launches(s->kernels.shown[0])) {
			s->kernels.shown[0] = k; /* replaces the least launched one */
			qsort(s->kernels.shown, PROTO_KERNELS, sizeof(s->kernels.shown[0]),
			      by_count);
		}
	}
}

/* Returns the launches that count at the kernel itself. Caller holds s->lock. */
static uint64_t own_launches(const struct sched_kernel *k)
{
	uint64_t count = load_relaxed(&k->count);

	return count - MIN(count, k->covered);
}

static void add_form(struct proto_stats_form *f, uint64_t launches, uint64_t ns)
{
	f->launches += launches;
	f->launches_ns += ns;
}

/* Returns the form that the kernel can have as a node of a graph: brackets do not run there, and
 * launches that count at a graph are those that can have none. */
static unsigned form_in_graphs(const struct sched_kernel *k)
{
	unsigned form = load_relaxed(&k->form) % PROTO_FORMS;

	return form == PROTO_FORM_BRACKETS || k->covered ? PROTO_FORM_NONE : form;
}

/* Sums up the kernels by the form that they can have. */
static void publish_forms(struct sched *s, struct proto_stats *st) REQUIRES(s->lock)
{
	struct proto_stats_form sum[PROTO_FORMS] = { 0 };

	strmap_each (&s->kernels.by_name, e) {
		const struct sched_kernel *k = e->value;
		unsigned form = load_relaxed(&k->form) % PROTO_FORMS;
		uint64_t own = own_launches(k);

		sum[own ? form : form_in_graphs(k)].kernels += own || k->graph_launches;
		add_form(&sum[form], own, own * main_estimate(k));
		add_form(&sum[form_in_graphs(k)], k->graph_launches, k->graph_ns);
	}
	for (unsigned i = 0; i < PROTO_FORMS; i++) {
		store_relaxed(&st->form[i].kernels, sum[i].kernels);
		store_relaxed(&st->form[i].launches, sum[i].launches);
		store_relaxed(&st->form[i].launches_ns, sum[i].launches_ns);
	}
	store_relaxed(&st->divided_ns, s->kernels.divided_ns);
}

/* Caller holds s->lock. */
static void publish_form(const struct sched_kernel *k, struct proto_stats *st, unsigned i)
{
	char why[PROTO_FORM_WHY] = "";

	if (k->form_why) {
		snprintf(why, sizeof(why), "%s", k->form_why);
	}
	store_relaxed(&st->kernel_form[i], load_relaxed(&k->form));
	memcpy(st->kernel_form_why[i], why, sizeof(why));
	store_relaxed(&st->kernel_cover[i].launches, own_launches(k) + k->graph_launches);
	store_relaxed(&st->kernel_cover[i].graph_launches, k->graph_launches);
	store_relaxed(&st->kernel_cover[i].launches_ns,
		      own_launches(k) * main_estimate(k) + k->graph_ns);
}

/* Sums up all kernels. GPU time is launches times learned duration. */
static void publish_totals(struct sched *s, struct proto_stats *st) REQUIRES(s->lock)
{
	struct proto_stats_reach sum = { 0 };

	strmap_each (&s->kernels.by_name, e) {
		const struct sched_kernel *k = e->value;
		uint64_t ns = main_estimate(k), count = load_relaxed(&k->count);
		uint64_t stoppable = load_relaxed(&k->stoppable);
		uint64_t persistent = load_relaxed(&k->persistent);

		sum.launches += count;
		sum.stoppable += stoppable;
		sum.persistent += persistent;
		sum.launches_ns += count * ns;
		sum.stoppable_ns += stoppable * ns;
		sum.persistent_ns += persistent * ns;
	}
	store_relaxed(&st->reach.launches, sum.launches);
	store_relaxed(&st->reach.stoppable, sum.stoppable);
	store_relaxed(&st->reach.persistent, sum.persistent);
	store_relaxed(&st->reach.launches_ns, sum.launches_ns);
	store_relaxed(&st->reach.stoppable_ns, sum.stoppable_ns);
	store_relaxed(&st->reach.persistent_ns, sum.persistent_ns);
}

void sched_kernels_publish(struct sched *s, struct proto_stats *st)
{
	lock_take(&s->lock);
	publish_totals(s, st);
	publish_forms(s, st);
	choose(s);
	for (unsigned i = 0; i < PROTO_KERNELS && s->kernels.shown[i]; i++) {
		const struct sched_kernel *k = s->kernels.shown[i];

		if (load_relaxed(&st->kernel[i].hash) != k->hash) {
			store_relaxed(&st->kernel[i].hash, k->hash);
			memcpy(st->kernel[i].name, k->name, sizeof(k->name));
		}
		store_relaxed(&st->kernel_block[i], load_relaxed(&k->block_why));
		store_relaxed(&st->kernel[i].count, load_relaxed(&k->count));
		store_relaxed(&st->kernel[i].est_ns, main_estimate(k));
		store_relaxed(&st->kernel_block_ns[i], load_relaxed(&k->block_ns));
		store_relaxed(&st->kernel_stop[i], load_relaxed(&k->stop));
		store_relaxed(&st->kernel_stoppable[i], load_relaxed(&k->stoppable));
		store_relaxed(&st->kernel_persistent[i], load_relaxed(&k->persistent));
		publish_form(k, st, i);
	}
	lock_release(&s->lock);
}
