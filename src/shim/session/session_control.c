/* Hardware control handles of this process. They are learned once it has a context on a GPU,
 * tested, and given to gbpfd, which sets time slices and suspends the process's work on behalf of
 * the policy. gbpfd may die at any moment while it has this process suspended or on the shortest
 * slice. The thread that detects it, agent or guard, then undoes both with the same handles, before
 * anything else. */
#include "shim/session/session_int.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "gpu/control.h"
#include "policy/ctx.h"
#include "shim/fork_lock.h"
#include "shim/object/driver_device.h"
#include "shim/object/green_context.h"
#include "shim/session/guard.h"
#include "shim/shim.h"

/* Known contexts of a GPU. Handles are the process's, or its first context's. */
#define CONTEXTS 8u
/* Delay before learning: contexts create their channels one after the other. */
#define LEARN_DELAY_NS 3000000u

struct control_access { /* control of one GPU, by device ordinal */
	bool learned, tested;
	uint32_t capable;
	int fd; /* of the resource manager; from gpu_learn() */
	struct gpu_handles h;
	uint32_t slice_us; /* as set by queue_create; 0: none */
};

static struct lock mutex = LOCK_INITIALIZER(CONTROL);
/* Held while control calls are made, which the driver answers whatever else it is doing. */
static struct lock access_mutex = LOCK_INITIALIZER(CONTROL_ACCESS);
/* Of each GPU, oldest first. */
static CUcontext contexts[PROTO_MAX_GPUS][CONTEXTS] GUARDED_BY(mutex);
static struct shim_session *session GUARDED_BY(mutex); /* NULL before the first welcome */
static uint32_t changed; /* [atomic] contexts have been created or destroyed */
static struct control_access accesses[PROTO_MAX_GPUS] GUARDED_BY(access_mutex);
static uint32_t generation;
static uint64_t due_ns; /* agent only; 0: nothing to learn */

static void mark_changed(void) REQUIRES(mutex)
{
	uint64_t one = 1;

	store_release(&changed, 1u);
	if (session) {
		(void)!write(session->wake, &one, sizeof(one));
	}
}

static void context_seen(uint32_t gpu, CUcontext ctx)
{
	unsigned i = 0;

	if (gpu >= PROTO_MAX_GPUS || !ctx) {
		return;
	}
	lock_take(&mutex);
	while (i < CONTEXTS && contexts[gpu][i] && contexts[gpu][i] != ctx) {
		i++;
	}
	if (i < CONTEXTS && !contexts[gpu][i]) {
		contexts[gpu][i] = ctx;
		mark_changed();
	}
	lock_release(&mutex);
}

static void context_ends(CUcontext ctx)
{
	lock_take(&mutex);
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		for (unsigned i = 0; i < CONTEXTS; i++) {
			if (contexts[g][i] == ctx) {
				memmove(&contexts[g][i], &contexts[g][i + 1],
					(CONTEXTS - 1 - i) * sizeof(ctx));
				contexts[g][CONTEXTS - 1] = NULL;
				mark_changed();
			}
		}
	}
	lock_release(&mutex);
}

static bool has_control(const struct control_access *g, enum gpu_control c)
{
	return g->learned && g->h.capable & 1u << c;
}

static void send_handles(struct shim_session *s, uint32_t gpu)
{
	const struct control_access *g = &accesses[gpu];
	union proto_message m = { 0 };

	_Static_assert(sizeof(g->h) <= PROTO_HANDLES, "handles fit their message");
	m.control.gpu = gpu;
	m.control.bytes = g->learned ? sizeof(g->h) : 0;
	if (g->learned) {
		memcpy(m.control.handles, &g->h, sizeof(g->h));
	}
	if (has_control(g, GPU_CONTROL_SCHEDULE)) {
		shim_guard_watch(s->sock, shim_session_control_lost);
	}
	(void)shim_session_send(s, &m, PROTO_CONTROL, &g->fd, g->learned);
}

/* Learns the handles of one GPU and sends them. The self-test is made once: a driver that refuses a
 * control will keep refusing it. */
