/* The threads of one GPU. A worker advances rings and streams, then runs one block of the current
 * lane until its budget or the slice ends. A copy engine executes copies part by part. An idle
 * worker takes a copy itself rather than waking an engine. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "soft/server/connection.h"
#include "soft/server/doorbell.h"
#include "soft/server/machine.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/hw_lane.h"
#include "soft/server/run/kernel_launch.h"
#include "soft/server/run/op_stream.h"
#include "soft/server/run/worker_thread.h"
#include "soft/yield.h"

/* target length of a turn; bounds the latency of everything that the lock's holder must notice */
#define TURN_NS 50000u
#define MIN_BUDGET 64u	   /* in warp instructions */
#define FIRST_BUDGET 1024u /* for launches whose instructions have not been timed */
#define COPY_PART (256u << 10)
#define SPIN_NS 20000u /* time to poll for work before sleeping: the cost of a wake-up */

/* Returns true if there is work that this worker could take. */
static bool has_work(const struct softd_gpu *gpu) REQUIRES(softd_lock)
{
	if (gpu->running_blocks == 0 && !gpu->switching && softd_gpu_has_blocks(gpu)) {
		return true;
	}
	return !softd_copies_paced(gpu->machine) && softd_gpu_has_copies(gpu);
}

/* Sleeps: the first idle worker of the machine in epoll_wait for doorbells, the others on
 * gpu->work. */
static void rest(struct softd_gpu *gpu) REQUIRES(softd_lock)
{
	struct softd_machine *machine = gpu->machine;
	struct epoll_event e[8];
	bool any = false;

	if (machine->poller) {
		gpu->waiting_workers++;
		softd_machine_wait(machine, &gpu->work);
		gpu->waiting_workers--;
		return;
	}
	softd_doorbells_ask(machine, 1);
	/* Reads the rings after setting asleep. Pairs with ring_bell() in the client, which reads
	 * asleep after storing head: either it sees asleep and rings, or this reads its records. */
	softd_machine_progress(machine, &any);
	softd_machine_wake(machine, gpu);
	if (!any && !machine->stop && !has_work(gpu)) {
		int timeout = machine->value_polls ? 1 : -1; /* waits on memory need polling */

		machine->poller = gpu;
		softd_machine_unlock(machine);
		epoll_wait(machine->epoll, e, ARRAY_SIZE(e), timeout);
		softd_machine_lock(machine);
		machine->poller = NULL;
		softd_doorbells_take(machine, 0);
	}
	softd_doorbells_ask(machine, 0);
}

/* Picks the copy of the group that has waited longest. Copies run whatever lane has the slice:
 * engines work concurrently with the SMs. */
static bool choose_copy(struct softd_gpu *gpu, struct softd_work *w) REQUIRES(softd_lock)
{
	if (gpu->copying >= gpu->machine->opt.copy_engines) {
		return false;
	}
	softd_list_each (&gpu->copiers, g, struct softd_group, in_copying) {
		struct softd_op *op = !w->group || g->copy_stamp < w->group->copy_stamp
					      ? softd_group_next_copy(g)
					      : NULL;

		if (op) {
			w->group = g;
			w->copy = op;
		}
	}
	if (w->copy) {
		w->group->copy_stamp = ++gpu->copy_stamp;
		w->copy->running = true;
		gpu->copying++;
	}
	return w->copy;
}

static uint64_t budget_for(const struct softd_gpu *gpu, const struct softd_launch *l, uint64_t now)
	REQUIRES(softd_lock)
{
	uint64_t ns = gpu->slice_end_ns > now ? MIN(gpu->slice_end_ns - now, TURN_NS) : 0;
	uint64_t n = ns * 1024 / (l->ns_per_kinsn ? l->ns_per_kinsn : gpu->ns_per_kinsn);

	if (!l->ns_per_kinsn) {
		n = MIN(n, FIRST_BUDGET);
	}
	return MAX(n, MIN_BUDGET);
}

static bool choose_block(struct softd_gpu *gpu, struct softd_work *w) REQUIRES(softd_lock)
{
	uint64_t now = clock_fast_ns();
	struct softd_lane *lane = softd_runlist_choose(gpu, now);

	if (!lane || !softd_place_choose(lane, w)) {
		return false;
	}
	softd_runlist_enter(w->group, now);
	w->begin_ns = now;
	w->launch->running++;
	w->budget = budget_for(gpu, w->launch, now);
	return true;
}

