/* Joining a vGPU, and charging it (shim/mem/charge.h). */
#include "shim/mem/charge.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "mem/account_figures.h"
#include "shim/mem/graphs.h"
#include "shim/mem/image_charge.h"
#include "shim/mem/libraries.h"
#include "shim/mem/sharing.h"
#include "shim/mem/swap_async.h"
#include "shim/mem/swap_managed.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

#define RECLAIMS_MAX 2u /* of an attempt: others may take what was released */

static struct {
	uint32_t joined; /* [atomic] */
	struct mem_ledger ledger;
	int row[PROTO_MAX_GPUS]; /* by the process's ordinal; negative: none. Constant once joined
				  */
	struct shim_mem_session session;
	uint64_t noted_ns;  /* [atomic] time of the last note */
	uint32_t n_waiting; /* [atomic] threads that wait for memory */
	uint64_t epoch;	    /* [atomic] counts allocations */
	uint64_t moves; /* [atomic] changes of memory: those under way, plus 2^32 for each that is
			   over */
	uint64_t managed[PROTO_ACCOUNT_ROWS];	  /* [atomic] bytes */
	uint64_t excess[PROTO_ACCOUNT_ROWS];	  /* [atomic] bytes */
	uint64_t excess_gone[PROTO_ACCOUNT_ROWS]; /* [atomic] bytes ever taken off excess */
} account;

/* What this thread is charged for and the driver has not answered yet, bytes by row. */
static TLS_FAST uint64_t asking[PROTO_MAX_GPUS];

bool shim_mem_joined(void)
{
	return load_acquire(&account.joined) != 0;
}

int shim_mem_join(struct proto_account *page, uint32_t line, uint8_t (*uuid)[16], uint32_t gpus,
		  const struct shim_mem_session *session)
{
	int err = mem_ledger_init(&account.ledger, page, line);

	if (err) {
		return err;
	}
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		account.row[i] = i < gpus ? mem_ledger_row(&account.ledger, uuid[i]) : -ENOENT;
		if (i < gpus && account.row[i] < 0) {
			return -EPROTO;
		}
	}
	account.session = *session;
	store_release(&account.joined, 1u);
	shim_mem_install_linear();
	shim_mem_install_chunks();
	shim_mem_install_arrays();
	shim_mem_install_pools();
	shim_mem_install_info();
	shim_mem_install_host();
	shim_mem_install_imports();
	shim_mem_install_exports();
	shim_mem_install_graphs();
	shim_mem_install_overhead(uuid, gpus);
	shim_mem_install_modules();
	if (shim_mem_row_swap() >= 0 && shim_swap_is_possible()) {
		shim_swap_install(gpus);
		for (uint32_t i = 0; i < gpus; i++) {
			mem_ledger_set_chunks(&account.ledger, (uint32_t)account.row[i], true);
		}
	}
	return 0;
}

const struct shim_mem_session *shim_mem_session(void)
{
	return &account.session;
}

/* In a child after fork: the line belongs to the parent. */
static void child(void)
{
	store_release(&account.joined, 0u);
}

const struct proto_account *shim_mem_account(void)
{
	return shim_mem_joined() ? account.ledger.page : NULL;
}

int shim_mem_row(CUdevice device)
{
	return shim_mem_joined() && device >= 0 && device < (int)PROTO_MAX_GPUS
		       ? account.row[device]
		       : -ENOENT;
}

CUdevice shim_mem_device(int row)
{
	CUdevice device = 0;

	while (device + 1 < (int)PROTO_MAX_GPUS && account.row[device] != row) {
		device++;
	}
	return device;
}

int shim_mem_row_current(void)
{
	CUdevice device;

	return shim_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? shim_mem_row(device) : -ENOENT;
}

/* At most one note in a second: a program may ask for memory in a loop. */
static bool may_note(void)
{
	uint64_t now = clock_now_ns(), last = load_relaxed(&account.noted_ns);

	return (!last || now - last >= 1000000000u) && cas_acqrel(&account.noted_ns, &last, now);
}

