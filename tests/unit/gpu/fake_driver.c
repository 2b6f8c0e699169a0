/* See fake_driver.h: the device is one list per stream and a random choice. */
#include "fake_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "ptx/block.h"
#include "ptx/block_gate.h"

enum op_kind {
	OP_CLONE,
	OP_GATE,
	OP_PLAIN,
	OP_COPY,
	OP_SET,
	OP_RECORD,
	OP_AWAIT,
	OP_TAKE,
	OP_CLOSE
};

#define OFTEN 16u
#define TAKE ((CUfunction)(uintptr_t)0x4000)  /* gbpf_take */
#define CLOSE ((CUfunction)(uintptr_t)0x4800) /* gbpf_close */
#define ORDER 4u /* blocks of a gate's launch begin in any order among the next */

struct event {
	uint64_t put, reached; /* number of times */
	struct event *next;
};

struct op {
	struct op *next;
	enum op_kind kind;
	uint64_t id;
	uint32_t to_begin, running, index;
	bool begun;
	struct work *work;
	struct work *in[64]; /* of running blocks */
	struct ptx_block_arg arg;
	struct ptx_gate_arg gate;
	uint32_t
		ahead[ORDER]; /* indices of blocks that have not begun, the first n_ahead of them */
	uint32_t n_ahead;
	void *to;
	uint64_t from, take[4];
	uint32_t value;
	size_t bytes;
	struct event *event;
	uint64_t nth;
};

struct stream {
	struct op *first, **last;
	uint32_t n;
	bool frozen;
	unsigned asked; /* number of consecutive queries without progress */
	struct stream *next;
};

struct cuabi_table drv;
uint32_t drv_leases[64];
uint64_t drv_launches, drv_left;

static struct drv_options opt;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static struct stream *streams;
static struct event *events;
static struct memory {
	struct memory *next;
	void *p;
} * memories;
static uint64_t rng, ids;
static uint32_t resident, refuse_after, stopping;
static CUresult refused, lost;
static pthread_t thread;
static __thread CUcontext current;
static __thread unsigned depth;

uint64_t drv_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

static void fail_test(const char *what)
{
	fprintf(stderr, "driver: %s\n", what);
	abort();
}

/* ---- the device; lock is held ---- */

static void begin_work(struct work *w, uint32_t block)
{
	struct track *t = w->track;

	if (t->now && t->now != w) {
		fail_test("something else of the stream runs inside an operation");
	}
	if (!t->now && t->ordered && w->ordinal != t->last + 1) {
		fail_test("the stream's order is broken");
	}
	if (w->after && !drv_done(w->after)) {
		fail_test("an event let an operation go too early");
	}
	t->now = w;
	if (block >= w->blocks || w->ran[block]++) {
		fail_test("a block ran twice");
	}
	w->begun++;
}

static void end_work(struct work *w)
{
	store_release(&w->ended, w->ended + 1);
	if (w->ended == w->blocks) {
		w->track->last = w->ordinal;
		w->track->now = NULL;
	}
}

/* Returns true if it runs. */
static bool begin_clone(struct op *o)
{
	const struct ptx_block_arg *a = &o->arg;
	uint32_t *tickets = (uint32_t *)(uintptr_t)a->tickets, ticket;
	uint32_t *ready = tickets + PTX_BLOCK_READY / sizeof(*tickets);

	for (uint32_t i = 0; i < 4 * a->groups; i++) {
		if (load_relaxed(&((uint32_t *)(uintptr_t)a->leases)[i])) {
			return false;
		}
	}
	if ((int32_t)(load_relaxed(ready) - a->first) < 0) {
		return false;
	}
	ticket = add_relaxed(tickets, 1u) - a->first;
	if ((int32_t)ticket < 0) {
		return false; /* the counter was taken */
	}
	if (ticket >= a->total) {
		fail_test("more blocks than tickets");
	}
	begin_work(o->work, ticket);
	if (ticket == a->total - 1) {
		if ((int32_t)(a->first + a->total - load_relaxed(ready)) < 0) {
			fail_test("what says how far launches are falls");
		}
		store_release(ready, a->first + a->total);
		store_release((uint32_t *)(uintptr_t)a->done, a->number);
	}
	return true;
}

