/* The helpers of copies: threads that take part in whatever copies run. They are created when a
 * copy begins, sleep without one, and end after a time. A copy never depends on them: its own
 * thread moves units as well. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/thread.h"
#include "mem/copy_int.h"
#include "mem/numa.h"

#define DEFAULT_THREADS_MAX 8u
#define IDLE_NS 10000000000u /* until a helper ends */
#define SPIN_NS 200000u	     /* the device copies a piece in it, both ways at once, too */

unsigned mem_copy_threads(void)
{
	cpu_set_t set;
	unsigned cores =
		sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;

	return MIN(MAX(cores / 2, 1u), DEFAULT_THREADS_MAX);
}

void mem_copy_pool_init(struct mem_copy_pool *pool, unsigned threads)
{
	pthread_condattr_t monotonic;

	*pool = (struct mem_copy_pool){ .idle_ns = IDLE_NS };
	pool->max_helpers = MIN(threads ? threads : mem_copy_threads(), MEM_COPY_THREADS_MAX) - 1;
	lock_init(&pool->lock, LOCK_COPY_POOL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->work, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_cond_init(&pool->left, NULL);
}

static bool has_work(const struct mem_copy_job *j)
{
	return load_relaxed(&j->next) < load_acquire(&j->open);
}

/* Returns the job with work that has the fewest helpers, NULL if there is none. */
static struct mem_copy_job *choose(const struct mem_copy_pool *pool) REQUIRES(pool->lock)
{
	struct mem_copy_job *best = NULL;

	for (struct mem_copy_job *j = pool->jobs; j; j = j->later) {
		if (has_work(j) && (!best || j->users < best->users)) {
			best = j;
		}
	}
	return best;
}

/* Returns true if the job has more helpers than its share, so that one of them should choose again.
 */
static bool crowded(const struct mem_copy_pool *pool, const struct mem_copy_job *j)
{
	uint32_t jobs = load_relaxed(&pool->n_jobs);

	return jobs > 1 && (load_relaxed(&j->users) - 1) * jobs >= load_relaxed(&pool->n_helpers);
}

/* Moves units of a job until it has none for some time, or others need the helper more. */
static void help(const struct mem_copy_pool *pool, struct mem_copy_job *j)
{
	uint64_t since = 0;

	while (!load_relaxed(&j->stop) && !crowded(pool, j)) {
		if (mem_copy_unit(j)) {
			since = 0;
			continue;
		}
		if (load_relaxed(&j->next) >= j->n_units) {
			return;
		}
		since = since ? since : clock_now_ns();
		if (clock_now_ns() - since > SPIN_NS) {
			return;
		}
		cpu_relax();
	}
}

/* Sleeps until a unit may be started. Returns false if the helper has been idle for too long. */
static bool sleep_for_work(struct mem_copy_pool *pool) REQUIRES(pool->lock)
{
	struct timespec until;
	int err = 0;

	if (!pool->idle_ns) {
		return false;
	}
	until = clock_timespec(clock_now_ns() + pool->idle_ns);
	/* Pairs with mem_copy_pool_wake(): either this thread sees the open units, or the copy sees
	 * this thread asleep. */
	(void)add_seqcst(&pool->n_asleep, 1u);
	fence_seqcst();
	while (!choose(pool) && !err && pool->idle_ns) {
		err = lock_wait_until(&pool->lock, &pool->work, &until);
	}
	(void)sub_acqrel(&pool->n_asleep, 1u);
	return choose(pool) != NULL;
}

/* The program's handlers of memory faults may serve faults of any thread (a collector's write
 * barrier, say), so that these are not blocked. */
static void admit_faults(void)
{
	sigset_t faults;

	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	sigaddset(&faults, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

static void *run(void *arg)
{
	struct mem_numa_place place = { .node = -1 };
	struct mem_copy_pool *pool = arg;
	struct mem_copy_job *j;

	admit_faults();
	lock_take(&pool->lock);
	for (;;) {
		j = choose(pool);
		if (!j) {
			if (!sleep_for_work(pool)) {
				break;
			}
			continue;
		}
		store_relaxed(&j->users, j->users + 1);
		lock_release(&pool->lock);
		mem_numa_move(&place, j->c->numa);
		help(pool, j);
		lock_take(&pool->lock);
		store_relaxed(&j->users, j->users - 1);
		pthread_cond_broadcast(&pool->left);
	}
	store_relaxed(&pool->n_helpers, pool->n_helpers - 1);
	pthread_cond_broadcast(&pool->left);
	lock_release(&pool->lock);
	return NULL;
}

void mem_copy_pool_add(struct mem_copy_pool *pool, struct mem_copy_job *j)
{
	lock_take(&pool->lock);
	j->later = pool->jobs;
	pool->jobs = j;
	store_relaxed(&pool->n_jobs, pool->n_jobs + 1);
	while (pool->n_helpers < pool->max_helpers) {
		if (thread_start_detached(run, pool, 0)) {
			break; /* the copy's own thread suffices */
		}
		store_relaxed(&pool->n_helpers, pool->n_helpers + 1);
	}
	lock_release(&pool->lock);
}

void mem_copy_pool_wake(struct mem_copy_pool *pool)
{
	fence_seqcst(); /* pairs with sleep_for_work() */
	if (load_relaxed(&pool->n_asleep)) {
		lock_take(&pool->lock);
		pthread_cond_broadcast(&pool->work);
		lock_release(&pool->lock);
	}
}

void mem_copy_pool_remove(struct mem_copy_pool *pool, struct mem_copy_job *j)
{
	struct mem_copy_job **at = &pool->jobs;

	lock_take(&pool->lock);
	while (*at != j) {
		at = &(*at)->later;
	}
	*at = j->later;
	store_relaxed(&pool->n_jobs, pool->n_jobs - 1);
	while (j->users) {
		lock_wait(&pool->lock, &pool->left);
	}
	lock_release(&pool->lock);
}

void mem_copy_pool_finish(struct mem_copy_pool *pool)
{
	lock_take(&pool->lock);
	pool->idle_ns = 0;
	pthread_cond_broadcast(&pool->work);
	while (pool->n_helpers) {
		lock_wait(&pool->lock, &pool->left);
	}
	lock_release(&pool->lock);
	lock_finish(&pool->lock);
	pthread_cond_destroy(&pool->work);
	pthread_cond_destroy(&pool->left);
}