/* is_full: the limit has room, but not the device. */
static void note_refusal(int row, uint64_t bytes, const char *call, bool is_full)
{
	char text[200];

	if (!may_note()) {
		return;
	}
	snprintf(text, sizeof(text), "%s of %llu MiB refused: %s%llu of %llu MiB%s are in use",
		 call, (unsigned long long)(bytes >> 20), is_full ? "the GPU is full, " : "",
		 (unsigned long long)(shim_mem_used(row) >> 20),
		 (unsigned long long)(shim_mem_limit(row) >> 20), is_full ? " of the limit" : "");
	account.session.note(text);
}

void shim_mem_note_full(int row, uint64_t bytes, const char *call)
{
	note_refusal(row, bytes, call, true);
}

/* The peaks of pinned host memory and of swap are not noted. */
static bool ask(int row, uint64_t bytes, int err)
{
	if (!err && row < (int)PROTO_MAX_GPUS) {
		asking[row] += bytes;
	}
	return !err;
}

/* The driver has answered all that this thread has asked for. */
static void answered(void)
{
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		if (asking[i]) {
			mem_ledger_answered(&account.ledger, i, asking[i]);
			asking[i] = 0;
		}
	}
}

bool shim_mem_try_charge(int row, uint64_t bytes)
{
	return ask(row, bytes, mem_ledger_charge(&account.ledger, (uint32_t)row, bytes));
}

bool shim_mem_try_charge_whole(int row, uint64_t bytes)
{
	return ask(row, bytes, mem_ledger_charge_whole(&account.ledger, (uint32_t)row, bytes));
}

/* Returns how long the calling thread waits for memory, the agent not at all. */
static uint64_t wait_ns(void)
{
	return account.session.is_agent() ? 0
					  : min_once(load_relaxed(&account.ledger.page->wait_ns),
						     PROTO_VGPU_WAIT_MAX_NS);
}

/* The agent's process may have to release memory itself. */
static bool may_reclaim(int row)
{
	return row < (int)PROTO_MAX_GPUS && !account.session.is_agent();
}

bool shim_mem_waits(void)
{
	return load_acquire(&account.n_waiting) != 0;
}

/* Has the process give back the memory that it does not use. A caller that waits then counts as
 * waiting before, so that shim_mem_settle() gives back what is freed later. */
static void give_back(void)
{
	shim_mem_linear_settle();
	shim_swap_settle();
	shim_mem_pools_measure(true);
	shim_mem_graphs_measure(true);
}

/* Makes room by memory that leaves the device, unless gbpfd grants what the limit has. Returns true
 * if the bytes are charged. */
static bool swap_out(int row, uint64_t bytes)
{
	uint64_t used, limit;

	if (!shim_swap_is_on()) {
		return false;
	}
	used = shim_mem_used(row);
	limit = shim_mem_limit(row);
	if (used <= limit && bytes <= limit - used &&
	    (shim_mem_try_charge(row, bytes) ||
	     shim_mem_charge_later(&account.ledger, (uint32_t)row, bytes, &account.session, 0,
				   false))) {
		return true;
	}
	shim_swap_out(row, bytes);
	return false;
}

/* reclaim: other vGPUs may release memory. */
static bool charge_within(int row, uint64_t bytes, uint64_t wait, bool reclaim)
{
	bool done = false;

	if (shim_mem_try_charge(row, bytes)) {
		return true;
	}
	(void)add_acqrel(&account.n_waiting, wait ? 1 : 0);
	if (row < (int)PROTO_MAX_GPUS) {
		give_back();
		if (shim_swap_async_make_room(row, bytes, true)) {
			shim_swap_settle();
		}
		done = swap_out(row, bytes);
	} else {
		shim_swap_give_back();
	}
	done = done || shim_mem_try_charge(row, bytes) ||
	       shim_mem_charge_later(&account.ledger, (uint32_t)row, bytes, &account.session, wait,
				     reclaim && may_reclaim(row));
	(void)sub_acqrel(&account.n_waiting, wait ? 1 : 0);
	return done;
}

