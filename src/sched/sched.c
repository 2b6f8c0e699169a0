/* Creating, configuring and destroying the state of a process; the shared pages; the word that lets
 * launches skip the scheduler. Must not know how launches are scheduled. */
#include "sched/sched.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sched/sched_int.h"

#define DEFAULT_LIMIT_NS 100000000u
#define DEFAULT_SHARE_PPM 20000u
#define NOTE_EVERY_NS 1000000000u
#define FEW_CPUS 4
#define ACTIVE_NS 50000000u /* no run begins for this long after launches passed unseen */

static bool few_cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) <= FEW_CPUS;
}

int sched_create(struct sched **ret, const struct sched_config *cfg)
{
	struct sched *s;

	if (cfg->class_id > GBPF_CLASS_BATCH || !cfg->device || !cfg->device->mark ||
	    !cfg->device->mark_done || !cfg->device->mark_span_ns || !cfg->device->mark_release ||
	    !cfg->device->queue_idle) {
		return -EINVAL;
	}
	s = aligned_alloc(64, ROUND_UP(sizeof(*s), 64));
	if (!s) {
		return -ENOMEM;
	}
	memset(s, 0, sizeof(*s));
	policy_read_setup();
	s->cfg = *cfg;
	s->class_id = cfg->class_id;
	s->weight = cfg->weight ? cfg->weight : 100;
	s->uid = cfg->uid;
	s->vgpu = cfg->vgpu;
	sched_set_limits(s, cfg->hold_limit_ns, cfg->min_share_ppm);
	policy_init(&s->policy, &s->absent.dir, &s->absent.stats);
	s->own = &s->absent.board;
	s->agent.asleep = SCHED_AGENT_ASLEEP;
	s->wait_cap_ns = SCHED_WAIT_CAP_NS;
	s->grace_ns = ACTIVE_NS;
	s->few_cpus = few_cpus();
	s->announce.lead_ns = SCHED_LEAD_AUTO;
	s->announce.warm_ns = SCHED_WARM_NS;
	strmap_init(&s->kernels.by_name);
	lock_init(&s->lock, LOCK_SCHED);
	lock_init(&s->share.lock, LOCK_SHARE);
	sched_lease_doubt_init(s);
	sched_update_active(s);
	*ret = s;
	return 0;
}

static void free_queue(struct sched_queue *q)
{
	sched_fifo_drop(q);
	if (q->life.live && !q->s->forked) {
		sched_marks_drop(q);
	}
	lock_finish(&q->fifo.lock);
	lock_finish(&q->issue.lock);
	free(q);
}

void sched_destroy(struct sched *s)
{
	if (!s) {
		return;
	}
	for (uint32_t i = 0; i < s->table.n_queues; i++) {
		free_queue(s->table.queues[i]);
	}
	policy_finish(&s->policy);
	strmap_each (&s->kernels.by_name, e) {
		struct sched_kernel *k = e->value;

		free(k->form_why);
		free(k);
	}
	strmap_finish(&s->kernels.by_name);
	lock_finish(&s->lock);
	lock_finish(&s->share.lock);
	sched_lease_doubt_finish(s);
	free(s);
}

void sched_update_active_locked(struct sched *s)
{
	bool active;

	active = load_seqcst(&s->n_deferred) || load_seqcst(&s->n_runs) ||
		 (!load_relaxed(&s->policy.off) &&
		  (policy_any_prepared(&s->policy) || load_relaxed(&s->communicates) ||
		   load_relaxed(&s->latency_queues) ||
		   load_relaxed(&s->class_id) == GBPF_CLASS_LATENCY));
	if (active && !load_relaxed(&s->shared.active)) {
		store_relaxed(&s->active_ns, clock_now_ns() + s->grace_ns);
	}
	store_seqcst(&s->shared.active, active && !load_relaxed(&s->forked));
	store_relaxed(&s->shared.copies,
		      (uint32_t)(load_relaxed(&s->copy_hooks) && !load_relaxed(&s->policy.off) &&
				 !load_relaxed(&s->forked)));
}

void sched_update_active(struct sched *s)
{
	lock_take(&s->lock);
	sched_update_active_locked(s);
	lock_release(&s->lock);
}

/* ---- pages ---- */

/* A new page starts with what was counted while there was none. */
static void move_stats(struct sched *s, struct proto_stats *to)
{
	struct proto_stats *from = s->policy.stats;

	if (from == to) {
		return;
	}
	memcpy(to, from, sizeof(*to));
	store_release(&s->policy.stats, to);
}

