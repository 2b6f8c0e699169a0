/* Utilization by process: the part of the multiprocessors that its blocks had since the last
 * sample, and whether it copied. Rounded up, so that 0 % means no work at all. */
#include "base/lock.h"
#include "soft/nvml/nvml_int.h"

#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"

#define SAMPLE_US 100000u /* shortest time between two samples of a process */

static struct lock lock = LOCK_INITIALIZER(SOFT_NVML_USE); /* guards the use of all devices */

static struct nvml_use *find(nvmlDevice_t d, int32_t pid)
{
	for (unsigned i = 0; i < SOFT_MAX_CLIENTS; i++) {
		if (d->use[i].pid == pid) {
			return &d->use[i];
		}
	}
	return NULL;
}

static unsigned per_cent(uint64_t part, uint64_t whole)
{
	return part ? (unsigned)MIN(1 + 99 * part / MAX(whole, part), UINT64_C(100)) : 0;
}

/* Sums of the contexts of each process, as far as they are in this reply. */
static unsigned add(const struct soft_gpu_info *info, struct nvml_use *sum, unsigned n)
{
	for (uint32_t i = 0; i < info->n; i++) {
		const struct soft_group_info *g = &info->group[i];
		unsigned k = 0;

		while (k < n && sum[k].pid != g->pid) {
			k++;
		}
		if (k == SOFT_MAX_CLIENTS) {
			continue;
		}
		if (k == n) {
			sum[n++] = (struct nvml_use){ .pid = g->pid };
		}
		sum[k].run_ns += g->run_ns + (g->blocks_resident ? 1 : 0);
		sum[k].bytes_copied += g->bytes_copied;
	}
	return n;
}

static void take_sample(struct nvml_use *u, const struct nvml_use *now, uint64_t at_us,
			uint32_t workers)
{
	uint64_t gone_us = u->sample.at_us ? at_us - u->sample.at_us : 0;

	if (u->sample.at_us && gone_us < SAMPLE_US) {
		return;
	}
	/* The first sample covers the time since the process's start. A context that has ended
	 * takes its part of the sum away. */
	u->sample.sm = now->run_ns <= u->run_ns ? 0
		       : u->sample.at_us	? per_cent(now->run_ns - u->run_ns,
							   1000 * gone_us * MAX(workers, 1u))
						: 1;
	u->sample.memory = now->bytes_copied > u->bytes_copied ? 1 : 0;
	u->sample.pid = (unsigned)now->pid;
	u->sample.at_us = at_us;
	u->run_ns = now->run_ns;
	u->bytes_copied = now->bytes_copied;
}

/* Brings the table up to date: samples for the processes in sum, none for others. */
static void update(nvmlDevice_t d, const struct nvml_use *sum, unsigned n, uint32_t workers)
{
	uint64_t at_us = clock_wall_ns() / 1000;

	for (unsigned i = 0; i < SOFT_MAX_CLIENTS; i++) {
		bool here = false;

		for (unsigned k = 0; k < n; k++) {
			here |= sum[k].pid == d->use[i].pid;
		}
		if (!here) {
			memset(&d->use[i], 0, sizeof(d->use[i]));
		}
	}
	for (unsigned k = 0; k < n; k++) {
		struct nvml_use *u = find(d, sum[k].pid);

		u = u ? u : find(d, 0);
		if (u) {
			u->pid = sum[k].pid;
			take_sample(u, &sum[k], at_us, workers);
		}
	}
}

static enum nvml_return fill(nvmlDevice_t d, struct nvml_process_sample *out, unsigned *n,
			     unsigned long long after_us)
{
	unsigned room = *n, have = 0;

	for (unsigned i = 0; i < SOFT_MAX_CLIENTS; i++) {
		const struct nvml_use *u = &d->use[i];

		if (u->pid && u->sample.at_us > after_us) {
			if (out && have < room) {
				out[have] = u->sample;
			}
			have++;
		}
	}
	*n = have;
	if (!have) {
		return NVML_ERROR_NOT_FOUND;
	}
	return out && have <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT enum nvml_return nvmlDeviceGetProcessUtilization(nvmlDevice_t d,
							struct nvml_process_sample *out,
							unsigned *n, unsigned long long after_us)
{
	static struct nvml_use sum[SOFT_MAX_CLIENTS] GUARDED_BY(lock);
	enum nvml_return r = nvml_check(d, n != NULL);
	struct soft_gpu_info info;
	unsigned found = 0;

	lock_take(&lock);
	for (uint32_t first = 0; !r;) {
		r = nvml_ask(d->gpu, first, &info);
		found = r ? found : add(&info, sum, found);
		first += r ? 0 : info.n;
		if (!r && (!info.n || first >= info.groups)) {
			break;
		}
	}
	if (!r) {
		update(d, sum, found, info.workers);
		r = fill(d, out, n, after_us);
	}
	lock_release(&lock);
	return r;
}