/* Takes a block, or a copy if there is no block and no bandwidth is modelled. */
static bool choose(struct softd_gpu *gpu, struct softd_work *w) REQUIRES(softd_lock)
{
	memset(w, 0, sizeof(*w));
	return choose_block(gpu, w) || (!softd_copies_paced(gpu->machine) && choose_copy(gpu, w));
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
	{ EXEC_FAULT_ASSERT, CUDA_ERROR_ASSERT, "a failed assertion" },
	{ EXEC_NO_MEMORY, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "no host memory for a block" },
};

/* Fails the other contexts of a shared lane: a fault ends the hardware context. */
static void fail_neighbours(struct softd_group *g, CUresult error) REQUIRES(softd_lock)
{
	char text[128];

	snprintf(text, sizeof(text), "fault in process %d, which shares the lane", g->client->pid);
	softd_list_each (&g->lane->members, o, struct softd_group, in_lane) {
		if (o != g) {
			softd_group_fail(o, error, text);
		}
	}
}

static void report_fault(struct softd_group *g, const char *kernel, enum exec_status status,
			 const struct exec_fault *f) REQUIRES(softd_lock)
{
	char text[256], at[40] = "", program[80];

	exec_program_text(program, sizeof(program), f->program, f->insn);

	if (status == EXEC_FAULT_ADDRESS || status == EXEC_FAULT_ALIGN) {
		snprintf(at, sizeof(at), " (address 0x%llx)", (unsigned long long)f->address);
	}
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		if (faults[i].status == status) {
			snprintf(text, sizeof(text),
				 "kernel %.80s%s, PTX line %u, block %u,%u,%u, thread %u: %s%s",
				 kernel, program, f->line, f->block[0], f->block[1], f->block[2],
				 f->thread, f->what ? f->what : faults[i].text, at);
			softd_group_fail(g, faults[i].error, text);
			fail_neighbours(g, faults[i].error);
		}
	}
}

/* Updates the time per 1024 instructions. An increase counts at once, to shorten the next budget; a
 * decrease is averaged. */
static void measure(struct softd_gpu *gpu, struct softd_launch *l, uint64_t ns, uint64_t used)
	REQUIRES(softd_lock)
{
	uint64_t now, old = l->ns_per_kinsn ? l->ns_per_kinsn : gpu->ns_per_kinsn;

	if (used < MIN_BUDGET) {
		return;
	}
	now = MIN(MAX(ns * 1024 / used, 100u), 1000000000u);
	if (l->ns_per_kinsn && now > 8 * old) {
		now = 8 * old; /* bounded: the thread may have been preempted */
	}
	l->ns_per_kinsn = now > old || !l->ns_per_kinsn ? now : (old * 3 + now) / 4;
	gpu->ns_per_kinsn = (gpu->ns_per_kinsn * 7 + l->ns_per_kinsn) / 8;
}

static enum exec_status run_turn(struct softd_work *w, uint64_t *ret_used, uint64_t *ret_lanes,
				 struct exec_fault *ret_fault)
{
	struct softd_resident_block *b = w->block;
	enum exec_status status;

	if (!b->block) {
		b->block = exec_block_create(&w->launch->exec);
	}
	if (!b->block) {
		return EXEC_NO_MEMORY;
	}
	if (w->fresh) {
		exec_block_reset(b->block, w->index, b->sm);
		exec_block_place_warps(b->block, b->warps);
	}
	status = exec_block_run(b->block, w->budget, ret_used, ret_fault);
	*ret_lanes = exec_block_lanes(b->block);
	return status;
}

/* Ends a block's turn: retires it, queues it again, or fails its group. */
static void finish_turn(struct softd_work *w, enum exec_status status,
			const struct exec_fault *fault) REQUIRES(softd_lock)
{
	struct softd_resident_block *b = w->block;
	struct softd_launch *l = w->launch;
	struct softd_group *g = w->group;

	if (status == EXEC_DONE) {
		l->ended++;
		g->counters.blocks_done++;
		softd_place_remove(b, l->next < l->total && !l->aborted);
	} else if (status == EXEC_BUDGET && !l->aborted) {
		b->turns++;
		softd_list_append(&g->resident[l->level], &b->in_group);
	} else {
		softd_place_remove(b, false);
	}
	if (status != EXEC_DONE && status != EXEC_BUDGET) {
		bool first = !g->error;

		l->aborted = true;
		if (first) {
			report_fault(g, exec_function_info(l->exec.function)->name, status,
				     fault); /* may retire the launch */
			return;
		}
	}
	softd_launch_try_retire(l);
}

