/* Launches that name memory which has left the device: it comes back before them, or they use it in
 * place. A launch names the allocations that the words of its arguments point into, each from there
 * on to its end, or less of it (named_by()); one of a graph those of its kernels, copies and
 * memsets (swap_graphs.c). This is only a guess, on which no result depends: pointers to pointers
 * are not followed, and a number may look like an address.
 *
 * Launches that use memory in place are timed, and others of the same kernel, so that it is known
 * what it loses by that: little where it reads its memory once (51 GB/s on an H200), a hundred
 * times its duration where it reads it often. Without a program for mem_fault, memory comes back if
 * the limit has room for it; if the launch would lose twice as much as the movement takes; or if
 * launches have lost as much since it left, and what would leave for it is worth clearly less. So a
 * program that uses its memory in turn does not move all of it for ever, unless it is faster so. */
#include <string.h>

#include "base/clock.h"
#include "policy/ctx.h"
#include "ptx/probe_pointers.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/packs.h"
#include "shim/mem/swap_async.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_managed.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/object/green_context.h"
#include "shim/object/launch_args.h"
#include "shim/shim.h"

#define MIB ((uint64_t)1 << 20)
#define PARAMS_MAX 1024u
#define PARAM_BYTES_MAX 32768u /* of a kernel, as the driver has it */
/* An address inside an allocation names no more than this, and so does one at the beginning of an
 * allocation that is larger than the limit: it may be a program's pool. */
#define NAMED_INSIDE SHIM_SWAP_BATCH_BYTES
/* By a launch of a kernel: naming takes time by each chunk. */
#define NAMED_MAX (UINT64_C(64) << 30)
#define AGENT_DRAIN_NS UINT64_C(5000000) /* other work waits for gBPF's agent */
/* Until they are known (H200): out at 30 GB/s and back at 44; read once at 51. */
#define MOVE_NS_PER_MIB 58000u
#define IN_PLACE_US_PER_MIB 20u
#define ON_DEVICE_US_PER_MIB 0.5 /* of a kernel that reads memory once; 2 TB/s */
#define CLEARLY 1500u		 /* thousandths */
/* A time that is older is taken again: in place, although that is slower, since it may have been
 * wrong. */
#define TIME_NS UINT64_C(10000000000)
#define SAMPLED 16u /* one of so many launches with nothing on the host is timed */
#define LOCK_NS UINT64_C(5000000)
#define MOVED_MIN_MIB 16u /* in a movement whose rate counts */
/* After work that was not done in time no memory comes back for that many times as long. */
#define REST 20u

/* The latest times of something, of which the least counts: others are longer by what else was
 * under way. */
#define SAMPLES 4u
struct samples {
	uint32_t us[SAMPLES];
	uint32_t n;
	uint64_t latest_ns; /* when the latest was taken; 0: none was */
};

/* What is known of the launches of a kernel or graph, by a hash of its handle; another one may have
 * it. What they lose depends on their arguments, too: it may change from one moment to the next. */
#define TIMES 1024u
static struct times {
	struct samples lost;  /* by each MiB on the host */
	struct samples whole; /* of a launch without any */
} times[TIMES] GUARDED_BY(shim_swap_mutex);
static uint64_t move_ns_per_mib GUARDED_BY(shim_swap_mutex) = MOVE_NS_PER_MIB;
static uint64_t rest_until_ns[PROTO_MAX_GPUS] GUARDED_BY(shim_swap_mutex); /* by row */

static struct times *times_of(CUfunction f) REQUIRES(shim_swap_mutex)
{
	return &times[((uintptr_t)f * 0x9e3779b97f4a7c15u >> 32) % TIMES];
}

static bool is_fresh(const struct samples *s, uint64_t now)
{
	return now - s->latest_ns < TIME_NS;
}

static uint32_t least(const struct samples *s)
{
	uint32_t us = s->us[0];

	for (uint32_t i = 1; i < MIN(s->n, SAMPLES); i++) {
		us = MIN(us, s->us[i]);
	}
	return us;
}

static void take(struct samples *s, double us, uint64_t now)
{
	s->n = is_fresh(s, now) ? s->n : 0;
	s->us[s->n++ % SAMPLES] = (uint32_t)MIN(MAX(us, 1.0), 1e6);
	s->latest_ns = now;
}

