/* The agent serves the session and does the scheduler's timed work. It sleeps on the socket and on
 * an eventfd until the scheduler's next deadline. When gbpfd disappears, the policy stays in force
 * and the agent tries to reconnect. */
#include "shim/session/session_agent.h"

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "shim/capture_state.h"
#include "shim/object/driver_device.h"

/* As large as the program's own threads have: submitting a deferred launch may load and compile its
 * module, and the program's thread-local variables are on this stack, too. */
#define STACK_BYTES (8u << 20)
#define TIMER_SLACK_NS 1000
/* A restarted gbpfd learns from the processes what they hold, so it is looked for often at first.
 */
#define RETRY_FIRST_NS 10000000u
#define RETRY_OFTEN_NS 40000000u
#define RETRY_OFTEN_FOR_NS 10000000000u
#define RETRY_MAX_NS 2000000000u
/* Of 100 us: the driver's exit handlers run next, and the agent must not be inside the driver then.
 */
#define STOP_ROUNDS 1000

void (*shim_agent_task)(void); /* constant once the agent runs */

static uint32_t stopping, stopped; /* [atomic] */
static pthread_t self;		   /* of the agent, once it is known */
static uint32_t known;		   /* [atomic] */

/* (A thread-local variable would need the loader's help.) */
bool shim_agent_is_current(void)
{
	return load_acquire(&known) && pthread_equal(pthread_self(), self);
}

struct retry {
	uint64_t at_ns, wait_ns;
	uint64_t lost_ns; /* when gbpfd disappeared */
};

static void try_again(struct shim_session *s, struct retry *r)
{
	uint64_t now;

	if (s->sock >= 0 || clock_now_ns() < r->at_ns) {
		return;
	}
	if (shim_session_connect(s) == 0) {
		r->wait_ns = RETRY_FIRST_NS;
		return;
	}
	now = clock_now_ns();
	r->wait_ns = MIN(r->wait_ns * 2,
			 now - r->lost_ns < RETRY_OFTEN_FOR_NS ? RETRY_OFTEN_NS : RETRY_MAX_NS);
	r->at_ns = now + r->wait_ns;
}

/* Sleeps until a message arrives, the eventfd is signalled or the time is over, and handles
 * messages. */
static void sleep_for(struct shim_session *s, uint64_t ns, struct retry *r)
{
	struct pollfd p[2] = { { .fd = s->wake, .events = POLLIN },
			       { .fd = s->sock, .events = POLLIN } };
	struct timespec t;
	uint64_t count;

	if (s->sock < 0) {
		uint64_t now = clock_now_ns();

		ns = MIN(ns, r->at_ns > now ? r->at_ns - now : 0);
	}
	t = clock_timespec(ns);
	if (ppoll(p, 2, ns == UINT64_MAX ? NULL : &t, NULL) <= 0) {
		return;
	}
	if (p[0].revents) {
		(void)!read(s->wake, &count, sizeof(count));
	}
	if (p[1].revents && shim_session_receive(s) < 0) {
		shim_session_lost(s);
		r->wait_ns = RETRY_FIRST_NS;
		r->lost_ns = clock_now_ns();
		r->at_ns = r->lost_ns + r->wait_ns;
	}
}

static void *agent(void *arg)
{
	struct shim_session *s = arg;
	struct retry r = { .wait_ns = RETRY_FIRST_NS, .lost_ns = clock_now_ns() };

	self = pthread_self();
	store_release(&known, 1u);
	prctl(PR_SET_NAME, "gbpf-agent");
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	(void)shim_capture_exempt(); /* for good: the agent's event queries must not invalidate an
					application's capture */
	while (!load_acquire(&stopping)) {
		uint64_t ns = sched_agent_step(s->sched),
			 device_ns = shim_device_maintain(clock_now_ns());

		shim_session_report_requests(s);
		shim_session_report_communication(s);
		if (shim_agent_task) {
			shim_agent_task();
		}
		ns = MIN(ns, device_ns);
		ns = MIN(ns, shim_session_control_maintain(s));
		sleep_for(s, ns, &r);
		try_again(s, &r);
	}
	store_release(&stopped, 1u);
	for (;;) {
		pause();
	}
	return NULL;
}

int shim_agent_start(struct shim_session *s)
{
	return thread_start_detached(agent, s, STACK_BYTES);
}

void shim_agent_stop(struct shim_session *s)
{
	uint64_t one = 1;

	store_release(&stopping, 1u);
	(void)!write(s->wake, &one, sizeof(one));
	for (int i = 0; i < STOP_ROUNDS && !load_acquire(&stopped); i++) {
		clock_sleep_ns(100000);
	}
}
