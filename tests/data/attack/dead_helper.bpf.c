/* refuse: helper: there is no helper 9999 */
/* The call can never run, since .rodata says so, and the verifier only walks what can. The image's
 * opener refuses unknown helpers anywhere, so a policy that was built could not be opened. */
#include "gbpf/gbpf.bpf.h"

const volatile u32 on = 0;

SEC("gbpf/submit")
int submit(struct gbpf_submit_ctx *ctx)
{
	if (on) {
		((void (*)(void))9999)();
	}
	return GBPF_GO;
}