/* ---- which memory a launch names ---- */

struct naming {
	struct mem_swap_need need;
	uint64_t hash; /* of the kernel's name; 0: not known, or a graph */
	uint32_t cost; /* in microseconds for each MiB on the host */
	bool is_old;   /* the cost is to be measured again */
	int row;       /* of the memory; negative: none is named */
	uint64_t left; /* bytes that may still be named */
	struct shim_managed_naming managed;
	uint64_t move_ns_per_mib;
};

/* Returns how many bytes from an address of a region on are named by it, at most. */
static uint64_t named_by(const struct naming *n, const struct mem_swap_region *r, uint64_t address)
{
	bool all = address == r->base && !r->by_handle && r->bytes <= shim_mem_limit(r->row);

	return all ? n->left : MIN(n->left, NAMED_INSIDE);
}

/* Notes the memory that an address names. Memory of another device than the first one's is left
 * where it is: other launches bring it back. Returns the end of the region if all of it from there
 * on is named, otherwise 0. */
static uint64_t name_from(struct naming *n, uint64_t address) REQUIRES(shim_swap_mutex)
{
	struct mem_swap_region *r = mem_swap_find(&shim_swap_map, address);
	bool managed = !r;
	uint64_t most, bytes;

	r = r ? r : mem_swap_find(&shim_managed_map, address);
	if (!r || r->freed || (!managed && n->row >= 0 && r->row != n->row)) {
		return 0;
	}
	most = named_by(n, r, address);
	if (managed) {
		bytes = shim_managed_name(&n->managed, r, address, most, n->cost);
	} else {
		bytes = mem_swap_use(&shim_swap_map, r, address, most, n->cost, &n->need);
		n->row = r->row;
	}
	n->left -= MIN(n->left, bytes);
	return bytes < most && !r->by_handle ? r->base + r->bytes : 0;
}

/* Notes the memory that aligned words point to. */
static void name_words(struct naming *n, const void *at, size_t bytes) REQUIRES(shim_swap_mutex)
{
	for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, (const char *)at + i, sizeof(word));
		(void)name_from(n, word);
	}
}

/* Notes the memory that a graph names. */
static void name_graph(struct naming *n, CUgraphExec graph) REQUIRES(shim_swap_mutex)
{
	const uint64_t *address = NULL;
	uint32_t count = shim_swap_graph_names(graph, &address);
	uint64_t named = 0; /* end of the region that an address before has named to its end */

	n->left = UINT64_MAX;
	for (uint32_t i = 0; i < count; i++) {
		if (address[i] >= named) {
			named = name_from(n, address[i]);
		}
	}
}

static bool param_size(const struct shim_swap_launch *l, bool library, unsigned i, size_t *ret)
{
	size_t offset;
	CUresult r =
		library ? shim_driver.cuKernelGetParamInfo((CUkernel)(void *)l->f, i, &offset, ret)
			: shim_driver.cuFuncGetParamInfo(l->f, i, &offset, ret);

	return r == CUDA_SUCCESS && *ret <= PARAM_BYTES_MAX;
}

/* Notes the memory that a launch names, as one use. words: what is known of its kernel, or NULL;
 * *ret_closed becomes true if that has the parameters that the driver says. */
static struct naming name(const struct shim_swap_launch *l, bool library,
			  const struct ptx_pointers *words, bool *ret_closed)
	REQUIRES(shim_swap_mutex)
{
	const struct samples *lost = &times_of(l->f)->lost;
	struct naming n = { .cost = lost->n ? least(lost) : IN_PLACE_US_PER_MIB,
			    .is_old = !is_fresh(lost, clock_now_ns()),
			    .left = NAMED_MAX,
			    .row = -1 };
	struct shim_param_buffer buffer;
	bool same = l->params && words;
	unsigned i = 0;
	size_t bytes;

	mem_swap_begin_use(&shim_swap_map);
	shim_managed_begin_use(&n.managed);
	if (l->graph) {
		name_graph(&n, l->graph);
	} else if (l->params) {
		for (; i < PARAMS_MAX && param_size(l, library, i, &bytes); i++) {
			same = same && i < words->n_params && words->bytes[i] == bytes;
			if (l->params[i]) {
				name_words(&n, l->params[i], bytes);
			}
		}
		*ret_closed = same && i == words->n_params;
	} else if (l->extra && shim_param_buffer(l->extra, &buffer) && buffer.at) {
		name_words(&n, buffer.at, MIN(buffer.bytes, (size_t)PARAM_BYTES_MAX));
	}
	return n;
}

