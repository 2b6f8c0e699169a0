/* What commands this process's work on a GPU: learned once it has a context there, tried, and given
 * to gbpfd, which sets slices and switches the work off by a policy's word. gbpfd may end at any
 * moment while it has us switched off or on the shortest slice; whoever reads its socket then, the
 * agent, puts both right with the same handles, before anything else. */
#include "shim/session/session_int.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "gpu/control.h"
#include "policy/ctx.h"
#include "shim/object/driver_device.h"
#include "shim/object/green_context.h"
#include "shim/session/guard.h"
#include "shim/shim.h"

#define CONTEXTS 8u /* of a GPU, that are known; handles are a process's, or of the first */
#define LEARN_DELAY_NS 3000000u /* contexts make their channels one after the other */

struct control_access { /* of one GPU, by device ordinal */
	bool learned, tested;
	uint32_t capable;
	int fd; /* the learner's */
	struct gpu_handles h;
	uint32_t slice_us; /* ours, by queue_create; 0: none */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Held while controls are called, which the driver answers whatever else it does. */
static pthread_mutex_t access_mutex = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[PROTO_MAX_GPUS][CONTEXTS]; /* mutex: of each GPU, from the first */
static struct shim_session *session;		     /* mutex; set when there has been a welcome */
static uint32_t changed;			     /* atomic: contexts have come or gone */
static struct control_access accesses[PROTO_MAX_GPUS]; /* grip_mutex */
static uint32_t generation;
static uint64_t due_ns; /* 0: nothing is to be learned */

static void mark_changed(void)
{
	uint64_t one = 1;

	store_release(&changed, 1u);
	if (session) {
		(void)!write(session->wake, &one, sizeof(one));
	}
}

void shim_session_control_context(uint32_t gpu, CUcontext ctx)
{
	unsigned i = 0;

	if (gpu >= PROTO_MAX_GPUS || !ctx) {
		return;
	}
	pthread_mutex_lock(&mutex);
	while (i < CONTEXTS && contexts[gpu][i] && contexts[gpu][i] != ctx) {
		i++;
	}
	if (i < CONTEXTS && !contexts[gpu][i]) {
		contexts[gpu][i] = ctx;
		mark_changed();
	}
	pthread_mutex_unlock(&mutex);
}

void shim_session_control_context_end(CUcontext ctx)
{
	pthread_mutex_lock(&mutex);
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
	pthread_mutex_unlock(&mutex);
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

/* The self-test is made once: what a driver refuses does not change. */
static void learn(struct shim_session *s, uint32_t gpu, bool green)
{
	struct control_access *g = &accesses[gpu];
	bool had = g->learned;
	CUcontext ctx;

	pthread_mutex_lock(&mutex);
	ctx = contexts[gpu][0];
	pthread_mutex_unlock(&mutex);
	g->learned = ctx && gpu_learn(&shim_real, gpu, ctx, &g->h, &g->fd) == 0;
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

/* The agent's rounds. Nanoseconds until it wants to be called again. In the shared lane there is
 * nothing that is this process's alone: trying it would stop the neighbours. */
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
	/* The driver is asked without the lock: it may make the agent wait for what gbpfd has
	 * switched off, and when gbpfd dies the guard needs the lock to switch it on. */
	for (uint32_t i = 0; i < MIN(s->gpus, PROTO_MAX_GPUS); i++) {
		green |= (uint32_t)shim_green_possible((CUdevice)i) << i;
	}
	pthread_mutex_lock(&access_mutex);
	for (uint32_t i = 0; i < MIN(s->gpus, PROTO_MAX_GPUS); i++) {
		learn(s, i, green >> i & 1u);
	}
	pthread_mutex_unlock(&access_mutex);
	return UINT64_MAX;
}

void shim_session_control_offer(struct shim_session *s)
{
	pthread_mutex_lock(&mutex);
	session = s;
	pthread_mutex_unlock(&mutex);
	pthread_mutex_lock(&access_mutex);
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		if (accesses[i].learned) {
			send_handles(s, i);
		}
	}
	pthread_mutex_unlock(&access_mutex);
}

void shim_session_control_lost(void)
{
	pthread_mutex_lock(&access_mutex);
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
	pthread_mutex_unlock(&access_mutex);
}

int shim_session_control_slice(uint32_t gpu, uint32_t slice_us)
{
	struct control_access *g = gpu < PROTO_MAX_GPUS ? &accesses[gpu] : NULL;
	int err = 0;

	if (!g) {
		return -EINVAL;
	}
	pthread_mutex_lock(&access_mutex);
	g->slice_us = slice_us; /* also for handles that come later */
	if (g->learned) {
		err = has_control(g, GPU_CONTROL_SLICE_SET)
			      ? gpu_control(&g->h, g->fd, GPU_CONTROL_SLICE_SET, slice_us, NULL)
			      : -ENOTSUP;
	}
	pthread_mutex_unlock(&access_mutex);
	return err;
}

/* The driver of a forked child is not there: neither is anything to be commanded. */
void shim_session_control_abandon(void)
{
	pthread_mutex_init(&mutex, NULL); /* another thread of the parent may have held it */
	pthread_mutex_init(&access_mutex, NULL);
	shim_guard_abandon();
	session = NULL;
	memset(accesses, 0, sizeof(accesses));
	memset(contexts, 0, sizeof(contexts));
}
