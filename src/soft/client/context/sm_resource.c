/* Device resources: sets of SMs, stored by value in the opaque part of the driver's structure.
 * Programs pass them back, so a checksum detects modified ones. Also resource descriptors, from
 * which green contexts are made. */
#include <string.h>

#include "base/atomic.h"
#include "soft/client/context/context.h"
#include "soft/client/context/green.h"

#define MAGIC 0x736d7273u
#define DESCS_MAX 4096u

enum origin { ORIGIN_WHOLE, ORIGIN_SPLIT }; /* the result of a split cannot be split again */

struct sm_data {
	uint32_t magic;
	CUdevice device;
	uint32_t split; /* number of the split that it comes from; 0: none */
	uint32_t n_ranges;
	struct {
		uint16_t first, n;
	} range[SOFT_PART_RANGES];
	uint32_t check;
};
_Static_assert(sizeof(struct sm_data) <= sizeof(((CUdevResource *)0)->internal), "it fits");

static uint32_t next_split;
/* Never freed, since the API has no call for it. */
static CUdevResourceDesc descs GUARDED_BY(soft.lock);
static unsigned n_descs GUARDED_BY(soft.lock);

unsigned soft_sm_ranges_count(const struct soft_sm_ranges *r)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		n += r->range[i].n;
	}
	return n;
}

struct soft_sm_ranges soft_sm_resource_all(void)
{
	return (struct soft_sm_ranges){ .n = 1, .range[0] = { 0, (uint16_t)soft.hello.sms } };
}

static uint32_t checksum(const struct sm_data *in)
{
	const unsigned char *p = (const unsigned char *)in;
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < offsetof(struct sm_data, check); i++) {
		h = (h ^ p[i]) * 16777619u;
	}
	return h;
}

static void put(CUdevResource *ret, CUdevice dev, uint32_t split, const struct soft_sm_ranges *sms)
{
	struct sm_data in = { .magic = MAGIC, .device = dev, .split = split, .n_ranges = sms->n };

	memcpy(in.range, sms->range, sizeof(in.range));
	in.check = checksum(&in);
	memset(ret, 0, sizeof(*ret));
	if (!sms->n) {
		ret->type = CU_DEV_RESOURCE_TYPE_INVALID;
		return;
	}
	ret->type = CU_DEV_RESOURCE_TYPE_SM;
	memcpy(ret->internal, &in, sizeof(in));
	ret->sm.smCount = soft_sm_ranges_count(sms);
	ret->sm.minSmPartitionSize = SOFT_GREEN_MIN_SMS;
	ret->sm.smCoscheduledAlignment = SOFT_GREEN_ALIGN_SMS;
}

static CUresult get(const CUdevResource *r, struct sm_data *ret, struct soft_sm_ranges *sms)
{
	if (r->type != CU_DEV_RESOURCE_TYPE_SM) {
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	}
	memcpy(ret, r->internal, sizeof(*ret));
	if (ret->magic != MAGIC || ret->check != checksum(ret) || ret->n_ranges == 0 ||
	    ret->n_ranges > SOFT_PART_RANGES || ret->device < 0 || ret->device >= soft.gpus) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	sms->n = ret->n_ranges;
	memcpy(sms->range, ret->range, sizeof(sms->range));
	return CUDA_SUCCESS;
}