/* ---- which memory is all that a launch can access ---- */

#define ELEMENT_BYTES_MAX 16u /* of an index */
_Static_assert(SHIM_SWAP_MIN >= MEM_SWAP_UNIT, "a region is found at one of three addresses");

/* Notes the region of an address. Returns false if that is not possible. */
static bool note_region(struct shim_swap_launch *l, uint64_t address) REQUIRES(shim_swap_mutex)
{
	const struct mem_swap_region *r = mem_swap_find(&shim_swap_map, address);

	if (!r) {
		return true;
	}
	if (r->freed || !r->slot) {
		return false;
	}
	for (uint32_t i = 0; i < l->n_slots; i++) {
		if (l->slot[i] == r->slot) {
			return true;
		}
	}
	if (l->n_slots == SHIM_WORK_REGIONS) {
		return false;
	}
	l->slot[l->n_slots++] = r->slot;
	return true;
}

/* Returns true if an address is in memory of another kind, which never moves. */
static bool is_other_memory(uint64_t address)
{
	unsigned type;

	return shim_work_driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
						      address) == CUDA_SUCCESS;
}

/* Notes the regions that a word of the arguments points into, and, as it may point to the end of
 * what is used, or to before its beginning, those up to MEM_SWAP_UNIT next to it. Returns false if
 * it may lead to others, as where it is no address of any memory. */
static bool note_word(struct shim_swap_launch *l, uint64_t word) REQUIRES(shim_swap_mutex)
{
	return (mem_swap_find(&shim_swap_map, word) || is_other_memory(word)) &&
	       note_region(l, word) && note_region(l, word - MEM_SWAP_UNIT) &&
	       note_region(l, word + MEM_SWAP_UNIT);
}

/* Returns true if an address and a number of elements, which may be the distance of two
 * allocations, lead to a region that is not noted. */
static bool leads_to_others(const struct shim_swap_launch *l, uint64_t address, uint64_t number)
	REQUIRES(shim_swap_mutex)
{
	uint64_t bytes = number * ELEMENT_BYTES_MAX, at = address - MIN(address, bytes);
	const struct mem_swap_region *r;

	while ((r = mem_swap_next(&shim_swap_map, at)) != NULL && r->base <= address + bytes) {
		uint32_t i = 0;

		while (i < l->n_slots && l->slot[i] != r->slot) {
			i++;
		}
		if (i == l->n_slots) {
			return true;
		}
		at = r->base + r->reserved;
	}
	return false;
}

/* Returns true if the largest of a set's numbers leads from one of its addresses to others. */
static bool set_leads_to_others(const struct shim_swap_launch *l, const uint64_t *word,
				uint64_t words) REQUIRES(shim_swap_mutex)
{
	uint64_t number = 0;
	bool leads = false;

	for (uint32_t k = 0; k < PTX_POINTERS_MAX; k++) {
		if (words >> k & 1 && word[k] < SHIM_SWAP_ADDRESS_MIN) {
			number = MAX(number, word[k]);
		}
	}
	for (uint32_t k = 0; number && k < PTX_POINTERS_MAX && !leads; k++) {
		leads = words >> k & 1 && word[k] >= SHIM_SWAP_ADDRESS_MIN &&
			leads_to_others(l, word[k], number);
	}
	return leads;
}

/* Notes the regions that are all that the launch can access, if its kernel takes its addresses from
 * these words. Returns false if it may access others: each access needs a word that is an address,
 * unless it would be one to a null pointer, and no number may lead from it to others. A word that
 * leads to a reservation of the program may lead to all that is mapped there, also while the kernel
 * runs. */
