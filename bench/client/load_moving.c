/* Memory that leaves the device and comes back all the time, of a client in a virtual GPU with
 * swap: a buffer is filled, and again and again another one is allocated for which the first leaves
 * no room, and freed. With a limit that has room for both, nothing moves, and all calls are the
 * same. */
#include "base/atomic.h"
#include "bench/client/load_client.h"

#define PART (UINT64_C(16) << 20) /* memory leaves in chunks of this size at most */
#define UNIT (UINT64_C(2) << 20)
#define COMPARED_UNITS 16u /* after each movement */

static uint32_t value(uint64_t unit)
{
	return (uint32_t)(unit + 1) * 2654435761u;
}

void bench_moving_init(struct bench_moving *m, struct bench_client *c)
{
	size_t available = 0, total;

	*m = (struct bench_moving){ .c = c };
	if (!c->moving_mb) {
		return;
	}
	CU(cuMemGetInfo_v2(&available, &total));
	m->bytes = available > (uint64_t)c->moving_mb << 20
			   ? (available - ((uint64_t)c->moving_mb << 20)) / 4 * 3
			   : 0;
	m->bytes -= m->bytes % PART;
	if (!m->bytes) {
		bench_client_fail("the limit leaves no room for a buffer of 16 MiB");
	}
	CU(cuMemAlloc_v2(&m->at, m->bytes));
	for (uint64_t unit = 0; unit < m->bytes / UNIT; unit++) {
		CU(cuMemsetD32_v2(m->at + unit * UNIT, value(unit), UNIT / sizeof(uint32_t)));
	}
	CU(cuCtxSynchronize());
}

static void compare(const struct bench_moving *m, uint64_t unit)
{
	uint32_t found = 0;

	CU(cuMemcpyDtoH_v2(&found, m->at + unit * UNIT + unit % (UNIT / 64) * 64, sizeof(found)));
	m->c->page->wrong += found != value(unit);
	m->c->page->checked++;
}

void bench_moving_step(struct bench_moving *m)
{
	uint64_t units = m->bytes / UNIT;
	CUdeviceptr other = 0;

	if (!m->bytes) {
		return;
	}
	store_release(&m->c->page->moving, 1u);
	CU(cuMemAlloc_v2(&other, m->bytes));
	for (uint64_t at = 0; at < m->bytes; at += PART) {
		CU(cuMemsetD32_v2(other + at, UINT32_MAX, 1));
	}
	CU(cuCtxSynchronize());
	CU(cuMemFree_v2(other));
	store_release(&m->c->page->moving, 0u);
	for (unsigned i = 0; i < COMPARED_UNITS; i++) {
		compare(m, (m->next += 7) % units);
	}
}

void bench_moving_check(struct bench_moving *m)
{
	for (uint64_t unit = 0; unit < m->bytes / UNIT; unit++) {
		compare(m, unit);
	}
}
