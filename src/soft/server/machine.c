/* The device as a whole: set-up, waking workers, statistics. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "soft/server/machine.h"

#define WINDOW_MIN (4ull << 30)
#define FIRST_NS_PER_KINSN 20000u /* a guess, corrected by measuring */
#define TAKE_BYTES (32u << 10)	  /* from the rings, in one turn */
#define STEPS 1024		  /* of streams in one turn; a small copy counts for more */

/* Pinned memory is committed at once: half of the machine's at most, whatever is asked for. */
static uint64_t pinned_limit(const struct device_options *opt)
{
	uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	return MIN(MAX(4 * opt->memory_bytes, 1ull << 30), MAX(machine / 2, 256ull << 20));
}

int device_init(struct device *dev, const struct device_options *opt)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET };
	pthread_condattr_t attr;

	memset(dev, 0, sizeof(*dev));
	dev->opt = *opt;
	dev->pid = getpid();
	pthread_mutex_init(&dev->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&dev->settled, &attr);
	list_init(&dev->clients);
	list_init(&dev->groups);
	dev->block_limit = MAX(opt->memory_bytes / 2, 512ull << 20);
	for (unsigned i = 0; i < opt->gpus; i++) {
		struct gpu *gpu = &dev->gpus[i];

		gpu->dev = dev;
		gpu->index = i;
		pthread_cond_init(&gpu->work, NULL);
		pthread_cond_init(&gpu->copy_work, NULL);
		list_init(&gpu->groups);
		list_init(&gpu->lanes);
		gpu->ns_per_kinsn = FIRST_NS_PER_KINSN;
	}
	dev->pinned_limit = pinned_limit(opt);
	/* Four times the memory in addresses, so that freed holes seldom matter. */
	dev->device_window_bytes =
		MAX(4 * ROUND_UP(opt->memory_bytes, EXEC_PAGE_BYTES), WINDOW_MIN);
	dev->window_bytes = memory_window_bytes(dev->device_window_bytes,
						2 * ROUND_UP(dev->pinned_limit, EXEC_PAGE_BYTES),
						opt->memory_bytes);
	if (dev->window_bytes > SOFT_WINDOW_STRIDE) {
		return -E2BIG;
	}
	dev->epoll = epoll_create1(EPOLL_CLOEXEC);
	dev->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (dev->epoll < 0 || dev->kick < 0 ||
	    epoll_ctl(dev->epoll, EPOLL_CTL_ADD, dev->kick, &e) < 0) {
		return -errno;
	}
	dev->last_busy_ns = clock_now_ns();
	return 0;
}

/* Lock held or not: a worker that is about to poll looks at everything once more before. */
void device_kick(struct device *dev)
{
	uint64_t one = 1;

	if (write(dev->kick, &one, sizeof(one)) < 0) {
		(void)read(dev->kick, &one, sizeof(one)); /* full after 2^64 kicks: never */
	}
}

void gpu_wake(struct gpu *gpu)
{
	if (gpu->waiting_workers) {
		pthread_cond_signal(&gpu->work);
	} else if (gpu->dev->poller == gpu) {
		device_kick(gpu->dev);
	}
}

bool gpu_has_blocks(const struct gpu *gpu)
{
	list_each (&gpu->lanes, lane, struct lane, in_gpu) {
		if (lane_runnable(lane)) {
			return true;
		}
	}
	return false;
}

/* The oldest that no engine works at; few are before it, since there are few engines. */
struct op *group_copy(const struct group *g)
{
	if (g->enabled && !g->error) {
		list_each (&g->copies, op, struct op, in_copies) {
			if (!op->running) {
				return op;
			}
		}
	}
	return NULL;
}

bool gpu_has_copies(const struct gpu *gpu)
{
	if (gpu->copying >= gpu->dev->opt.copy_engines) {
		return false;
	}
	list_each (&gpu->groups, g, struct group, in_gpu) {
		if (group_copy(g)) {
			return true;
		}
	}
	return false;
}

void device_wake(struct device *dev, const struct gpu *own)
{
	for (unsigned i = 0; i < dev->opt.gpus; i++) {
		struct gpu *gpu = &dev->gpus[i];

		if (gpu == own) {
			continue;
		}
		if (gpu->running_blocks == 0 && gpu_has_blocks(gpu)) {
			gpu_wake(gpu);
		}
		if (gpu->waiting_engines && gpu_has_copies(gpu)) {
			pthread_cond_signal(&gpu->copy_work);
		}
	}
}

static void drain_clients(struct device *dev, bool *any)
{
	uint32_t taken = 0;

	for (unsigned i = dev->n_clients; i > 0 && !list_empty(&dev->clients); i--) {
		struct client *c = list_first(&dev->clients, struct client, in_device);
		uint32_t before = c->tail;
		int err = c->dead ? 0 : drain_client(c, any);

		if (err) {
			client_drop(c, err == -ENOMEM ? "no memory" : "a malformed ring record");
		}
		list_remove(&c->in_device);
		list_append(&dev->clients, &c->in_device);
		taken += c->tail - before;
		if (taken > TAKE_BYTES) { /* the others come first the next time */
			*any = true;
			return;
		}
	}
}

void device_progress(struct device *dev, bool *any)
{
	drain_clients(dev, any);
	dev->steps = STEPS;
	for (uint64_t i = dev->contexts; i > 0 && dev->steps > 0 && !list_empty(&dev->groups);
	     i--) {
		struct group *g = list_first(&dev->groups, struct group, in_device);

		list_remove(&g->in_device);
		list_append(&dev->groups, &g->in_device);
		if (g->values) {
			g->dirty = true;
		}
		group_progress(g);
	}
	/* Only now: what a group retired may let one go on that had its turn before it. */
	list_each (&dev->groups, g, struct group, in_device) {
		*any = *any || (g->dirty && (g->enabled || g->error));
	}
	*any = *any || dev->steps <= 0;
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
	return n > 3 ? n - 3 : 0; /* ".", ".." and the directory itself */
}

void device_stats(struct device *dev, struct soft_stats *ret)
{
	memset(ret, 0, sizeof(*ret));
	pthread_mutex_lock(&dev->lock);
	ret->clients = dev->n_clients;
	ret->contexts = dev->contexts;
	ret->streams = dev->streams;
	ret->modules = dev->modules;
	ret->pinned_used = dev->pinned_used;
	ret->operations = dev->operations;
	ret->launches = dev->launches;
	ret->refused = dev->refused;
	ret->shares = share_count();
	ret->warp_instructions = dev->warp_instructions;
	ret->lane_instructions = dev->lane_instructions;
	ret->run_ns = dev->run_ns;
	for (unsigned i = 0; i < dev->opt.gpus; i++) {
		ret->memory_used += dev->gpus[i].memory_used;
		ret->memory_total += dev->opt.memory_bytes;
	}
	list_each (&dev->groups, g, struct group, in_device) {
		ret->allocations += g->memory.n;
		ret->blocks_resident += g->resident_blocks;
	}
	list_each (&dev->clients, c, struct client, in_device) {
		ret->functions += c->n_functions;
	}
	pthread_mutex_unlock(&dev->lock);
	ret->descriptors = count_descriptors(); /* last: those of clients that left are closed */
}