static bool close_launch(struct shim_swap_launch *l, const struct ptx_pointers *words)
	REQUIRES(shim_swap_mutex)
{
	uint64_t word[PTX_POINTERS_MAX] = { 0 }, addresses = 0, nulls = 0;

	l->n_slots = 0;
	for (uint32_t k = 0; k < words->n; k++) {
		const struct ptx_pointer *w = &words->at[k];

		if (!l->params[w->param]) {
			return false;
		}
		memcpy(&word[k], (const char *)l->params[w->param] + w->offset, sizeof(word[k]));
		if (shim_swap_is_reserved(word[k]) ||
		    (word[k] >= SHIM_SWAP_ADDRESS_MIN && !note_word(l, word[k]))) {
			return false;
		}
		addresses |= (uint64_t)(word[k] >= SHIM_SWAP_ADDRESS_MIN) << k;
		nulls |= (uint64_t)(word[k] == 0) << k;
	}
	for (uint32_t k = 0; k < words->n_sets; k++) {
		const struct ptx_pointer_set *s = &words->set[k];

		if (!(s->words & addresses) && (s->from_memory || s->words & ~nulls)) {
			return false;
		}
		if (set_leads_to_others(l, word, s->words)) {
			return false;
		}
	}
	return true;
}

/* ---- how long launches take in place ---- */

/* Takes the time of a launch that has finished. */
static void read_time(struct shim_swap_context *c) REQUIRES(shim_swap_mutex)
{
	uint64_t now = clock_now_ns();
	struct times *t;
	float ms = 0;
	double us;

	if (!c || c->timed.state != SHIM_SWAP_TIMED ||
	    shim_work_driver.cuEventQuery(c->end) == CUDA_ERROR_NOT_READY) {
		return;
	}
	c->timed.state = SHIM_SWAP_NOT_TIMED;
	if (shim_work_driver.cuEventElapsedTime(&ms, c->begin, c->end) != CUDA_SUCCESS || ms <= 0) {
		return;
	}
	us = (double)ms * 1e3;
	t = times_of(c->timed.f);
	if (!c->timed.missing) {
		take(&t->whole, us, now);
		return;
	}
	us -= t->whole.n ? (double)least(&t->whole)
			 : ON_DEVICE_US_PER_MIB * (double)(c->timed.bytes / MIB);
	take(&t->lost, us / (double)(c->timed.missing / MIB), now);
}

static CUresult record(const struct shim_swap_launch *l, CUevent event)
{
	return l->per_thread ? shim_work_driver.cuEventRecord_ptsz(event, l->stream)
			     : shim_work_driver.cuEventRecord(event, l->stream);
}

/* Begins to time a launch, unless another one is being timed. */
static void begin_time(struct shim_swap_launch *l, CUcontext ctx, const struct mem_swap_need *n)
	REQUIRES(shim_swap_mutex)
{
	struct shim_swap_context *c = shim_swap_context(ctx);

	if (c && c->out && !c->ending && c->timed.state == SHIM_SWAP_NOT_TIMED &&
	    record(l, c->begin) == CUDA_SUCCESS) {
		c->timed.state = SHIM_SWAP_TIMING;
		c->timed.f = l->f;
		c->timed.bytes = n->bytes;
		c->timed.missing = n->missing;
		l->timed_in = ctx;
	}
}

void shim_swap_launched(const struct shim_swap_launch *l, CUresult r)
{
	struct shim_swap_context *c;

	lock_take(&shim_swap_mutex);
	c = shim_swap_context(l->timed_in);
	if (c && c->timed.state == SHIM_SWAP_TIMING) {
		c->timed.state =
			r == CUDA_SUCCESS && !c->ending && record(l, c->end) == CUDA_SUCCESS
				? SHIM_SWAP_TIMED
				: SHIM_SWAP_NOT_TIMED;
	}
	lock_release(&shim_swap_mutex);
}

/* ---- decisions ---- */

/* Describes the launch's memory for the decision. */
static struct sched_mem_fault describe(const struct naming *n, uint64_t use)
	REQUIRES(shim_swap_mutex)
{
	uint64_t room = shim_swap_is_held(n->row) ? 0 : shim_mem_left(n->row);
	uint64_t mib = n->need.missing / MIB;

	return (struct sched_mem_fault){ .gpu = (uint32_t)shim_mem_device(n->row),
					 .kernel = n->hash,
					 .bytes = n->need.bytes,
					 .missing = n->need.missing,
					 .room = room,
					 .in_place_ns = n->cost * mib * 1000,
					 .lost_ns = n->need.lost * (MEM_SWAP_UNIT / MIB) * 1000,
					 .move_ns = move_ns_per_mib * mib,
					 .ratio = mem_swap_ratio(&shim_swap_map, n->row, &n->need,
								 room, use),
					 .drain_ns = SCHED_MEM_DRAIN_NS };
}