static bool gate_leased(const struct ptx_gate_arg *a, uint32_t index)
{
	for (uint32_t i = 0; index >= a->ask && i < 4 * a->groups; i++) {
		if (load_relaxed(&((uint32_t *)(uintptr_t)a->leases)[i])) {
			return true;
		}
	}
	return false;
}

static uint64_t raise_gate(uint64_t *gate, uint64_t mine)
{
	uint64_t old = load_relaxed(gate);

	store_relaxed(gate, MAX(old, mine));
	return old;
}

static uint64_t close_gate(uint64_t *gate)
{
	uint64_t old = load_relaxed(gate);

	store_relaxed(gate, old | PTX_GATE_CLOSED);
	return old;
}

static void publish_gate(const struct ptx_gate_arg *a, uint32_t *tickets, uint32_t *ready)
{
	if (load_relaxed(tickets) != a->first) {
		return; /* it was taken */
	}
	store_relaxed(tickets, a->end);
	if ((int32_t)(a->end - load_relaxed(ready)) < 0) {
		fail_test("what says how far launches are falls");
	}
	store_release(ready, a->end);
	store_release((uint32_t *)(uintptr_t)a->done, a->number);
}

/* The rules of ptx/block_gate.h. Returns true if the block runs. */
static bool begin_gate(struct op *o, uint32_t block)
{
	const struct ptx_gate_arg *a = &o->gate;
	uint32_t cluster = MAX(o->work->cluster, 1u), index = block - block % cluster;
	uint32_t *tickets = (uint32_t *)(uintptr_t)(a->gate - PTX_GATE_WORD);
	uint32_t *ready = tickets + PTX_BLOCK_READY / sizeof(*tickets);
	uint64_t *gate = (uint64_t *)(uintptr_t)a->gate;
	uint64_t mine = a->base + index + 1, old = 0;
	bool together = index >= a->wave, leased = gate_leased(a, index);

	if (index < a->from) {
		return false;
	}
	if (together) {
		old = raise_gate(gate, mine);
	}
	if ((int32_t)(load_relaxed(ready) - a->first) < 0) {
		return false;
	}
	if (leased) {
		old = close_gate(gate) | (together ? old & PTX_GATE_CLOSED : PTX_GATE_CLOSED);
	} else if (!together) {
		old = raise_gate(gate, mine);
	}
	if (old & PTX_GATE_CLOSED && (old & ~PTX_GATE_CLOSED) < mine) {
		return false;
	}
	begin_work(o->work, block);
	if (index == o->work->blocks - cluster) {
		publish_gate(a, tickets, ready);
	}
	return true;
}

/* Picks the block that begins next. */
static uint32_t next_index(struct op *o)
{
	uint32_t at, index;

	while (o->n_ahead < ORDER && o->index < o->work->blocks) {
		o->ahead[o->n_ahead++] = o->index++;
	}
	at = (uint32_t)(drv_random(&rng) % o->n_ahead);
	index = o->ahead[at];
	o->ahead[at] = o->ahead[--o->n_ahead];
	return index;
}

static void begin_block(struct op *o)
{
	bool runs = true;

	o->to_begin--;
	if (o->kind == OP_CLONE) {
		runs = begin_clone(o);
	} else if (o->kind == OP_GATE) {
		runs = begin_gate(o, next_index(o));
	} else {
		begin_work(o->work, o->index++);
	}
	if (!runs) {
		(void)add_relaxed(&drv_left, 1u);
		return;
	}
	o->running++;
	resident++;
}

static void end_block(struct op *o)
{
	o->running--;
	resident--;
	end_work(o->work);
}

