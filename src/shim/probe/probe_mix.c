/* What probed forms cost, and budgets. Launches of one kernel with one grid and block are a shape.
 * Of each shape a few launches are timed, by events before and behind them, with and without the
 * form; the medians show what the form costs. A kernel whose tools all have a budget runs the form
 * in that share of its launches which keeps it; others run it always, so they are compared with
 * launches from before they had it.
 *
 * The launch path waits for nothing here: it reads atomics, and takes the mutex only if that is
 * free. No call of the driver is made under the mutex. */
#include "shim/probe/probe_mix.h"

#include <string.h>

#include "base/clock.h"
#include "shim/probe/probe_rate.h"
#include "shim/probe/probe_timer.h"

#define YOUNG 8u	    /* timed launches of each kind before the cost counts as known */
#define PLAIN_EVERY 64u	    /* launches of a shape of which one at least runs the kernel itself */
#define YOUNG_ALTERNATE 16u /* launches that alternate while nothing is known */

/* ---- shapes ---- */

static uint64_t key_of(const uint32_t dims[SHIM_PROBE_DIMS])
{
	uint64_t h = 0x9e3779b97f4a7c15u;

	for (unsigned i = 0; i < SHIM_PROBE_DIMS; i++) {
		h = (h ^ dims[i]) * 0xff51afd7ed558ccdu;
		h ^= h >> 29;
	}
	return h ? h : 1;
}

/* dims NULL: key is 0. */
static void reset(struct shim_probe_shape *s, uint64_t key, const uint32_t *dims, uint32_t share)
{
	store_relaxed(&s->key, (uint64_t)0);
	for (unsigned i = 0; dims && i < SHIM_PROBE_DIMS; i++) {
		s->dims[i] = dims[i];
	}
	store_relaxed(&s->share, share);
	store_relaxed(&s->sum, 0u);
	store_relaxed(&s->turn, 0u);
	store_relaxed(&s->every, SHIM_PROBE_EVERY_MIN);
	for (unsigned kind = 0; kind < 2; kind++) {
		store_relaxed(&s->due[kind], 0u);
		store_relaxed(&s->begun[kind], 0u);
		store_relaxed(&s->n[kind], 0u);
	}
	store_relaxed(&s->launches, (uint64_t)0);
	store_relaxed(&s->asked, 0u);
	s->before = s->after = 0;
	store_release(&s->key, key);
}

/* Returns the launch's shape, which replaces the oldest one if it is new; NULL: unknown for now. */
static struct shim_probe_shape *shape_of(struct shim_probe_mix *m,
					 const uint32_t dims[SHIM_PROBE_DIMS])
{
	struct shim_probe_shape *s = NULL;
	uint64_t key = key_of(dims);

	for (unsigned i = 0; i < SHIM_PROBE_SHAPES; i++) {
		if (load_acquire(&m->shapes[i].key) == key) {
			return &m->shapes[i];
		}
	}
	if (!shim_probe_timer_trylock()) {
		return NULL;
	}
	for (unsigned i = 0; i < SHIM_PROBE_SHAPES && !s; i++) { /* another thread's */
		s = load_relaxed(&m->shapes[i].key) == key ? &m->shapes[i] : NULL;
	}
	if (!s) {
		s = &m->shapes[m->next++ % SHIM_PROBE_SHAPES];
		reset(s, key, dims, load_relaxed(&m->share));
	}
	shim_probe_timer_unlock();
	return s;
}

void shim_probe_mix_init(struct shim_probe_mix *m)
{
	shim_probe_timer_lock();
	(void)add_relaxed(&m->epoch, 1u);
	m->kernel_epoch = m->epoch;
	m->next = 0;
	for (unsigned i = 0; i < SHIM_PROBE_SHAPES; i++) {
		reset(&m->shapes[i], 0, NULL, 0);
	}
	store_relaxed(&m->share, SHIM_PROBE_ALL / 2);
	store_relaxed(&m->begun, 0u);
	shim_probe_timer_unlock();
}

/* Stores what is known of a shape. */
static void renew_residents(struct shim_probe_shape *s, const struct shim_probe_residents *r)
	REQUIRES(shim_probe_timer_mutex)
{
	store_relaxed(&s->asked, 0u);
	s->before = s->after = 0;
	for (unsigned i = 0; r && i < SHIM_PROBE_SHAPES; i++) {
		if (r->of[i].key && r->of[i].key == load_relaxed(&s->key)) {
			s->before = r->of[i].before;
			s->after = r->of[i].after;
			store_relaxed(&s->asked, 1u);
		}
	}
}

