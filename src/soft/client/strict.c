/* Strict mode: crashes, blocks and reports late where NVIDIA's driver would and the soft GPU need
 * not. For tests of software between programs and the driver; correct programs see no difference.
 */
#include "soft/client/ring_submit.h"
#include "soft/client/strict.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "soft/client/host_call.h"

#define DELAY_MAX_NS 200000u
#define POLL_NS 20000u
#define FRAMES 32
#define CHANNELS 8u /* default of CUDA_DEVICE_MAX_CONNECTIONS */
#define CHANNELS_MAX 32u
#define DEPTH_MAX 65536u

struct soft_strict_mode strict;

/* The history of one object. Objects are never freed in strict mode, so the address identifies it.
 */
struct history {
	const void *object; /* NULL: free slot */
	enum soft_object_kind kind;
	uint64_t destroyed_at; /* n_calls when it was destroyed; 0: it exists */
	pthread_t destroyer;   /* thread that is destroying it, if `ending` */
	bool ending;	       /* its destruction has begun */
	pthread_t holder;      /* thread in which a green context is current */
	unsigned n_current;    /* number of times it is current there */
};

static struct lock histories_mutex = LOCK_INITIALIZER(SOFT_HISTORIES);
static struct history *histories GUARDED_BY(histories_mutex);
static size_t n_histories GUARDED_BY(histories_mutex);
static size_t cap_histories GUARDED_BY(histories_mutex);
static uint64_t n_calls GUARDED_BY(histories_mutex); /* calls that passed a handle */

static struct lock shown_mutex = LOCK_INITIALIZER(SOFT_SHOWN);
/* Counts visible to the program, and when to refresh them. */
static uint32_t shown[SOFT_MAX_STREAMS] GUARDED_BY(shown_mutex);
static uint64_t shown_until_ns GUARDED_BY(shown_mutex);

static uint64_t seed; /* [atomic] state of the random generator */

/* ---- the environment ---- */

static uint32_t number(const char *name, uint32_t default_value, uint32_t max)
{
	const char *text = getenv(name);
	unsigned long n = text && *text ? strtoul(text, NULL, 10) : default_value;

	return (uint32_t)MIN(n, (unsigned long)max);
}

void soft_strict_read(void)
{
	static struct lock once = LOCK_INITIALIZER(SOFT_STRICT);
	uint32_t on = number("GBPF_SOFT_STRICT", 0, UINT32_MAX);

	lock_take(&once);
	if (!load_relaxed(&strict.state)) {
		strict.depth = number("GBPF_SOFT_QUEUE", on ? 1024 : 0, DEPTH_MAX);
		strict.channels = number("CUDA_DEVICE_MAX_CONNECTIONS", CHANNELS, CHANNELS_MAX);
		strict.channels = MAX(strict.channels, 1u);
		store_relaxed(&seed, on);
		store_release(&strict.state, on ? 2 : 1);
	}
	lock_release(&once);
}

/* ---- delays ---- */

static uint64_t draw(uint64_t below)
{
	uint64_t x = add_relaxed(&seed, UINT64_C(0x9e3779b97f4a7c15));

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) % below;
}

/* Sleeps in one call of eight, so that programs with thousands of calls still finish. */
static void random_delay(void)
{
	if (draw(8) == 0) {
		clock_sleep_ns(draw(DELAY_MAX_NS));
	}
}

void soft_strict_delay(void)
{
	if (soft_strict_on()) {
		random_delay();
	}
}

/* Refreshes all visible counts. Repeats until none changes, so that a stream that waits for another
 * is never shown complete before it. */
static void show_all(void) REQUIRES(shown_mutex)
{
	bool moved = true;

	for (int round = 0; moved && round < 8; round++) {
		moved = false;
		for (uint32_t i = 0; i < SOFT_MAX_STREAMS; i++) {
			uint32_t done = load_acquire(&soft.shared->streams[i].done);

			moved |= shown[i] != done;
			shown[i] = done;
		}
	}
}

bool soft_strict_reached(uint32_t stream_slot, uint32_t target)
{
	uint64_t now;
	bool reached;

	if (!soft_strict_on()) {
		return soft_word_reached(&soft.shared->streams[stream_slot].done, target);
	}
	now = clock_now_ns();
	lock_take(&shown_mutex);
	if (now >= shown_until_ns) {
		show_all();
		shown_until_ns = now + draw(DELAY_MAX_NS);
	}
	reached = (int32_t)(shown[stream_slot] - target) >= 0;
	lock_release(&shown_mutex);
	return reached;
}