static void learn(struct shim_session *s, uint32_t gpu, bool green) REQUIRES(access_mutex)
{
	struct control_access *g = &accesses[gpu];
	bool had = g->learned;
	CUcontext ctx;

	lock_take(&mutex);
	ctx = contexts[gpu][0];
	lock_release(&mutex);
	g->learned = ctx && gpu_learn(&shim_driver, gpu, ctx, &g->h, &g->fd) == 0;
	if (g->learned && !g->tested) {
		gpu_self_test(&g->h, g->fd);
		g->capable = g->h.capable;
		g->tested = true;
	}
	if (!g->learned && !had) {
		return;
	}
	g->h.capable = g->capable | (shim_session_has_flag(gpu) ? 1u << GPU_CONTROL_FLAG : 0);
	if (green) {
		g->h.capable |= 1u << GPU_CONTROL_GREEN;
	}
	if (g->slice_us && has_control(g, GPU_CONTROL_SLICE_SET)) {
		(void)gpu_control(&g->h, g->fd, GPU_CONTROL_SLICE_SET, g->slice_us, NULL);
	}
	send_handles(s, gpu);
}

/* Called in each round of the agent. Returns ns until the next call. In the shared mode no handle
 * controls this process alone: testing one would stop its neighbours. */
uint64_t shim_session_control_maintain(struct shim_session *s)
{
	uint32_t now_generation = gpu_learn_generation(), green = 0;
	uint64_t now;

	if (s->lane != GBPF_LANE_PROCESS) {
		return UINT64_MAX;
	}
	if (likely(!due_ns && now_generation == generation && !load_relaxed(&changed))) {
		return UINT64_MAX;
	}
	now = clock_now_ns();
	if (now_generation != generation || load_acquire(&changed)) {
		generation = now_generation;
		store_release(&changed, 0u);
		due_ns = due_ns ? due_ns : now + LEARN_DELAY_NS;
	}
	if (now < due_ns) {
		return due_ns - now;
	}
	due_ns = 0;
	/* Query the driver without the lock: it may block the agent on work that gbpfd has
	 * suspended, and when gbpfd dies the guard needs the lock to resume it. */
	for (uint32_t i = 0; i < MIN(s->gpus, PROTO_MAX_GPUS); i++) {
		green |= (uint32_t)shim_green_possible((CUdevice)i) << i;
	}
	lock_take(&access_mutex);
	for (uint32_t i = 0; i < MIN(s->gpus, PROTO_MAX_GPUS); i++) {
		learn(s, i, green >> i & 1u);
	}
	lock_release(&access_mutex);
	return UINT64_MAX;
}

void shim_session_control_offer(struct shim_session *s)
{
	lock_take(&mutex);
	session = s;
	lock_release(&mutex);
	lock_take(&access_mutex);
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		if (accesses[i].learned) {
			send_handles(s, i);
		}
	}
	lock_release(&access_mutex);
}

void shim_session_control_lost(void)
{
	lock_take(&access_mutex);
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		struct control_access *g = &accesses[i];

		if (has_control(g, GPU_CONTROL_SCHEDULE)) {
			(void)gpu_control(&g->h, g->fd, GPU_CONTROL_SCHEDULE, 1, NULL);
		}
	}
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		struct control_access *g = &accesses[i];

		if (has_control(g, GPU_CONTROL_SLICE_SET)) {
			(void)gpu_control(&g->h, g->fd, GPU_CONTROL_SLICE_SET, g->slice_us, NULL);
		}
	}
	lock_release(&access_mutex);
}

static int slice(uint32_t gpu, uint32_t slice_us)
{
	struct control_access *g = gpu < PROTO_MAX_GPUS ? &accesses[gpu] : NULL;
	int err = 0;

	if (!g) {
		return -EINVAL;
	}
	lock_take(&access_mutex);
	g->slice_us = slice_us; /* also applies to handles that are learned later */
	if (g->learned) {
		err = has_control(g, GPU_CONTROL_SLICE_SET)
			      ? gpu_control(&g->h, g->fd, GPU_CONTROL_SLICE_SET, slice_us, NULL)
			      : -ENOTSUP;
	}
	lock_release(&access_mutex);
	return err;
}

const struct shim_device_control shim_session_control = {
	.slice = slice,
	.context_seen = context_seen,
	.context_ends = context_ends,
};

/* In a child after fork there is no driver, hence nothing to control. */
void shim_session_control_abandon(void)
{
	shim_lock_after_fork(&mutex, LOCK_CONTROL);
	shim_lock_after_fork(&access_mutex, LOCK_CONTROL_ACCESS);
	shim_guard_abandon();
	session = NULL;
	memset(accesses, 0, sizeof(accesses));
	memset(contexts, 0, sizeof(contexts));
}