static bool charge(int row, uint64_t bytes, const char *call, bool may_wait)
{
	bool done = charge_within(row, bytes, may_wait ? wait_ns() : 0, may_wait);

	if (!done) {
		note_refusal(row, bytes, call, false);
	}
	return done;
}

bool shim_mem_charge_now(int row, uint64_t bytes)
{
	return charge_within(row, bytes, 0, false);
}

void shim_mem_ask(int row, uint64_t bytes)
{
	if (shim_mem_room(row) < bytes && shim_mem_left(row) >= bytes &&
	    shim_mem_charge_later(&account.ledger, (uint32_t)row, bytes, &account.session, 0,
				  false)) {
		shim_mem_release(row, bytes);
	}
}

bool shim_mem_charge_or_host(int row, uint64_t bytes)
{
	return charge_within(row, bytes, 0, true);
}

bool shim_mem_charge(int row, uint64_t bytes, const char *call)
{
	return charge(row, bytes, call, true);
}

/* Waits for memory of the device, which other vGPUs may release. Returns true if the driver shall
 * be asked again. */
static bool wait_for_device(struct shim_mem_attempt *a, int row, uint64_t bytes, uint64_t wait,
			    const char *call)
{
	bool reclaim = may_reclaim(row) && a->reclaims < RECLAIMS_MAX;

	if (!wait && !reclaim) {
		return false;
	}
	a->reclaims += reclaim;
	a->charged = false;
	if (!a->until_ns) {
		a->until_ns = clock_now_ns() + wait;
		(void)add_acqrel(&account.n_waiting, 1);
		give_back();
	}
	if (shim_mem_wait_for_device(&account.ledger, (uint32_t)row, bytes, &account.session, a,
				     reclaim)) {
		return true;
	}
	if (wait) {
		note_refusal(row, bytes, call, true);
	}
	return false;
}

bool shim_mem_again(struct shim_mem_attempt *a, int row, uint64_t bytes, CUresult r,
		    const char *call)
{
	bool is_full = r == CUDA_ERROR_OUT_OF_MEMORY && a->charged; /* a refused charge has been
								       noted, and has waited */

	if (likely(r != CUDA_ERROR_OUT_OF_MEMORY && !a->until_ns) || row < 0 ||
	    !shim_mem_joined()) {
		return false;
	}
	if (is_full && wait_for_device(a, row, bytes, a->or_host ? 0 : wait_ns(), call)) {
		return true;
	}
	if (a->until_ns) {
		mem_ledger_tried(&account.ledger, (uint32_t)row, a->seq);
		(void)sub_acqrel(&account.n_waiting, 1);
		a->until_ns = 0;
	}
	return false;
}

void shim_mem_release(int row, uint64_t bytes)
{
	if (bytes && shim_mem_joined()) { /* not in a forked child */
		mem_ledger_release(&account.ledger, (uint32_t)row, bytes);
	}
}

static void note_peak(int row)
{
	mem_account_note_peak(account.ledger.page, (uint32_t)row, account.ledger.line,
			      &account.ledger.asked[row]);
}

void shim_mem_force(int row, uint64_t bytes)
{
	if (mem_ledger_charge(&account.ledger, (uint32_t)row, bytes) < 0) {
		mem_ledger_force(&account.ledger, (uint32_t)row, bytes);
	} else {
		mem_ledger_answered(&account.ledger, (uint32_t)row, bytes);
	}
	note_peak(row);
}

bool shim_mem_recharge(int row, uint64_t from, uint64_t to, const char *call)
{
	if (to > from) {
		return charge(row, to - from, call, false);
	}
	shim_mem_release(row, from - to);
	return true;
}

uint64_t shim_mem_limit(int row)
{
	return mem_ledger_limit(&account.ledger, (uint32_t)row);
}

