/* Makes memory leave the device and come back, in a vGPU with swap, and times that: a buffer for
 * which the other one leaves no room makes chunks of the other one leave, and its end lets them
 * return. The driver, asked past gBPF, says where the memory is, and copies pinned memory for
 * comparison. */
#include <string.h>

#include "base/clock.h"
#include "bench/quota/quota_client.h"

#define PART (UINT64_C(16) << 20) /* memory leaves in chunks of this size at most */
#define PINNED_MAX (UINT64_C(256) << 20)

struct mover {
	struct bench_quota_client *c;
	uint64_t bytes; /* of each of the two buffers */
	CUdeviceptr moved;
	uint64_t *pinned, pinned_bytes;
	uint64_t round;
	struct bench_quota_round found;
};

static struct {
	__typeof__(cuMemcpyHtoD_v2) *up;
	__typeof__(cuMemcpyDtoH_v2) *down;
	__typeof__(cuMemRetainAllocationHandle) *retain;
	__typeof__(cuMemGetAllocationPropertiesFromHandle) *properties;
	__typeof__(cuMemRelease) *release;
} driver;

static void find_driver(struct bench_quota_client *c)
{
	void *lib = bench_quota_open_driver(c);

	bench_quota_find(c, lib, "cuMemcpyHtoD_v2", &driver.up);
	bench_quota_find(c, lib, "cuMemcpyDtoH_v2", &driver.down);
	bench_quota_find(c, lib, "cuMemRetainAllocationHandle", &driver.retain);
	bench_quota_find(c, lib, "cuMemGetAllocationPropertiesFromHandle", &driver.properties);
	bench_quota_find(c, lib, "cuMemRelease", &driver.release);
}

/* Chooses the sizes: two buffers exceed what is left of the device, one does not. */
static void size(struct mover *m)
{
	struct bench_quota_client *c = m->c;
	size_t available = 0, total;
	void *pinned = NULL;

	CU(c, cuMemGetInfo_v2(&available, &total));
	m->bytes = available > c->page->swap ? (available - c->page->swap) / 4 * 3 : 0;
	m->bytes -= m->bytes % PART;
	if (!m->bytes) {
		bench_quota_fail(c, "the limit leaves no room for a buffer of 16 MiB");
	}
	m->pinned_bytes = MIN(MIN(c->page->swap / 4 / PART * PART, PINNED_MAX), m->bytes);
	CU(c, cuMemAllocHost_v2(&pinned, m->pinned_bytes));
	m->pinned = pinned;
}

static uint64_t word(const struct mover *m, uint64_t at)
{
	return (m->round << 48 ^ at) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t part(const struct mover *m, uint64_t at)
{
	return MIN(m->pinned_bytes, m->bytes - at);
}

static uint64_t since(uint64_t before)
{
	return clock_now_ns() - before;
}

/* Fills the buffer, which is on the device, and times copies of pinned memory there and back. */
static void fill(struct mover *m)
{
	m->found.up_ns = m->found.down_ns = UINT64_MAX;
	for (uint64_t at = 0; at < m->bytes; at += m->pinned_bytes) {
		uint64_t n = part(m, at), before, up;

		for (uint64_t i = 0; i < n / sizeof(uint64_t); i++) {
			m->pinned[i] = word(m, at / sizeof(uint64_t) + i);
		}
		before = clock_now_ns();
		bench_quota_check(m->c, driver.up(m->moved + at, m->pinned, n), "cuMemcpyHtoD_v2");
		up = since(before);
		before = clock_now_ns();
		bench_quota_check(m->c, driver.down(m->pinned, m->moved + at, n),
				  "cuMemcpyDtoH_v2");
		if (n == m->pinned_bytes) {
			m->found.down_ns = MIN(m->found.down_ns, since(before));
			m->found.up_ns = MIN(m->found.up_ns, up);
		}
	}
}

static void verify(struct mover *m)
{
	for (uint64_t at = 0; at < m->bytes; at += m->pinned_bytes) {
		uint64_t n = part(m, at);

		memset(m->pinned, 0, n);
		CU(m->c, cuMemcpyDtoH_v2(m->pinned, m->moved + at, n));
		for (uint64_t i = 0; i < n / sizeof(uint64_t); i++) {
			uint64_t k = at / sizeof(uint64_t) + i;

			if (m->pinned[i] != word(m, k)) {
				bench_quota_fail(m->c,
						 "round %llu: byte %llu of the buffer that has "
						 "moved: %#llx instead of %#llx",
						 (unsigned long long)m->round,
						 (unsigned long long)(k * sizeof(uint64_t)),
						 (unsigned long long)m->pinned[i],
						 (unsigned long long)word(m, k));
			}
		}
	}
}

/* Returns how much of the buffer is on the host. */
static uint64_t on_host(struct mover *m)
{
	uint64_t sum = 0;

	for (uint64_t at = 0; at < m->bytes; at += QUOTA_UNIT) {
		CUmemGenericAllocationHandle handle = 0;
		CUmemAllocationProp p = { 0 };

		bench_quota_check(m->c, driver.retain(&handle, (void *)(uintptr_t)(m->moved + at)),
				  "cuMemRetainAllocationHandle");
		bench_quota_check(m->c, driver.properties(&p, handle),
				  "cuMemGetAllocationPropertiesFromHandle");
		bench_quota_check(m->c, driver.release(handle), "cuMemRelease");
		sum += p.location.type != CU_MEM_LOCATION_TYPE_DEVICE ? QUOTA_UNIT : 0;
	}
	return sum;
}

/* Lets chunks of the buffer leave, and come back. What took their place is overwritten meanwhile.
 */
static void move(struct mover *m)
{
	struct bench_quota_client *c = m->c;
	CUdeviceptr other = 0;
	uint64_t before = clock_now_ns();

	CU(c, cuMemAlloc_v2(&other, m->bytes));
	m->found.out_ns = since(before);
	m->found.out_bytes = on_host(m);
	CU(c, cuMemsetD32_v2(other, UINT32_MAX, m->bytes / sizeof(uint32_t)));
	CU(c, cuCtxSynchronize());
	before = clock_now_ns();
	CU(c, cuMemFree_v2(other));
	m->found.back_ns = since(before);
	m->found.back_bytes = m->found.out_bytes - on_host(m);
}

void bench_quota_move(struct bench_quota_client *c)
{
	struct mover m = { .c = c };

	find_driver(c);
	size(&m);
	bench_quota_ready(c);
	while (bench_quota_await_command(c)) {
		m.round++;
		m.found = (struct bench_quota_round){ .buffer_bytes = m.bytes,
						      .pinned_bytes = m.pinned_bytes };
		CU(c, cuMemAlloc_v2(&m.moved, m.bytes));
		fill(&m);
		move(&m);
		verify(&m);
		CU(c, cuMemFree_v2(m.moved));
		c->page->movement = m.found;
		bench_quota_complete(c);
	}
}