void shim_probe_mix_renew(struct shim_probe_mix *m, const struct shim_probe_residents *r)
{
	shim_probe_timer_lock();
	(void)add_relaxed(&m->epoch, 1u);
	store_relaxed(&m->share, SHIM_PROBE_ALL / 2);
	store_relaxed(&m->begun, 0u);
	for (unsigned i = 0; i < SHIM_PROBE_SHAPES; i++) {
		struct shim_probe_shape *s = &m->shapes[i];

		store_relaxed(&s->share, SHIM_PROBE_ALL / 2);
		store_relaxed(&s->turn, 0u);
		store_relaxed(&s->begun[1], 0u);
		store_relaxed(&s->n[1], 0u);
		store_relaxed(&s->launches, (uint64_t)0);
		renew_residents(s, r);
	}
	shim_probe_timer_unlock();
}

/* ---- which form ---- */

/* Returns whether this launch takes the form. Adds the share to a sum and returns true when that
 * passes a whole number, so the launches with the form are evenly spread. */
static bool takes_form(struct shim_probe_shape *s)
{
	uint32_t share = load_relaxed(&s->share);
	uint32_t before = add_relaxed(&s->sum, share);

	return ((before + share) / SHIM_PROBE_ALL) != before / SHIM_PROBE_ALL;
}

static void count(const struct shim_probe_form *f, bool probed)
{
	for (uint32_t i = 0; i < f->n_tools; i++) {
		(void)add_relaxed(&f->tools[i]->launches, 1u);
		(void)add_relaxed(&f->tools[i]->probed, (uint64_t)probed);
	}
}

void shim_probe_mix_missed(const struct shim_probe_form *f)
{
	uint32_t budget = load_relaxed(&f->budget_ppm);

	for (uint32_t i = 0; budget && i < f->n_tools; i++) {
		uint64_t n = load_relaxed(&f->tools[i]->probed);

		/* 0: the budget was set after the launch was chosen, which was not counted then */
		while (n && !cas_relaxed(&f->tools[i]->probed, &n, n - 1)) {
		}
	}
}

/* Stores how many blocks of a shape a multiprocessor holds. Returns false if it is not known. */
static bool residents_of(const void *handle, const struct shim_probe_form *f,
			 const uint32_t dims[SHIM_PROBE_DIMS], uint32_t *ret_before,
			 uint32_t *ret_after)
{
	uint32_t threads = dims[3] * dims[4] * dims[5];
	uint32_t smem = shim_probe_form_smem(f, dims[6], dims[3], dims[4], dims[5]);
	int before = 0, after = 0;

	if (!f->handle || smem == SHIM_PROBE_SMEM_REFUSED ||
	    SHIM_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(
		    &before, (CUfunction)unqual(handle), (int)threads, dims[6]) != CUDA_SUCCESS ||
	    shim_driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&after, f->handle, (int)threads,
								    smem) != CUDA_SUCCESS) {
		return false;
	}
	*ret_before = (uint32_t)MAX(before, 0);
	*ret_after = (uint32_t)MAX(after, 0);
	return true;
}

/* Compares the numbers of blocks that a multiprocessor holds, once for each shape. */
static void ask_resident(struct shim_probe_shape *s, const void *handle,
			 const struct shim_probe_form *f, const uint32_t dims[SHIM_PROBE_DIMS])
{
	uint32_t before, after;

	if (xchg_acqrel(&s->asked, 1u) || !residents_of(handle, f, dims, &before, &after)) {
		return;
	}
	shim_probe_timer_lock();
	s->before = before;
	s->after = after;
	shim_probe_timer_unlock();
	if (after < before) {
		shim_probe_thread_wake(); /* which reports it */
	}
}

void shim_probe_mix_ask(const struct shim_probe_kernel *k, const struct shim_probe_form *f,
			struct shim_probe_residents *ret)
{
	uint32_t dims[SHIM_PROBE_SHAPES][SHIM_PROBE_DIMS];

	shim_probe_timer_lock();
	for (unsigned i = 0; i < SHIM_PROBE_SHAPES; i++) {
		ret->of[i].key = load_relaxed(&k->mix.shapes[i].key);
		memcpy(dims[i], k->mix.shapes[i].dims, sizeof(dims[i]));
	}
	shim_probe_timer_unlock();
	for (unsigned i = 0; i < SHIM_PROBE_SHAPES; i++) {
		if (ret->of[i].key && !residents_of(load_relaxed(&k->handle), f, dims[i],
						    &ret->of[i].before, &ret->of[i].after)) {
			ret->of[i].key = 0;
		}
	}
}