uint64_t shim_mem_limited(int row)
{
	uint64_t limit = shim_mem_limit(row);

	return limit == UINT64_MAX ? 0 : limit;
}

int shim_mem_row_swap(void)
{
	return shim_mem_joined() && shim_mem_limit(PROTO_ACCOUNT_SWAP) ? (int)PROTO_ACCOUNT_SWAP
								       : -1;
}

uint64_t shim_mem_swap_limit(int row)
{
	return shim_mem_limited(row) ? shim_mem_limit(PROTO_ACCOUNT_SWAP) : 0;
}

uint64_t shim_mem_used(int row)
{
	return mem_ledger_used(&account.ledger, (uint32_t)row);
}

uint64_t shim_mem_room(int row)
{
	uint64_t used = shim_mem_used(row);
	uint64_t most = mem_ledger_allowed(&account.ledger, (uint32_t)row);

	return used < most ? most - used : 0;
}

uint64_t shim_mem_left(int row)
{
	return mem_account_left(account.ledger.page, (uint32_t)row);
}

uint64_t shim_mem_epoch(void)
{
	return add_acqrel(&account.epoch, 1) + 1;
}

/* Returns the present epoch. */
static uint64_t context_ending(CUcontext ctx)
{
	if (!shim_mem_joined()) {
		return 0;
	}
	shim_mem_libraries_context_ending(ctx);
	shim_swap_context_ending(ctx, true);
	return load_acquire(&account.epoch);
}

static void context_ended(CUcontext ctx, uint64_t epoch, bool gone)
{
	if (!shim_mem_joined()) {
		return;
	}
	if (!gone) {
		shim_mem_libraries_context_stays(ctx);
		shim_swap_context_ending(ctx, false);
		return;
	}
	shim_mem_linear_context_ended(ctx, epoch);
	shim_managed_context_ended(ctx, epoch);
	shim_swap_context_ended(ctx, epoch);
	shim_mem_arrays_context_ended(ctx, epoch);
	shim_mem_host_context_ended(ctx, epoch);
	shim_mem_imports_context_ended(ctx, epoch);
	shim_mem_exports_context_ended(ctx, epoch);
	shim_mem_modules_context_ended(ctx, epoch);
	shim_mem_libraries_context_ended(ctx, epoch);
	shim_mem_pools_measure(false);
	shim_mem_graphs_measure(false);
	shim_mem_overhead_context_ended(ctx);
}

const struct shim_part shim_mem_part = { .context_ending = context_ending,
					 .context_ended = context_ended,
					 .child = child };

void shim_mem_move_begin(void)
{
	(void)add_acqrel(&account.moves, 1);
}

/* What the driver has refused is no longer charged. */
void shim_mem_move_end(void)
{
	answered();
	for (unsigned i = 0; i < PROTO_MAX_GPUS && shim_mem_joined() && account.row[i] >= 0; i++) {
		note_peak(account.row[i]);
	}
	shim_mem_move_over();
}

void shim_mem_move_over(void)
{
	(void)add_acqrel(&account.moves, (UINT64_C(1) << 32) - 1);
}

uint64_t shim_mem_moves(bool *ret_moving)
{
	uint64_t moves = load_acquire(&account.moves);

	*ret_moving = (uint32_t)moves != 0;
	return moves;
}

void shim_mem_managed_add(int row, uint64_t bytes)
{
	(void)add_acqrel(&account.managed[row], bytes);
}

void shim_mem_managed_sub(int row, uint64_t bytes)
{
	(void)sub_acqrel(&account.managed[row], bytes);
}

void shim_mem_excess_add(int row, uint64_t bytes)
{
	(void)add_acqrel(&account.excess[row], bytes);
}

void shim_mem_excess_sub(int row, uint64_t bytes)
{
	(void)add_acqrel(&account.excess_gone[row], bytes);
	(void)sub_acqrel(&account.excess[row], bytes);
}

