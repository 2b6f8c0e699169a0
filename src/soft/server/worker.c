/* Execution threads. Each turn: take what clients submitted, choose the group whose time slice
 * runs, run one block of it for a budget of instructions, and between blocks one part of a copy. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "soft/server/device.h"

#define TURN_NS 50000u	/* wanted length of a turn; bounds how late a slice ends */
#define MIN_BUDGET 256u /* warp instructions */
#define COPY_PART (256u << 10)
#define SPIN_NS 20000u /* looking for new work before sleeping: a wake-up costs about as much */
#define LONG_TURNS 16u /* a block that runs longer lets further blocks start beside it */

struct work {
	struct group *group;
	struct launch *launch;
	struct resident *block;
	struct op *copy;
	uint64_t index; /* of a block that starts now */
	uint64_t budget;
	uint32_t sm;
	bool fresh;
};

static void drain_all(struct device *dev, bool *any)
{
	list_each (&dev->clients, c, struct client, in_device) {
		int err = c->dead ? 0 : drain_client(c, any);

		if (err) {
			client_drop(c, err == -ENOMEM ? "no memory" : "a malformed ring record");
		}
	}
	for (unsigned i = 0; i < dev->opt.gpus; i++) {
		list_each (&dev->gpus[i].groups, g, struct group, in_gpu) {
			if (dev->values) {
				g->dirty = true;
			}
			group_progress(g);
			*any = *any || (g->dirty && (g->enabled || g->error));
		}
	}
}

static void set_asleep(struct device *dev, uint32_t value)
{
	list_each (&dev->clients, c, struct client, in_device) {
		store_seqcst(&c->shared->asleep, value);
	}
	fence_seqcst();
}

/* Nothing to do: the first idle worker waits for doorbells, others for it. */
static void rest(struct gpu *gpu)
{
	struct device *dev = gpu->dev;
	struct epoll_event e[8];
	bool any = false;

	gpu->idle_workers++;
	if (dev->polling) {
		pthread_cond_wait(&gpu->work, &dev->lock);
		gpu->idle_workers--;
		return;
	}
	dev->polling = true;
	set_asleep(dev, 1);
	drain_all(dev, &any); /* what came before the flag was seen */
	if (!any && !dev->stop) {
		int timeout = dev->values ? 1 : -1; /* waits on memory are polled */

		pthread_mutex_unlock(&dev->lock);
		epoll_wait(dev->epoll, e, ARRAY_SIZE(e), timeout);
		pthread_mutex_lock(&dev->lock);
	}
	dev->polling = false;
	set_asleep(dev, 0);
	gpu->idle_workers--;
}

static struct group *next_runnable(struct gpu *gpu, const struct group *except)
{
	list_each (&gpu->groups, g, struct group, in_gpu) {
		if (g != except && group_runnable(g)) {
			return g;
		}
	}
	return NULL;
}

static void switch_to(struct gpu *gpu, struct group *g, uint64_t now)
{
	if (gpu->current != g) {
		g->counters.switches_in++;
	}
	gpu->current = g;
	gpu->slice_end_ns = now + g->slice_ns;
}

/* The group whose slice it is; NULL when nobody may run here now. */
static struct group *choose_group(struct gpu *gpu, uint64_t now)
{
	struct group *cur = gpu->current, *next;
	bool has_device = cur && (group_runnable(cur) || cur->running_blocks);

	if (has_device && now < gpu->slice_end_ns) {
		return group_runnable(cur) ? cur : NULL;
	}
	next = next_runnable(gpu, cur);
	if (next) {
		if (has_device) {
			cur->counters.preempted++;
		}
		if (cur) {
			list_remove(&cur->in_gpu);
			list_append(&gpu->groups, &cur->in_gpu);
		}
		switch_to(gpu, next, now);
		return next;
	}
	if (!cur || !group_runnable(cur)) {
		return NULL;
	}
	switch_to(gpu, cur, now);
	return cur;
}

static bool has_room(const struct device *dev, const struct group *g, const struct launch *l)
{
	if (g->resident_blocks == 0) {
		return true;
	}
	return g->resident_blocks < dev->opt.sms * DEVICE_BLOCKS_PER_SM &&
	       g->resident_bytes + l->host_bytes <= SOFT_BLOCK_BYTES_MAX &&
	       g->resident_threads + l->threads <= dev->opt.sms * DEVICE_THREADS_PER_SM &&
	       g->resident_shared + l->shared_bytes <= dev->opt.sms * DEVICE_SHARED_PER_SM;
}