void soft_strict_waited(void)
{
	if (soft_strict_on()) {
		lock_take(&shown_mutex);
		show_all();
		lock_release(&shown_mutex);
	}
}

/* ---- queue depth ---- */

/* Returns the number of incomplete operations in the stream's channel. Streams share channels as
 * they share hardware connections: by number, separately for each priority. */
static uint32_t queued(const CUstream s)
{
	uint32_t n = 0;

	for (uint32_t i = s->slot % strict.channels; i < SOFT_MAX_STREAMS; i += strict.channels) {
		if (load_relaxed(&soft.stream_used[i])) {
			n += load_relaxed(&soft.stream_count[i]) -
			     load_acquire(&soft.shared->streams[i].done);
		}
	}
	return n;
}

void soft_strict_submit(CUstream s)
{
	CUcontext ctx = s->context;

	soft_strict_delay();
	if (!strict.depth || soft_in_host_function()) {
		return;
	}
	lock_take(&ctx->call_lock);
	while (queued(s) >= strict.depth && !soft_context_error(ctx)) {
		clock_sleep_ns(POLL_NS);
	}
	lock_release(&ctx->call_lock);
}

void soft_strict_context(CUcontext ctx)
{
	(void)soft_strict_on();
	if (strict.depth) {
		lock_take(&ctx->call_lock);
		lock_release(&ctx->call_lock);
	}
}

/* An operation leaves its channel once its own stream lets it begin. So an operation behind it
 * begins only after the operations that precede it in its stream have ended. */
bool soft_strict_false_dependency(CUstream s, uint32_t n, uint32_t *ret_slot, uint32_t *ret_target)
{
	static struct channel {
		uint32_t slot, n; /* the last operation of the channel; n 0: none yet */
	} channels[SOFT_MAX_CONTEXTS][2][CHANNELS_MAX] GUARDED_BY(soft.ring_lock);
	struct channel *c = &channels[s->context->slot][s->priority < 0][s->slot % strict.channels];
	bool behind = c->n && c->slot != s->slot &&
		      !soft_word_reached(&soft.shared->streams[c->slot].done, c->n - 1);

	*ret_slot = c->slot;
	*ret_target = c->n - 1;
	c->slot = s->slot;
	c->n = n + behind;
	return behind;
}

/* ---- handles ---- */

static const char *name_of(enum soft_object_kind kind)
{
	static const char *const names[] = { "context",	  "stream",	   "event",
					     "module",	  "function",	   "library",
					     "kernel",	  "graph",	   "node",
					     "exec",	  "user object",   "array",
					     "mipmapped", "pool",	   "allocation",
					     "linker",	  "green context", "resource descriptor" };
	unsigned i = (unsigned)kind - SOFT_OBJECT_CONTEXT;

	return kind >= SOFT_OBJECT_CONTEXT && i < ARRAY_SIZE(names) ? names[i] : "object";
}

/* Returns the name of the API function that the program called: the outermost frame of this library
 * on the stack. */
static const char *call_of(void)
{
	const char *name = "a call";
	void *frames[FRAMES];
	Dl_info self, at;
	int n = backtrace(frames, FRAMES);
	bool inside = false;

	if (!dladdr((void *)(uintptr_t)&soft_strict_read, &self)) {
		return name;
	}
	for (int i = 0; i < n; i++) {
		if (dladdr(frames[i], &at) && at.dli_fbase == self.dli_fbase) {
			name = at.dli_sname ? at.dli_sname : name;
			inside = true;
		} else if (inside) { /* frames before may belong to a sanitizer's own backtrace() */
			break;
		}
	}
	return name;
}

__attribute__((noreturn)) static void die(const void *handle, enum soft_object_kind kind,
					  const char *what)
{
	char text[256];
	int n = snprintf(text, sizeof(text), "soft GPU: %s: %s %p %s\n", call_of(), name_of(kind),
			 handle, what);

	(void)!write(STDERR_FILENO, text, (size_t)MIN(n, (int)sizeof(text) - 1));
	abort();
}

