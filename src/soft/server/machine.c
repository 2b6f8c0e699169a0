/* The machine as a whole: initialization, one turn over rings and streams, waking workers,
 * statistics. Does not run blocks or copies. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "soft/server/connection.h"
#include "soft/server/doorbell.h"
#include "soft/server/machine.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/hw_lane.h"
#include "soft/server/run/op_stream.h"
#include "soft/server/memory/device_memory.h"

#define WINDOW_MIN (4ull << 30)
#define FIRST_NS_PER_KINSN 20000u /* initial estimate, corrected by measuring */
#define TAKE_BYTES (32u << 10)	  /* limit of bytes taken from the rings in one turn */
#define BELLS_NS 20000u		  /* doorbells are looked at so often while a worker is awake */
#define STEPS 1024 /* stream operations in one turn; a small copy counts as several */

/* Limit of pinned memory, which is committed when allocated: at most half of the host's memory,
 * whatever --mem says. */
static uint64_t pinned_limit(const struct softd_machine_options *opt)
{
	uint64_t ram_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	return MIN(MAX(4 * opt->memory_bytes, 1ull << 30), MAX(ram_bytes / 2, 256ull << 20));
}

int softd_machine_init(struct softd_machine *machine, const struct softd_machine_options *opt)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET };
	pthread_condattr_t attr;

	memset(machine, 0, sizeof(*machine));
	machine->opt = *opt;
	machine->pid = getpid();
	lock_init(&machine->lock, LOCK_SOFTD);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&machine->quiescent, &attr);
	softd_list_init(&machine->clients);
	softd_list_init(&machine->groups);
	softd_list_init(&machine->dirty);
	machine->block_limit = MAX(opt->memory_bytes / 2, 512ull << 20);
	for (unsigned i = 0; i < opt->gpus; i++) {
		struct softd_gpu *gpu = &machine->gpus[i];

		gpu->machine = machine;
		gpu->index = i;
		pthread_cond_init(&gpu->work, NULL);
		pthread_cond_init(&gpu->copy_work, NULL);
		softd_list_init(&gpu->groups);
		softd_list_init(&gpu->copiers);
		softd_list_init(&gpu->lanes);
		softd_list_init(&gpu->runlist);
		gpu->ns_per_kinsn = FIRST_NS_PER_KINSN;
	}
	machine->pinned_limit = pinned_limit(opt);
	/* Four times the memory in addresses, so that fragmentation seldom matters. */
	machine->device_window_bytes =
		MAX(4 * ROUND_UP(opt->memory_bytes, EXEC_PAGE_BYTES), WINDOW_MIN);
	machine->window_bytes = softd_memory_window_bytes(
		machine->device_window_bytes, 2 * ROUND_UP(machine->pinned_limit, EXEC_PAGE_BYTES),
		opt->memory_bytes);
	if (machine->window_bytes > SOFT_WINDOW_STRIDE) {
		return -E2BIG;
	}
	machine->epoll = epoll_create1(EPOLL_CLOEXEC);
	machine->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	machine->exits = epoll_create1(EPOLL_CLOEXEC);
	if (machine->epoll < 0 || machine->kick < 0 || machine->exits < 0 ||
	    epoll_ctl(machine->epoll, EPOLL_CTL_ADD, machine->kick, &e) < 0) {
		return -errno;
	}
	machine->last_busy_ns = clock_now_ns();
	return softd_doorbells_init(machine);
}

/* Makes the poller return from epoll_wait. A worker checks rings and streams once more before it
 * polls, and the eventfd stays signalled until then, so no wake-up is lost; the lock need not be
 * held. */
void softd_machine_kick(struct softd_machine *machine)
{
	uint64_t one = 1;

	if (write(machine->kick, &one, sizeof(one)) < 0) {
		/* the counter is full after 2^64 kicks: never */
		(void)read(machine->kick, &one, sizeof(one));
	}
}

void softd_gpu_wake(struct softd_gpu *gpu)
{
	if (gpu->waiting_workers) {
		pthread_cond_signal(&gpu->work);
	} else if (gpu->machine->poller == gpu) {
		softd_machine_kick(gpu->machine);
	}
}

bool softd_gpu_has_blocks(const struct softd_gpu *gpu)
{
	softd_list_each (&gpu->runlist, lane, struct softd_lane, in_runlist) {
		if (softd_lane_runnable(lane)) {
			return true;
		}
	}
	return false;
}

/* The oldest copy that no engine works on. At most copy_engines entries are skipped. */
struct softd_op *softd_group_next_copy(const struct softd_group *g)
{
	if (g->enabled && !g->error) {
		softd_list_each (&g->copies, op, struct softd_op, in_copies) {
			if (!op->running) {
				return op;
			}
		}
	}
	return NULL;
}