bool shim_probe_mix_choose(struct shim_probe_kernel *k, const struct shim_probe_form *f,
			   const uint32_t dims[SHIM_PROBE_DIMS], struct shim_probe_shape **ret)
{
	struct shim_probe_shape *s = *ret = shape_of(&k->mix, dims);
	bool probed;

	if (s && !load_relaxed(&s->asked)) {
		ask_resident(s, load_relaxed(&k->handle), f, dims);
	}
	if (s) {
		(void)add_relaxed(&s->launches, 1u);
	}
	if (!load_relaxed(&f->budget_ppm)) {
		return true;
	}
	probed = !s || takes_form(s);
	count(f, probed);
	return probed;
}

/* ---- timing ---- */

static bool is_due(struct shim_probe_shape *s, bool probed)
{
	if (add_relaxed(&s->turn, 1u) % load_relaxed(&s->every) == 0) {
		store_relaxed(&s->due[0], 1u);
		store_relaxed(&s->due[1], 1u);
	}
	return load_relaxed(&s->begun[probed]) < YOUNG ||
	       (load_relaxed(&s->due[probed]) && xchg_acqrel(&s->due[probed], 0u));
}

/* Nothing is known after some launches: the form is run less often until it is. */
static void end_alternation(struct shim_probe_mix *m)
{
	uint32_t *shares[SHIM_PROBE_SHAPES + 1] = { &m->share };

	for (unsigned i = 0; i < SHIM_PROBE_SHAPES; i++) {
		shares[i + 1] = &m->shapes[i].share;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(shares); i++) {
		uint32_t half = SHIM_PROBE_ALL / 2;

		(void)cas_relaxed(shares[i], &half, SHIM_PROBE_ALL / YOUNG_ALTERNATE);
	}
}

struct shim_probe_timer *shim_probe_mix_begin(struct shim_probe_kernel *k,
					      const struct shim_probe_form *f, bool probed,
					      const uint32_t dims[SHIM_PROBE_DIMS],
					      struct shim_probe_shape *s, CUstream stream)
{
	struct shim_probe_timer *t;
	uint64_t start;

	if (!f && load_relaxed(&k->seen) == load_acquire(&shim_probe_generation)) {
		return NULL; /* the kernel gets no form */
	}
	s = s ? s : shape_of(&k->mix, dims);
	/* The first launch also brings the form's code into caches, so its time is not the form's.
	 */
	if (!s || (probed && load_relaxed(&s->launches) <= 1) ||
	    (probed && !load_relaxed(&f->budget_ppm) && !load_relaxed(&s->n[0])) ||
	    !is_due(s, probed)) {
		return NULL;
	}
	if (shim_probe_rate_wants_gap()) {
		shim_probe_timer_gap(load_relaxed(&k->ctx), stream);
	}
	start = clock_fast_ns();
	t = shim_probe_timer_take(load_relaxed(&k->ctx));
	if (t) {
		t->kernel = k;
		t->key = load_relaxed(&s->key);
		t->epoch = load_relaxed(&k->mix.epoch);
		t->probed = probed;
		(void)add_relaxed(&s->begun[probed], 1u);
		shim_probe_timer_begin(t, stream, start);
		if (f && add_relaxed(&k->mix.begun, 1u) + 1 == YOUNG_ALTERNATE) {
			end_alternation(&k->mix);
		}
	}
	return t;
}

/* ---- results ---- */

static uint32_t median(const struct shim_probe_shape *s, bool probed)
{
	return shim_probe_median(s->ns[probed], s->n[probed]);
}

static bool is_known(const struct shim_probe_shape *s)
{
	return load_relaxed(&s->key) && s->n[0] >= YOUNG / 2 && s->n[1] >= YOUNG / 2;
}

/* Sets how often launches are timed. Returns what this costs, ppm. */
static uint32_t set_every(struct shim_probe_shape *s, uint32_t budget_ppm)
{
	uint32_t launch = shim_probe_rate_launch(median(s, s->n[0] == 0));
	uint32_t every = shim_probe_rate_every(launch, budget_ppm);

	store_relaxed(&s->every, every);
	return shim_probe_rate_ppm(launch, every);
}

