/* bench-control's tenants: the one whose controls are tested, and those that are killed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "bench/control/try_controls.h"
#include "gpu/learn.h"
#include "gpu/rm.h"

/* ---- the tenant ---- */

static void identity(struct bench_cuda *c)
{
	char name[96] = "?", place[32] = "?";
	int version = 0, n = 0;

	(void)c->real.cuDriverGetVersion(&version);
	(void)c->real.cuDeviceGetCount(&n);
	(void)c->real.cuDeviceGetName(name, sizeof(name), c->device);
	(void)c->real.cuDeviceGetPCIBusId(place, sizeof(place), c->device);
	bench_say("%-22s CUDA %d, %d devices, 0: %s at %s; context in %.0f ms", "cuda", version, n,
		  name, place, (double)c->init_ns / 1e6);
}

static void handles(const struct gpu_handles *h, int fd, int err, double us)
{
	char text[300] = "";
	size_t n = 0;

	for (uint32_t i = 0; i < h->n_groups && n < sizeof(text) - 24; i++) {
		n += (size_t)snprintf(text + n, sizeof(text) - n, " %x:%uus", h->group[i],
				      h->slice_us[i]);
	}
	bench_say("%-22s %d kind %u client %x subdevice %x fd %d, %u channels, more %u, generation "
		  "%u, "
		  "%.0f us",
		  "learned", err, h->kind, h->client, h->subdevice, fd, h->n_channels, h->more,
		  gpu_learn_generation(), us);
	bench_say("%-22s%s", "groups", text);
	bench_say("%-22s devices %u subdevices %u groups %u channels %u", "seen",
		  gpu_learn_find(GPU_RM_CLASS_DEVICE, NULL, 0),
		  gpu_learn_find(GPU_RM_CLASS_SUBDEVICE, NULL, 0),
		  gpu_learn_find(GPU_RM_CLASS_GROUP, NULL, 0),
		  gpu_learn_find(GPU_LEARN_CHANNELS, NULL, 0));
}

static void one(const struct gpu_handles *h, int fd, enum gpu_control what, uint64_t value)
{
	uint64_t ret = 0, start = clock_now_ns();
	int err = gpu_control(h, fd, what, value, &ret);
	double us = bench_us_since(start);

	bench_say("%-22s %d  value %llu got %llu  status 0x%x  %.0f us", gpu_control_name(what),
		  err, (unsigned long long)value, (unsigned long long)ret, gpu_rm_last_status(),
		  us);
}

static void idle_controls(const struct gpu_handles *h, int fd)
{
	one(h, fd, GPU_CONTROL_SLICE_GET, 0);
	one(h, fd, GPU_CONTROL_SLICE_SET, 1);
	one(h, fd, GPU_CONTROL_SLICE_GET, 0);
	one(h, fd, GPU_CONTROL_SLICE_SET, 0);
	one(h, fd, GPU_CONTROL_SLICE_GET, 0);
	one(h, fd, GPU_CONTROL_INTERLEAVE, 0);
	one(h, fd, GPU_CONTROL_PREEMPTION_MODE, 1);
	one(h, fd, GPU_CONTROL_PREEMPTION_MODE, 2);
	one(h, fd, GPU_CONTROL_PREEMPT, 0);
	one(h, fd, GPU_CONTROL_PREEMPT, 1);
}

static void counts(const struct gpu_handles *h, int fd)
{
	struct gpu_switches s;
	int err = gpu_control_switches(h, fd, &s);

	bench_say("%-22s %d  saves %llu restores %llu idle %llu block %llu instruction %llu",
		  "switches", err, (unsigned long long)s.saves, (unsigned long long)s.restores,
		  (unsigned long long)s.idle, (unsigned long long)s.block,
		  (unsigned long long)s.instruction);
}

