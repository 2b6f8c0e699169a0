/* The sum of what images take (shim/mem/image_charge.h). */
#include "shim/mem/image_charge.h"

#include "base/compiler.h"
#include "shim/mem/charge.h"
#include "shim/shim.h"

/* More than any device has; sums of these do not overflow. */
#define IMAGE_BYTES_MAX (UINT64_C(1) << 48)

static struct lock mutex = LOCK_INITIALIZER(MEM_IMAGE);
static struct {
	uint64_t bytes;	  /* of all images */
	uint64_t charged; /* whole units, at most the sum above. A charge that is being made is in
			   * neither. */
} sums[PROTO_ACCOUNT_ROWS] GUARDED_BY(mutex);

static uint64_t whole(uint64_t bytes)
{
	return bytes / SHIM_MEM_UNIT * SHIM_MEM_UNIT;
}

/* Returns what is charged beyond the sum, and takes it off. The caller releases it from the
 * account. */
static uint64_t take_surplus(int row) REQUIRES(mutex)
{
	uint64_t due = whole(sums[row].bytes);
	uint64_t surplus = sums[row].charged > due ? sums[row].charged - due : 0;

	sums[row].charged -= surplus;
	shim_mem_kind_sub(row, PROTO_KIND_MODULE, surplus);
	return surplus;
}

/* The account is charged without the mutex, since that may wait. Two charges that are made at the
 * same time each see the sum without the other, so that up to a unit too little is charged between
 * them: the next one makes up for it. Nothing is released that was not charged before: `charged`
 * is raised after a charge and lowered before a release. */
bool shim_mem_image_charge(int row, uint64_t bytes, const char *call, bool may_wait,
			   uint64_t *ret_charged)
{
	uint64_t due, need, surplus;

	if (bytes > IMAGE_BYTES_MAX) {
		return false;
	}
	lock_take(&mutex);
	due = checked_add(sums[row].bytes, bytes, &due) ? UINT64_MAX : whole(due);
	need = due > sums[row].charged ? due - sums[row].charged : 0;
	lock_release(&mutex);
	if (need && !(may_wait ? shim_mem_charge(row, need, call)
			       : shim_mem_recharge(row, 0, need, call))) {
		return false;
	}
	lock_take(&mutex);
	sums[row].bytes += bytes;
	sums[row].charged += need;
	shim_mem_kind_add(row, PROTO_KIND_MODULE, need);
	surplus = take_surplus(row);
	lock_release(&mutex);
	shim_mem_release(row, surplus);
	if (ret_charged) {
		*ret_charged = need;
	}
	return true;
}

void shim_mem_image_release(int row, uint64_t bytes)
{
	uint64_t surplus;

	if (!bytes || row < 0) { /* in a forked child no row is left */
		return;
	}
	lock_take(&mutex);
	sums[row].bytes -= MIN(bytes, sums[row].bytes);
	surplus = take_surplus(row);
	lock_release(&mutex);
	shim_mem_release(row, surplus);
}