/* is_old: what is known of the kernel. */
static uint32_t built_in(const struct sched_mem_fault *f, bool is_old)
{
	bool fetch = f->missing <= f->room || (f->in_place_ns >= 2 * f->move_ns && !is_old) ||
		     (f->lost_ns >= f->move_ns && f->ratio >= CLEARLY);

	return fetch ? GBPF_MEM_FETCH : GBPF_MEM_IN_PLACE;
}

/* Returns GBPF_MEM_IN_PLACE or GBPF_MEM_FETCH, after waiting as the policy wants. */
static uint32_t decide(struct sched_mem_fault *f, bool is_old)
{
	bool agent = shim_mem_session()->is_agent();
	uint32_t verdict;

	for (;;) {
		if (!sched_mem_decide(shim.sched, f, &verdict)) {
			verdict = built_in(f, is_old);
		}
		if (verdict != GBPF_MEM_HOLD) {
			break;
		}
		if (agent) {
			return GBPF_MEM_IN_PLACE;
		}
		clock_sleep_ns(f->hold_ns);
	}
	f->drain_ns = agent ? MIN(f->drain_ns, AGENT_DRAIN_NS) : f->drain_ns;
	return verdict;
}

/* ---- movement ---- */

/* Fills the list with chunks on the host that were named by this use or a later one. Behind them
 * are those that have left since then, which were used before. */
static unsigned list_missing(int row, uint64_t use, struct mem_swap_chunk *list[SHIM_SWAP_BATCH])
	REQUIRES(shim_swap_mutex)
{
	struct mem_swap_chunk *k = shim_swap_map.at[row][MEM_SWAP_HOST].last;
	unsigned n = 0;

	for (unsigned i = 0; k && n < SHIM_SWAP_BATCH && i < MEM_SWAP_SEARCHED; k = k->prev, i++) {
		if (k->used >= use) {
			list[n++] = k;
		}
	}
	return n;
}

/* Moves once; what leaves was not used since that use, and is not used by work of an interval after
 * done. Returns whether memory has come back, so that more may. */
static bool fetch_once(int row, uint64_t use, uint64_t since, uint64_t done)
	REQUIRES(shim_swap_mutex)
{
	struct mem_swap_chunk *list[SHIM_SWAP_BATCH];
	unsigned n = list_missing(row, use, list);
	uint64_t begin = clock_now_ns();
	uint64_t mib = n ? shim_swap_exchange(row, list, n, since, done) / MIB : 0;

	if (mib >= MOVED_MIN_MIB) {
		move_ns_per_mib = (3 * move_ns_per_mib + (clock_now_ns() - begin) / mib) / 4;
	}
	return mib != 0;
}

/* A fetch that has brought nothing would bring nothing the next time. */
static void rest_since(int row, uint64_t begin) REQUIRES(shim_swap_mutex)
{
	uint64_t now = clock_now_ns();

	rest_until_ns[row] = now + REST * (now - begin);
}

/* Waits for the work of a context, by number; one that is free has none. */
static bool wait_for_context(unsigned i, uint64_t begin, uint64_t until)
{
	bool recorded = false;
	uint64_t now;
	CUresult r;

	do {
		const struct shim_swap_context *c;

		lock_take(&shim_swap_mutex);
		now = clock_now_ns();
		c = shim_swap_context_number(i);
		if (!c->ctx) {
			lock_release(&shim_swap_mutex);
			return true;
		}
		r = c->ending || !c->out ? CUDA_ERROR_INVALID_CONTEXT
		    : recorded		 ? CUDA_SUCCESS
					 : shim_swap_record(c->ctx, c->event);
		if (r == CUDA_SUCCESS) {
			recorded = true;
			r = shim_work_driver.cuEventQuery(c->event);
		}
		lock_release(&shim_swap_mutex);
		if (r == CUDA_ERROR_NOT_READY) {
			shim_swap_delay_query(now - begin);
		}
	} while (r == CUDA_ERROR_NOT_READY && now < until);
	return r == CUDA_SUCCESS;
}