/* Tests with a running kernel which controls stop it, and how soon it continues. */
static void busy_controls(struct bench_cuda *c, const struct gpu_handles *h, int fd)
{
	uint64_t before, after, start;
	double us;
	int off, on;

	bench_cuda_beat(c, UINT64_C(5000000000));
	one(h, fd, GPU_CONTROL_PREEMPT, 1);
	start = clock_now_ns();
	off = gpu_control(h, fd, GPU_CONTROL_SCHEDULE, 0, NULL);
	us = bench_us_since(start);
	before = c->word[0];
	clock_sleep_ns(50000000);
	after = c->word[0];
	start = clock_now_ns();
	on = gpu_control(h, fd, GPU_CONTROL_SCHEDULE, 1, NULL);
	bench_say("%-22s off %d in %.0f us, on %d in %.0f us; while off: %s", "switched off, busy",
		  off, us, on, bench_us_since(start), before == after ? "no progress" : "PROGRESS");
	while (c->word[0] == after && bench_us_since(start) < 1e6) {
		cpu_relax();
	}
	bench_say("%-22s %.0f us after switching on",
		  c->word[0] != after ? "continues" : "DOES NOT CONTINUE", bench_us_since(start));
	bench_cuda_beat_stop(c);
}

static void page_costs(struct gpu_flag *f)
{
	struct gpu_lease_page p;
	uint64_t start;
	double alone, fenced;
	uint32_t sum = 0;

	if (gpu_flag_fd(f) < 0 || gpu_lease_map(&p, gpu_flag_fd(f)) < 0) {
		start = clock_now_ns();
		(void)gpu_flag_write(f, 1, 0);
		bench_say("%-22s by stream only, %.1f us", "flag page", bench_us_since(start));
		return;
	}
	start = clock_now_ns();
	for (uint32_t i = 0; i < 1000; i++) {
		gpu_lease_store(&p, i % 64, 0);
	}
	alone = bench_us_since(start);
	start = clock_now_ns();
	for (uint32_t i = 0; i < 1000; i++) {
		gpu_lease_store(&p, i % 64, 0);
		gpu_lease_fence();
	}
	fenced = bench_us_since(start);
	start = clock_now_ns();
	for (uint32_t i = 0; i < 1000; i++) {
		sum += p.word[i % 64];
	}
	bench_say("%-22s store %.0f ns, with fence %.0f ns, read %.0f ns (%u)", "flag page", alone,
		  fenced, bench_us_since(start), sum);
	gpu_lease_unmap(&p);
}

static void clocks(struct bench_cuda *c)
{
	int64_t low = INT64_MAX, high = INT64_MIN, offset = 0, first = 0;
	uint64_t start = clock_now_ns(), begun = start;
	double first_us = 0;
	int err = 0;

	for (int i = 0; i < 20 && !err; i++) {
		err = gpu_clock_offset(c->gpu, c->ctx, &offset);
		if (i == 0) {
			first_us = bench_us_since(start);
			first = offset;
			start = clock_now_ns();
		}
		low = MIN(low, offset);
		high = MAX(high, offset);
		clock_sleep_ns(20000000);
	}
	bench_say("%-22s %d  spread %.1f us in 20, first in %.0f us, then %.0f us each; drift %.2f "
		  "us/s",
		  "clock offset", err, (double)(high - low) / 1e3, first_us,
		  bench_us_since(start) / 19 - 20000,
		  (double)(offset - first) / bench_us_since(begun) * 1e3);
}

/* Returns the flag's word as read by a kernel after it was set from outside. */
static uint32_t device_word(struct bench_cuda *c, struct gpu_flag *f, uint32_t slot)
{
	uint32_t word = 0;

	if (c->real.cuMemcpyDtoH_v2(&word, gpu_flag_address(f) + 4u * slot, 4) != CUDA_SUCCESS) {
		return *(volatile uint32_t *)(uintptr_t)(gpu_flag_address(f) + 4u * slot);
	}
	return word;
}