/* Sets the share that keeps the budget. Where the form always may run, a launch in PLAIN_EVERY goes
 * without it, so that its cost stays known. */
static void set_share(struct shim_probe_mix *m, struct shim_probe_shape *s, uint32_t budget_ppm)
{
	uint64_t without = median(s, false), with = median(s, true);
	uint64_t extra = with > without ? with - without : 0;
	uint64_t launch = shim_probe_rate_launch((uint32_t)without);
	uint64_t share = SHIM_PROBE_ALL - SHIM_PROBE_ALL / PLAIN_EVERY;

	if (extra * 1000000u > launch * budget_ppm) {
		share = MIN(share, launch * budget_ppm / 1000000u * SHIM_PROBE_ALL / extra);
	}
	store_relaxed(&s->share, (uint32_t)MAX(share, 1u));
	store_relaxed(&m->share, (uint32_t)MAX(share, 1u));
}

static void adjust(struct shim_probe_mix *m, struct shim_probe_shape *s, uint32_t budget_ppm)
	REQUIRES(shim_probe_timer_mutex)
{
	uint32_t timing = set_every(s, budget_ppm);

	if (budget_ppm && is_known(s)) {
		set_share(m, s, budget_ppm - MIN(timing, budget_ppm));
	}
}

void shim_probe_mix_adjust(struct shim_probe_mix *m, uint32_t budget_ppm)
{
	shim_probe_timer_lock();
	for (unsigned i = 0; i < SHIM_PROBE_SHAPES; i++) {
		if (is_known(&m->shapes[i])) {
			adjust(m, &m->shapes[i], budget_ppm);
		}
	}
	shim_probe_timer_unlock();
}

void shim_probe_mix_note(const struct shim_probe_timer *t, uint32_t ns)
{
	struct shim_probe_mix *m = &t->kernel->mix;
	const struct shim_probe_form *f = load_acquire(&t->kernel->form);
	uint32_t budget = f ? load_relaxed(&f->budget_ppm) : 0;
	bool holds = t->probed ? t->epoch == m->epoch : t->epoch >= m->kernel_epoch;

	for (unsigned i = 0; i < SHIM_PROBE_SHAPES && holds; i++) {
		struct shim_probe_shape *s = &m->shapes[i];

		if (load_relaxed(&s->key) != t->key) {
			continue;
		}
		s->ns[t->probed][s->n[t->probed] % SHIM_PROBE_TIMES] = ns;
		store_relaxed(&s->n[t->probed], s->n[t->probed] + 1);
		adjust(m, s, budget);
	}
}

/* Sums over shapes: what their launches take without the form, and what it adds. */
struct sums {
	double without, extra;
	uint32_t before, after;
};

static void add_shape(const struct shim_probe_shape *s, struct sums *sums)
{
	double weight = (double)load_relaxed(&s->launches);

	if (!load_relaxed(&s->key)) {
		return;
	}
	if (is_known(s) && weight > 0) {
		double without = median(s, false), with = median(s, true);

		sums->without += weight * shim_probe_rate_launch((uint32_t)without);
		sums->extra += weight * (with - without);
	}
	if (s->after < s->before && (!sums->before || (uint64_t)s->after * sums->before <
							      (uint64_t)sums->after * s->before)) {
		sums->before = s->before;
		sums->after = s->after;
	}
}

void shim_probe_mix_report(const struct shim_probe_tool *t, struct proto_probe_state *ret)
{
	struct sums sums = { 0 };

	shim_probe_timer_lock();
	strmap_each (&shim_probe_kernels, e) {
		const struct shim_probe_kernel *k = e->value;

		for (unsigned i = 0; shim_probe_kernel_runs(k, t) && i < SHIM_PROBE_SHAPES; i++) {
			add_shape(&k->mix.shapes[i], &sums);
		}
	}
	shim_probe_timer_unlock();
	ret->cost_ppm = PROTO_PROBE_COST_UNKNOWN;
	if (sums.without > 0) {
		double ppm = MAX(sums.extra / sums.without * 1e6, 0.0);

		ret->cost_ppm = (uint32_t)MIN(ppm, (double)(PROTO_PROBE_COST_UNKNOWN - 1));
	}
	ret->resident_before = sums.before;
	ret->resident_after = sums.after;
	ret->launches = load_relaxed(&t->launches);
	ret->probed = load_relaxed(&t->probed);
}