/* Waits for the work of all contexts before a pause, so that only this thread waits for long, and
 * holds no lock of swapped memory. */
static bool wait_for_work(uint64_t until)
{
	uint64_t begin = clock_now_ns();
	bool done = true;

	for (unsigned i = 0; done && i < SHIM_SWAP_CONTEXTS_MAX; i++) {
		done = wait_for_context(i, begin, until);
	}
	return done;
}

/* Returns the latest interval with work that may use the regions of a launch. */
static uint64_t last_use(const struct shim_swap_launch *l)
{
	uint64_t i = load_relaxed(&shim_work_opened);

	for (uint32_t k = 0; k < l->n_slots; k++) {
		i = MAX(i, load_relaxed(&shim_work_used[l->slot[k]]));
	}
	return i;
}

enum step { DONE, AGAIN, WAIT, STUCK };

/* Moves as far as that can be done while work goes on which uses neither what comes nor what
 * leaves. STUCK: it can be only when the work of the present interval is done. */
static enum step fetch_beside(const struct shim_swap_launch *l, int row, uint64_t use)
	REQUIRES(shim_swap_mutex)
{
	struct mem_swap_chunk *list[SHIM_SWAP_BATCH];
	uint64_t now = load_relaxed(&shim_work_interval), last = last_use(l);
	uint64_t stops = shim_swap_stops, uses, done = shim_swap_done(&uses);

	if (last <= done) {
		if (fetch_once(row, use, MIN(use, uses + 1), done)) {
			return AGAIN;
		}
		if (shim_swap_stops != stops) {
			return STUCK; /* a pause in vain, or none; the next one would be, too */
		}
	}
	if (!list_missing(row, use, list)) {
		return DONE;
	}
	return !done || last == now || done + 1 == now ? STUCK : WAIT;
}

/* Returns true if all that can come back is there. */
static bool fetched_beside(const struct shim_swap_launch *l, int row, uint64_t use,
			   uint64_t missing, uint64_t until, bool *ret_some)
{
	uint64_t begin = clock_now_ns(), room = shim_mem_room(row);
	enum step s;

	if (missing > room && !shim_swap_is_held(row)) {
		(void)shim_swap_async_free(row, missing - room, UINT64_MAX, 0);
	}
	do {
		shim_mem_move_begin();
		lock_take(&shim_swap_mutex);
		shim_swap_pool_settle();
		s = fetch_beside(l, row, use);
		lock_release(&shim_swap_mutex);
		shim_mem_move_end();
		*ret_some |= s == AGAIN;
		if (s == WAIT) {
			shim_swap_delay_query(clock_now_ns() - begin);
		}
	} while (s == AGAIN || (s == WAIT && clock_now_ns() < until));
	return s == DONE;
}

/* Brings memory back that a use has named. l: the launch, or NULL: in one movement only, since
 * others wait for it. Returns whether all of it is there; *ret_some: whether any has come. */
static bool fetch(const struct shim_swap_launch *l, int row, uint64_t use,
		  const struct sched_mem_fault *f, bool *ret_some)
{
	CUstreamCaptureMode mode = shim_capture_exempt();
	struct mem_swap_chunk *list[SHIM_SWAP_BATCH];
	uint64_t begin = clock_now_ns(), until = begin + clock_patience(f->drain_ns);
	unsigned most = l ? UINT32_MAX : 1;
	bool some = false, all, done;

	shim_mem_ask(row, f->missing);
	shim_swap_ask_for_host(MIN(f->missing, SHIM_SWAP_BATCH_BYTES));
	all = l && l->closed && fetched_beside(l, row, use, f->missing, until, &some);
	done = !all && wait_for_work(until);
	if (done && !shim_swap_is_held(row) && shim_swap_async_make_room(row, f->missing, true)) {
		shim_swap_settle();
	}
	shim_mem_move_begin();
	lock_take(&shim_swap_mutex);
	shim_swap_pool_settle();
	while (done && most && fetch_once(row, use, use, UINT64_MAX)) {
		some = true;
		most--;
	}
	if (!some && !all) {
		rest_since(row, begin);
	}
	*ret_some = some;
	all = !list_missing(row, use, list);
	lock_release(&shim_swap_mutex);
	shim_mem_move_end();
	shim_capture_restore(mode);
	return all;
}

