/* The device as a whole: set-up, waking workers, statistics. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "soft/server/device.h"

#define WINDOW_MIN (4ull << 30)
#define FIRST_NS_PER_KINSN 20000u /* a guess, corrected by measuring */

int device_init(struct device *dev, const struct device_options *opt)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET };

	memset(dev, 0, sizeof(*dev));
	dev->opt = *opt;
	pthread_mutex_init(&dev->lock, NULL);
	pthread_cond_init(&dev->settled, NULL);
	list_init(&dev->clients);
	for (unsigned i = 0; i < opt->gpus; i++) {
		struct gpu *gpu = &dev->gpus[i];

		gpu->dev = dev;
		gpu->index = i;
		pthread_cond_init(&gpu->work, NULL);
		list_init(&gpu->groups);
		list_init(&gpu->copies);
		gpu->ns_per_kinsn = FIRST_NS_PER_KINSN;
	}
	dev->pinned_limit = MAX(4 * opt->memory_bytes, 1ull << 30);
	/* Four times the memory in addresses, so that freed holes seldom matter. */
	dev->device_window_bytes =
		MAX(4 * ROUND_UP(opt->memory_bytes, EXEC_PAGE_BYTES), WINDOW_MIN);
	dev->window_bytes =
		dev->device_window_bytes + 2 * ROUND_UP(dev->pinned_limit, EXEC_PAGE_BYTES);
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

void device_kick(struct device *dev)
{
	uint64_t one = 1;

	/* The poller's epoll and the others' condition: which of them sleeps is not known without
	 * the lock. */
	if (write(dev->kick, &one, sizeof(one)) < 0) {
		(void)read(dev->kick, &one, sizeof(one)); /* full after 2^64 kicks: never */
	}
	for (unsigned i = 0; i < dev->opt.gpus; i++) {
		pthread_cond_signal(&dev->gpus[i].work);
	}
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
	ret->warp_instructions = dev->warp_instructions;
	ret->lane_instructions = dev->lane_instructions;
	ret->run_ns = dev->run_ns;
	for (unsigned i = 0; i < dev->opt.gpus; i++) {
		ret->memory_used += dev->gpus[i].memory_used;
		ret->memory_total += dev->opt.memory_bytes;
		list_each (&dev->gpus[i].groups, g, struct group, in_gpu) {
			ret->allocations += g->memory.n;
			ret->blocks_resident += g->resident_blocks;
		}
	}
	list_each (&dev->clients, c, struct client, in_device) {
		ret->functions += c->n_functions;
	}
	pthread_mutex_unlock(&dev->lock);
	ret->descriptors = count_descriptors(); /* last: those of clients that left are closed */
}