/* Returns the slot of the object, or the free slot where it belongs. */
static struct history *find_history(const void *object) REQUIRES(histories_mutex)
{
	uint64_t h = (uintptr_t)object * UINT64_C(0x9e3779b97f4a7c15);
	size_t i = (size_t)(h >> 20) & (cap_histories - 1);

	while (histories[i].object && histories[i].object != object) {
		i = (i + 1) & (cap_histories - 1);
	}
	return &histories[i];
}

/* Makes room for one more object. Returns false if out of memory. */
static bool make_room(void) REQUIRES(histories_mutex)
{
	size_t before = cap_histories;
	struct history *old = histories;

	if (n_histories * 2 < cap_histories) {
		return true;
	}
	histories = calloc(before ? before * 2 : 1024, sizeof(*histories));
	if (!histories) {
		histories = old;
		return false;
	}
	cap_histories = before ? before * 2 : 1024;
	for (size_t i = 0; i < before; i++) {
		if (old[i].object) {
			*find_history(old[i].object) = old[i];
		}
	}
	free(old);
	return true;
}

void soft_strict_object_created(const void *object, enum soft_object_kind kind)
{
	struct history *l;

	if (!soft_strict_on()) {
		return;
	}
	lock_take(&histories_mutex);
	if (!make_room()) {
		abort();
	}
	l = find_history(object);
	n_histories += !l->object;
	*l = (struct history){ .object = object, .kind = kind };
	lock_release(&histories_mutex);
}

void soft_strict_object_destroyed(const void *object)
{
	struct history *l;

	if (!soft_strict_on()) {
		return;
	}
	lock_take(&histories_mutex);
	l = find_history(object);
	l->destroyed_at = l->destroyed_at ? l->destroyed_at : ++n_calls;
	lock_release(&histories_mutex);
}

/* Returns why the handle must not be used, or NULL. */
static const char *invalid_reason(const void *handle, enum soft_object_kind kind, char *room,
				  size_t bytes)
{
	const char *what = NULL;
	struct history *l;

	lock_take(&histories_mutex);
	n_calls++;
	l = cap_histories ? find_history(handle) : NULL;
	if (!l || !l->object) {
		what = "never existed";
	} else if (l->destroyed_at) {
		snprintf(room, bytes, "was destroyed %llu calls ago",
			 (unsigned long long)(n_calls - l->destroyed_at));
		what = room;
	} else if (l->kind != kind) {
		snprintf(room, bytes, "is a %s", name_of(l->kind));
		what = room;
	} else if (l->ending && !pthread_equal(l->destroyer, pthread_self())) {
		what = "is being destroyed by another thread";
	}
	lock_release(&histories_mutex);
	return what;
}

bool soft_handle_refuse(const void *handle, enum soft_object_kind kind)
{
	char room[64];
	const char *what;

	if (handle && soft_strict_on()) {
		what = invalid_reason(handle, kind, room, sizeof(room));
		if (what) {
			die(handle, kind, what);
		}
	}
	return false;
}

bool soft_handle_is(const void *handle, enum soft_object_kind kind)
{
	(void)soft_handle_refuse(handle, kind);
	return soft_object_is(handle, kind);
}

void soft_handle_destroying(const void *handle)
{
	if (!soft_strict_on()) {
		return;
	}
	lock_take(&histories_mutex);
	find_history(handle)->destroyer = pthread_self();
	find_history(handle)->ending = true;
	lock_release(&histories_mutex);
	random_delay();
}

void soft_handle_recheck(const void *handle, enum soft_object_kind kind)
{
	if (soft_strict_on()) {
		(void)soft_handle_refuse(handle, kind);
	}
}

void soft_strict_enter(const void *green)
{
	struct history *l;
	bool elsewhere;

	if (!green || !soft_strict_on()) {
		return;
	}
	lock_take(&histories_mutex);
	l = find_history(green);
	elsewhere = l->n_current && !pthread_equal(l->holder, pthread_self());
	l->holder = pthread_self();
	l->n_current++;
	lock_release(&histories_mutex);
	if (elsewhere) {
		die(green, SOFT_OBJECT_GREEN, "is current to another thread");
	}
}

void soft_strict_leave(const void *green)
{
	if (green && soft_strict_on()) {
		lock_take(&histories_mutex);
		find_history(green)->n_current--;
		lock_release(&histories_mutex);
	}
}
