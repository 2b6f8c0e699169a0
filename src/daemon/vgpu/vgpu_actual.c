/* The share of GPU time that vGPUs really had, next to what they were given. Processes count their
 * launches' time on their pages; gbpfd notes the sums once a second and compares the sum of now
 * with that of WINDOW_NS ago. A process may write any number to its page: that is shown as its
 * vGPU's, and decides nothing. */
#include "daemon/vgpu/vgpu_int.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/session/tenant_session.h"
#include "daemon/timer.h"

#define PERIOD_NS UINT64_C(1000000000)
#define WINDOW_NS UINT64_C(5000000000)
#define WORD_MAX (UINT64_C(1) << 48) /* so that no sum of a window overflows */

_Static_assert((DAEMON_VGPU_ACTUAL_LOOKS - 1) * PERIOD_NS > WINDOW_NS, "looks cover the window");

/* Returns the place of a GPU, which is added if it is new; PROTO_MAX_GPUS: there is no room. */
static unsigned place_of(struct daemon_vgpu_actual *a, const uint8_t uuid[16])
{
	unsigned i = 0;

	while (i < a->n_gpus && memcmp(a->uuid[i], uuid, 16) != 0) {
		i++;
	}
	if (i == a->n_gpus && i < PROTO_MAX_GPUS) {
		memcpy(a->uuid[i], uuid, 16);
		a->n_gpus++;
	}
	return i;
}

static void add(struct daemon_vgpu_actual *a, const uint8_t uuid[16], uint64_t ns)
{
	unsigned i = place_of(a, uuid);

	if (i < PROTO_MAX_GPUS) {
		a->total_ns[i] += MIN(ns, WORD_MAX);
	}
}

void daemon_vgpu_actual_count(struct daemon_session *s)
{
	const struct proto_stats *st = s->stats.map;
	/* A page that another gbpfd has made shows what was before, too. */
	bool counts = s->vgpu.is_counted || !s->hello.reattached;

	if (!s->vgpu.of || !st || !s->hello.has_devices) {
		return;
	}
	for (uint32_t i = 0; i < s->gpus; i++) {
		uint64_t was = s->vgpu.busy_ns[i], now = load_relaxed(&st->gpu[i].busy_ns);

		s->vgpu.busy_ns[i] = now;
		if (counts && now > was) {
			add(&s->vgpu.of->actual, s->d->devices.d[s->gpu_index[i]].uuid, now - was);
		}
	}
	s->vgpu.is_counted = true;
}

static void push(struct daemon_vgpu_actual *a, uint64_t now)
{
	if (a->n_looks == DAEMON_VGPU_ACTUAL_LOOKS) {
		a->n_looks--;
		memmove(a->look, a->look + 1, a->n_looks * sizeof(a->look[0]));
	}
	a->look[a->n_looks].at_ns = now;
	memcpy(a->look[a->n_looks].total_ns, a->total_ns, sizeof(a->total_ns));
	a->n_looks++;
}

/* Returns true if it has no processes, and had no GPU time since its oldest look. */
static bool is_over(const struct daemon_vgpu *v)
{
	const struct daemon_vgpu_actual *a = &v->actual;

	return !v->n_lines && memcmp(a->look[0].total_ns, a->total_ns, sizeof(a->total_ns)) == 0;
}

bool daemon_vgpu_actual_look(struct daemon *d, uint64_t now)
{
	bool any = false;

	daemon_session_each(d, s)
	{
		daemon_vgpu_actual_count(s);
	}
	for (struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		if (v->actual.n_looks && is_over(v)) {
			memset(&v->actual, 0, sizeof(v->actual));
		} else if (v->actual.n_looks) {
			push(&v->actual, now);
			any = true;
		}
	}
	return any;
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg);

/* Without memory for the timer, windows begin with the first process. */
static void arm(struct daemon *d)
{
	uint64_t usec;

	sd_event_now(d->loop, CLOCK_MONOTONIC, &usec);
	(void)daemon_timer_at(d->loop, &d->vgpus.actual_timer, usec + PERIOD_NS / 1000, 10000,
			      on_timer, d);
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;

	(void)src;
	(void)usec;
	daemon_vgpu_reclaim_foresee(d);
	if (daemon_vgpu_actual_look(d, clock_now_ns())) {
		arm(d);
	}
	return 0;
}

void daemon_vgpu_actual_begin(struct daemon_vgpu *v)
{
	struct daemon *d = v->d;

	if (!v->actual.n_looks) {
		push(&v->actual, clock_now_ns());
	}
	if (!daemon_timer_is_armed(d->vgpus.actual_timer)) {
		arm(d);
	}
}

/* Returns the newest look that is as old as the window, or else the oldest. There is one. */
static const struct daemon_vgpu_actual_look *base_of(const struct daemon_vgpu_actual *a,
						     uint64_t now)
{
	unsigned i = a->n_looks - 1;

	while (i && a->look[i].at_ns + WINDOW_NS > now) {
		i--;
	}
	return &a->look[i];
}

json_t *daemon_vgpu_actual_json(const struct daemon_vgpu *v)
{
	const struct daemon_vgpu_actual *a = &v->actual;
	const struct daemon_vgpu_actual_look *base;
	uint64_t now = clock_now_ns(), window;
	json_t *all = json_array();
	char uuid[48];

	if (!a->n_looks) {
		return all;
	}
	daemon_session_each(v->d, s)
	{
		if (s->vgpu.of == v) {
			daemon_vgpu_actual_count(s);
		}
	}
	base = base_of(a, now);
	window = now - base->at_ns;
	for (unsigned i = 0; i < a->n_gpus; i++) {
		uint64_t ns = a->total_ns[i] - base->total_ns[i];

		if (ns && window) {
			daemon_gpu_uuid_text(a->uuid[i], uuid);
			json_array_append_new(all, json_pack("{s:s,s:I,s:I}", "uuid", uuid,
							     "gpu_ns", (json_int_t)MIN(ns, window),
							     "window_ns", (json_int_t)window));
		}
	}
	return all;
}