bool shim_swap_fetch_region(CUdeviceptr base, uint64_t id)
{
	struct sched_mem_fault f = { .drain_ns = SCHED_MEM_DRAIN_NS };
	struct mem_swap_need need = { 0 };
	struct mem_pack_part *part;
	struct mem_swap_region *r;
	uint64_t use = 0;
	bool some = false;
	int row = -1;

	lock_take(&shim_swap_mutex);
	r = shim_packs_find(base, id, &part);
	if (r) {
		mem_swap_begin_use(&shim_swap_map);
		mem_swap_use(&shim_swap_map, r, base, UINT64_MAX, 0, &need);
		use = shim_swap_map.uses;
		row = r->row;
		f.missing = need.missing;
	}
	lock_release(&shim_swap_mutex);
	if (need.missing) {
		(void)fetch(NULL, row, use, &f, &some);
	}
	return some;
}

/* What keeps the mutex for long is a movement, or memory of the host that is made: the launch uses
 * what there is. */
static bool lock_soon(void) ACQUIRES_IF(true, shim_swap_mutex) UNCHECKED
{
	struct timespec t = clock_timespec(clock_now_ns() + clock_patience(LOCK_NS));

	if (lock_try(&shim_swap_mutex)) {
		return true;
	}
	if (shim_mem_session()->is_agent()) {
		return false;
	}
	return lock_take_by(&shim_swap_mutex, CLOCK_MONOTONIC, &t);
}

/* Returns whether the launch waits for a decision about memory on the host; otherwise it goes, and
 * may be timed. */
static bool look(struct shim_swap_launch *l, CUcontext ctx, struct naming *n,
		 struct sched_mem_fault *f, uint64_t *ret_use)
{
	struct shim_kernel_glance k = { .known = false };
	struct ptx_pointers words;
	bool asks = false, closed = false;

	if ((!l->graph && !shim_mem_session()->kernel_of(l->f, &k, &words)) || !lock_soon()) {
		return false;
	}
	read_time(shim_swap_context(ctx));
	*n = name(l, k.library, k.known ? &words : NULL, &closed);
	l->closed = closed && close_launch(l, &words);
	n->hash = k.hash;
	*ret_use = shim_swap_map.uses;
	n->move_ns_per_mib = move_ns_per_mib;
	asks = n->need.missing && clock_now_ns() >= rest_until_ns[n->row];
	if (asks) {
		*f = describe(n, *ret_use);
	} else if (n->need.missing || (n->need.bytes && *ret_use % SAMPLED == 0)) {
		begin_time(l, ctx, &n->need);
	}
	lock_release(&shim_swap_mutex);
	return asks;
}

void shim_swap_launch(struct shim_swap_launch *l)
{
	CUstreamCaptureMode mode;
	struct sched_mem_fault f;
	CUcontext ctx = NULL;
	struct naming n = { .row = -1, .managed.row = -1 };
	uint64_t use;
	bool asks, some, all;

	if (!shim_swap_is_on() || shim_capture_any() ||
	    shim_driver.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS) {
		return;
	}
	ctx = shim_green_base(ctx);
	mode = shim_capture_exempt(); /* another thread may begin one */
	asks = look(l, ctx, &n, &f, &use);
	shim_capture_restore(mode);
	all = shim_managed_fetch(&n.managed, n.move_ns_per_mib);
	if (!asks) {
		if (n.need.missing || !all) {
			sched_used_in_place(shim.sched);
		}
		return;
	}
	if (decide(&f, n.is_old) == GBPF_MEM_FETCH) {
		if (!fetch(l, n.row, use, &f, &some)) {
			sched_used_in_place(shim.sched);
		}
		return;
	}
	sched_used_in_place(shim.sched);
	lock_take(&shim_swap_mutex);
	begin_time(l, ctx, &n.need);
	lock_release(&shim_swap_mutex);
}