static void set_boards_of_requests(struct sched *s)
{
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		if (load_seqcst(&s->req[g].open) && s->policy.gpu[g].index < PROTO_MAX_GPUS) {
			struct proto_board_gpu *b = &s->own->gpu[s->policy.gpu[g].index];

			store_relaxed(&b->opened_ns, load_relaxed(&s->req[g].opened_ns));
			store_seqcst(&b->open, 1u);
		}
	}
}

/* gbpfd has exited: the versions in force stay so, and requests of other tenants no longer count.
 */
static void keep_last(struct sched *s)
{
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		s->absent.dir.version[g] = load_acquire(&s->policy.dir->version[g]);
	}
	sched_boards_clear(&s->boards);
	sched_boards_clear(&s->peers);
}

bool sched_set_pages(struct sched *s, const struct proto_directory *dir, struct proto_board *own,
		     struct proto_stats *stats, const uint32_t gpu_index[PROTO_MAX_GPUS])
{
	bool all;

	if (load_relaxed(&s->forked)) {
		return false;
	}
	if (!dir && s->policy.dir != &s->absent.dir) {
		keep_last(s);
		policy_gbpfd_lost(&s->policy);
	}
	for (unsigned g = 0; gpu_index && g < PROTO_MAX_GPUS; g++) {
		store_relaxed(&s->policy.gpu[g].index, MIN(gpu_index[g], PROTO_MAX_GPUS));
	}
	store_release(&s->policy.dir, dir ? dir : &s->absent.dir);
	store_release(&s->own, own ? own : &s->absent.board);
	move_stats(s, stats ? stats : &s->absent.stats);
	all = policy_synchronize();
	set_boards_of_requests(s);
	return all;
}

/* ---- settings ---- */

bool sched_block_wanted(const struct sched *s)
{
	return load_relaxed(&s->class_id) != GBPF_CLASS_LATENCY;
}

void sched_set_off(struct sched *s, bool off)
{
	struct policy_reader *pin;

	store_seqcst(&s->policy.off, off ? 1u : 0u);
	sched_update_active(s);
	pin = policy_read_enter();
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		if (load_relaxed(&s->req[g].lease_ns)) { /* at once, since the process may be about
							    to exit */
			sched_lease_update(s, g, clock_now_ns());
		}
	}
	policy_read_leave(pin);
	sched_wake_agent(s, SCHED_AGENT_NEAR);
}

void sched_set_limits(struct sched *s, uint64_t hold_limit_ns, uint32_t min_share_ppm)
{
	store_relaxed(&s->limit_ns, hold_limit_ns ? hold_limit_ns : DEFAULT_LIMIT_NS);
	store_relaxed(&s->share_ppm,
		      min_share_ppm ? MIN(min_share_ppm, 1000000u) : DEFAULT_SHARE_PPM);
}

void sched_report_cap(struct sched *s, uint32_t percent, enum proto_cap why)
{
	struct policy_reader *pin = policy_read_enter();
	struct proto_stats *st = load_acquire(&s->policy.stats);

	store_relaxed(&st->sm_percent, percent);
	(void)add_relaxed(&st->caps[why], 1u);
	policy_read_leave(pin);
}

void sched_set_lane(struct sched *s, uint32_t lane)
{
	struct policy_reader *pin;

	store_relaxed(&s->lane, lane);
	pin = policy_read_enter();
	store_relaxed(&load_acquire(&s->policy.stats)->lane, lane);
	policy_read_leave(pin);
}

void sched_after_fork_child(struct sched *s)
{
	store_seqcst(&s->forked, 1u);
	store_seqcst(&s->shared.active, 0u);
	store_relaxed(&s->shared.copies, 0u);
	policy_read_after_fork();
}

void sched_note_once(struct sched *s, const char *what, const char *text)
{
	if (s->cfg.note) {
		s->cfg.note(s->cfg.arg, what, text);
	}
}

void sched_note(struct sched *s, const char *what, const char *text)
{
	uint64_t now = clock_now_ns(), last = load_relaxed(&s->note_last_ns);

	if (s->cfg.note && (!last || now - last >= NOTE_EVERY_NS) &&
	    cas_acqrel(&s->note_last_ns, &last, now)) {
		s->cfg.note(s->cfg.arg, what, text);
	}
}