bool softd_gpu_has_copies(const struct softd_gpu *gpu)
{
	if (gpu->copying >= gpu->machine->opt.copy_engines) {
		return false;
	}
	softd_list_each (&gpu->copiers, g, struct softd_group, in_copying) {
		if (softd_group_next_copy(g)) {
			return true;
		}
	}
	return false;
}

void softd_machine_wake(struct softd_machine *machine, const struct softd_gpu *own)
{
	for (unsigned i = 0; i < machine->opt.gpus; i++) {
		struct softd_gpu *gpu = &machine->gpus[i];

		if (gpu != own && gpu->running_blocks == 0 && softd_gpu_has_blocks(gpu)) {
			softd_gpu_wake(gpu);
		}
		if (gpu->waiting_engines && softd_gpu_has_copies(gpu)) {
			pthread_cond_signal(&gpu->copy_work);
		}
	}
}

static void drain_clients(struct softd_machine *machine, bool *any) REQUIRES(softd_lock)
{
	uint64_t now = clock_fast_ns();
	uint32_t taken = 0;

	if (machine->n_active < machine->n_attached) {
		softd_doorbells_take(machine, BELLS_NS);
	}
	for (unsigned i = machine->n_active; i > 0 && !softd_list_empty(&machine->active); i--) {
		struct softd_client *c =
			softd_list_first(&machine->active, struct softd_client, in_active);
		uint32_t before = c->tail;
		int err = c->dead ? 0 : softd_ring_read(c, any);

		if (err) {
			softd_client_drop(c,
					  err == -ENOMEM ? "no memory" : "a malformed ring record");
		}
		softd_list_remove(&c->in_active);
		softd_list_append(&machine->active, &c->in_active);
		softd_doorbell_rest(c, c->tail != before, now);
		taken += c->tail - before;
		if (taken > TAKE_BYTES) { /* the remaining clients come first in the next turn */
			*any = true;
			return;
		}
	}
}

/* Advances the dirty groups, each once, until the turn's steps are used up. */
static void progress_groups(struct softd_machine *machine) REQUIRES(softd_lock)
{
	struct softd_list todo;

	softd_list_init(&todo);
	softd_list_move(&todo, &machine->dirty);
	while (machine->steps > 0 && !softd_list_empty(&todo)) {
		struct softd_group *g = softd_list_first(&todo, struct softd_group, in_dirty);

		softd_list_remove(&g->in_dirty);
		if (g->value_polls) {
			g->dirty = true;
		}
		softd_group_progress(g);
		if ((g->dirty || g->value_polls) && softd_list_empty(&g->in_dirty)) {
			softd_list_append(&machine->dirty, &g->in_dirty);
		}
	}
	softd_list_move(&machine->dirty, &todo); /* these come first in the next turn */
}

void softd_machine_progress(struct softd_machine *machine, bool *any)
{
	drain_clients(machine, any);
	machine->steps = STEPS;
	progress_groups(machine);
	/* In a second pass: an operation that one group retired may unblock a group that was
	 * visited before it. */
	softd_list_each (&machine->dirty, g, struct softd_group, in_dirty) {
		*any = *any || (g->dirty && (g->enabled || g->error));
	}
	*any = *any || machine->steps <= 0;
}

static uint64_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (!d) {
		return 0;
	}
	while (readdir(d)) {
		n++;
	}
	closedir(d);
	return n > 3 ? n - 3 : 0; /* ".", ".." and the directory's own descriptor */
}

void softd_machine_stats(struct softd_machine *machine, struct soft_stats *ret)
{
	memset(ret, 0, sizeof(*ret));
	softd_machine_lock(machine);
	ret->clients = machine->n_clients;
	ret->contexts = machine->contexts;
	ret->streams = machine->streams;
	ret->modules = machine->modules;
	ret->pinned_used = machine->pinned_used;
	ret->operations = machine->operations;
	ret->launches = machine->launches;
	ret->refused = machine->refused;
	ret->shares = softd_share_count();
	ret->warp_instructions = machine->warp_instructions;
	ret->lane_instructions = machine->lane_instructions;
	ret->run_ns = machine->run_ns;
	for (unsigned i = 0; i < machine->opt.gpus; i++) {
		ret->memory_used += machine->gpus[i].memory_used;
		ret->memory_total += machine->opt.memory_bytes;
		ret->link_up += machine->gpus[i].link[EXEC_LINK_UP].bytes;
		ret->link_down += machine->gpus[i].link[EXEC_LINK_DOWN].bytes;
	}
	softd_list_each (&machine->groups, g, struct softd_group, in_machine) {
		ret->blocks_resident += g->resident_blocks;
	}
	softd_list_each (&machine->clients, c, struct softd_client, in_machine) {
		ret->functions += c->n_functions;
		for (unsigned i = 0; i < SOFT_MAX_GPUS; i++) {
			ret->allocations += c->windows[i] ? c->windows[i]->n : 0;
		}
	}
	softd_machine_unlock(machine);
	/* last, after the descriptors of exited clients are closed */
	ret->descriptors = count_descriptors();
}
