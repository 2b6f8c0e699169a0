/* See uvm_calls.h. */
#include "uvm_calls.h"

#include <stdlib.h>
#include <sys/ioctl.h>

#include "fake_rm.h"
#include "gpu/rm.h"

int uvm_map(int uvm, uint64_t base, uint64_t bytes, int control, uint32_t client, uint32_t memory)
{
	struct uvm_map m = { .base = base,
			     .bytes = bytes,
			     .n_attributes = 1,
			     .fd = control,
			     .client = client,
			     .memory = memory };

	return fake_call(uvm, UVM_MAP, &m);
}

int uvm_free(int uvm, uint64_t base)
{
	struct uvm_unmap u = { .base = base, .bytes = UINT64_MAX };

	return fake_call(uvm, UVM_FREE, &u);
}

int uvm_unmap(int uvm, uint64_t base, uint64_t bytes)
{
	struct uvm_unmap u = { .base = base, .bytes = bytes };

	return fake_call(uvm, UVM_UNMAP, &u);
}

void rm_free(int control, uint32_t client, uint32_t object)
{
	struct gpu_rm_free f = { client, 0, object, UINT32_MAX };

	if (fake_call(control, _IOC(_IOC_READ | _IOC_WRITE, 'F', GPU_RM_NR_FREE, sizeof(f)), &f) ||
	    f.status) {
		abort();
	}
}