static struct resident *best_resident(const struct group *g)
{
	struct resident *best = NULL;

	list_each (&g->resident, b, struct resident, in_group) {
		if (!best || b->launch->priority < best->launch->priority) {
			best = b;
		}
	}
	return best;
}

static void take_new(struct group *g, struct launch *l, struct resident *b, struct work *w)
{
	b->launch = l;
	b->turns = 0;
	w->block = b;
	w->fresh = true;
	w->index = l->next++;
	w->sm = g->next_sm++ % l->exec.sm_count;
	l->resident++;
	g->resident_blocks++;
	g->resident_threads += l->threads;
	g->resident_shared += l->shared_bytes;
	g->resident_bytes += l->host_bytes;
	if (l->next == l->total) {
		list_remove(&l->in_group);
	}
}

/* A block of the group: the most urgent; a started one before a new one, unless it has been running
 * for long (it may wait for a block that has not started). */
static bool choose_block(struct gpu *gpu, struct group *g, struct work *w)
{
	struct resident *old = best_resident(g), *b;
	struct launch *l =
		list_empty(&g->launches) ? NULL : list_first(&g->launches, struct launch, in_group);

	if (l && has_room(gpu->dev, g, l) &&
	    (!old || l->priority < old->launch->priority ||
	     (l->priority == old->launch->priority && old->turns >= LONG_TURNS))) {
		if (!list_empty(&l->spare)) {
			b = list_first(&l->spare, struct resident, in_group);
			list_remove(&b->in_group);
		} else {
			b = calloc(1, sizeof(*b));
		}
		if (b) {
			list_init(&b->in_group);
			take_new(g, l, b, w);
		} else if (!old) {
			group_fail(g, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
				   "no host memory for a block");
			return false;
		}
	}
	if (!w->block) {
		if (!old) {
			return false;
		}
		list_remove(&old->in_group);
		w->block = old;
	}
	w->group = g;
	w->launch = w->block->launch;
	w->launch->running++;
	g->running++;
	g->running_blocks++;
	return true;
}

static bool choose_copy(struct gpu *gpu, struct work *w)
{
	list_each (&gpu->copies, op, struct op, in_copies) {
		struct group *g = op->stream->group;

		if (!op->running && g->enabled && !g->error) {
			op->running = true;
			w->copy = op;
			w->group = g;
			return true;
		}
	}
	return false;
}

static bool choose(struct gpu *gpu, struct work *w, bool copy_first)
{
	uint64_t now = clock_now_ns(), left;
	struct group *g;

	memset(w, 0, sizeof(*w));
	if (copy_first && choose_copy(gpu, w)) {
		return true;
	}
	g = choose_group(gpu, now);
	if (g && choose_block(gpu, g, w)) {
		left = gpu->slice_end_ns > now ? gpu->slice_end_ns - now : 0;
		w->budget = MIN(left, TURN_NS) * 1024 / gpu->ns_per_kinsn;
		w->budget = MAX(w->budget, MIN_BUDGET);
		return true;
	}
	return choose_copy(gpu, w);
}