void bench_tenant_run(const char *library, int sock)
{
	struct bench_cuda c = { 0 };
	struct gpu_flag *f = NULL;
	struct gpu_handles h;
	uint64_t start;
	int fd = -1, err, fds[2], got[FD_PASS_MAX];
	unsigned n;
	char byte;

	bench_cuda_open(&c, library);
	identity(&c);
	bench_say("%-22s %d", "import slot", c.learn_error);
	start = clock_now_ns();
	err = gpu_learn(&c.real, 0, c.ctx, &h, &fd);
	handles(&h, fd, err, bench_us_since(start));
	start = clock_now_ns();
	gpu_self_test(&h, fd);
	bench_say("%-22s 0x%x in %.0f us", "self-test: capable", h.capable, bench_us_since(start));
	idle_controls(&h, fd);
	busy_controls(&c, &h, fd);
	counts(&h, fd);
	start = clock_now_ns();
	err = gpu_flag_create(c.gpu, c.ctx, &f);
	bench_say("%-22s %d in %.0f us, fd %d, why: %s", "flag page made", err,
		  bench_us_since(start), f ? gpu_flag_fd(f) : -1, gpu_flag_why(c.gpu));
	if (f) {
		page_costs(f);
	}
	clocks(&c);
	fds[0] = fd;
	fds[1] = f ? gpu_flag_fd(f) : -1;
	if (fd < 0 || msg_send(sock, &h, sizeof(h), fds, fds[1] >= 0 ? 2 : 1) < 0) {
		_exit(3);
	}
	(void)msg_recv(sock, &byte, 1, got, &n);
	if (f) {
		bench_say("%-22s %u (4242 expected)", "stored from outside",
			  device_word(&c, f, 62));
	}
}

/* ---- dead tenants ---- */

static int no_control(const char *path)
{
	(void)path;
	return -EACCES;
}

static int (*own_open)(const char *path);

static int only_devices(const char *path)
{
	return strcmp(path, "/dev/nvidiactl") == 0 ? no_control(path) : own_open(path);
}

void bench_victim_run(const char *library, int sock, enum bench_victim how, struct bench_shared *s)
{
	struct bench_cuda c = { 0 };
	struct gpu_flag *f = NULL;
	struct gpu_handles h = { 0 };
	size_t free_bytes, total;
	int fd = -1, fds[2] = { 0, 0 };
	unsigned n = 0;
	CUdeviceptr p;

	bench_cuda_open(&c, library);
	bench_must(c.real.cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo");
	bench_must(c.real.cuMemAlloc_v2(&p, free_bytes / 4), "cuMemAlloc");
	s->allocated_bytes = free_bytes / 4;
	if (how == VICTIM_PAGE_SHARED) {
		own_open = gpu_rm_os.open;
		gpu_rm_os.open = only_devices;
	}
	(void)gpu_learn(&c.real, 0, c.ctx, &h, &fd);
	if (how == VICTIM_CONTROL) {
		fds[n++] = fd;
	} else if (how != VICTIM_ALONE) {
		fds[n++] = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (gpu_flag_create(c.gpu, c.ctx, &f) == 0 && gpu_flag_fd(f) >= 0) {
			fds[n++] = gpu_flag_fd(f);
		}
	}
	bench_cuda_beat(&c, UINT64_C(20000000000));
	clock_sleep_ns(50000000); /* lets the observer see the memory */
	if (msg_send(sock, &h, sizeof(h), fds, n) == 0) {
		pause();
	}
}

void bench_observer_run(const char *library, struct bench_shared *s)
{
	struct bench_cuda c = { 0 };
	size_t free_bytes, total;

	bench_cuda_open(&c, library);
	while (!s->stop && c.real.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS) {
		s->free_bytes = free_bytes;
		s->total_bytes = total;
		s->seen_ns = clock_now_ns();
		s->ready = 1;
		clock_sleep_ns(2000000);
	}
}
