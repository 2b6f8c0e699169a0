/* What the library is as a whole: lookups by name, the private table, and the answer of what is not
 * supported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "cuabi/lookup.h"
#include "cuabi/private.h"
#include "soft/client/client.h"

/* GBPF_SOFT_TRACE=1 names each unsupported function once on standard error, for who ports a
 * program. */
int cuabi_unsupported(unsigned index)
{
	CUresult e = soft_check();

	if (add_relaxed(&soft.unsupported[index], 1u) == 0 && getenv("GBPF_SOFT_TRACE")) {
		char line[160];
		int n = snprintf(line, sizeof(line), "gbpf soft GPU: %s is not supported\n",
				 cuabi_names[index]);

		(void)!write(2, line, (size_t)n);
	}
	return e == CUDA_ERROR_NOT_INITIALIZED ? e : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult proc_address(const char *name, void **ret, int version, uint64_t flags,
			     CUdriverProcAddressQueryResult *ret_status)
{
	int i;

	if (!name || !ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	i = cuabi_resolve(name, version, flags);
	*ret = i >= 0 ? cuabi_own[i] : NULL;
	if (ret_status) {
		*ret_status = i >= 0	? CU_GET_PROC_ADDRESS_SUCCESS
			      : i == -2 ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
					: CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
		return CUDA_SUCCESS;
	}
	return i >= 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **ret, int version, uint64_t flags)
{
	return proc_address(name, ret, version, flags, NULL);
}

CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags,
			     CUdriverProcAddressQueryResult *ret_status)
{
	return proc_address(name, ret, version, flags, ret_status);
}

/* The private table. */

static CUresult group_call(CUcontext ctx, unsigned verb, uint64_t value, struct soft_reply *r)
{
	struct soft_request q = { .op = SOFT_REQ_GROUP, .object = verb, .value = value };
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	ctx = ctx ? ctx : soft_thread_context();
	if (!object_is(ctx, OBJECT_CONTEXT)) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	q.context = ctx->slot;
	return link_call(&q, -1, r, sizeof(*r), NULL);
}

static CUresult timeslice_set(CUcontext ctx, uint32_t us)
{
	struct soft_reply r;

	return group_call(ctx, SOFT_GROUP_SLICE_SET, us, &r);
}

static CUresult timeslice_get(CUcontext ctx, uint32_t *ret)
{
	struct soft_reply r;
	CUresult e = group_call(ctx, SOFT_GROUP_SLICE_GET, 0, &r);

	if (!e && ret) {
		*ret = (uint32_t)r.value;
	}
	return e;
}

static CUresult preempt(CUcontext ctx)
{
	struct soft_reply r;

	return group_call(ctx, SOFT_GROUP_PREEMPT, 0, &r);
}

static CUresult schedule(CUcontext ctx, int on)
{
	struct soft_reply r;

	return group_call(ctx, SOFT_GROUP_SCHEDULE, on != 0, &r);
}

static CUresult counters(CUcontext ctx, struct cuabi_soft_counters *ret)
{
	struct soft_reply r = { 0 };
	CUresult e = group_call(ctx, SOFT_GROUP_COUNTERS, 0, &r);

	if (!e && ret) {
		*ret = (struct cuabi_soft_counters){
			r.counters.switches_in, r.counters.preempted,	  r.counters.run_ns,
			r.counters.blocks_done, r.counters.launches_done, r.counters.bytes_copied
		};
	}
	return e;
}

static CUresult server_pid(int *ret)
{
	CUresult e = soft_check();

	if (!e && ret) {
		*ret = soft.hello.pid;
	}
	return e;
}

static const struct cuabi_soft_table table = {
	.size = sizeof(table),
	.timeslice_set = timeslice_set,
	.timeslice_get = timeslice_get,
	.preempt = preempt,
	.schedule = schedule,
	.counters = counters,
	.server_pid = server_pid,
};

CUresult cuGetExportTable(const void **ret, const CUuuid *id)
{
	static const CUuuid own = CUABI_SOFT_UUID;

	if (!ret || !id) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = memcmp(id, &own, sizeof(own)) == 0 ? &table : NULL;
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuProfilerStart(void)
{
	return soft_check();
}

CUresult cuProfilerStop(void)
{
	return soft_check();
}