uint64_t shim_mem_overhead(int row)
{
	return mem_ledger_overhead(&account.ledger, (uint32_t)row);
}

void shim_mem_share(int row, uint64_t bytes)
{
	mem_ledger_add_shared(&account.ledger, (uint32_t)row, bytes);
}

void shim_mem_unshare(int row, uint64_t bytes)
{
	if (shim_mem_joined()) {
		mem_ledger_sub_shared(&account.ledger, (uint32_t)row, bytes);
	}
}

uint64_t shim_mem_shared(int row)
{
	return mem_ledger_shared(&account.ledger, (uint32_t)row);
}

static bool has_kinds(int row)
{
	return row >= 0 && row < (int)PROTO_MAX_GPUS && shim_mem_joined();
}

void shim_mem_kind_add(int row, enum proto_kind kind, uint64_t bytes)
{
	if (has_kinds(row)) {
		mem_ledger_add_kind(&account.ledger, (uint32_t)row, kind, bytes);
	}
}

void shim_mem_kind_sub(int row, enum proto_kind kind, uint64_t bytes)
{
	if (has_kinds(row)) {
		mem_ledger_sub_kind(&account.ledger, (uint32_t)row, kind, bytes);
	}
}

void shim_mem_set_away(int row, uint64_t bytes)
{
	if (has_kinds(row)) {
		mem_ledger_set_away(&account.ledger, (uint32_t)row, bytes);
	}
}

const struct mem_ledger *shim_mem_ledger(void)
{
	return &account.ledger;
}

void shim_mem_tell_shares(int row)
{
	struct proto_mem_ask m = { .row = (uint32_t)row, .flags = PROTO_MEM_SHARES };

	(void)account.session.ask(&m); /* without gbpfd, the next one looks by itself */
}

void shim_mem_set_gbpf(int row, uint64_t bytes)
{
	mem_ledger_set_gbpf(&account.ledger, (uint32_t)row, bytes);
}

uint64_t shim_mem_held(int row)
{
	uint64_t own = mem_ledger_own(&account.ledger, (uint32_t)row);
	uint64_t other = shim_mem_overhead(row) + load_acquire(&account.managed[row]);

	return (own > other ? own - other : 0) + load_acquire(&account.excess[row]);
}

void shim_mem_mark(int row, struct shim_mem_mark *ret)
{
	ret->released = mem_ledger_released(&account.ledger, (uint32_t)row);
	ret->managed = load_acquire(&account.managed[row]);
	ret->excess_gone = load_acquire(&account.excess_gone[row]);
}

uint64_t shim_mem_held_since(int row, const struct shim_mem_mark *m)
{
	uint64_t managed = min_once(m->managed, load_acquire(&account.managed[row]));
	uint64_t released = mem_ledger_released(&account.ledger, (uint32_t)row) - m->released;
	uint64_t most = mem_ledger_own_since(&account.ledger, (uint32_t)row, m->released);
	/* What was released may have been managed memory, which came again. */
	uint64_t other = shim_mem_overhead(row) + (managed > released ? managed - released : 0);
	uint64_t excess = load_acquire(&account.excess[row]);

	/* Read second: what is taken off in between counts twice, not never. */
	excess += load_acquire(&account.excess_gone[row]) - m->excess_gone;
	return (most > other ? most - other : 0) + excess;
}

bool shim_mem_set_overhead(int row, uint64_t bytes, bool force, const char *call)
{
	uint64_t now = shim_mem_overhead(row);

	if (bytes < now) {
		mem_ledger_set_overhead(&account.ledger, (uint32_t)row, bytes);
		shim_mem_release(row, now - bytes);
		return true;
	}
	if (bytes > now && force) {
		shim_mem_force(row, bytes - now);
	} else if (bytes > now && !force && !charge(row, bytes - now, call, false)) {
		return false; /* it does not wait for memory: it holds some already */
	}
	answered();
	mem_ledger_set_overhead(&account.ledger, (uint32_t)row, bytes);
	note_peak(row);
	return true;
}