/* Returns true if it is done. */
static bool do_once(struct op *o)
{
	switch (o->kind) {
	case OP_COPY:
		if (o->bytes == sizeof(uint64_t)) {
			store_release((uint64_t *)o->to,
				      load_relaxed((uint64_t *)(uintptr_t)o->from));
		} else {
			store_release((uint32_t *)o->to,
				      load_relaxed((uint32_t *)(uintptr_t)o->from));
		}
		return true;
	case OP_SET:
		for (size_t i = 0; i < o->bytes / 4; i++) {
			store_relaxed((uint32_t *)(uintptr_t)o->from + i, o->value);
		}
		return true;
	case OP_TAKE:
		o->value = xchg_acqrel((uint32_t *)(uintptr_t)o->take[0], o->value);
		store_release((uint32_t *)(uintptr_t)o->take[1], o->value);
		store_release((uint32_t *)(uintptr_t)(o->take[1] + PTX_BLOCK_READY), o->value);
		store_release((uint32_t *)(uintptr_t)o->take[2], o->value);
		return true;
	case OP_CLOSE:
		store_release((uint64_t *)(uintptr_t)o->take[1],
			      close_gate((uint64_t *)(uintptr_t)o->take[0]));
		return true;
	case OP_RECORD:
		o->event->reached = MAX(o->event->reached, o->nth);
		return true;
	case OP_AWAIT:
		return o->event->reached >= o->nth;
	default:
		return false;
	}
}

static void pop(struct stream *s)
{
	struct op *o = s->first;

	s->first = o->next;
	if (!s->first) {
		s->last = &s->first;
	}
	s->n--;
	free(o);
	pthread_cond_broadcast(&moved);
}

static uint64_t first_unbegun(void)
{
	uint64_t id = UINT64_MAX;

	for (struct stream *s = streams; s; s = s->next) {
		const struct op *o = s->first && s->first->begun ? s->first->next : s->first;

		id = o ? MIN(id, o->id) : id;
	}
	return id;
}

static bool advance(struct stream *s, uint64_t front)
{
	struct op *o = s->first;
	bool ends;

	if (!o || (opt.one_connection && !o->begun && o->id != front)) {
		return false;
	}
	if (o->kind > OP_PLAIN) {
		if (!do_once(o)) {
			return false;
		}
		pop(s);
		return true;
	}
	o->begun = true;
	ends = o->running && !o->work->held &&
	       (!o->work->barrier || o->work->begun == o->work->blocks);
	if (o->to_begin && !s->frozen && resident < opt.resident &&
	    (!ends || drv_random(&rng) % 2)) {
		begin_block(o);
	} else if (ends) {
		end_block(o);
	} else if (o->to_begin || o->running) {
		return false;
	}
	if (!o->to_begin && !o->running) {
		pop(s);
	}
	return true;
}

static bool one_thing(void)
{
	unsigned n = 0, at;
	uint64_t front;

	for (struct stream *s = streams; s; s = s->next) {
		n++;
	}
	if (!n || lost) {
		return false;
	}
	front = opt.one_connection ? first_unbegun() : 0;
	at = (unsigned)(drv_random(&rng) % n);
	for (unsigned i = 0; i < n; i++) {
		struct stream *s = streams;

		for (unsigned k = 0; k < (at + i) % n; k++) {
			s = s->next;
		}
		if (advance(s, front)) {
			return true;
		}
	}
	return false;
}

unsigned drv_run(unsigned n)
{
	unsigned did = 0;

	pthread_mutex_lock(&lock);
	while (did < n && one_thing()) {
		did++;
	}
	pthread_mutex_unlock(&lock);
	return did;
}

static void *device(void *arg)
{
	while (!load_acquire(&stopping)) {
		if (!drv_run(20)) {
			usleep(20); /* polls for work, as hardware does */
		}
	}
	return NULL;
}

void drv_start(void)
{
	store_release(&stopping, 0u);
	assert_int_equal(pthread_create(&thread, NULL, device, NULL), 0);
}

