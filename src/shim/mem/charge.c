/* Joining a vGPU, and charging it (shim/mem/charge.h). */
#include "shim/mem/charge.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "shim/shim.h"

static struct {
	uint32_t joined; /* [atomic] */
	struct mem_ledger ledger;
	int row[PROTO_MAX_GPUS]; /* by the process's ordinal; negative: none. Constant once joined
				  */
	struct shim_mem_session session;
	uint64_t noted_ns; /* [atomic] time of the last note */
	uint64_t epoch;	   /* [atomic] counts allocations */
} account;

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
	return 0;
}

void shim_mem_forget(void)
{
	store_release(&account.joined, 0u);
}

int shim_mem_row(CUdevice device)
{
	return shim_mem_joined() && device >= 0 && device < (int)PROTO_MAX_GPUS
		       ? account.row[device]
		       : -ENOENT;
}

int shim_mem_row_current(void)
{
	CUdevice device;

	return shim_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? shim_mem_row(device) : -ENOENT;
}

/* At most one note in a second: a program may ask for memory in a loop. */
static void note_refusal(int row, uint64_t bytes, const char *call)
{
	uint64_t now = clock_now_ns(), last = load_relaxed(&account.noted_ns);
	char text[200];

	if ((last && now - last < 1000000000u) || !cas_acqrel(&account.noted_ns, &last, now)) {
		return;
	}
	snprintf(text, sizeof(text), "%s of %llu MiB refused: %llu of %llu MiB are in use", call,
		 (unsigned long long)(bytes >> 20), (unsigned long long)(shim_mem_used(row) >> 20),
		 (unsigned long long)(shim_mem_limit(row) >> 20));
	account.session.note(text);
}

bool shim_mem_try_charge(int row, uint64_t bytes)
{
	return mem_ledger_charge(&account.ledger, (uint32_t)row, bytes) == 0;
}

bool shim_mem_charge(int row, uint64_t bytes, const char *call)
{
	if (shim_mem_try_charge(row, bytes)) {
		return true;
	}
	shim_mem_linear_settle();
	shim_mem_pools_measure(true);
	if (shim_mem_try_charge(row, bytes) ||
	    shim_mem_charge_later(&account.ledger, (uint32_t)row, bytes, &account.session)) {
		return true;
	}
	note_refusal(row, bytes, call);
	return false;
}

void shim_mem_release(int row, uint64_t bytes)
{
	if (bytes && shim_mem_joined()) { /* not in a forked child */
		mem_ledger_release(&account.ledger, (uint32_t)row, bytes);
	}
}

bool shim_mem_recharge(int row, uint64_t from, uint64_t to, const char *call)
{
	if (to > from) {
		return shim_mem_charge(row, to - from, call);
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

uint64_t shim_mem_used(int row)
{
	return mem_ledger_used(&account.ledger, (uint32_t)row);
}

uint64_t shim_mem_epoch(void)
{
	return add_acqrel(&account.epoch, 1) + 1;
}

uint64_t shim_mem_context_ending(void)
{
	return shim_mem_joined() ? load_acquire(&account.epoch) : 0;
}

void shim_mem_context_ended(CUcontext ctx, uint64_t epoch)
{
	if (shim_mem_joined() && ctx) {
		shim_mem_linear_context_ended(ctx, epoch);
		shim_mem_arrays_context_ended(ctx, epoch);
		shim_mem_pools_measure(false);
	}
}
