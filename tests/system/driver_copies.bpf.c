/* Leaves all copies to the driver, for small_copies.bats. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/copy_enqueue")
int GBPF_PROG(driver_copies, copy_enqueue)
{
	ctx->plan = GBPF_PLAN_DRIVER;
	return GBPF_COPY_GO;
}