void drv_stop(void)
{
	store_release(&stopping, 1u);
	pthread_join(thread, NULL);
}

bool drv_idle(void)
{
	bool idle = true;

	pthread_mutex_lock(&lock);
	for (struct stream *s = streams; s; s = s->next) {
		idle &= !s->first;
	}
	pthread_mutex_unlock(&lock);
	return idle;
}

struct work *drv_work(struct track *t, uint32_t ordinal, uint32_t blocks)
{
	struct work *w = calloc(1, sizeof(*w) + blocks);

	w->track = t;
	w->ordinal = ordinal;
	w->blocks = blocks;
	return w;
}

bool drv_done(const struct work *w)
{
	return load_acquire(&w->ended) == w->blocks;
}

CUresult drv_plain(CUstream s, struct work *w)
{
	void *params[] = { &w };

	return drv.cuLaunchKernel(DRV_PLAIN, w->blocks, 1, 1, 64, 1, 1, 0, s, params, NULL);
}

struct gpu_block_launch drv_clone(struct work *const *w, uint32_t piece)
{
	return (struct gpu_block_launch){ .clone = DRV_CLONE,
					  .id = 1,
					  .resident = opt.resident,
					  .grid = { (*w)->blocks, 1, 1 },
					  .block = { 64, 1, 1 },
					  .smem = 32,
					  .piece_blocks = piece,
					  .params = w,
					  .params_bytes = sizeof(*w) };
}

struct gpu_block_launch drv_gate(struct work *const *w, uint32_t wave)
{
	struct gpu_block_launch l = drv_clone(w, 0);

	l.clone = DRV_GATE;
	l.id = 2;
	l.gate = true;
	l.wave = wave;
	return l;
}

/* ---- calls ---- */

static CUresult get_device(CUdevice *ret)
{
	*ret = 0;
	return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret)
{
	*ret = current;
	return CUDA_SUCCESS;
}

static CUresult push_current(CUcontext ctx)
{
	if (ctx != DRV_CTX) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	current = ctx;
	depth++;
	return CUDA_SUCCESS;
}

static CUresult pop_current(CUcontext *ret)
{
	*ret = current;
	if (!--depth) {
		current = NULL;
	}
	return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	return CUDA_SUCCESS;
}

static CUresult priorities(int *least, int *greatest)
{
	*least = *greatest = 0;
	return CUDA_SUCCESS;
}

CUstream drv_stream(void)
{
	struct stream *s = calloc(1, sizeof(*s));

	s->last = &s->first;
	pthread_mutex_lock(&lock);
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&lock);
	return (CUstream)s;
}

static CUresult stream_create(CUstream *ret, unsigned flags, int priority)
{
	*ret = drv_stream();
	return CUDA_SUCCESS;
}

static void remember(void *p)
{
	struct memory *m = calloc(1, sizeof(*m));

	m->p = p;
	pthread_mutex_lock(&lock);
	m->next = memories;
	memories = m;
	pthread_mutex_unlock(&lock);
}

static CUresult host_alloc(void **ret, size_t bytes, unsigned flags)
{
	*ret = aligned_alloc(64, bytes);
	remember(*ret);
	return CUDA_SUCCESS;
}

static CUresult device_pointer(CUdeviceptr *ret, void *p, unsigned flags)
{
	*ret = (uintptr_t)p;
	return CUDA_SUCCESS;
}