static void sleep_until(uint64_t until_ns)
{
	uint64_t now = clock_now_ns();

	if (until_ns > now) {
		clock_sleep_ns(until_ns - now);
	}
}

/* Sleeps until what the block has accessed of the host's memory has passed the link. */
static void wait_for_link(struct softd_gpu *gpu, const struct softd_work *w)
{
	struct softd_machine *machine = gpu->machine;
	uint64_t bytes[EXEC_LINK_WAYS], any = 0, until;

	for (unsigned way = 0; way < EXEC_LINK_WAYS; way++) {
		bytes[way] = exec_block_link_bytes(w->block->block, way);
		any |= bytes[way];
	}
	if (any) {
		softd_machine_lock(machine);
		until = softd_link_queue(gpu, bytes);
		softd_machine_unlock(machine);
		sleep_until(until);
	}
}

static void run_block(struct softd_gpu *gpu, struct softd_work *w) REQUIRES(softd_lock)
{
	struct softd_machine *machine = gpu->machine;
	struct softd_group *g = w->group;
	struct exec_fault fault = { 0 };
	enum exec_status status;
	uint64_t used = 0, lanes = 0, begin = w->begin_ns, end;

	softd_machine_unlock(machine);
	status = run_turn(w, &used, &lanes, &fault);
	if (machine->opt.link_bytes_s && w->block->block) {
		wait_for_link(gpu, w);
	}
	end = MAX(clock_fast_ns(), begin);
	if (status == EXEC_BUDGET && used < w->budget) {
		/* It is spinning, perhaps on a block whose worker waits for this processor. */
		(void)soft_yield(&gpu->no_yield_ns);
	}
	softd_machine_lock(machine);
	measure(gpu, w->launch, end - begin, used);
	g->counters.run_ns += end - begin;
	machine->run_ns += end - begin;
	machine->warp_instructions += used;
	machine->lane_instructions += lanes;
	w->launch->running--;
	finish_turn(w, status, &fault);
	softd_runlist_leave(g, end);
}

/* Queues a copied part for the engines' bandwidth. Returns the time when they have moved it. */
static uint64_t queue_copied(struct softd_gpu *gpu, uint64_t bytes) REQUIRES(softd_lock)
{
	gpu->copy_free_ns =
		MAX(gpu->copy_free_ns, clock_now_ns()) +
		(uint64_t)((double)bytes * 1e9 / (double)gpu->machine->opt.copy_bytes_s);
	return gpu->copy_free_ns;
}

/* Sleeps until a copied part has passed the engines and the link, at their modelled bandwidths. */
static void throttle(struct softd_gpu *gpu, const struct softd_op *op, uint64_t bytes)
{
	struct softd_machine *machine = gpu->machine;
	uint64_t passing[EXEC_LINK_WAYS], until = 0, passed;

	softd_machine_lock(machine);
	if (machine->opt.copy_bytes_s) {
		until = queue_copied(gpu, bytes);
	}
	if (machine->opt.link_bytes_s) {
		softd_copy_link_bytes(op, bytes, passing);
		passed = softd_link_queue(gpu, passing);
		until = MAX(until, passed);
	}
	softd_machine_unlock(machine);
	sleep_until(until);
}

/* Returns the size of a copy's parts: about 1 ms at the engines' bandwidth, so that the group can
 * be stopped in between; 100 us of the link, so that kernels and other copies get their turns. */
static uint64_t part_bytes(const struct softd_machine *machine)
{
	const struct softd_machine_options *o = &machine->opt;
	uint64_t part = COPY_PART;

	if (o->copy_bytes_s) {
		part = MIN(part, o->copy_bytes_s / 1000);
	}
	if (o->link_bytes_s) {
		part = MIN(part, o->link_bytes_s / 10000);
	}
	return MAX(part, 4096u);
}