static const struct {
	enum exec_status status;
	CUresult error;
	const char *text;
} faults[] = {
	{ EXEC_FAULT_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, "access outside valid memory" },
	{ EXEC_FAULT_ALIGN, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned access" },
	{ EXEC_FAULT_TRAP, CUDA_ERROR_LAUNCH_FAILED, "trap" },
	{ EXEC_FAULT_INSN, CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal instruction" },
	{ EXEC_NO_MEMORY, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "no host memory for a block" },
};

static void report_fault(struct group *g, const char *kernel, enum exec_status status,
			 const struct exec_fault *f)
{
	char text[256];

	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		if (faults[i].status == status) {
			snprintf(text, sizeof(text),
				 "kernel %.80s, PTX line %u, thread %u: %s (address 0x%llx)",
				 kernel, f->line, f->thread, f->what ? f->what : faults[i].text,
				 (unsigned long long)f->address);
			group_fail(g, faults[i].error, text);
		}
	}
}

static void measure(struct gpu *gpu, uint64_t ns, uint64_t used)
{
	if (used >= MIN_BUDGET) {
		uint64_t now = MIN(MAX(ns * 1024 / used, 100u), 10000000u);

		gpu->ns_per_kinsn = (gpu->ns_per_kinsn * 7 + now) / 8;
	}
}

/* The block has left its SM. */
static void leave(struct group *g, struct launch *l, struct resident *b, bool keep)
{
	g->resident_blocks--;
	g->resident_threads -= l->threads;
	g->resident_shared -= l->shared_bytes;
	g->resident_bytes -= l->host_bytes;
	l->resident--;
	if (keep && b->block) {
		list_append(&l->spare, &b->in_group);
		return;
	}
	exec_block_destroy(b->block);
	free(b);
}

static void run_block(struct gpu *gpu, struct work *w)
{
	struct resident *b = w->block;
	struct launch *l = w->launch;
	struct group *g = w->group;
	struct exec_fault fault = { 0 };
	enum exec_status status = EXEC_NO_MEMORY;
	uint64_t used = 0, lanes = 0, begin, ns;

	pthread_mutex_unlock(&gpu->dev->lock);
	begin = clock_now_ns();
	if (!b->block) {
		b->block = exec_block_create(&l->exec);
	}
	if (b->block) {
		if (w->fresh) {
			exec_block_reset(b->block, w->index, w->sm);
		}
		status = exec_block_run(b->block, w->budget, &used, &fault);
		lanes = exec_block_lanes(b->block);
	}
	ns = clock_now_ns() - begin;
	pthread_mutex_lock(&gpu->dev->lock);
	measure(gpu, ns, used);
	g->counters.run_ns += ns;
	gpu->dev->run_ns += ns;
	gpu->dev->warp_instructions += used;
	gpu->dev->lane_instructions += lanes;
	l->running--;
	g->running--;
	g->running_blocks--;
	if (status == EXEC_DONE) {
		l->ended++;
		g->counters.blocks_done++;
		leave(g, l, b, l->next < l->total && !l->aborted);
	} else if (status == EXEC_BUDGET && !l->aborted) {
		b->turns++;
		list_append(&g->resident, &b->in_group);
	} else {
		leave(g, l, b, false);
	}
	if (status != EXEC_DONE && status != EXEC_BUDGET) {
		bool first = !g->error;

		l->aborted = true;
		if (first) {
			report_fault(g, exec_function_info(l->exec.function)->name, status,
				     &fault); /* retires the launch when no other worker has it */
			goto settled;
		}
	}
	launch_try_retire(l);
settled:
	if (g->dead && g->running == 0) {
		pthread_cond_broadcast(&gpu->dev->settled);
	}
}

static void run_copy(struct gpu *gpu, struct work *w)
{
	struct op *op = w->copy;
	struct group *g = w->group;
	uint64_t bytes;
	bool last, cut;

	pthread_mutex_unlock(&gpu->dev->lock);
	last = copy_part(op, COPY_PART, &bytes);
	pthread_mutex_lock(&gpu->dev->lock);
	op->running = false;
	g->counters.bytes_copied += bytes;
	cut = op->copy.dst_group->dead || (op->copy.src_group && op->copy.src_group->dead);
	if (last || cut || g->error) {
		op_retire(op);
	} else {
		list_remove(&op->in_copies);
		list_append(&gpu->copies, &op->in_copies);
	}
}

void worker_preempt(struct group *g)
{
	if (g->gpu->current == g) {
		g->gpu->slice_end_ns = 0;
	}
}

static bool more_work(const struct gpu *gpu)
{
	return !list_empty(&gpu->copies) || (gpu->current && group_runnable(gpu->current));
}

void *worker_main(void *arg)
{
	struct gpu *gpu = arg;
	struct device *dev = gpu->dev;
	uint64_t last_work = clock_now_ns();
	bool copy_first = true, any;
	struct work w;

	pthread_mutex_lock(&dev->lock);
	while (!dev->stop) {
		any = false;
		drain_all(dev, &any);
		if (choose(gpu, &w, copy_first)) {
			if (gpu->idle_workers && more_work(gpu)) {
				device_kick(dev);
			}
			copy_first = !w.copy;
			if (w.copy) {
				run_copy(gpu, &w);
			} else {
				run_block(gpu, &w);
			}
			last_work = clock_now_ns();
			continue;
		}
		if (any || clock_now_ns() - last_work < SPIN_NS) {
			pthread_mutex_unlock(&dev->lock);
			cpu_relax();
			pthread_mutex_lock(&dev->lock);
			continue;
		}
		rest(gpu);
		last_work = clock_now_ns();
	}
	pthread_mutex_unlock(&dev->lock);
	return NULL;
}