static CUresult mem_alloc(CUdeviceptr *ret, size_t bytes)
{
	void *p;

	(void)host_alloc(&p, bytes, 0);
	*ret = (uintptr_t)p;
	return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream s, CUstreamCaptureStatus *ret)
{
	*ret = CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

static CUresult put(CUstream stream, struct op what)
{
	struct stream *s = (struct stream *)stream;
	struct op *o = malloc(sizeof(*o));

	if (!current) {
		fail_test("no context is current");
	}
	*o = what;
	o->next = NULL;
	pthread_mutex_lock(&lock);
	while (opt.deep && s->n >= opt.deep && !lost) {
		pthread_cond_wait(&moved, &lock);
	}
	if (lost) {
		pthread_mutex_unlock(&lock);
		free(o);
		return lost;
	}
	o->id = ++ids;
	*s->last = o;
	s->last = &o->next;
	s->n++;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static CUresult refusal(void)
{
	CUresult e = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (refused && !refuse_after--) {
		e = refused;
		refused = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return e;
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		       unsigned by, unsigned bz, unsigned smem, CUstream stream, void **params,
		       void **extra)
{
	struct op o = { .kind = f == DRV_CLONE	? OP_CLONE
				: f == DRV_GATE ? OP_GATE
						: OP_PLAIN,
			.to_begin = gx * gy * gz };
	const uint8_t *buffer = extra ? extra[1] : NULL;
	CUresult e = o.kind != OP_PLAIN ? refusal() : CUDA_SUCCESS;

	if (f == TAKE) {
		o.kind = OP_TAKE;
		for (int i = 0; i < 3; i++) {
			o.take[i] = *(uint64_t *)params[i];
		}
		o.value = *(uint32_t *)params[3];
		return put(stream, o);
	}
	if (f == CLOSE) {
		o.kind = OP_CLOSE;
		o.take[0] = *(uint64_t *)params[0];
		o.take[1] = *(uint64_t *)params[1];
		return put(stream, o);
	}
	if (e) {
		return e;
	}
	if (f == DRV_GATE) {
		if (*(size_t *)extra[3] != sizeof(o.work) + sizeof(o.gate) || smem != 32) {
			fail_test("a launch with an entry stub has other parameters");
		}
		memcpy(&o.work, buffer, sizeof(o.work));
		memcpy(&o.gate, buffer + sizeof(o.work), sizeof(o.gate));
		(void)add_relaxed(&drv_launches, 1u);
	} else if (f == DRV_CLONE) {
		if (*(size_t *)extra[3] != sizeof(o.work) + sizeof(o.arg) || smem != 16 + 32) {
			fail_test("a clone's launch has other parameters");
		}
		memcpy(&o.work, buffer, sizeof(o.work));
		memcpy(&o.arg, buffer + sizeof(o.work), sizeof(o.arg));
		(void)add_relaxed(&drv_launches, 1u);
	} else {
		o.work = *(struct work **)params[0];
	}
	return put(stream, o);
}

/* Time passes for a caller that queries repeatedly. */
static CUresult query(CUstream stream)
{
	struct stream *s = (struct stream *)stream;
	bool often = false;
	CUresult e;

	pthread_mutex_lock(&lock);
	e = lost ? lost : s->first ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	s->asked = e == CUDA_ERROR_NOT_READY ? s->asked + 1 : 0;
	often = s->asked > OFTEN;
	pthread_mutex_unlock(&lock);
	if (often) {
		(void)drv_run(5);
	}
	return e;
}

static CUresult synchronize(CUstream stream)
{
	CUresult e;

	while ((e = query(stream)) == CUDA_ERROR_NOT_READY) {
		if (!drv_run(5)) {
			usleep(20); /* polls the stream */
		}
	}
	return e;
}

static CUresult copy(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return put(stream, (struct op){ .kind = OP_COPY, .to = to, .from = from, .bytes = bytes });
}

static CUresult set(CUdeviceptr to, unsigned value, size_t n, CUstream stream)
{
	return put(stream,
		   (struct op){ .kind = OP_SET, .from = to, .bytes = 4 * n, .value = value });
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
	struct event *e = calloc(1, sizeof(*e));

	pthread_mutex_lock(&lock);
	e->next = events;
	events = e;
	pthread_mutex_unlock(&lock);
	*ret = (CUevent)e;
	return CUDA_SUCCESS;
}

static uint64_t nth(struct event *e, uint64_t more)
{
	uint64_t n;

	pthread_mutex_lock(&lock);
	n = e->put += more;
	pthread_mutex_unlock(&lock);
	return n;
}

static CUresult event_record(CUevent e, CUstream stream)
{
	struct event *v = (struct event *)e;

	return put(stream, (struct op){ .kind = OP_RECORD, .event = v, .nth = nth(v, 1) });
}

static CUresult event_query(CUevent e)
{
	struct event *v = (struct event *)e;
	CUresult r;

	pthread_mutex_lock(&lock);
	r = v->reached >= v->put ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	pthread_mutex_unlock(&lock);
	return r;
}

static CUresult await(CUstream stream, CUevent e, unsigned flags)
{
	struct event *v = (struct event *)e;

	return put(stream, (struct op){ .kind = OP_AWAIT, .event = v, .nth = nth(v, 0) });
}

static CUresult elapsed(float *ms, CUevent a, CUevent b)
{
	*ms = 0.02f;
	return CUDA_SUCCESS;
}

static CUresult module_load(CUmodule *ret, const void *image)
{
	*ret = (CUmodule)(uintptr_t)0x5000;
	return CUDA_SUCCESS;
}

static CUresult module_function(CUfunction *ret, CUmodule module, const char *name)
{
	*ret = strcmp(name, "gbpf_take") == 0	 ? TAKE
	       : strcmp(name, "gbpf_close") == 0 ? CLOSE
						 : NULL;
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

void drv_freeze(CUstream s, bool on)
{
	pthread_mutex_lock(&lock);
	((struct stream *)s)->frozen = on;
	pthread_mutex_unlock(&lock);
}

void drv_refuse(CUresult e, uint32_t after)
{
	pthread_mutex_lock(&lock);
	refused = e;
	refuse_after = after;
	pthread_mutex_unlock(&lock);
}

void drv_lose(CUresult e)
{
	pthread_mutex_lock(&lock);
	lost = e;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
}

void drv_init(const struct drv_options *o)
{
	memset(&drv, 0, sizeof(drv));
	drv.cuCtxGetCurrent = get_current;
	drv.cuCtxGetDevice = get_device;
	drv.cuCtxPushCurrent_v2 = push_current;
	drv.cuCtxPopCurrent_v2 = pop_current;
	drv.cuThreadExchangeStreamCaptureMode = exchange_mode;
	drv.cuCtxGetStreamPriorityRange = priorities;
	drv.cuStreamCreateWithPriority = stream_create;
	drv.cuMemHostAlloc = host_alloc;
	drv.cuMemHostGetDevicePointer_v2 = device_pointer;
	drv.cuMemAlloc_v2 = mem_alloc;
	drv.cuMemsetD32Async = set;
	drv.cuStreamIsCapturing = is_capturing;
	drv.cuLaunchKernel = launch;
	drv.cuModuleLoadData = module_load;
	drv.cuModuleGetFunction = module_function;
	drv.cuStreamQuery = query;
	drv.cuStreamSynchronize = synchronize;
	drv.cuMemcpyDtoHAsync_v2 = copy;
	drv.cuEventCreate = event_create;
	drv.cuEventRecord = event_record;
	drv.cuEventQuery = event_query;
	drv.cuStreamWaitEvent = await;
	drv.cuEventElapsedTime = elapsed;
	opt = *o;
	opt.resident = o->resident ? o->resident : 16;
	rng = o->seed;
	resident = 0;
	refused = lost = CUDA_SUCCESS;
	drv_launches = drv_left = 0;
	memset(drv_leases, 0, sizeof(drv_leases));
}

void drv_finish(void)
{
	struct stream *s;
	struct memory *m;
	struct event *e;

	while ((s = streams)) {
		streams = s->next;
		while (s->first) {
			pop(s);
		}
		free(s);
	}
	while ((m = memories)) {
		memories = m->next;
		free(m->p);
		free(m);
	}
	while ((e = events)) {
		events = e->next;
		free(e);
	}
}