CUresult soft_sm_resource_fill(CUdevResource *ret, CUdevResourceType type, CUdevice dev,
			       const struct soft_sm_ranges *sms)
{
	if (!ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (type != CU_DEV_RESOURCE_TYPE_SM) {
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	}
	put(ret, dev, 0, sms);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDevResource(CUdevice dev, CUdevResource *ret, CUdevResourceType type)
{
	struct soft_sm_ranges all;
	CUresult e = soft_context_check_device(dev);

	if (e) {
		return e;
	}
	all = soft_sm_resource_all();
	return soft_sm_resource_fill(ret, type, dev, &all);
}

/* Returns n SMs of the set after the first `skip`. */
static struct soft_sm_ranges slice(const struct soft_sm_ranges *of, unsigned skip, unsigned n)
{
	struct soft_sm_ranges r = { 0 };

	for (uint32_t i = 0; i < of->n && n; i++) {
		unsigned there = of->range[i].n, from = MIN(skip, there), take;

		skip -= from;
		take = MIN(there - from, n);
		if (take) {
			r.range[r.n].first = (uint16_t)(of->range[i].first + from);
			r.range[r.n++].n = (uint16_t)take;
			n -= take;
		}
	}
	return r;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups,
				     const CUdevResource *input, CUdevResource *remaining,
				     unsigned int flags, unsigned int min_count)
{
	bool fine = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
	unsigned size = MAX(min_count, fine ? SOFT_GREEN_ALIGN_SMS : SOFT_GREEN_MIN_SMS), all, n;
	CUresult e = soft_check();
	struct soft_sm_ranges sms, rest;
	struct sm_data in;
	uint32_t split;

	if (e) {
		return e;
	}
	if (!groups || !input || (flags & ~CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING)) {
		return CUDA_ERROR_INVALID_VALUE; /* the other flag requires compute capability 9.0
						  */
	}
	e = get(input, &in, &sms);
	if (e) {
		return e;
	}
	all = soft_sm_ranges_count(&sms);
	if (in.split || min_count > all || ROUND_UP(size, SOFT_GREEN_ALIGN_SMS) > all) {
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	}
	size = ROUND_UP(size, SOFT_GREEN_ALIGN_SMS);
	n = all / size;
	if (!result) {
		*groups = n;
		return CUDA_SUCCESS;
	}
	if (*groups == 0) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	n = MIN(n, *groups);
	split = add_relaxed(&next_split, 1u) + 1;
	for (unsigned i = 0; i < n; i++) {
		struct soft_sm_ranges part = slice(&sms, i * size, size);

		put(&result[i], in.device, split, &part);
	}
	rest = slice(&sms, n * size, all - n * size);
	if (remaining) {
		put(remaining, in.device, split, &rest);
	}
	*groups = n;
	return CUDA_SUCCESS;
}

static bool overlap(const struct soft_sm_ranges *a, unsigned first, unsigned n)
{
	for (uint32_t i = 0; i < a->n; i++) {
		if (first < (unsigned)a->range[i].first + a->range[i].n &&
		    a->range[i].first < first + n) {
			return true;
		}
	}
	return false;
}

/* Adds ranges to a set; merges adjacent ones. Returns false if they overlap or exceed the array. */
static bool join(struct soft_sm_ranges *to, const struct soft_sm_ranges *more)
{
	for (uint32_t i = 0; i < more->n; i++) {
		unsigned first = more->range[i].first, n = more->range[i].n;
		struct soft_sm_ranges *t = to;

		if (overlap(t, first, n)) {
			return false;
		}
		if (t->n && (unsigned)t->range[t->n - 1].first + t->range[t->n - 1].n == first) {
			t->range[t->n - 1].n = (uint16_t)(t->range[t->n - 1].n + n);
			continue;
		}
		if (t->n == SOFT_PART_RANGES) {
			return false;
		}
		t->range[t->n].first = (uint16_t)first;
		t->range[t->n++].n = (uint16_t)n;
	}
	return true;
}

static CUresult collect(const CUdevResource *from, unsigned n, CUdevice *dev,
			struct soft_sm_ranges *all)
{
	uint32_t split = 0;

	for (unsigned i = 0; i < n; i++) {
		struct soft_sm_ranges sms;
		struct sm_data in;
		CUresult e = get(&from[i], &in, &sms);

		if (e) {
			return e;
		}
		if (i && (in.device != *dev || in.split != split || !split)) {
			return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
		}
		*dev = in.device;
		split = in.split;
		if (!join(all, &sms)) {
			return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
		}
	}
	return CUDA_SUCCESS;
}

/* Returns the descriptor of the set. Descriptors cannot be destroyed, so equal sets share one. */
static CUresult find_desc(CUdevice dev, const struct soft_sm_ranges *sms, CUdevResourceDesc *ret)
	REQUIRES(soft.lock)
{
	CUdevResourceDesc d = descs;

	while (d && (d->device != dev || memcmp(&d->sms, sms, sizeof(*sms)) != 0)) {
		d = d->next;
	}
	if (!d && n_descs < DESCS_MAX) {
		d = soft_object_create(SOFT_OBJECT_RESOURCES, sizeof(*d));
		if (d) {
			d->device = dev;
			d->sms = *sms;
			d->next = descs;
			descs = d;
			n_descs++;
		}
	}
	*ret = d;
	return d ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *ret, CUdevResource *resources, unsigned int n)
{
	struct soft_sm_ranges sms = { 0 };
	CUresult e = soft_check();
	CUdevice dev = 0;

	if (e) {
		return e;
	}
	if (!ret || !resources || !n) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = collect(resources, n, &dev, &sms);
	if (!e) {
		lock_take(&soft.lock);
		e = find_desc(dev, &sms, ret);
		lock_release(&soft.lock);
	}
	return e;
}