static void run_copy(struct softd_gpu *gpu, struct softd_work *w) REQUIRES(softd_lock)
{
	struct softd_machine *machine = gpu->machine;
	struct softd_op *op = w->copy;
	struct softd_group *g = w->group;
	uint64_t bytes;
	bool last, cut;

	softd_machine_unlock(machine);
	last = softd_copy_step(op, part_bytes(machine), &bytes);
	if (softd_copies_paced(machine)) {
		throttle(gpu, op, bytes);
	}
	softd_machine_lock(machine);
	gpu->copying--;
	op->running = false;
	g->counters.bytes_copied += bytes;
	gpu->bytes_copied += bytes;
	cut = (op->copy.dst_group && op->copy.dst_group->dead) ||
	      (op->copy.src_group && op->copy.src_group->dead);
	if (g->watchers) {
		pthread_cond_broadcast(&machine->quiescent);
	}
	if (last || cut || g->error) {
		softd_op_retire(op);
	} else if (!softd_copy_still_valid(op)) {
		/* Its pages may belong to another allocation already. Retires the copy. */
		softd_group_fail(g, CUDA_ERROR_ILLEGAL_ADDRESS,
				 "memory was freed during a copy or memset");
	} else {
		softd_list_remove(&op->in_copies);
		softd_list_append(&g->copies, &op->in_copies);
	}
}

/* Wakes other workers of the GPU for the work that this one leaves. */
static void share(struct softd_gpu *gpu, const struct softd_work *w) REQUIRES(softd_lock)
{
	if (!w->copy && gpu->machine->opt.workers > 1 && softd_lane_runnable(gpu->current)) {
		softd_gpu_wake(gpu);
	}
}

/* Waits for the end of a context switch, on one worker only; its loop meanwhile takes what clients
 * submit. */
static void wait_for_switch(struct softd_gpu *gpu) REQUIRES(softd_lock)
{
	struct softd_machine *machine = gpu->machine;
	uint64_t now = clock_now_ns(), left = gpu->ready_ns > now ? gpu->ready_ns - now : 0;

	gpu->switching = true;
	softd_machine_unlock(machine);
	if (left > 3 * SPIN_NS) {
		clock_sleep_ns(left - 2 * SPIN_NS);
	} else {
		cpu_relax();
	}
	softd_machine_lock(machine);
	gpu->switching = false;
}

/* Yields the processor to a client. Returns false if the caller should sleep instead. */
static bool look_again(struct softd_gpu *gpu) REQUIRES(softd_lock)
{
	struct softd_machine *machine = gpu->machine;
	bool quickly;

	softd_machine_unlock(machine);
	quickly = soft_yield(&gpu->no_yield_ns);
	softd_machine_lock(machine);
	return quickly;
}

void *softd_worker_main(void *arg)
{
	struct softd_gpu *gpu = arg;
	struct softd_machine *machine = gpu->machine;
	uint64_t last_work = clock_fast_ns();
	struct softd_work w;
	bool any;

	prctl(PR_SET_TIMERSLACK, 1000ul);
	softd_machine_lock(machine);
	while (!machine->stop) {
		any = false;
		softd_machine_progress(machine, &any);
		softd_machine_wake(machine, gpu);
		if (choose(gpu, &w)) {
			share(gpu, &w);
			if (w.copy) {
				run_copy(gpu, &w);
			} else {
				run_block(gpu, &w);
			}
			last_work = clock_fast_ns();
		} else if (!gpu->switching && clock_fast_ns() < gpu->ready_ns) {
			wait_for_switch(gpu);
		} else if (any || clock_fast_ns() - last_work < SPIN_NS) {
			if (!look_again(gpu)) {
				last_work = 0;
			}
		} else {
			rest(gpu);
			last_work = clock_fast_ns();
		}
	}
	softd_machine_unlock(machine);
	return NULL;
}

void *softd_engine_main(void *arg)
{
	struct softd_gpu *gpu = arg;
	struct softd_machine *machine = gpu->machine;
	struct softd_work w;
	bool any;

	prctl(PR_SET_TIMERSLACK, 1000ul);
	softd_machine_lock(machine);
	while (!machine->stop) {
		memset(&w, 0, sizeof(w));
		if (choose_copy(gpu, &w)) {
			run_copy(gpu, &w);
			any = false;
			softd_machine_progress(machine, &any);
			softd_machine_wake(machine, NULL);
			if (any) {
				softd_machine_kick(machine); /* wakes a worker to continue */
			}
			continue;
		}
		gpu->waiting_engines++;
		softd_machine_wait(machine, &gpu->copy_work);
		gpu->waiting_engines--;
	}
	softd_machine_unlock(machine);
	return NULL;
}
